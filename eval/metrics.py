"""Measures of a five-way relation classifier, as pure functions on arrays.

Everywhere `gold` and `predicted` are integer arrays of shape (n,) holding columns of `roam.relations.RELATIONS`, and
`probabilities` has shape (n, 5) with the same column order. Shares are in 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

from roam.errors import InputError
from roam.relations import INDEX, PRIORITY, RELATIONS, SWAPPED, Relation

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

SWAPPED_COLUMNS: IntArray = np.array([INDEX[SWAPPED[relation]] for relation in RELATIONS])
_CAUTIOUS: IntArray = np.array([INDEX[relation] for relation in reversed(PRIORITY)])

# What a prediction does to the pair by the paper's Table 1: on CON and OSN the stored (old) fact becomes Evidence, on
# EQV and NSO the incoming (new) one does, on IND both stay Primary.
HIDES_OLD: tuple[Relation, ...] = (Relation.CON, Relation.OSN)
HIDES_NEW: tuple[Relation, ...] = (Relation.EQV, Relation.NSO)
# The gold relations under which hiding a side loses a true memory: the other side does not say it and did not replace
# it. For a gold EQV either side may go; for a gold CON the old one is no longer the current state.
OLD_MUST_STAY: tuple[Relation, ...] = (Relation.IND, Relation.NSO)
NEW_MUST_STAY: tuple[Relation, ...] = (Relation.IND, Relation.OSN, Relation.CON)


def columns(relations: Sequence[Relation]) -> IntArray:
    """Return the column index of each relation, shape (len(relations),)."""
    return np.array([INDEX[relation] for relation in relations], dtype=np.int64)


def _checked(gold: IntArray, predicted: IntArray) -> tuple[IntArray, IntArray]:
    gold, predicted = np.asarray(gold, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    if gold.ndim != 1 or gold.shape != predicted.shape:
        raise InputError(f"gold {gold.shape} and predicted {predicted.shape} must be one-dimensional, of equal length")
    if not len(gold):
        raise InputError("no pairs to evaluate: got 0, need at least 1")
    for name, values in (("gold", gold), ("predicted", predicted)):
        if values.min() < 0 or values.max() >= len(RELATIONS):
            raise InputError(f"{name} holds a column outside 0..{len(RELATIONS) - 1}: use roam.relations.INDEX")
    return gold, predicted


def decide(probabilities: NDArray[np.floating], thresholds: Mapping[Relation, float] | None = None) -> IntArray:
    """Return the predicted column of each row, shape (n,).

    It is the argmax (ties go to the relation that demotes least), or with `thresholds` IND where a non-IND argmax stays
    below its threshold: row by row what `roam.policy.count_relation` does in the store.
    """
    predicted: IntArray = _CAUTIOUS[np.asarray(probabilities)[:, _CAUTIOUS].argmax(axis=1)]
    if thresholds is None:
        return predicted
    floor = np.array([0.0 if r is Relation.IND else thresholds.get(r, 0.0) for r in RELATIONS])
    top = np.asarray(probabilities)[np.arange(len(predicted)), predicted]
    return np.where(top < floor[predicted], INDEX[Relation.IND], predicted)


@dataclass(frozen=True, slots=True)
class ClassScore:
    """Precision, recall and F1 of one relation, and how many gold pairs it has."""

    precision: float
    recall: float
    f1: float
    support: int


def per_class(gold: IntArray, predicted: IntArray) -> dict[str, dict[str, float]]:
    """Return {relation: {precision, recall, f1, support}} for all five relations.

    The labels are always passed to scikit-learn: without them a class that is absent from the data drops out of the
    average and shifts every other position. An absent class scores 0 with support 0.
    """
    gold, predicted = _checked(gold, predicted)
    labels = list(range(len(RELATIONS)))
    scores = precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0.0)
    return {
        str(relation): asdict(ClassScore(float(p), float(r), float(f), int(s)))
        for relation, p, r, f, s in zip(RELATIONS, *scores, strict=True)
    }


def macro_f1(gold: IntArray, predicted: IntArray) -> float:
    """Unweighted mean of the five F1; an absent class counts as 0 (see `per_class`)."""
    return float(np.mean([score["f1"] for score in per_class(gold, predicted).values()]))


def accuracy(gold: IntArray, predicted: IntArray) -> float:
    """Share of pairs whose predicted relation is the gold one."""
    return float(accuracy_score(*_checked(gold, predicted)))


def confusion(gold: IntArray, predicted: IntArray) -> IntArray:
    """Counts, shape (5, 5): row = gold relation, column = predicted relation."""
    gold, predicted = _checked(gold, predicted)
    counts: IntArray = confusion_matrix(gold, predicted, labels=list(range(len(RELATIONS))))
    return counts


def share(hits: NDArray[np.bool_], among: NDArray[np.bool_]) -> float | None:
    """Share of `among` that are `hits`; None when `among` is empty (an empty share has no value, not 0)."""
    total = int(among.sum())
    return float((hits & among).sum() / total) if total else None


def merge_error_rate(gold: IntArray, predicted: IntArray) -> float | None:
    """Share of gold-IND pairs predicted as any other relation: unrelated, yet merged. None without gold IND."""
    gold, predicted = _checked(gold, predicted)
    independent = INDEX[Relation.IND]
    return share(predicted != independent, gold == independent)


def false_demotion(gold: IntArray, predicted: IntArray) -> dict[str, float | None]:
    """How often acting on the prediction would hide a true memory (paper Table 1).

    - `ind`: share of gold-IND pairs, split in `ind_old_hidden` (predicted CON, OSN) and `ind_new_hidden` (EQV, NSO).
    - `old`: share, among pairs whose gold keeps OLD irreplaceable (IND, NSO), predicted CON or OSN.
    - `new`: share, among pairs whose gold keeps NEW irreplaceable (IND, OSN, CON), predicted EQV or NSO.
    - `any`: share of all pairs on which either happens.

    A share over no pairs is None.
    """
    gold, predicted = _checked(gold, predicted)
    hides_old, hides_new = (np.isin(predicted, columns(hides)) for hides in (HIDES_OLD, HIDES_NEW))
    independent = gold == INDEX[Relation.IND]
    old_stays, new_stays = np.isin(gold, columns(OLD_MUST_STAY)), np.isin(gold, columns(NEW_MUST_STAY))
    lost = (hides_old & old_stays) | (hides_new & new_stays)
    return {
        "ind": share(lost, independent),
        "ind_old_hidden": share(hides_old, independent),
        "ind_new_hidden": share(hides_new, independent),
        "old": share(hides_old, old_stays),
        "new": share(hides_new, new_stays),
        "any": share(lost, np.ones_like(lost)),
    }


def swap_consistent(predicted: IntArray, predicted_swapped: IntArray) -> NDArray[np.bool_]:
    """For each pair, whether the prediction for (new, old) is the swapped relation of the one for (old, new)."""
    predicted, predicted_swapped = _checked(predicted, predicted_swapped)
    consistent: NDArray[np.bool_] = predicted_swapped == SWAPPED_COLUMNS[predicted]
    return consistent


def swap_consistency(predicted: IntArray, predicted_swapped: IntArray) -> float:
    """Share of pairs that are `swap_consistent`."""
    return float(swap_consistent(predicted, predicted_swapped).mean())
