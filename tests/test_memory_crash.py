"""Writes that fail or are cut off: nothing half done, nothing acknowledged lost."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from roam.errors import StoreError
from roam.memory import Memory
from roam.relations import Relation
from roam.storage import Store
from tests import crashing
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

pytestmark = pytest.mark.both_back_ends


def replace_same_subject(old: str, new: str) -> Relation:
    return Relation.CON if old.split()[1] == new.split()[1] else Relation.IND


def open_memory(path: str | Path) -> Memory:
    model = ScriptedRelations(rule=replace_same_subject)
    return Memory.open(path, manager=model, embedder=HashEmbedder(), fusion=JoinFuser())


def outline(memory: Memory) -> tuple[object, ...]:
    history = [(event.id, event.kind) for event in memory.history(user="u")]
    return memory.primaries(user="u"), history, memory.reviews(user="u")


WRITES = ("insert_observation", "save_probabilities", "append_event", "place", "demote", "set_view")


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("late", [False, True])
def test_F04_a_write_that_fails_at_any_step_leaves_no_trace(
    method: str, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`late` makes the incoming fact older than the stored one, so that the stored view is the one that changes."""
    with open_memory(tmp_path / "m.db") as memory:
        memory.add("Subject 1 is red.", user="u", observed_at="2026-01-01")
        before = outline(memory)
        original: Callable[..., object] = getattr(Store, method)
        reached = []

        def fail(*arguments: object, **named: object) -> None:
            original(*arguments, **named)
            reached.append(method)
            raise StoreError("pulled the plug")

        monkeypatch.setattr(Store, method, fail)
        time_of_new = "2025-01-01" if late else "2026-02-01"
        try:
            memory.add("Subject 1 is blue.", user="u", observed_at=time_of_new)
        except StoreError:
            assert outline(memory) == before
        monkeypatch.undo()
        assert reached or method in ("demote", "set_view"), "the step must have been part of the write"
        assert memory.verify().ok
        if reached:
            assert memory.add("Subject 1 is blue.", user="u", observed_at=time_of_new).relation is Relation.CON
    with open_memory(tmp_path / "m.db") as memory:
        assert memory.verify().ok


@pytest.mark.sqlite
def test_a_full_disk_is_reported_and_the_store_stays_sound(tmp_path: Path) -> None:
    with open_memory(tmp_path / "m.db") as memory:
        memory.add("Subject 0 is red.", user="u", id="first")
        pages = memory._store.rows("PRAGMA page_count")[0][0]
        memory._store.rows(f"PRAGMA max_page_count={pages}")
        stored = ["first"]

        def fill() -> None:
            for number in range(1, 400):
                memory.add(f"Subject {number} is {'very ' * 300}red.", user="u", id=str(number))
                stored.append(str(number))

        with pytest.raises(StoreError, match="no space left"):
            fill()
        memory._store.rows(f"PRAGMA max_page_count={pages * 100}")
        assert [view.id for view in memory.primaries(user="u")] == stored
        assert memory.verify().ok
        memory.add("Space is there again.", user="u")


def test_an_error_in_the_middle_of_a_batch_keeps_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_memory(":memory:") as memory:
        original = Store.insert_observation

        def fail_at_third(self: Store, observation: object, recorded_at: object) -> int:
            if getattr(observation, "id", "") == "2":
                raise StoreError("pulled the plug")
            return original(self, observation, recorded_at)  # type: ignore[arg-type]

        batch = [{"text": f"Subject {n} is red.", "user": "u", "id": str(n)} for n in range(5)]
        monkeypatch.setattr(Store, "insert_observation", fail_at_third)
        with pytest.raises(StoreError, match="plug"):
            memory.add_many(batch)
        monkeypatch.undo()
        assert [view.id for view in memory.primaries(user="u")] == ["0", "1"]
        memory.add_many(batch)  # running it again completes it exactly
        assert [view.id for view in memory.primaries(user="u")] == ["0", "1", "2", "3", "4"]
        assert memory.verify().ok


# Killed at any disk operation, on a full disk, on a disk that can only be read ----------------------------------------


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, int]:
    """What the steps lead to when nothing fails, and how many disk operations they take."""
    folder = tmp_path_factory.mktemp("unbroken")
    operations = crashing.count_operations(folder / "m.db")
    return crashing.outcome(folder / "m.db"), operations


def kill_and_resume(folder: Path, points: int, seed: int, unbroken: tuple[object, int]) -> None:
    """At random points: nothing acknowledged is lost, nothing is half done, and going on leads to the same end."""
    expected, operations = unbroken
    assert operations > 300, "the harness must see the work of the disk"
    killed = 0
    for number, at in enumerate(random.Random(seed).sample(range(1, operations), points)):
        path = folder / f"{number}.db"
        was_killed, acknowledged = crashing.run_until_killed(path, at, seed)
        killed += was_killed
        if acknowledged:
            with open_memory(path) as memory:
                assert memory.verify().problems == ()
        crashing.work(path, first=acknowledged)  # the step that was cut off is done again: it may be done already
        assert crashing.outcome(path) == expected, f"killed at operation {at} of {operations}"
    assert killed > 0.9 * points


@pytest.mark.sqlite
def test_F04_killed_writers_lose_no_acknowledged_fact(tmp_path: Path, unbroken: tuple[object, int]) -> None:
    kill_and_resume(tmp_path, 6, 0, unbroken)


@pytest.mark.slow
@pytest.mark.sqlite
def test_F04_killed_at_hundreds_of_points(tmp_path: Path, unbroken: tuple[object, int]) -> None:
    """ROAM_KILL_POINTS and ROAM_KILL_SEED set how many points, and which."""
    points, seed = int(os.environ.get("ROAM_KILL_POINTS", "300")), int(os.environ.get("ROAM_KILL_SEED", "1"))
    kill_and_resume(tmp_path, points, seed, unbroken)


@pytest.mark.parametrize("share", [0.02, 0.35, 0.8])
@pytest.mark.sqlite
def test_a_disk_that_fills_at_any_time_is_reported_and_work_goes_on(
    share: float, tmp_path: Path, unbroken: tuple[object, int]
) -> None:
    expected, operations = unbroken
    errors = crashing.run_with_full_disk(tmp_path / "m.db", round(share * operations))
    assert errors, "the disk was full at some time"
    assert all("no space left" in error for error in errors)
    assert crashing.outcome(tmp_path / "m.db") == expected


@pytest.mark.sqlite
def test_a_store_that_can_only_be_read_says_so(tmp_path: Path) -> None:
    crashing.work(tmp_path / "m.db")
    before = crashing.outcome(tmp_path / "m.db")
    *_, error = crashing.use_read_only(tmp_path / "m.db", "read-only")
    assert "permissions of the file and its folder" in error
    listed, error = crashing.use_read_only(tmp_path / "m.db", "read-only file")
    assert listed == "3", "what is stored can be read"
    assert "cannot be written to" in error
    assert crashing.outcome(tmp_path / "m.db") == before


def test_C01_an_index_that_cannot_be_written_leaves_no_phantom_event(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_memory(":memory:") as memory:
        memory.add("Subject 1 is red.", user="u", id="red")
        before = outline(memory)

        def fail(*arguments: object) -> None:
            raise StoreError("the index is gone")

        monkeypatch.setattr("roam.consolidation.put_vector", fail)
        with pytest.raises(StoreError, match="index is gone"):
            memory.add("Subject 1 is blue.", user="u")
        assert outline(memory) == before
        monkeypatch.undo()
        assert memory.verify().ok


@pytest.mark.parametrize("method", ["append_event", "set_reviews", "place", "set_view"])
@pytest.mark.parametrize("change", ["retract", "undo", "decide", "apply", "erase"])
def test_F04_a_change_that_fails_at_any_step_leaves_no_trace(
    change: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(":memory:") as memory:
        memory.add("Subject 1 is red.", user="u", id="red")
        decision = memory.add("Subject 1 is blue.", user="u", id="blue")
        replay = memory.replay(user="u", thresholds={"CON": 0.99})
        before = outline(memory)
        run: Callable[[], object] = {
            "retract": lambda: memory.retract("blue"),
            "undo": lambda: memory.undo(decision.id),
            "decide": lambda: memory.decide("blue", "red", "IND"),
            "apply": lambda: memory.apply(replay),
            "erase": lambda: memory.erase("blue"),
        }[change]
        original: Callable[..., object] = getattr(Store, method)

        def fail(*arguments: object, **named: object) -> None:
            original(*arguments, **named)
            raise StoreError("pulled the plug")

        monkeypatch.setattr(Store, method, fail)
        with pytest.raises(StoreError, match="plug"):
            run()
        monkeypatch.undo()
        assert outline(memory) == before
        assert memory.verify().ok
        run()
        assert memory.verify().ok
