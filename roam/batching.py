"""Which pairs and views the rest of a batch can need, so that one model pass serves many (DESIGN section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from roam.judging import Judge, OwnedPair
from roam.records import FusionRequest, Observation
from roam.storage import Store
from roam.validation import duplicate_key
from roam.vectors import VectorKind, nearest


class Lookahead:
    """Foresees the candidates and the fusions of the observations still to come in a window of a batch.

    For pairs it assumes that all of them become Primary, and takes for each the k nearest among the stored Primaries
    and the earlier ones of the window. For views it assumes that each observation meets the state as it is now. The
    policy still runs one observation at a time on the true state: what is foreseen in vain costs a row in a batch, what
    is not foreseen costs a further pass, and neither changes the outcome.
    """

    WINDOW = 256
    FUSED_AHEAD = 64  # observations; each costs a search of the store, those further off are rarely foreseen right

    def __init__(
        self,
        store: Store,
        judge: Judge,
        window: Sequence[Observation],
        vectors: NDArray[np.float32],
        *,
        k: int,
        floor: float,
        foresee: Callable[[Observation, NDArray[np.float32]], FusionRequest | None],
    ) -> None:
        """`foresee` tells the fusion that an observation needs on the state as it is now."""
        self._foresee = foresee
        self._store, self._judge, self._k, self._floor = store, judge, k, floor
        self._window, self._vectors = window, vectors
        self._position = 0

    def advance(self, position: int) -> None:
        """Say which observation of the window is being added now."""
        self._position = position

    def fusions(self) -> Iterator[FusionRequest]:
        """Yield the views that the observations after the current one are likely to need."""
        for later in range(self._position + 1, min(self._position + 1 + self.FUSED_AHEAD, len(self._window))):
            request = self._foresee(self._window[later], self._vectors[later])
            if request is not None:
                yield request

    def pairs(self) -> Iterator[OwnedPair]:
        """Yield the unjudged pairs that the observations after the current one are likely to need."""
        for later in range(self._position + 1, len(self._window)):
            observation = self._window[later]
            key = duplicate_key(observation.text)
            earlier = [index for index in range(self._position, later) if self._window[index].user == observation.user]
            if any(duplicate_key(self._window[index].text) == key for index in earlier):
                continue  # most likely an exact duplicate, which needs no model
            if self._store.same_words(observation.user, observation.text):
                continue
            olds = self._nearest(observation, self._vectors[later], earlier)
            yield from self._judge.missing(observation.user, observation.text, olds)

    def _nearest(self, observation: Observation, vector: NDArray[np.float32], earlier: list[int]) -> list[str]:
        stored = nearest(self._store, observation.user, VectorKind.ATOMIC, vector, self._k, self._floor)
        texts = self._store.observations_at([sequence for sequence, _ in stored])
        scored = [(score, entry.text) for (_, score), entry in zip(stored, texts, strict=True)]
        scores = self._vectors[earlier] @ vector  # both are L2-normalised
        scored += [
            (float(score), self._window[index].text)
            for index, score in zip(earlier, scores, strict=True)
            if score >= self._floor
        ]
        scored.sort(key=lambda entry: -entry[0])
        return [text for _, text in scored[: self._k]]
