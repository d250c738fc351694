"""Evidence, explain, history, as-of, retract, undo, erase and verify."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from roam.errors import InputError
from roam.events import EventKind
from roam.memory import Memory
from roam.records import Role
from roam.relations import Relation
from roam.schema import USER_TABLES
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

pytestmark = pytest.mark.both_back_ends

PARIS, ROME, OSLO = "Maya lives in Paris.", "Maya lives in Rome.", "Maya lives in Oslo."
TEA, GREEN, SENCHA = "Maya likes tea.", "Maya likes green tea.", "Maya likes sencha."
SCRIPT = {
    (PARIS, ROME): "CON",
    (PARIS, OSLO): "CON",
    (ROME, OSLO): "CON",
    (TEA, GREEN): "OSN",
    (TEA, SENCHA): "OSN",
    (GREEN, SENCHA): "OSN",
}


@pytest.fixture
def model() -> ScriptedRelations:
    return ScriptedRelations(SCRIPT)  # type: ignore[arg-type]


@pytest.fixture
def memory(model: ScriptedRelations, tmp_path: Path) -> Iterator[Memory]:
    path = tmp_path / "m.db"
    with Memory.open(path, manager=model, embedder=HashEmbedder(), fusion=JoinFuser()) as memory:
        yield memory


def add(memory: Memory, *facts: tuple[str, str, str]) -> None:
    for id, text, time in facts:
        memory.add(text, user="maya", id=id, observed_at=time)


MOVES = (("p", PARIS, "2026-01-01"), ("r", ROME, "2026-03-01"), ("o", OSLO, "2026-05-01"))


def texts(memory: Memory) -> list[str]:
    return [view.text for view in memory.primaries(user="maya")]


def test_explain_tells_why_a_fact_is_evidence(memory: Memory) -> None:
    add(memory, *MOVES)
    why = memory.explain("p")
    assert why.role is Role.EVIDENCE
    assert why.primary == memory.primaries(user="maya")[0]
    assert why.decision.relation is Relation.IND
    assert [event.observation_id for event in why.later] == ["r", "o"]
    new = memory.explain("r")
    assert new.decision.judgements[0].probabilities[Relation.CON] == pytest.approx(0.96)
    assert new.candidate_texts == {"p": PARIS}
    assert new.decision.judgements[0].model == "scripted"


def test_explain_does_not_name_events_about_other_facts(memory: Memory) -> None:
    add(memory, *MOVES[:2], ("t", TEA, "2026-04-01"), ("g", GREEN, "2026-04-02"))
    assert [event.observation_id for event in memory.explain("p").later] == ["r"]


def test_history_lists_every_event_in_order(memory: Memory) -> None:
    add(memory, *MOVES)
    event = memory.retract("o")
    history = memory.history(user="maya")
    assert [entry.observation_id for entry in history] == ["p", "r", "o", "o"]
    assert [entry.kind for entry in history][-2:] == [EventKind.DECISION, EventKind.RETRACT]
    assert history[-1].id == event.id
    assert [entry.sequence for entry in history] == sorted(entry.sequence for entry in history)


def test_as_of_observed_answers_what_held_then(memory: Memory) -> None:
    add(memory, *MOVES)
    for time, text in (
        ("2025-12-31", None),
        ("2026-01-01", PARIS),
        ("2026-02-28", PARIS),
        ("2026-03-01", f"{PARIS} -> {ROME}"),
        ("2026-06-01", f"{PARIS} -> {ROME} -> {OSLO}"),
    ):
        assert [view.text for view in memory.as_of(time, user="maya")] == ([text] if text else [])


def test_as_of_recorded_is_the_fold_up_to_then(memory: Memory) -> None:
    add(memory, *MOVES[:2])
    memory.add(OSLO, user="maya", observed_at="2025-01-01", id="late")
    events = memory.history(user="maya")
    then = memory.as_of(events[1].recorded_at, user="maya", by="recorded")
    assert [(view.id, view.members) for view in then] == [("r", ("p", "r"))]
    assert memory.as_of(datetime.now(UTC), user="maya", by="recorded") == memory.primaries(user="maya")
    assert memory.as_of("2000-01-01", user="maya", by="recorded") == []


def test_as_of_refuses_bad_arguments(memory: Memory) -> None:
    with pytest.raises(InputError, match="by is 'known'"):
        memory.as_of("2026-01-01", user="maya", by="known")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="time is"):
        memory.as_of("soon", user="maya")


def test_C05_S24_retract_restores_what_was_superseded(memory: Memory, model: ScriptedRelations) -> None:
    add(memory, *MOVES[:2])
    passes = len(model.calls)
    memory.retract("r")
    assert texts(memory) == [PARIS]
    assert (memory.get("p").role, memory.get("r").role, memory.get("r").primary_id) == (Role.PRIMARY, None, None)
    assert memory.search("Where does Maya live?", user="maya", include_evidence=True).hits[0].id == "p"
    assert len(model.calls) == passes, "retracting must not ask the model"
    assert memory.verify().ok
    with pytest.raises(InputError, match="retracted already"):
        memory.retract("r")


def test_retract_of_the_middle_of_a_chain_keeps_its_end(memory: Memory) -> None:
    """Oslo was compared with Rome only; Paris and Oslo were never judged, so they count as independent."""
    add(memory, *MOVES)
    memory.retract("r")
    assert texts(memory) == [PARIS, OSLO]
    assert memory.verify().ok


def test_retract_of_the_end_of_a_chain_restores_the_view_before(memory: Memory) -> None:
    add(memory, *MOVES)
    memory.retract("o")
    assert texts(memory) == [f"{PARIS} -> {ROME}"]


def test_retract_of_the_anchor_of_duplicates_promotes_the_next(memory: Memory) -> None:
    for id in ("a", "b", "c"):
        memory.add(TEA, user="maya", id=id)
    memory.retract("a")
    assert [(view.id, view.members) for view in memory.primaries(user="maya")] == [("b", ("b", "c"))]
    assert memory.verify().ok


def test_retract_of_the_anchor_keeps_what_its_duplicate_superseded(memory: Memory) -> None:
    add(memory, ("p", PARIS, "2026-01-01"), ("r1", ROME, "2026-02-01"), ("r2", ROME, "2026-03-01"))
    memory.retract("r1")
    assert [(view.id, view.members) for view in memory.primaries(user="maya")] == [("r2", ("p", "r2"))]


def test_undo_of_a_retraction_and_redo(memory: Memory) -> None:
    add(memory, *MOVES)
    before = memory.primaries(user="maya")
    retraction = memory.retract("o")
    undo = memory.undo(retraction.id)
    assert memory.primaries(user="maya") == before
    memory.undo(undo.id)
    assert texts(memory) == [f"{PARIS} -> {ROME}"]
    with pytest.raises(InputError, match="undone already"):
        memory.undo(undo.id)
    assert memory.verify().ok


def test_undo_of_a_decision_makes_the_fact_independent(memory: Memory) -> None:
    add(memory, *MOVES[:2])
    undo = memory.undo(memory.explain("r").decision.id)
    assert texts(memory) == [PARIS, ROME]
    memory.undo(undo.id)
    assert texts(memory) == [f"{PARIS} -> {ROME}"]
    with pytest.raises(InputError, match="it changed no other fact"):
        memory.undo(memory.explain("p").decision.id)
    assert memory.verify().ok


def test_facts_after_a_retraction_see_the_restored_state(memory: Memory) -> None:
    add(memory, *MOVES[:2])
    memory.retract("r")
    add(memory, MOVES[2])
    assert texts(memory) == [f"{PARIS} -> {OSLO}"]
    assert memory.verify().ok


# Erasure ------------------------------------------------------------------------------------------------------------


def all_bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()))


def rows_of(memory: Memory, user: str) -> dict[str, list[str]]:
    with memory._reading() as store:
        return {
            table: sorted(map(repr, store.rows(f"SELECT * FROM {table} WHERE user = ?", (user,))))
            for table in USER_TABLES
        }


@pytest.mark.sqlite
def test_S16_C02_erased_text_is_in_no_byte_of_any_file(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    secret = "Maya's door code is 48151623."
    add(memory, *MOVES, ("s", secret, "2026-06-01"))
    memory.add_many([{"text": f"Filler fact number {n}.", "user": "maya"} for n in range(60)])
    assert b"48151623" in all_bytes(path)
    receipt = memory.erase("s")
    assert (receipt.observations, receipt.scrubbed) == (1, True)
    assert b"48151623" not in all_bytes(path)
    assert b"Filler fact number 59" in all_bytes(path), "the scan must be able to find text"
    assert memory.verify().ok
    assert memory.history(user="maya")[-1].kind is EventKind.ERASE


def test_S14_erasing_evidence_rebuilds_every_view_that_held_it(memory: Memory, tmp_path: Path) -> None:
    add(memory, *MOVES, ("t", TEA, "2026-05-02"))
    memory.erase("p")
    assert texts(memory) == [f"{ROME} -> {OSLO}", TEA]
    assert "Paris" not in repr(rows_of(memory, "maya"))
    assert b"Paris" not in all_bytes(tmp_path / "m.db")  # of no file, on a server
    for event in memory.history(user="maya"):
        assert "'p'" not in repr(event)
    assert [view.text for view in memory.as_of("2026-04-01", user="maya")] == [ROME]
    assert memory.verify().ok


def test_erasing_a_primary_restores_what_it_had_superseded(memory: Memory) -> None:
    add(memory, ("t", TEA, "2026-01-01"), ("g", GREEN, "2026-01-02"))
    memory.erase("g")
    assert texts(memory) == [TEA]
    assert memory.verify().ok


def test_erasing_one_of_two_same_texts_keeps_the_judgements_of_the_other(memory: Memory) -> None:
    add(memory, ("p", PARIS, "2026-01-01"), ("r1", ROME, "2026-02-01"), ("r2", ROME, "2026-03-01"))
    memory.erase("r1")
    assert [(view.id, view.members) for view in memory.primaries(user="maya")] == [("r2", ("p", "r2"))]


def test_erasing_after_retractions_and_undos_keeps_their_effect(memory: Memory) -> None:
    add(memory, *MOVES, ("t", TEA, "2026-01-01"), ("g", GREEN, "2026-01-02"))
    memory.undo(memory.explain("g").decision.id)
    memory.undo(memory.retract("o").id)
    memory.retract("o")
    memory.erase("p")
    assert texts(memory) == [ROME, TEA, GREEN]
    memory.erase("o")
    assert texts(memory) == [ROME, TEA, GREEN]
    assert [event.kind for event in memory.history(user="maya")].count(EventKind.RETRACT) == 0
    assert memory.verify().ok


def test_S11_S12_erase_user_removes_all_and_touches_nobody_else(memory: Memory, tmp_path: Path, back_end: str) -> None:
    facts = [f"Secret {n} of the first user." for n in range(250)]
    memory.add_many([{"text": text, "user": "1"} for text in facts])
    memory.add_many([{"text": f"Fact {n} of the tenth user.", "user": "10"} for n in range(5)])
    before = rows_of(memory, "10")
    receipt = memory.erase_user("1")
    assert (receipt.observations, receipt.scrubbed) == (250, back_end == "sqlite")
    assert memory.primaries(user="1") == []
    assert memory.history(user="1") == []
    assert memory.search("Secret", user="1", include_evidence=True).hits == ()
    assert b"of the first user" not in all_bytes(tmp_path / "m.db")
    assert not any(rows_of(memory, "1").values())
    assert rows_of(memory, "10") == before
    assert memory.erase_user("1").observations == 0


# Verification -------------------------------------------------------------------------------------------------------


OTHER_VECTOR = "SELECT embedding FROM vectors WHERE kind = 'evidence' ORDER BY sequence LIMIT 1"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE state SET primary_id = 'p' WHERE id = 'r'", "is kept under"),
        ("UPDATE state SET view = 'Maya lives on Mars.' WHERE id = 'o'", "view of 'o' differs"),
        ("DELETE FROM state WHERE id = 'r'", "'r' is kept under None"),
        ("DELETE FROM vectors WHERE kind = 'view'", "is missing"),
        ("UPDATE vectors SET kind = 'atomic' WHERE kind = 'evidence' AND sequence = 1", "is left over"),
        (f"UPDATE vectors SET embedding = ({OTHER_VECTOR}) WHERE kind = 'view'", "does not belong to its text"),
    ],
)
def test_verify_finds_and_repairs_damage(memory: Memory, damage: str, problem: str) -> None:
    add(memory, *MOVES)
    before = memory.primaries(user="maya")
    assert memory.verify().ok
    memory._store.rows(damage)
    found = memory.verify(repair=True)
    assert problem in "\n".join(found.problems)
    assert (found.ok, found.repaired) == (False, ("maya",))
    assert memory.verify().ok
    assert memory.primaries(user="maya") == before


def test_verify_finds_a_hole_in_the_log(memory: Memory) -> None:
    add(memory, *MOVES[:1])
    memory._store.rows("DELETE FROM events")
    assert "has 0 decisions" in memory.verify().problems[0]


# Replay -------------------------------------------------------------------------------------------------------------


def test_replay_under_the_same_settings_changes_nothing(memory: Memory) -> None:
    add(memory, *MOVES, ("t", TEA, "2026-01-01"), ("g", GREEN, "2026-01-02"))
    replay = memory.replay(user="maya")
    assert (replay.moved, replay.forward_passes) == ((), 0)
    assert list(replay.views_then) == memory.primaries(user="maya")
    assert replay.relations_now == replay.relations_then


def test_replay_shows_what_other_thresholds_or_another_manager_would_do(memory: Memory) -> None:
    add(memory, *MOVES)
    before = memory.primaries(user="maya")
    stricter = memory.replay(user="maya", thresholds={"CON": 0.99})
    assert [(entry.observation.id, entry.now, entry.then) for entry in stricter.moved] == [
        ("p", "o", "p"),
        ("r", "o", "r"),
    ]
    assert stricter.relations_then[Relation.CON] == 0
    other = memory.replay(user="maya", manager=ScriptedRelations({(PARIS, ROME): "EQV"}, digest="other"))  # type: ignore[dict-item]
    assert [(entry.observation.id, entry.then) for entry in other.moved] == [("p", "p"), ("r", "p")]
    assert other.forward_passes > 0
    assert memory.primaries(user="maya") == before
