"""Seeded, vectorised bootstrap intervals; whole groups are resampled where pairs come in groups.

Pairs of one persona or family share topics and wording, so they are not independent draws: resampling pairs would give
intervals that are too narrow. Every measure used here is a function of counts that add up over groups (a confusion
matrix, hits and totals), so a replicate is one weighted sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eval.metrics import IntArray, confusion
from roam.relations import RELATIONS

FloatArray = NDArray[np.float64]
REPLICATES = 2000
LEVEL = 0.95
Interval = tuple[float, float]


def group_index(groups: Sequence[str | None], count: int) -> IntArray:
    """Return a group number a pair, shape (count,): pairs of the same named group share one, others stand alone."""
    if not any(groups):
        return np.arange(count, dtype=np.int64)
    names = [name if name else f"\0{position}" for position, name in enumerate(groups)]
    return np.unique(np.array(names), return_inverse=True)[1].astype(np.int64)


def resample_weights(groups: int, seed: int, replicates: int = REPLICATES) -> FloatArray:
    """How often each group is drawn in each replicate, shape (replicates, groups)."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(groups, np.full(groups, 1 / groups), size=replicates).astype(np.float64)


def interval(samples: FloatArray, level: float = LEVEL) -> Interval:
    """Percentile interval over the first axis of a one-dimensional sample, ignoring undefined replicates."""
    tail = (1 - level) / 2
    low, high = np.nanquantile(samples, [tail, 1 - tail])
    return float(low), float(high)


def group_confusions(gold: IntArray, predicted: IntArray, group: IntArray) -> FloatArray:
    """Confusion counts of every group, shape (groups, 5, 5)."""
    classes = len(RELATIONS)
    counts = np.zeros((int(group.max()) + 1, classes, classes))
    np.add.at(counts, (group, gold, predicted), 1)
    return counts


def scores_of_confusions(counts: FloatArray) -> dict[str, FloatArray]:
    """For counts (..., 5, 5): precision, recall, f1 of shape (..., 5) and macro_f1, accuracy of shape (...)."""
    hits = np.diagonal(counts, axis1=-2, axis2=-1)
    gold, predicted = counts.sum(axis=-1), counts.sum(axis=-2)

    def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
        return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)

    f1 = ratio(2 * hits, gold + predicted)
    return {
        "precision": ratio(hits, predicted),
        "recall": ratio(hits, gold),
        "f1": f1,
        "macro_f1": f1.mean(axis=-1),
        "accuracy": ratio(hits.sum(axis=-1), counts.sum(axis=(-2, -1))),
    }


def relation_intervals(
    gold: IntArray, predicted: IntArray, groups: Sequence[str | None], seed: int, replicates: int = REPLICATES
) -> dict[str, object]:
    """95 % intervals: {macro_f1: [low, high], accuracy: [...], per_class: {relation: {precision, recall, f1}}}."""
    group = group_index(groups, len(gold))
    parts = group_confusions(gold, predicted, group)
    samples = scores_of_confusions(np.tensordot(resample_weights(len(parts), seed, replicates), parts, axes=1))
    return {
        "macro_f1": interval(samples["macro_f1"]),
        "accuracy": interval(samples["accuracy"]),
        "per_class": {
            str(relation): {name: interval(samples[name][:, column]) for name in ("precision", "recall", "f1")}
            for column, relation in enumerate(RELATIONS)
        },
    }


def share_interval(
    hits: NDArray[np.floating] | NDArray[np.bool_],
    totals: NDArray[np.floating] | NDArray[np.bool_],
    group: IntArray,
    seed: int,
    replicates: int = REPLICATES,
) -> Interval | None:
    """Interval of sum(hits) / sum(totals) over resampled groups; None when nothing counts."""
    if not np.sum(totals):
        return None
    size = int(group.max()) + 1
    top = np.bincount(group, weights=np.asarray(hits, dtype=np.float64), minlength=size)
    bottom = np.bincount(group, weights=np.asarray(totals, dtype=np.float64), minlength=size)
    weights = resample_weights(size, seed, replicates)
    drawn = weights @ bottom
    return interval(np.divide(weights @ top, drawn, out=np.full_like(drawn, np.nan), where=drawn > 0))


def paired_difference(
    gold: IntArray,
    predicted: IntArray,
    other: IntArray,
    groups: Sequence[str | None],
    seed: int,
    replicates: int = REPLICATES,
) -> dict[str, object]:
    """Macro-F1 of `predicted` minus that of `other` on the same pairs, with its paired 95 % interval."""
    group = group_index(groups, len(gold))
    weights: FloatArray | None = None
    samples, points = [], []
    for guess in (predicted, other):
        parts = group_confusions(gold, guess, group)
        # One draw for both: pairing removes the variance that comes from which pairs were drawn.
        weights = resample_weights(len(parts), seed, replicates) if weights is None else weights
        samples.append(scores_of_confusions(np.tensordot(weights, parts, axes=1))["macro_f1"])
        points.append(float(scores_of_confusions(confusion(gold, guess).astype(np.float64))["macro_f1"]))
    return {"macro_f1": points[0] - points[1], "interval": interval(samples[0] - samples[1])}
