"""Where people decide: doubtful pairs, verdicts, redo, and replays that are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from data.pairs import read_pairs
from roam.errors import InputError, LabelError, NotFoundError
from roam.events import Event, EventKind
from roam.memory import Memory
from roam.relations import Relation
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

pytestmark = pytest.mark.both_back_ends

PARIS, ROME, OSLO, TEA = "Maya lives in Paris.", "Maya lives in Rome.", "Maya lives in Oslo.", "Maya likes tea."
SCRIPT = {(PARIS, ROME): ("CON", 0.7), (ROME, OSLO): "CON", (PARIS, OSLO): "CON"}


def open_memory(path: str | Path = ":memory:") -> Memory:
    model = ScriptedRelations(SCRIPT)  # type: ignore[arg-type]
    return Memory.open(path, manager=model, embedder=HashEmbedder(), fusion=JoinFuser(), thresholds={"CON": 0.8})


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """Rome stays beside Paris: their conflict is in doubt."""
    with open_memory(tmp_path / "m.db") as memory:
        memory.add(PARIS, user="maya", id="p", observed_at="2026-01-01")
        memory.add(ROME, user="maya", id="r", observed_at="2026-03-01")
        yield memory


def texts(memory: Memory) -> list[str]:
    return [view.text for view in memory.primaries(user="maya")]


def doubts(memory: Memory) -> list[tuple[str, str]]:
    return [(pair.new.id, pair.old.id) for pair in memory.reviews(user="maya")]


# Verdicts -----------------------------------------------------------------------------------------------------------


def test_a_verdict_counts_over_the_model_and_costs_no_pass(memory: Memory) -> None:
    assert (doubts(memory), texts(memory)) == ([("r", "p")], [PARIS, ROME])
    passes = memory.stats.forward_passes
    event = memory.decide("r", "p", "con")
    assert (event.kind, texts(memory), doubts(memory)) == (EventKind.REVIEW, [f"{PARIS} -> {ROME}"], [])
    assert memory.search("Where does Maya live?", user="maya").hits[0].text == f"{PARIS} -> {ROME}"
    memory.undo(event.id)
    assert (texts(memory), doubts(memory)) == ([PARIS, ROME], [("r", "p")])
    memory.redo(event.id)
    assert (texts(memory), doubts(memory)) == ([f"{PARIS} -> {ROME}"], [])
    assert memory.stats.forward_passes == passes
    assert memory.verify().ok
    assert [entry.kind for entry in memory.explain("r").later] == ["review", "undo", "undo"]


def test_the_last_verdict_on_a_pair_counts(memory: Memory) -> None:
    memory.decide("r", "p", "CON")
    last = memory.decide("r", "p", "IND")
    assert (texts(memory), doubts(memory)) == ([PARIS, ROME], [])
    memory.undo(last.id)
    assert texts(memory) == [f"{PARIS} -> {ROME}"]


def test_any_pair_can_be_decided_in_doubt_or_not(memory: Memory) -> None:
    memory.add(OSLO, user="maya", id="o", observed_at="2026-05-01")
    assert texts(memory) == [f"{PARIS} -> {ROME} -> {OSLO}"]
    memory.decide("o", "r", "IND")
    assert texts(memory) == [ROME, f"{PARIS} -> {OSLO}"]
    memory.add(TEA, user="maya", id="t")
    memory.decide("t", "o", "NSO")
    assert memory.get("t").primary_id == "o"
    assert memory.verify().ok


def test_facts_after_a_verdict_build_on_it(memory: Memory) -> None:
    memory.decide("r", "p", "CON")
    memory.add(OSLO, user="maya", id="o", observed_at="2026-05-01")
    assert texts(memory) == [f"{PARIS} -> {ROME} -> {OSLO}"]
    memory.retract("o")
    assert texts(memory) == [f"{PARIS} -> {ROME}"]
    assert memory.verify().ok


def test_erasing_one_of_a_pair_takes_its_verdict_along(memory: Memory, tmp_path: Path) -> None:
    memory.decide("r", "p", "CON")
    memory.erase("p")
    assert texts(memory) == [ROME]
    assert EventKind.REVIEW not in [event.kind for event in memory.history(user="maya")]
    assert memory.verify().ok


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("p", "r", "CON"), InputError, "no earlier observation"),
        (("r", "r", "CON"), InputError, "no earlier observation"),
        (("r", "x", "CON"), NotFoundError, "no observation 'x'"),
        (("r", "p", "contradiction"), LabelError, "unknown relation"),
        (("b", "p", "CON"), InputError, "of the same user"),
    ],
)
def test_a_bad_verdict_is_refused_and_changes_nothing(
    memory: Memory, arguments: tuple[str, str, str], error: type[Exception], message: str
) -> None:
    memory.add(ROME, user="bob", id="b")
    before = memory.history(user="maya")
    with pytest.raises(error, match=message):
        memory.decide(*arguments)
    with pytest.raises(NotFoundError, match="of user 'bob'"):
        memory.decide("r", "p", "CON", user="bob")
    assert memory.history(user="maya") == before


def test_verdicts_are_training_pairs(memory: Memory, tmp_path: Path) -> None:
    memory.decide("r", "p", "CON", key="v1")
    memory.add(TEA, user="bob", id="b1")
    memory.add(OSLO, user="bob", id="b2")
    memory.undo(memory.decide("b2", "b1", "EQV").id)
    memory.decide("b2", "b1", "IND", key="v2")
    assert memory.export_pairs(tmp_path / "pairs.jsonl") == 2
    of_bob, of_maya = read_pairs(tmp_path / "pairs.jsonl")
    assert (of_maya.id, of_maya.old, of_maya.new, of_maya.label) == ("v1", PARIS, ROME, Relation.CON)
    assert (of_maya.old_time, of_maya.new_time, of_maya.source) == ("2026-01-01", "2026-03-01", "review")
    assert of_maya.probs is not None
    assert of_maya.probs[Relation.CON] == pytest.approx(0.7)
    assert (of_bob.id, of_bob.label) == ("v2", Relation.IND)
    assert of_bob.group != of_maya.group
    assert "maya" not in of_maya.group
    assert memory.export_pairs(tmp_path / "pairs.jsonl", user="bob") == 1


# Keys ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.retract("p", key="k"),
        lambda memory: memory.undo("verdict", key="k"),
        lambda memory: memory.decide("r", "p", "OSN", key="k"),
    ],
)
def test_a_key_makes_a_change_exact_when_repeated(memory: Memory, change: Callable[[Memory], Event]) -> None:
    memory.decide("r", "p", "CON", key="verdict")
    first = change(memory)
    before = texts(memory), memory.history(user="maya")
    assert change(memory) == first
    assert (texts(memory), memory.history(user="maya")) == before
    with pytest.raises(InputError, match="'k' is taken"):
        memory.decide("r", "p", "NSO", key="k")


def test_a_key_makes_redo_exact_when_repeated(memory: Memory) -> None:
    memory.decide("r", "p", "CON", key="v")
    memory.undo("v", key="u")
    assert memory.redo("v", key="k") == memory.redo("v", key="k")
    assert texts(memory) == [f"{PARIS} -> {ROME}"]
    with pytest.raises(InputError, match="nothing to redo"):
        memory.redo("v")


def test_S24_redo_of_a_retraction(memory: Memory) -> None:
    retraction = memory.retract("r")
    memory.undo(retraction.id)
    assert texts(memory) == [PARIS, ROME]
    memory.redo(retraction.id)
    assert texts(memory) == [PARIS]
    assert [event.kind for event in memory.history(user="maya")][-3:] == ["retract", "undo", "undo"]
    with pytest.raises(NotFoundError, match="of user 'bob'"):
        memory.redo(retraction.id, user="bob")


# Replays that are applied -------------------------------------------------------------------------------------------


def test_a_replay_is_shown_first_then_applied_and_undone(memory: Memory) -> None:
    replay = memory.replay(user="maya", thresholds={})
    assert [(entry.observation.id, entry.now, entry.then) for entry in replay.moved] == [("p", "p", "r")]
    assert (texts(memory), replay.forward_passes) == ([PARIS, ROME], 0)
    event = memory.apply(replay)
    assert (texts(memory), doubts(memory)) == ([f"{PARIS} -> {ROME}"], [])
    assert memory.replay(user="maya", thresholds={}).moved == ()
    memory.add(OSLO, user="maya", id="o", observed_at="2026-05-01")
    memory.retract("o")
    assert texts(memory) == [f"{PARIS} -> {ROME}"], "a retraction runs the log on what the replay decided"
    memory.undo(event.id)
    assert (texts(memory), doubts(memory)) == ([PARIS, ROME], [("r", "p")])
    memory.redo(event.id)
    assert texts(memory) == [f"{PARIS} -> {ROME}"]
    assert memory.verify().ok


def test_a_replay_of_a_memory_that_moved_on_is_refused(memory: Memory) -> None:
    replay = memory.replay(user="maya", thresholds={})
    memory.add(TEA, user="maya")
    with pytest.raises(InputError, match="replay again"):
        memory.apply(replay)
    assert memory.apply(memory.replay(user="maya", thresholds={}), key="k").id == "k"


def test_what_people_decided_survives_a_replay_with_another_manager(memory: Memory) -> None:
    memory.add(OSLO, user="maya", id="o", observed_at="2026-05-01")
    memory.undo(memory.explain("o").decision.id)
    memory.decide("r", "p", "EQV")
    other = ScriptedRelations({(PARIS, ROME): "OSN", (ROME, OSLO): "EQV", (PARIS, OSLO): "EQV"}, digest="other")  # type: ignore[dict-item]
    memory.apply(memory.replay(user="maya", manager=other))
    assert [(view.id, view.members) for view in memory.primaries(user="maya")] == [("p", ("p", "r")), ("o", ("o",))]
    decided = next(event for event in memory.history(user="maya") if event.kind is EventKind.REPLAY).replayed
    assert {entry.model for item in decided for entry in item.decision.judgements} == {"other"}
    assert memory.verify().ok


def test_what_was_retracted_before_a_replay_can_come_back_after_it(memory: Memory) -> None:
    memory.add(OSLO, user="maya", id="o", observed_at="2026-05-01")
    retraction = memory.retract("r")
    memory.apply(memory.replay(user="maya", thresholds={}))
    memory.undo(retraction.id)
    assert {id for view in memory.primaries(user="maya") for id in view.members} == {"p", "r", "o"}
    assert memory.verify().ok


def test_S16_erasing_reaches_into_verdicts_and_replays(memory: Memory, tmp_path: Path) -> None:
    memory.add("Maya lives in Zanzibar.", user="maya", id="z", observed_at="2026-04-01")
    memory.decide("z", "r", "CON")
    memory.apply(memory.replay(user="maya", thresholds={}))
    memory.retract("p")
    memory.erase("z")
    assert texts(memory) == [ROME]
    assert b"Zanzibar" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert "'z'" not in repr(memory.history(user="maya"))
    assert memory.verify().ok


def test_verify_repairs_the_list_of_doubtful_pairs(memory: Memory) -> None:
    memory._store.rows("DELETE FROM review")
    assert "doubtful pair of 'r' and 'p' is missing" in memory.verify(repair=True).problems[0]
    assert doubts(memory) == [("r", "p")]
    memory._store.rows("INSERT INTO state VALUES (99, 'ghost', 'nobody', 'ghost', 'Boo.')")
    assert "rows of users of whom nothing is observed" in memory.verify(repair=True).problems[0]
    assert memory.verify().ok
