"""One forward pass for all requests that wait for the relation model (DESIGN section 5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from roam.interfaces import RelationModel
from roam.records import Pair
from roam.relations import RELATIONS, Relation


class _Call:
    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = [Pair(*pair) for pair in pairs]
        self.rows: NDArray[np.float32] | None = None
        self.alone = False  # a pass that it shared has failed


class SharedPasses:
    """A relation model whose calls from several threads share passes.

    While one pass runs, the calls that come in wait together; whoever gets the turn next classifies for all of them,
    each distinct pair once. A call alone starts at once: nothing is delayed to wait for company. The model itself never
    sees two threads at a time.
    """

    def __init__(self, model: RelationModel) -> None:
        self._model = model
        self.digest = model.digest
        self.thresholds: Mapping[Relation, float] = model.thresholds
        self._guard, self._turn = threading.Lock(), threading.Lock()
        self._waiting: list[_Call] = []
        self.observe: Callable[[int, int], None] = lambda pairs, calls: None
        """Told of every pass: how many pairs it had and how many calls it served."""
        self.span: Callable[[int], AbstractContextManager[object]] = lambda pairs: nullcontext()
        """Surrounds every pass, for tracing."""

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Probabilities of shape (len(pairs), 5), as the model gives them."""
        if not pairs:
            return np.zeros((0, len(RELATIONS)), dtype=np.float32)
        call = _Call(pairs)
        with self._guard:
            self._waiting.append(call)
        with self._turn:
            if call.rows is None:
                with self._guard:
                    batch = [call] if call.alone else self._waiting
                    self._waiting = [other for other in self._waiting if other not in batch]
                return self._run(batch, call)
        return call.rows

    def _run(self, batch: list[_Call], mine: _Call) -> NDArray[np.float32]:
        """Classify for a batch; when that fails the error is this call's, and each of the others runs alone."""
        for call in batch:
            call.alone = True
        distinct = list(dict.fromkeys(pair for call in batch for pair in call.pairs))
        with self.span(len(distinct)):
            rows = self._model.predict_proba(distinct)
        self.digest = self._model.digest  # a lazy model may turn out to be another than planned
        place = {pair: row for row, pair in enumerate(distinct)}
        found = [rows[[place[pair] for pair in call.pairs]] for call in batch]
        for call, own in zip(batch, found, strict=True):
            call.rows = own
        self.observe(len(distinct), len(batch))
        return found[batch.index(mine)]
