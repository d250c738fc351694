"""The awaited twin: every method, the order of calls, users kept apart."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path

import pytest

from roam import AsyncMemory
from roam.errors import InputError
from roam.memory import Memory
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

pytestmark = pytest.mark.both_back_ends

OWN = {"open", "close", "check_open"}


def settings() -> dict[str, object]:
    return {"manager": ScriptedRelations(), "embedder": HashEmbedder(), "fusion": JoinFuser()}


def public(kind: type) -> set[str]:
    return {name for name, value in inspect.getmembers(kind, callable) if not name.startswith("_")}


def test_every_method_has_its_twin_with_the_same_signature_and_help() -> None:
    assert public(Memory) - OWN == public(AsyncMemory) - OWN
    for name in public(Memory) - OWN:
        twin = getattr(AsyncMemory, name)
        assert inspect.iscoroutinefunction(twin), name
        assert inspect.signature(twin) == inspect.signature(getattr(Memory, name)), name
        assert twin.__doc__ == getattr(Memory, name).__doc__


def test_S06_two_tenants_at_once_stay_apart_and_in_order(tmp_path: Path) -> None:
    async def fill() -> None:
        async with await AsyncMemory.open(tmp_path / "m.db", **settings()) as memory:
            await asyncio.gather(
                *(memory.add(f"Fact {n} of {user}.", user=user, id=f"{user}{n}") for n in range(30) for user in "AB")
            )
            for user in "AB":
                views = await memory.primaries(user=user)
                assert [view.text for view in views] == [f"Fact {n} of {user}." for n in range(30)]
                hits = (await memory.search("Fact", user=user, limit=100)).hits
                assert {hit.id[0] for hit in hits} == {user}
            assert (await memory.verify()).ok

    asyncio.run(fill())


def test_S07_another_client_of_the_same_file_finds_what_was_added(tmp_path: Path) -> None:
    async def add_and_find() -> None:
        async with await AsyncMemory.open(tmp_path / "m.db", **settings()) as memory:
            await memory.add("The user owns a cat.", user="u", id="cat")
            async with await AsyncMemory.open(tmp_path / "m.db", **settings()) as other:
                assert [hit.id for hit in (await other.search("cat", user="u")).hits] == ["cat"]
        with pytest.raises(InputError, match="closed"):
            await memory.primaries(user="u")

    asyncio.run(add_and_find())


def test_the_loop_runs_on_while_a_call_waits_and_errors_come_through() -> None:
    async def tick_while_adding() -> None:
        model = ScriptedRelations()
        started, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def slow(pairs: object) -> object:
            loop.call_soon_threadsafe(started.set)
            go_on.wait(10)
            return ScriptedRelations.predict_proba(model, pairs)  # type: ignore[arg-type]

        async with await AsyncMemory.open(":memory:", **{**settings(), "manager": model}) as memory:
            await memory.add("The user owns a cat.", user="u")
            model.predict_proba = slow  # type: ignore[method-assign, assignment]
            adding = asyncio.create_task(memory.add("The user owns a dog.", user="u"))
            await started.wait()  # only reached if the loop is free while the model is at work
            go_on.set()
            await adding
            with pytest.raises(InputError, match="text is empty"):
                await memory.add("", user="u")
            assert len(await memory.primaries(user="u")) == 2

    asyncio.run(tick_while_adding())
