"""Relations of pairs: one batched pass of the relation model for what is not judged yet (DESIGN section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roam.errors import AdapterError
from roam.interfaces import RelationModel
from roam.records import Pair
from roam.relations import RELATIONS
from roam.storage import Store
from roam.validation import text_hash

_SUM_TOLERANCE = 1e-2  # half-precision probabilities of five classes add up to one within this


@dataclass
class Stats:
    """What the write path has cost since the store was opened."""

    adds: int = 0
    forward_passes: int = 0
    pairs: int = 0
    cached_pairs: int = 0
    exact_matches: int = 0
    fusion_calls: int = 0
    fuser_batches: int = 0  # calls of a guarded fuser
    fusion_fallbacks: int = 0
    fallback_reasons: dict[str, int] = field(default_factory=dict)
    llm_calls: int = 0
    llm_errors: int = 0  # questions that no usable answer came to, after all retries
    retries: int = 0


@contextmanager
def billed(stats: Stats, *parts: object) -> Iterator[None]:
    """Add to `stats` what the LLMs behind relation models and fusers cost inside; others have no `usage`."""
    usages = list({id(usage): usage for part in parts if (usage := getattr(part, "usage", None)) is not None}.values())
    before = [(usage.calls, usage.given_up) for usage in usages]
    try:
        yield
    finally:
        for usage, (calls, given_up) in zip(usages, before, strict=True):
            stats.llm_calls += usage.calls - calls
            stats.llm_errors += usage.given_up - given_up


class OwnedPair(NamedTuple):
    """A pair of one user's texts."""

    user: str
    pair: Pair


class Judge:
    """Probabilities of pairs of one user's texts, from the store where they are known, else from the model.

    What the model said is held here until `flush` writes it, so that it lands in the transaction of its observation.
    """

    def __init__(self, store: Store, model: RelationModel, stats: Stats) -> None:
        self._store = store
        self._stats = stats
        self._fresh: dict[str, dict[str, dict[str, NDArray[np.float32]]]] = {}  # user, new text, old text (hashes)
        self.model = model

    def missing(self, user: str, new: str, olds: Sequence[str]) -> list[OwnedPair]:
        """Return the pairs (old, new) of this user that nothing is known about yet."""
        known = self._known(user, new)
        return [OwnedPair(user, Pair(old, new)) for old in olds if text_hash(old) not in known]

    def classify(self, owned: Iterable[OwnedPair]) -> None:
        """Classify pairs in one forward pass, each distinct pair once; no pass for an empty batch.

        Two users may have said the same: the pair is classified once and kept for each of them, so that erasing one
        user touches nothing of the other.
        """
        owners: dict[Pair, set[str]] = {}
        for user, pair in owned:
            owners.setdefault(pair, set()).add(user)
        batch = list(owners)
        if not batch:
            return
        with billed(self._stats, self.model):
            probabilities = check_probabilities(self.model.predict_proba(batch), len(batch), self.model.digest)
        self._stats.forward_passes += 1
        self._stats.pairs += len(batch)
        for pair, row in zip(batch, probabilities, strict=True):
            for user in owners[pair]:
                rows = self._fresh.setdefault(user, {}).setdefault(text_hash(pair.new), {})
                rows[text_hash(pair.old)] = row

    def probabilities(self, user: str, new: str, olds: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return one row of shape (5,) for each old text; all of them must be known."""
        known = self._known(user, new)
        return [known[text_hash(old)] for old in olds]

    def flush(self, user: str) -> None:
        """Write what is new for this user; call it inside a transaction."""
        fresh = self._fresh.pop(user, {})
        entries = ((new, old, row) for new, rows in fresh.items() for old, row in rows.items())
        self._store.save_probabilities(user, self.model.digest, entries)

    def forget(self) -> None:
        """Drop what is not written yet."""
        self._fresh.clear()

    def _known(self, user: str, new: str) -> dict[str, NDArray[np.float32]]:
        known = self._store.cached_probabilities(user, new, self.model.digest)
        return {**known, **self._fresh.get(user, {}).get(text_hash(new), {})}


def check_probabilities(values: object, rows: int, digest: str) -> NDArray[np.float32]:
    """Return probabilities of shape (rows, 5) as float32; refuse a model that returns anything else."""
    probabilities = np.asarray(values, dtype=np.float32)
    if (
        probabilities.shape != (rows, len(RELATIONS))
        or not np.isfinite(probabilities).all()
        or (probabilities < -_SUM_TOLERANCE).any()
        or (np.abs(probabilities.sum(axis=1) - 1.0) > _SUM_TOLERANCE).any()
    ):
        raise AdapterError(
            f"relation model {digest} returned shape {probabilities.shape} for {rows} pairs, or rows that are not "
            f"probabilities: it must return ({rows}, {len(RELATIONS)}) with rows that add up to 1; nothing was stored"
        )
    return probabilities
