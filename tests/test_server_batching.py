"""Requests that come together: shared passes, one write for many, order, refusals, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roam.async_memory import AsyncMemory
from roam.errors import AdapterError, InputError
from roam.fusion import DeterministicFuser
from roam.intake import make_observation
from roam.managers import Manager
from roam.memory import Memory
from roam.records import Decision, Pair
from roam.relations import INDEX, RELATIONS, Relation
from roam.server import Settings
from roam.server.passes import SharedPasses
from roam.server.problems import BusyError, StoppingError
from roam.server.writes import WriteQueue
from tests.server_app import SCRIPT, listening, make_app
from tests.stubs import HashEmbedder, ScriptedRelations


class SlowRelations(ScriptedRelations):
    """Waits in its first pass until it is let go, so that a test decides what comes meanwhile."""

    def __init__(self) -> None:
        super().__init__(SCRIPT)
        self.entered, self.go = threading.Event(), threading.Event()
        self.inside = 0

    def predict_proba(self, pairs: Any) -> Any:
        self.inside += 1
        assert self.inside == 1, "two threads in the model at once"
        if not self.calls:
            self.entered.set()
            assert self.go.wait(10)
        rows = super().predict_proba(pairs)
        self.inside -= 1
        return rows


@pytest.mark.unit
def test_calls_that_wait_share_one_pass_and_get_their_own_rows() -> None:
    model = SlowRelations()
    shared = SharedPasses(model)
    seen: list[tuple[int, int]] = []
    shared.observe = lambda pairs, calls: seen.append((pairs, calls))
    asked = [[Pair(f"Old {number}.", "New."), *map(Pair._make, SCRIPT)] for number in range(8)]
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(shared.predict_proba, [Pair("a b", "c d")])
        assert model.entered.wait(10)
        rest = [pool.submit(shared.predict_proba, pairs) for pairs in asked]
        while len(shared._waiting) < 8:
            pass
        model.go.set()
        rows = [future.result(10) for future in rest]
        assert first.result(10).shape == (1, 5)
    assert len(model.calls) == 2
    assert seen == [(1, 1), (8 + len(SCRIPT), 8)]  # the pairs that all of them ask for are classified once
    for found in rows:
        assert found.shape == (1 + len(SCRIPT), len(RELATIONS))
        assert int(np.argmax(found[1])) == INDEX[Relation.CON]


@pytest.mark.unit
def test_a_failing_pass_fails_every_call_in_it_and_the_next_one_works() -> None:
    class Failing(ScriptedRelations):
        def predict_proba(self, pairs: Any) -> Any:
            if any(pair.new == "bad" for pair in pairs):
                raise AdapterError("broken weights")
            return super().predict_proba(pairs)

    shared = SharedPasses(Failing())
    with pytest.raises(AdapterError, match="broken weights"):
        shared.predict_proba([Pair("a", "bad")])
    assert shared.predict_proba([Pair("a", "b")]).shape == (1, 5)
    assert shared.predict_proba([]).shape == (0, 5)


def settings() -> dict[str, Any]:
    return {"manager": ScriptedRelations(rule=lambda old, new: Relation.IND), "embedder": HashEmbedder()}


@pytest.mark.integration
def test_many_requests_are_written_together_in_their_order(tmp_path: Path) -> None:
    sizes: list[int] = []

    async def fill() -> list[Decision]:
        async with await AsyncMemory.open(tmp_path / "m.db", **settings()) as memory:
            queue = WriteQueue(memory, max_waiting=1000, observe=sizes.append)
            facts = [make_observation(f"Fact number {number}.", "maya") for number in range(100)]
            found = await asyncio.gather(*(queue.add([fact]) for fact in facts))
            await queue.close()
            assert [fact.id for fact in facts] == [decision.observation_id for [decision] in found]
            assert memory.memory.stats.forward_passes < 30
            return [decision for [decision] in found]

    decisions = asyncio.run(fill())
    assert sum(sizes) == 100
    assert len(sizes) < 10
    with Memory.open(tmp_path / "m.db", **settings()) as memory:
        assert [view.id for view in memory.primaries(user="maya")] == [entry.observation_id for entry in decisions]
        assert memory.verify().ok


@pytest.mark.integration
def test_a_bad_request_hurts_no_other_of_its_batch(tmp_path: Path) -> None:
    async def fill() -> list[Any]:
        async with await AsyncMemory.open(tmp_path / "m.db", **settings()) as memory:
            await memory.add("Taken.", user="noor", id="taken")
            queue = WriteQueue(memory, max_waiting=100)
            facts = [make_observation(f"Fact number {n}.", "maya", id="taken" if n == 2 else f"f{n}") for n in range(5)]
            twice = make_observation("Fact number 1.", "maya", id="f1")
            found = await asyncio.gather(*(queue.add([fact]) for fact in [*facts, twice]), return_exceptions=True)
            await queue.close()
            assert [view.id for view in await memory.primaries(user="maya")] == ["f0", "f1", "f3", "f4"]
            return list(found)

    found = asyncio.run(fill())
    assert isinstance(found[2], InputError)
    assert "taken" in str(found[2])
    assert [kind for kind in map(type, found) if kind is not list] == [InputError]
    assert found[5][0].id == found[1][0].id  # asking again gives the first decision


@pytest.mark.integration
def test_a_full_queue_refuses_and_a_closing_one_finishes(tmp_path: Path) -> None:
    async def fill() -> None:
        async with await AsyncMemory.open(tmp_path / "m.db", **settings()) as memory:
            queue = WriteQueue(memory, max_waiting=3)
            facts = [make_observation(f"Fact number {number}.", "maya") for number in range(4)]
            waiting = [asyncio.ensure_future(queue.add([fact])) for fact in facts[:3]]
            await asyncio.sleep(0)
            with pytest.raises(BusyError, match="3 facts wait"):
                await queue.add([facts[3]])
            closing = asyncio.ensure_future(queue.close())
            await asyncio.sleep(0)
            with pytest.raises(StoppingError):
                await queue.add([facts[3]])
            await closing
            assert all(future.done() for future in waiting)
            assert len(await memory.primaries(user="maya")) == 3

    asyncio.run(fill())


@pytest.mark.integration
def test_a_read_does_not_wait_for_a_pass_and_a_stop_does(tmp_path: Path) -> None:
    model = SlowRelations()
    settings = Settings(db=str(tmp_path / "m.db"))
    app = make_app(tmp_path, model)

    def send(address: str, path: str, body: dict[str, object] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{address}/v1/{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)

    with ThreadPoolExecutor(1) as pool, listening(app, settings) as (address, server):
        send(address, "memories", {"text": "Has a dog.", "user": "maya"})
        adding = pool.submit(send, address, "memories", {"text": "Has a beagle named Otto.", "user": "maya"})
        assert model.entered.wait(10)
        assert len(send(address, "memories?user=maya")["items"]) == 1
        server.should_exit = True
        assert not adding.done()
        model.go.set()
        assert adding.result(10)["relation"] == "OSN"
    with Memory.open(tmp_path / "m.db", manager=ScriptedRelations(), embedder=HashEmbedder()) as memory:
        assert [view.atomic_text for view in memory.primaries(user="maya")] == ["Has a beagle named Otto."]


PROGRAM = """
import sys
from roam.cli import main
from roam.fusion import DeterministicFuser
from roam.managers import Manager
from roam.memory import Memory
from tests.stubs import HashEmbedder, ScriptedRelations
model = ScriptedRelations()
sys.exit(main(["serve", "--db", sys.argv[1], "--port", "0", "--no-warm-up"],
              memory_factory=lambda path: Memory.open(path, manager=model, embedder=HashEmbedder()),
              manager_loader=lambda: Manager(model, DeterministicFuser())))
"""


@pytest.mark.integration
def test_the_command_serves_until_a_signal_and_keeps_every_fact(tmp_path: Path, root: Path) -> None:
    db = tmp_path / "m.db"
    command = [sys.executable, "-c", PROGRAM, str(db)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[4] + "v1"  # it listens already: requests wait until it answers
        body = json.dumps({"text": "Has a dog.", "user": "maya", "id": "dog"}).encode()
        request = urllib.request.Request(f"{address}/memories", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)
    with Memory.open(db, manager=ScriptedRelations(), embedder=HashEmbedder()) as memory:
        assert memory.get("dog").primary_id == "dog"
        assert memory.verify().ok


@pytest.mark.unit
def test_bad_settings_end_the_command_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from roam.cli import main

    assert main(["serve", "--host", "0.0.0.0", "--db", str(tmp_path / "m.db")]) == 2
    assert "roam key" in capsys.readouterr().err
    assert main(["serve", "--keys", str(tmp_path / "none.json"), "--manager", "/nowhere"]) == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = ["serve", "--port", str(taken.getsockname()[1]), "--no-warm-up", "--db", str(tmp_path / "m.db")]
        model = ScriptedRelations()
        hooks: dict[str, Any] = {
            "memory_factory": lambda path: Memory.open(path, manager=model, embedder=HashEmbedder()),
            "manager_loader": lambda: Manager(model, DeterministicFuser()),
        }
        capsys.readouterr()
        assert main(command, **hooks) == 2
        assert "another --port" in capsys.readouterr().err
        assert not (tmp_path / "m.db").exists()
    assert main(["serve", "--port", "0", "--no-warm-up", "--db", str(tmp_path / "no" / "m.db")], **hooks) == 2
    assert "existing folder" in capsys.readouterr().err
