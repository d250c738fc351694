"""Two relation models in a row: a fast one judges all pairs, an accurate one again those that it is unsure of.

The fast one may be a smaller adapter, or the same adapter as an int8 graph before its fp32 graph. What a margin costs
in accuracy and saves in passes is measured by `scripts/bench_speed.py --parts cascade`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roam.errors import InputError
from roam.interfaces import RelationModel
from roam.records import Pair
from roam.relations import Relation

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "cascade:"
FORM = f"{PREFIX}FAST,ACCURATE,MARGIN"


class CascadeRelationModel:
    """Probabilities of `fast`, of `accurate` where the two most probable relations of `fast` lie closer than `margin`.

    `seen` and `asked_again` count pairs. Thresholds are those of `accurate`: pairs that count on them are its own.
    """

    def __init__(self, fast: RelationModel, accurate: RelationModel, margin: float) -> None:
        """`margin` is a difference of probabilities: 0 asks `fast` alone, above 1 asks `accurate` about every pair."""
        if not 0 <= margin <= 2:
            raise InputError(f"a cascade's margin is {margin}: use 0 (fast model alone) to 1, or more for both on all")
        self.fast, self.accurate, self.margin = fast, accurate, margin
        self.digest = f"{fast.digest}>{accurate.digest}@{margin:g}"
        self.thresholds: Mapping[Relation, float] = accurate.thresholds
        self.seen = self.asked_again = 0

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Calibrated probabilities, shape (len(pairs), 5), columns in `RELATIONS` order."""
        found = np.array(self.fast.predict_proba(pairs), dtype=np.float32)
        unsure = np.flatnonzero(margins(found) < self.margin).tolist()
        if unsure:
            found[unsure] = self.accurate.predict_proba([pairs[index] for index in unsure])
        self.seen += len(pairs)
        self.asked_again += len(unsure)
        return found


def margins(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """Difference of the two largest of each row, shape (n,)."""
    ranked = np.sort(probabilities, axis=1)
    return np.asarray(ranked[:, -1] - ranked[:, -2])


def load_cascade(name: str, *, base: str | Path | None = None) -> CascadeRelationModel:
    """The cascade called `cascade:FAST,ACCURATE,MARGIN`, each model as ADAPTER or ADAPTER@BACKEND.

    For example "cascade:runs/fast/adapter,pretrained,0.6" or "cascade:pretrained@onnx-int8,pretrained@onnx,0.4".
    Raises `InputError` for a name of another form, and what loading an adapter raises.
    """
    from roam.managers import load_manager

    adapters, margin = parse_cascade(name)
    fast, accurate = (load_manager(one, base=base, backend=backend).relation_model for one, backend in adapters)
    return CascadeRelationModel(fast, accurate, margin)


def parse_cascade(name: str) -> tuple[list[tuple[str, str | None]], float]:
    """The (adapter, backend) of both models of a cascade's name, None for the default backend, and its margin."""
    parts = name.removeprefix(PREFIX).split(",")
    if not name.startswith(PREFIX) or len(parts) != 3 or not all(parts):
        raise InputError(f"{name!r} is no cascade: write {FORM}, each model as ADAPTER or ADAPTER@BACKEND")
    try:
        margin = float(parts[2])
    except ValueError:
        raise InputError(f"{name!r}: {parts[2]!r} is no margin; give a number from 0 to 1") from None
    found = [one.partition("@") for one in parts[:2]]
    return [(adapter, backend or None) for adapter, _, backend in found], margin
