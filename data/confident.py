"""Confident learning: which labels are probably wrong, told from cross-validated probabilities.

After Northcutt et al. 2021, https://jair.org/index.php/jair/article/view/12125; written out here because the reference
library is under the AGPL.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from data.baselines import BASELINES
from data.pairs import LabelledPair
from roam.errors import DataError
from roam.relations import INDEX, RELATIONS

LEXICAL = "words, overlap and length"
"""The baseline that judges labels where no model is trained for it."""


def class_thresholds(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each class, the mean probability of it over the rows labelled so; above 1 for a class without rows.

    Shape (5,). What a model usually gives a class, so that classes it is less sure of are not all called wrong.
    """
    found = np.full(probabilities.shape[1], np.inf)
    for column in np.unique(labels):
        found[column] = probabilities[labels == column, column].mean()
    return found


def confident_joint(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    """Counts of (given label, confident class), shape (5, 5); rows that reach no threshold are not counted."""
    classes = confident_classes(labels, probabilities)
    counts = np.zeros((probabilities.shape[1],) * 2, dtype=np.int64)
    np.add.at(counts, (labels[classes >= 0], classes[classes >= 0]), 1)
    return counts


def confident_classes(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    """The most probable class among those that reach their threshold, -1 where none does; shape (n,).

    `probabilities`, shape (n, 5), must come from models that did not see the row: else they repeat its label.
    """
    if probabilities.shape != (len(labels), len(RELATIONS)):
        raise DataError(f"probabilities of shape {probabilities.shape} for {len(labels)} labels of five relations")
    reached = probabilities >= class_thresholds(labels, probabilities)
    masked = np.where(reached, probabilities, -1.0)
    return np.where(reached.any(axis=1), masked.argmax(axis=1), -1).astype(np.int64)


def suspected(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Rows whose confident class is another than their label; shape (n,)."""
    classes = confident_classes(labels, probabilities)
    found: NDArray[np.bool_] = (classes >= 0) & (classes != labels)
    return found


def group_folds(
    pairs: Sequence[LabelledPair], folds: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(rows to learn from, rows held out) of each fold; no group is on both sides. `DataError` for too few groups."""
    from sklearn.model_selection import StratifiedGroupKFold

    groups = [pair.group for pair in pairs]
    if len(set(groups)) < folds:
        raise DataError(f"{len(set(groups))} groups are too few for {folds} folds: label more, or lower --folds")
    labels = np.array([INDEX[pair.label] for pair in pairs])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        yield from StratifiedGroupKFold(folds, shuffle=True, random_state=seed).split(labels, labels, groups)


def lexical_probabilities(pairs: Sequence[LabelledPair], folds: int, seed: int) -> NDArray[np.float64]:
    """Probabilities of each pair by a lexical model that saw none of its group; shape (n, 5), in `RELATIONS` order."""
    out = np.zeros((len(pairs), len(RELATIONS)))
    names = [relation.value for relation in RELATIONS]
    for learn, held in group_folds(pairs, folds, seed):
        model = BASELINES[LEXICAL](seed).fit([pairs[row] for row in learn], [pairs[row].label.value for row in learn])
        columns = np.array([names.index(name) for name in model.classes_])
        out[np.ix_(held, columns)] = model.predict_proba([pairs[row] for row in held])
    return out
