"""Measures against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from eval import bootstrap, calibration, metrics
from roam.errors import InputError
from roam.policy import count_relation
from roam.relations import INDEX, RELATIONS, SWAPPED, Relation

pytestmark = pytest.mark.unit

IND, EQV, OSN, NSO, CON = (INDEX[relation] for relation in RELATIONS)
GOLD = np.array([IND, IND, IND, IND, EQV, OSN, NSO, CON])
PREDICTED = np.array([IND, IND, CON, EQV, EQV, OSN, OSN, CON])


def test_per_class_figures_are_those_worked_out_by_hand() -> None:
    scores = metrics.per_class(GOLD, PREDICTED)
    assert scores["IND"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 4}
    assert scores["EQV"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1}
    assert scores["OSN"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1}
    assert scores["NSO"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    assert scores["CON"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1}
    assert metrics.macro_f1(GOLD, PREDICTED) == pytest.approx(4 * (2 / 3) / 5)
    assert metrics.accuracy(GOLD, PREDICTED) == 5 / 8


def test_confusion_has_gold_in_rows() -> None:
    counts = metrics.confusion(GOLD, PREDICTED)
    assert counts.shape == (5, 5)
    assert counts[IND].tolist() == [2, 1, 0, 0, 1]
    assert counts[NSO, OSN] == 1
    assert counts.sum() == 8


def test_an_absent_class_neither_shifts_the_others_nor_leaves_the_average() -> None:
    gold = predicted = np.array([IND, OSN, CON])
    scores = metrics.per_class(gold, predicted)
    assert [scores[str(r)]["f1"] for r in RELATIONS] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert metrics.macro_f1(gold, predicted) == pytest.approx(0.6)
    # What leaving `labels` out would report:
    assert f1_score(gold, predicted, average="macro") == 1.0


def test_wrong_merges_and_demotions_follow_table_1() -> None:
    assert metrics.merge_error_rate(GOLD, PREDICTED) == 0.5
    demotion = metrics.false_demotion(GOLD, PREDICTED)
    assert demotion["ind"] == 0.5
    assert demotion["ind_old_hidden"] == 0.25  # the CON
    assert demotion["ind_new_hidden"] == 0.25  # the EQV
    # IND x4 and NSO keep OLD; the CON on an IND and the OSN on the NSO hide it.
    assert demotion["old"] == 2 / 5
    # IND x4, OSN and CON keep NEW; only the EQV on an IND hides it.
    assert demotion["new"] == 1 / 6
    assert demotion["any"] == 3 / 8


@pytest.mark.parametrize("gold", RELATIONS)
def test_a_right_prediction_never_loses_a_memory(gold: Relation) -> None:
    column = np.array([INDEX[gold]])
    assert metrics.false_demotion(column, column)["any"] == 0.0


def test_a_share_over_no_pairs_is_none_not_zero() -> None:
    assert metrics.merge_error_rate(np.array([EQV]), np.array([IND])) is None


def test_swap_consistency_counts_swapped_relations() -> None:
    predicted = np.array([IND, EQV, OSN, NSO, CON, OSN])
    swapped = np.array([IND, EQV, NSO, OSN, IND, OSN])
    assert metrics.swap_consistent(predicted, swapped).tolist() == [True, True, True, True, False, False]
    assert metrics.swap_consistency(predicted, swapped) == pytest.approx(4 / 6)


@given(st.lists(st.sampled_from(RELATIONS), min_size=1, max_size=20))
def test_the_swapped_relation_is_always_consistent(relations: list[Relation]) -> None:
    there = metrics.columns(relations)
    back = metrics.columns([SWAPPED[relation] for relation in relations])
    assert metrics.swap_consistency(there, back) == 1.0


weights = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]), min_size=5, max_size=5).filter(any)


@given(st.lists(weights, min_size=1, max_size=8), st.dictionaries(st.sampled_from(RELATIONS), st.floats(0, 1)))
def test_decisions_are_those_of_the_store(rows: list[list[float]], thresholds: dict[Relation, float]) -> None:
    probabilities = np.array(rows) / np.array(rows).sum(axis=1, keepdims=True)
    counted = metrics.decide(probabilities, thresholds)
    raw = metrics.decide(probabilities)
    for row, one, other in zip(probabilities, counted, raw, strict=True):
        by_name = dict(zip(RELATIONS, row.tolist(), strict=True))
        assert (RELATIONS[one], RELATIONS[other]) == count_relation(by_name, thresholds)


@pytest.mark.parametrize(
    ("gold", "predicted"), [([], []), ([0, 1], [0]), ([0], [5]), ([-1], [0])], ids=["empty", "length", "high", "low"]
)
def test_bad_arrays_are_refused(gold: list[int], predicted: list[int]) -> None:
    with pytest.raises(InputError):
        metrics.macro_f1(np.array(gold, dtype=np.int64), np.array(predicted, dtype=np.int64))


# Calibration ------------------------------------------------------------------------------------------------------


def confident(gold: list[int], guesses: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Gold columns, and probabilities that give each guess its confidence and spread the rest evenly."""
    rows = np.array([[(1 - p) / 4] * 5 for _, p in guesses])
    for row, (column, p) in zip(rows, guesses, strict=True):
        row[column] = p
    return np.array(gold), rows


def test_calibration_error_by_hand() -> None:
    gold, probabilities = confident([0, 1, 2, 3], [(0, 0.9), (1, 0.9), (2, 0.6), (0, 0.6)])
    # Two equal-mass bins: confidence 0.6 with half right, 0.9 with all right.
    assert calibration.expected_calibration_error(gold, probabilities, "equal_mass", 2) == pytest.approx(0.1)
    bins = calibration.reliability(gold, probabilities, "equal_mass", 2)
    assert [(part["count"], part["accuracy"]) for part in bins] == [(2, 0.5), (2, 1.0)]
    # One equal-width bin of 0..1: mean confidence 0.75, three of four right.
    assert calibration.expected_calibration_error(gold, probabilities, "equal_width", 1) == pytest.approx(0.0)


def test_a_certain_and_right_model_is_calibrated() -> None:
    gold = np.array([0, 1, 2, 3, 4])
    probabilities = np.eye(5)
    assert calibration.expected_calibration_error(gold, probabilities) == 0.0
    assert calibration.expected_calibration_error(gold, probabilities, "equal_width") == 0.0
    assert calibration.proper_scores(gold, probabilities) == {"brier": 0.0, "negative_log_likelihood": 0.0}


def test_risk_falls_when_the_unsure_half_is_left_out() -> None:
    gold, probabilities = confident([0, 0, 0, 0], [(0, 0.9), (0, 0.8), (1, 0.5), (1, 0.4)])
    curve = calibration.risk_coverage(gold, probabilities)
    risk = {point["coverage"]: point["risk"] for point in curve["points"]}
    assert risk[0.5] == 0.0
    assert risk[1.0] == 0.5
    assert curve["area"] == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)


@pytest.mark.parametrize("bad", [[[0.5, 0.5, 0.5, 0, 0]], [[np.nan, 1, 0, 0, 0]], [[-0.5, 1.5, 0, 0, 0]]])
def test_what_is_no_probability_is_refused(bad: list[list[float]]) -> None:
    with pytest.raises(InputError):
        calibration.expected_calibration_error(np.array([0]), np.array(bad))


# Intervals --------------------------------------------------------------------------------------------------------


def simulated(count: int, right: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    gold = generator.integers(0, 5, count)
    return gold, np.where(generator.random(count) < right, gold, generator.integers(0, 5, count))


def test_intervals_hold_the_point_and_repeat() -> None:
    gold, predicted = simulated(400, 0.8)
    found = bootstrap.relation_intervals(gold, predicted, [None] * 400, seed=3)
    low, high = found["macro_f1"]  # type: ignore[misc]
    assert low < metrics.macro_f1(gold, predicted) < high
    assert high - low < 0.12
    for relation, score in metrics.per_class(gold, predicted).items():
        for name in ("precision", "recall", "f1"):
            low, high = found["per_class"][relation][name]  # type: ignore[index]
            assert low <= score[name] <= high
    assert found == bootstrap.relation_intervals(gold, predicted, [None] * 400, seed=3)
    assert found != bootstrap.relation_intervals(gold, predicted, [None] * 400, seed=4)


def test_scores_of_confusions_agree_with_scikit_learn() -> None:
    gold, predicted = simulated(60, 0.5, seed=1)
    scores = bootstrap.scores_of_confusions(metrics.confusion(gold, predicted).astype(float))
    by_class = metrics.per_class(gold, predicted)
    for name in ("precision", "recall", "f1"):
        assert scores[name].tolist() == pytest.approx([by_class[str(r)][name] for r in RELATIONS])
    assert float(scores["macro_f1"]) == pytest.approx(metrics.macro_f1(gold, predicted))
    assert float(scores["accuracy"]) == pytest.approx(metrics.accuracy(gold, predicted))


def test_groups_that_are_right_or_wrong_as_a_whole_widen_the_interval() -> None:
    gold = np.tile(np.arange(5), 40)
    wrong_groups = np.repeat(np.arange(40) % 4 == 0, 5)
    predicted = np.where(wrong_groups, (gold + 1) % 5, gold)
    groups = [f"g{index}" for index in np.repeat(np.arange(40), 5)]

    def width(names: list[str | None]) -> float:
        low, high = bootstrap.relation_intervals(gold, predicted, names, seed=0)["accuracy"]  # type: ignore[misc]
        return high - low

    assert width(list(groups)) > 1.5 * width([None] * 200)


def test_pairs_without_a_group_stand_alone_beside_groups() -> None:
    index = bootstrap.group_index(["a", None, "a", ""], 4)
    assert index[0] == index[2]
    assert len(set(index.tolist())) == 3


def test_paired_difference_is_sharper_than_its_parts() -> None:
    gold, predicted = simulated(400, 0.8)
    worse = predicted.copy()
    worse[:20] = (gold[:20] + 1) % 5
    found = bootstrap.paired_difference(gold, predicted, worse, [None] * 400, seed=0)
    low, high = found["interval"]  # type: ignore[misc]
    assert 0 < low < found["macro_f1"] < high  # type: ignore[operator]
    same = bootstrap.paired_difference(gold, predicted, predicted, [None] * 400, seed=0)
    assert same == {"macro_f1": 0.0, "interval": (0.0, 0.0)}


def test_share_interval_of_nothing_is_none() -> None:
    assert bootstrap.share_interval(np.zeros(3), np.zeros(3), np.arange(3), seed=0) is None
