"""The MCP server, called by the SDK's own client: in this process, and as the command over standard input."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the mcp package is not installed")

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from roam.memory import Memory
from roam.server.mcp_server import make_server
from tests.server_app import BEAGLE, DOG, GHENT, LYON, SCRIPT
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory.open(
        tmp_path / "m.db", manager=ScriptedRelations(SCRIPT), embedder=HashEmbedder(), fusion=JoinFuser()
    )


Talk = Callable[[Any], Awaitable[None]]


def talk(memory: Memory, work: Talk, **options: Any) -> None:
    async def run() -> None:
        async with Client(make_server(memory, user="maya", **options)) as client:
            await work(client)

    asyncio.run(run())


async def call(client: Any, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Any, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)


@pytest.mark.integration
def test_remember_recall_explain_forget(memory: Memory) -> None:
    async def work(client: Any) -> None:
        lyon = await call(client, "remember", fact=LYON, observed_at="2026-01-05", source="chat-1")
        assert (lyon["relation"], lyon["current"], lyon["superseded"]) == ("IND", True, [])
        ghent = await call(client, "remember", fact=GHENT, observed_at="2026-03-01")
        assert (ghent["relation"], ghent["superseded"]) == ("CON", [lyon["id"]])
        recalled = await call(client, "recall", question="Where does the user live?", budget=50)
        assert recalled["context"] == f"{LYON} -> {GHENT}"
        [found] = recalled["memories"]
        assert (found["id"], found["observed_at"], len(found["sources"])) == (ghent["id"], "2026-03-01", 2)
        why = await call(client, "explain", id=lyon["id"])
        assert (why["state"], why["memory"]) == ("superseded", f"{LYON} -> {GHENT}")
        why = await call(client, "explain", id=ghent["id"])
        assert why["compared_with"] == [{"fact": LYON, "relation": "CON", "probability": pytest.approx(0.96)}]
        gone = await call(client, "forget", id=ghent["id"])
        assert gone["erased"] is False
        assert (await call(client, "recall", question="Where?"))["context"] == LYON
        memory.undo(gone["undo"])
        assert (await call(client, "forget", id=ghent["id"], for_good=True))["erased"] is True
        assert "no observation" in await refused(client, "explain", id=ghent["id"])

    talk(memory, work)
    assert memory.verify().ok


@pytest.mark.integration
def test_the_model_cannot_reach_another_user_nor_break_in_with_bad_input(memory: Memory) -> None:
    other = memory.add(DOG, user="noor", id="dog")

    async def work(client: Any) -> None:
        for tool in (await client.list_tools()).tools:
            assert "user" not in tool.input_schema["properties"]
            assert tool.description
        assert (await call(client, "recall", question="Any pets? Has a dog."))["memories"] == []
        for tool in ("explain", "forget"):
            assert "no observation" in await refused(client, tool, id=other.observation_id)
        assert "empty" in await refused(client, "remember", fact="  ")
        assert "ISO 8601" in await refused(client, "remember", fact=BEAGLE, observed_at="soon")
        assert await refused(client, "recall", question="x", budget=0)

    talk(memory, work)
    assert [view.id for view in memory.primaries(user="noor")] == ["dog"]
    assert memory.primaries(user="maya") == []


@pytest.mark.integration
def test_a_read_only_server_offers_no_way_to_write(memory: Memory) -> None:
    async def work(client: Any) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"recall", "explain"}

    talk(memory, work, read_only=True)


PROGRAM = """
import sys
from roam.cli import main
from roam.memory import Memory
from tests.stubs import HashEmbedder, ScriptedRelations
sys.exit(main(["mcp", "--db", sys.argv[1], "--user", "maya"],
              memory_factory=lambda path: Memory.open(path, manager=ScriptedRelations(), embedder=HashEmbedder())))
"""


@pytest.mark.integration
def test_the_command_speaks_over_standard_input(tmp_path: Path, root: Path) -> None:
    db = tmp_path / "m.db"
    parameters = StdioServerParameters(
        command=sys.executable, args=["-c", PROGRAM, str(db)], env={"PYTHONPATH": str(root)}
    )

    async def run() -> None:
        async with Client(stdio_client(parameters)) as client:
            await call(client, "remember", fact=DOG)
            assert (await call(client, "recall", question="A dog?"))["context"] == DOG

    asyncio.run(asyncio.wait_for(run(), 60))
    with Memory.open(db, manager=ScriptedRelations(), embedder=HashEmbedder()) as memory:
        assert [view.text for view in memory.primaries(user="maya")] == [DOG]
