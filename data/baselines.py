"""Lexical baselines of the relation task: what words, overlap and length alone can predict.

Classes are weighted by their inverse frequency: the training mix holds mostly independents, a test set may be balanced.
A model of OLD alone or of NEW alone can't know the relation; what it scores above chance is what the wording of a data
set gives away (Gururangan et al., 2018, https://aclanthology.org/N18-2017). All of them are figures to beat.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, precision_recall_fscore_support
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler
from tqdm import tqdm

from data.pairs import LabelledPair
from roam.errors import DataError
from roam.relations import RELATIONS

Scores = dict[str, object]
"""macro_f1 and accuracy (0..1), and per_class: relation name to precision, recall, f1, support."""

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_WORD_PATTERN = _WORD.pattern
FOLDS = 5


def words(text: str) -> list[str]:
    """Lower-cased words; an apostrophe inside a word belongs to it."""
    return _WORD.findall(text.lower())


def length_features(pairs: Sequence[LabelledPair]) -> NDArray[np.float64]:
    """Shape (n, 4): words of OLD, of NEW, their difference, and NEW's share of both."""
    old = np.array([len(words(pair.old)) for pair in pairs], dtype=np.float64)
    new = np.array([len(words(pair.new)) for pair in pairs], dtype=np.float64)
    return np.column_stack([old, new, new - old, new / np.maximum(old + new, 1)])


def overlap_features(pairs: Sequence[LabelledPair]) -> NDArray[np.float64]:
    """Shape (n, 3): Jaccard index of the two word sets, share of OLD's words in NEW, share of NEW's words in OLD."""
    out = np.zeros((len(pairs), 3))
    for row, pair in enumerate(pairs):
        old, new = set(words(pair.old)), set(words(pair.new))
        shared = len(old & new)
        out[row] = shared / max(len(old | new), 1), shared / max(len(old), 1), shared / max(len(new), 1)
    return out


def _old_texts(pairs: Sequence[LabelledPair]) -> list[str]:
    return [pair.old for pair in pairs]


def _new_texts(pairs: Sequence[LabelledPair]) -> list[str]:
    return [pair.new for pair in pairs]


def _bag(texts: Callable[[Sequence[LabelledPair]], list[str]]) -> Pipeline:
    counts = CountVectorizer(token_pattern=_WORD_PATTERN, binary=True)
    return Pipeline([("text", FunctionTransformer(texts)), ("words", counts)])


def _numbers(features: Callable[[Sequence[LabelledPair]], NDArray[np.float64]]) -> Pipeline:
    return Pipeline([("features", FunctionTransformer(features)), ("scale", MaxAbsScaler())])


def _linear(*blocks: tuple[str, Pipeline]) -> Pipeline:
    return Pipeline(
        [
            ("features", FeatureUnion(list(blocks))),
            ("classify", LogisticRegression(max_iter=300, class_weight="balanced")),
        ]
    )


def _trees(seed: int, *blocks: tuple[str, Pipeline]) -> Pipeline:
    # A handful of numbers whose thresholds matter: trees, not a line.
    classify = HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.1, max_leaf_nodes=15, class_weight="balanced", random_state=seed
    )
    return Pipeline([("features", FeatureUnion(list(blocks))), ("classify", classify)])


BASELINES: Mapping[str, Callable[[int], Pipeline]] = {
    "majority": lambda seed: Pipeline([("classify", DummyClassifier(strategy="most_frequent", random_state=seed))]),
    "words of OLD": lambda seed: _linear(("old", _bag(_old_texts))),
    "words of NEW": lambda seed: _linear(("new", _bag(_new_texts))),
    "words of both": lambda seed: _linear(("old", _bag(_old_texts)), ("new", _bag(_new_texts))),
    "words, overlap and length": lambda seed: _linear(
        ("old", _bag(_old_texts)),
        ("new", _bag(_new_texts)),
        ("overlap", _numbers(overlap_features)),
        ("length", _numbers(length_features)),
    ),
    "overlap": lambda seed: _trees(seed, ("overlap", _numbers(overlap_features))),
    "length": lambda seed: _trees(seed, ("length", _numbers(length_features))),
    "overlap and length": lambda seed: _trees(
        seed, ("overlap", _numbers(overlap_features)), ("length", _numbers(length_features))
    ),
}
"""Unfitted scikit-learn pipelines by name; each takes a sequence of `LabelledPair` and the seed at construction."""

REPORTED: tuple[str, ...] = ("majority", "words of OLD", "words of NEW", "words of both", "overlap and length")
GIVEAWAYS: tuple[str, ...] = ("words of OLD", "words of NEW", "overlap", "length")


def lexical_baselines(
    train_pairs: Sequence[LabelledPair],
    test_pairs: Sequence[LabelledPair],
    seed: int = 0,
    names: Sequence[str] = REPORTED,
) -> dict[str, Scores]:
    """Scores on `test_pairs` of each baseline fitted on `train_pairs`; same input and seed, same figures.

    `DataError` when training has fewer than two classes or a side is empty.
    """
    _require_classes(train_pairs)
    if not test_pairs:
        raise DataError("no pairs to test the lexical baselines on")
    truth = [pair.label.value for pair in test_pairs]
    return {name: score(truth, _fit(name, train_pairs, seed).predict(list(test_pairs))) for name in _progress(names)}


def cross_validated_baselines(
    pairs: Sequence[LabelledPair], seed: int = 0, names: Sequence[str] = REPORTED, folds: int = FOLDS
) -> dict[str, Scores]:
    """Scores of each baseline over `pairs`, every pair predicted by a model that saw no pair of its group.

    `DataError` when there are fewer groups than folds or fewer than two classes.
    """
    groups = [pair.group for pair in pairs]
    if len(set(groups)) < folds:
        raise DataError(f"{len(set(groups))} groups are too few to cross-validate in {folds} folds")
    labels = np.array([pair.label.value for pair in pairs])
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # A class rarer than the folds is reported as missing or small elsewhere.
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        splits = list(splitter.split(labels, labels, groups))
    out: dict[str, Scores] = {}
    for name in _progress(names):
        predicted = np.empty(len(pairs), dtype=object)
        for train, test in splits:
            fold_train = [pairs[row] for row in train]
            _require_classes(fold_train)
            predicted[test] = _fit(name, fold_train, seed).predict([pairs[row] for row in test])
        out[name] = score(labels.tolist(), predicted.tolist())
    return out


def sample_groups(pairs: Sequence[LabelledPair], limit: int, seed: int) -> list[LabelledPair]:
    """Whole groups drawn at random until `limit` pairs are reached; all pairs when they are no more than that."""
    if len(pairs) <= limit:
        return list(pairs)
    by_group: dict[str, list[LabelledPair]] = {}
    for pair in pairs:
        by_group.setdefault(pair.group, []).append(pair)
    names = sorted(by_group)
    random.Random(seed).shuffle(names)
    out: list[LabelledPair] = []
    for name in names:
        if len(out) >= limit:
            break
        out.extend(by_group[name])
    return out


def score(truth: Sequence[str], predicted: Sequence[str]) -> Scores:
    """Macro-F1 over all five relations (an absent class counts as 0), accuracy and per-class figures, 0..1."""
    names = [relation.value for relation in RELATIONS]
    precision, recall, f1, support = precision_recall_fscore_support(truth, predicted, labels=names, zero_division=0)
    per_class = {
        name: {
            "precision": float(precision[at]),
            "recall": float(recall[at]),
            "f1": float(f1[at]),
            "support": int(support[at]),
        }
        for at, name in enumerate(names)
    }
    return {"macro_f1": float(np.mean(f1)), "accuracy": float(accuracy_score(truth, predicted)), "per_class": per_class}


def _progress(names: Sequence[str]) -> Iterable[str]:
    return tqdm(names, desc="lexical baselines", unit="model", leave=False, disable=None)  # None: only on a terminal


def _fit(name: str, pairs: Sequence[LabelledPair], seed: int) -> Pipeline:
    if name not in BASELINES:
        raise DataError(f"unknown baseline {name!r}: use one of {', '.join(BASELINES)}")
    with warnings.catch_warnings():
        # A weight that still moves in the fourth digit after 300 steps changes no figure that is reported.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return BASELINES[name](seed).fit(list(pairs), [pair.label.value for pair in pairs])


def _require_classes(pairs: Sequence[LabelledPair]) -> None:
    classes = sorted({pair.label.value for pair in pairs})
    if len(classes) < 2:
        raise DataError(f"the lexical baselines need two or more classes to train on, got {classes or 'no pairs'}")
