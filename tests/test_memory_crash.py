"""Writes that fail or are cut off: nothing half done, nothing acknowledged lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from roam.errors import StoreError
from roam.memory import Memory
from roam.relations import Relation
from roam.storage import Store
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

ROOT = Path(__file__).resolve().parent.parent


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


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from roam.memory import Memory
from roam.relations import Relation
from tests.stubs import HashEmbedder, ScriptedRelations
model = ScriptedRelations(rule=lambda old, new: Relation.CON if old.split()[1] == new.split()[1] else Relation.IND)
with Memory.open(sys.argv[2], manager=model, embedder=HashEmbedder(), fusion="off") as memory:
    number = int(sys.argv[3])
    while True:
        memory.add(f"Subject {number % 5} is {number}.", user="u", id=str(number))
        print(number, flush=True)
        number += 1
"""


def test_F04_killed_writers_lose_no_acknowledged_fact(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    open_memory(path).close()
    acknowledged: list[str] = []
    for round_number, wait in enumerate((0.05, 0.11, 0.17)):
        command = [sys.executable, "-c", WRITER, str(ROOT), str(path), str(10_000 * round_number)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            acknowledged.append(writer.stdout.readline().strip())  # it is writing now
            time.sleep(wait)
            writer.kill()
            acknowledged += writer.stdout.read().split()
        with open_memory(path) as memory:
            stored = {id for view in memory.primaries(user="u") for id in view.members}
            assert set(acknowledged) <= stored
            assert len(stored) <= len(acknowledged) + round_number + 1, "at most one unacknowledged write a kill"
            assert memory.verify().ok
    assert len(acknowledged) > 3
