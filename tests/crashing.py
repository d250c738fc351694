"""A store whose disk can fail: after a number of disk operations the process is killed, or the disk is full.

A shim over SQLite's own file layer counts writes, syncs, truncations and deletions of the database and its journal. It
lives in a forked child, which works through a fixed list of steps and acknowledges each one that returned.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from roam.errors import NotFoundError, StoreError
from roam.memory import Memory
from roam.relations import Relation
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

UNDERLYING = apsw.vfs_names()[0]


class Disk:
    """Counts disk operations and fails at one; `mode` is "kill", "full", "read-only", "read-only file" or "none"."""

    def __init__(self, mode: str, at: int, seed: int = 0) -> None:
        self.mode, self.at, self.count, self.full = mode, at, 0, False
        self._random = random.Random(f"{seed}-{at}")

    def operate(self, write: Callable[[bytes], None] | None = None, data: bytes = b"") -> None:
        """Count one operation; at the chosen one a killed process leaves half of what it wanted to write."""
        self.count += 1
        if self.count == self.at:
            if self.mode == "kill":
                if write is not None and self._random.random() < 0.5:
                    write(data[: self._random.randrange(len(data) + 1)])
                os.kill(os.getpid(), signal.SIGKILL)
            self.full = self.mode == "full"
        if self.full and write is not None:
            raise apsw.FullError("the disk is full")


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(UNDERLYING, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.operate(lambda part: super(_File, self).xWrite(part, offset), bytes(data))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.operate()
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:
        self._disk.operate()
        super().xTruncate(size)


def is_main(flags: list[int]) -> bool:
    """Whether SQLite opens the database itself, not its journal."""
    return bool(flags[0] & apsw.SQLITE_OPEN_MAIN_DB)


class _FileSystem(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__("failing", UNDERLYING, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if self._disk.mode == "read-only" or (self._disk.mode == "read-only file" and is_main(flags)):
            flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) | apsw.SQLITE_OPEN_READONLY
        return _File(self._disk, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        self._disk.operate()
        super().xDelete(name, sync)


@contextmanager
def on_disk(disk: Disk) -> Iterator[None]:
    """Let SQLite work on this disk; the shim must be held for as long as a file is open on it."""
    system = _FileSystem(disk)
    yield
    system.unregister()


def open_memory(path: str | Path) -> Memory:
    """A store in which facts about one subject replace each other, in doubt where they are alike."""

    def relate(old: str, new: str) -> Relation:
        return Relation.CON if old.split()[1] == new.split()[1] else Relation.IND

    return Memory.open(path, manager=ScriptedRelations(rule=relate), embedder=HashEmbedder(), fusion=JoinFuser())


def _erase(memory: Memory, id: str) -> None:
    try:
        memory.erase(id)
    except NotFoundError:
        return  # done before the crash


def _replay(memory: Memory) -> None:
    if not any(event.id == "replay" for event in memory.history(user="u")):
        memory.apply(memory.replay(user="u", thresholds={"CON": 0.99}), key="replay")


def _batch(memory: Memory) -> None:
    memory.add_many([{"text": f"Subject {n % 2} is batch {n}.", "user": "u", "id": f"b{n}"} for n in range(3)])


def _add(number: int) -> Callable[[Memory], object]:
    return lambda memory: memory.add(f"Subject {number % 2} is {number}.", user="u", id=f"a{number}")


STEPS: tuple[Callable[[Memory], object], ...] = (
    _add(0),
    _add(1),
    _add(2),
    lambda memory: memory.retract("a2", key="retract"),
    _add(3),
    lambda memory: memory.undo("retract", key="undo"),
    _batch,
    lambda memory: memory.decide("a3", "a1", "IND", key="verdict"),
    lambda memory: memory.redo("retract", key="redo"),
    lambda memory: _erase(memory, "b0"),
    _replay,
    _add(4),
    lambda memory: memory.undo("replay", key="undo-replay"),
)
"""Every kind of write, each exact when it is repeated."""


def work(path: Path, first: int = 0, acknowledge: Callable[[int], object] = lambda step: None) -> None:
    """Do the steps from one on, on a store opened for it; say so after each."""
    with open_memory(path) as memory:
        for number, step in enumerate(STEPS[first:], start=first):
            step(memory)
            acknowledge(number + 1)


def outcome(path: Path) -> tuple[object, ...]:
    """What a store holds, but for names and times that differ from run to run; a store with a problem is refused."""
    with open_memory(path) as memory:
        assert memory.verify().problems == ()
        views = [(view.id, view.text, view.members) for view in memory.primaries(user="u")]
        history = [(event.kind, event.observation_id) for event in memory.history(user="u")]
        return views, history, [(pair.new.id, pair.old.id) for pair in memory.reviews(user="u")]


def in_child(task: Callable[[Callable[[str], None]], None]) -> tuple[int, list[str]]:
    """Run a task in a forked process; returns (exit code, negative for a signal; the lines that it said)."""
    reading, writing = os.pipe()

    def main() -> None:
        os.close(reading)
        task(lambda line: _say(writing, line))

    process = multiprocessing.get_context("fork").Process(target=main)
    process.start()
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read().splitlines()
    process.join()
    assert process.exitcode is not None
    return process.exitcode, said


def _say(pipe: int, line: str) -> None:
    os.write(pipe, f"{line}\n".encode())


def run_until_killed(path: Path, at: int, seed: int) -> tuple[bool, int]:
    """Work on a disk that kills at an operation; returns (whether it was killed, steps acknowledged)."""

    def task(say: Callable[[str], None]) -> None:
        with on_disk(Disk("kill", at, seed)):
            work(path, acknowledge=lambda step: say(str(step)))

    code, said = in_child(task)
    assert code in (0, -signal.SIGKILL)
    return code != 0, len(said)


def run_with_full_disk(path: Path, at: int) -> list[str]:
    """Work on a disk that is full from an operation on until the error is seen; returns the errors."""

    def task(say: Callable[[str], None]) -> None:
        disk = Disk("full", at)
        done = 0

        def acknowledge(step: int) -> None:
            nonlocal done
            done = step

        with on_disk(disk):
            while done < len(STEPS):
                try:
                    work(path, done, acknowledge)
                except StoreError as error:
                    say(str(error))
                    disk.full = False

    code, said = in_child(task)
    assert code == 0
    return said


def count_operations(path: Path) -> int:
    """How many disk operations the steps take."""

    def task(say: Callable[[str], None]) -> None:
        disk = Disk("none", 0)
        with on_disk(disk):
            work(path)
        say(str(disk.count))

    code, said = in_child(task)
    assert code == 0
    return int(said[0])


def use_read_only(path: Path, mode: str) -> list[str]:
    """What listing and then adding to a store says when its file, or its whole folder, can only be read."""

    def task(say: Callable[[str], None]) -> None:
        with on_disk(Disk(mode, 0)):
            try:
                with open_memory(path) as memory:
                    say(str(len(memory.primaries(user="u"))))
                    memory.add("Subject 9 is late.", user="u")
            except StoreError as error:
                say(str(error))

    code, said = in_child(task)
    assert code == 0
    return said
