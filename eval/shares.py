"""Shares pooled over items, with bootstrap intervals over whole groups and paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.bootstrap import FloatArray, group_index, interval, resample_weights

Counts = Mapping[str, tuple[int, int] | Sequence[int]]
"""(hits, out of) by the name of a share."""


def summarise_shares(items: Sequence[Counts], groups: Sequence[str], seed: int) -> dict[str, Any]:
    """Return {name: share or None, counts: {name: [hits, out of]}, intervals: {name: [low, high] or None}}.

    Items of one group are resampled together; a share over nothing is None.
    """
    found: dict[str, Any] = {}
    counts: dict[str, list[int]] = {}
    intervals: dict[str, list[float] | None] = {}
    for name in items[0]:
        parts = _summed(items, name, groups)
        hits, total = (int(value) for value in parts.sum(axis=0))
        found[name] = hits / total if total else None
        counts[name] = [hits, total]
        intervals[name] = list(interval(_samples(parts, seed))) if total else None
    return found | {"counts": counts, "intervals": intervals}


def paired_shares(
    ours: Sequence[Counts], theirs: Sequence[Counts], groups: Sequence[str], seed: int
) -> dict[str, dict[str, Any]]:
    """{name: {difference, interval}} of two methods on the same items in the same order; one draw serves both."""
    found = {}
    for name in ours[0]:
        one, two = _summed(ours, name, groups), _summed(theirs, name, groups)
        if one[:, 1].sum() and two[:, 1].sum():
            difference = one[:, 0].sum() / one[:, 1].sum() - two[:, 0].sum() / two[:, 1].sum()
            samples = _samples(one, seed) - _samples(two, seed)
            found[name] = {"difference": float(difference), "interval": list(interval(samples))}
    return found


def _summed(items: Sequence[Counts], name: str, groups: Sequence[str]) -> FloatArray:
    """Hits and totals of each group, shape (groups, 2)."""
    index = group_index(groups, len(items))
    summed = np.zeros((int(index.max()) + 1, 2))
    np.add.at(summed, index, np.array([item[name] for item in items], dtype=np.float64))
    return summed


def _samples(parts: FloatArray, seed: int) -> FloatArray:
    weights = resample_weights(len(parts), seed)
    top, bottom = weights @ parts[:, 0], weights @ parts[:, 1]
    return np.divide(top, bottom, out=np.full_like(bottom, np.nan), where=bottom > 0)
