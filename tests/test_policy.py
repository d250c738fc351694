"""Algorithm 1, Table 1 and the decisions that go beyond the paper."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roam.errors import InputError, LabelError
from roam.policy import (
    RoleUpdate,
    Stamp,
    check_thresholds,
    count_relation,
    in_time_order,
    select_relation,
    update_roles,
)
from roam.relations import PRIORITY, RELATIONS, Relation

IND, EQV, OSN, NSO, CON = RELATIONS


def at(month: int) -> datetime:
    return datetime(2026, month, 1, tzinfo=UTC)


def stamp(id: str, sequence: int, month: int | None = None, affirmed: int | None = None) -> Stamp:
    return Stamp(id, sequence, month and at(month), affirmed and at(affirmed))


OLD, OLDER = stamp("old", 2, 2), stamp("older", 1, 1)
NEW = stamp("new", 9, 9)


@pytest.mark.parametrize(
    ("relation", "primary", "demoted"),
    [
        (IND, "new", ()),
        (EQV, "older", ("old", "new")),
        (OSN, "new", ("older", "old")),
        (NSO, "older", ("new",)),
        (CON, "new", ("older", "old")),
    ],
)
def test_R20_table_1_with_two_matches(relation: Relation, primary: str, demoted: tuple[str, ...]) -> None:
    update = update_roles(NEW, [(OLD, relation), (OLDER, relation)])
    assert update == RoleUpdate(relation, primary, demoted, () if relation is IND else ("older", "old"))


def test_R20_unknown_relation_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown relation 'UPDATE'.*IND, EQV, OSN, NSO, CON"):
        update_roles(NEW, [(OLD, "UPDATE")])  # type: ignore[list-item]


def test_no_candidate_is_independent() -> None:
    assert update_roles(NEW, []) == RoleUpdate(IND, "new")


@given(st.lists(st.sampled_from(RELATIONS), max_size=6))
def test_priority_decides_and_only_its_matches_move(relations: list[Relation]) -> None:
    judged = [(stamp(f"m{i}", i, 1), relation) for i, relation in enumerate(relations)]
    update = update_roles(NEW, judged)
    expected = next((relation for relation in PRIORITY if relation in relations), IND)
    assert update.relation is expected is select_relation(relations)
    touched = {update.primary_id, *update.demoted_ids} - {"new"}
    assert touched <= {entry.id for entry, relation in judged if relation is expected}
    assert update.primary_id not in update.demoted_ids
    assert "new" in {update.primary_id, *update.demoted_ids}


def test_late_arrival_never_displaces_a_newer_state() -> None:
    assert update_roles(stamp("new", 9, 1), [(stamp("old", 2, 6), CON)]) == RoleUpdate(CON, "old", ("new",), ("old",))


def test_late_arrival_between_two_states_leaves_the_latest_current() -> None:
    update = update_roles(stamp("new", 9, 3), [(stamp("jan", 1, 1), CON), (stamp("june", 2, 6), CON)])
    assert (update.primary_id, update.demoted_ids) == ("june", ("jan", "new"))


def test_restated_state_outlives_a_late_arrival() -> None:
    """Paris was told in January and again in June: Rome of March, told last, is not current."""
    paris = stamp("paris", 1, 1, affirmed=6)
    assert update_roles(stamp("rome", 9, 3), [(paris, CON)]).primary_id == "paris"
    assert update_roles(stamp("rome", 9, 7), [(paris, CON)]).primary_id == "rome"


@pytest.mark.parametrize(("new", "old"), [(None, None), (None, 5), (5, None), (5, 5)])
def test_C04_missing_times_and_ties_count_as_arrival_order(new: int | None, old: int | None) -> None:
    assert update_roles(stamp("new", 9, new), [(stamp("old", 1, old), CON)]).primary_id == "new"


def test_earliest_is_by_observation_time_not_by_arrival() -> None:
    judged = [(stamp("first", 1, 5), EQV), (stamp("second", 2, 3), EQV)]
    assert update_roles(NEW, judged).primary_id == "second"


def test_undated_records_keep_their_place() -> None:
    order = in_time_order([stamp("a", 1, 5), stamp("b", 2), stamp("c", 3, 3)])
    assert [entry.id for entry in order] == ["c", "b", "a"]


@given(st.permutations([stamp("a", 1, 5), stamp("b", 2), stamp("c", 3, 3), stamp("d", 4, 3), stamp("e", 5)]))
def test_time_order_does_not_depend_on_input_order(stamps: list[Stamp]) -> None:
    assert [entry.id for entry in in_time_order(stamps)] == ["c", "b", "d", "a", "e"]


def probabilities(**named: float) -> dict[Relation, float]:
    return {relation: named.get(relation.value, 0.0) for relation in RELATIONS}


@pytest.mark.parametrize(
    ("row", "counts", "raw"),
    [
        (probabilities(CON=0.95, IND=0.05), CON, CON),
        (probabilities(CON=0.60, IND=0.40), IND, CON),
        (probabilities(CON=0.80, IND=0.20), CON, CON),  # exactly at the threshold
        (probabilities(OSN=0.50, NSO=0.45), OSN, OSN),  # no threshold given for OSN
        (probabilities(CON=0.50, IND=0.50), IND, IND),  # a tie goes to the relation that demotes nothing
    ],
)
def test_thresholds(row: dict[Relation, float], counts: Relation, raw: Relation) -> None:
    assert count_relation(row, {CON: 0.8}) == (counts, raw)


def test_bad_thresholds_are_refused() -> None:
    with pytest.raises(InputError, match=r"threshold of CON is 1\.2"):
        check_thresholds({"con": 1.2})
    with pytest.raises(LabelError, match="did you mean CON"):
        check_thresholds({"CONN": 0.5})


def test_a_candidate_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="each stored record once"):
        update_roles(NEW, [(OLD, IND), (OLD, CON)])
