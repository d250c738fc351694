"""The store under the interfaces of LangGraph, LlamaIndex and mem0, against the real packages where they are there."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roam.errors import InputError, NotFoundError
from roam.integrations.mem0 import Mem0Memory
from roam.integrations.mem0_arguments import FOREIGN
from roam.integrations.versions import item_id, pack, texts_of, unpack
from roam.memory import Memory
from tests.server_app import BEAGLE, DOG, GHENT, LYON, SCRIPT
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

TEA = "Likes green tea."


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


needs_langgraph = pytest.mark.skipif(not installed("langgraph"), reason="langgraph is not installed")
needs_llama = pytest.mark.skipif(not installed("llama_index"), reason="llama-index-core is not installed")
needs_mem0 = pytest.mark.skipif(not installed("mem0"), reason="mem0ai is not installed")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    model = ScriptedRelations(SCRIPT)
    with Memory.open(tmp_path / "m.db", manager=model, embedder=HashEmbedder(), fusion=JoinFuser()) as memory:
        yield memory
        assert memory.verify().ok


# mem0 -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def mem0(memory: Memory) -> Mem0Memory:
    return Mem0Memory(memory)


@pytest.mark.integration
def test_mem0_add_search_get_all(mem0: Mem0Memory) -> None:
    [lyon] = mem0.add(LYON, user_id="maya", metadata={"topic": "home"})["results"]
    assert (lyon["event"], lyon["memory"]) == ("ADD", LYON)
    parts = [{"type": "text", "text": GHENT}, {"type": "image_url", "image_url": {"url": "x"}}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None, "tool_calls": []}]
    [ghent] = mem0.add(messages, user_id="maya", timestamp="2026-03-01")["results"]
    assert (ghent["event"], ghent["previous_memory"]) == ("UPDATE", LYON)
    again = mem0.add(GHENT, user_id="maya")["results"]
    assert again == [{"id": ghent["id"], "memory": GHENT, "event": "NONE"}]
    [item] = mem0.get_all(user_id="maya")["results"]
    assert (item["id"], item["memory"], item["user_id"]) == (ghent["id"], f"{LYON} -> {GHENT} | {GHENT}", "maya")
    assert item["created_at"].startswith("2026-03-01")
    mem0.add(TEA, user_id="maya")
    found = mem0.search("green tea?", filters={"user_id": "maya"}, top_k=1)["results"]
    assert [entry["memory"] for entry in found] == [TEA]
    assert mem0.search("tea", user_id="maya", threshold=1.1)["results"] == []
    assert mem0.search("tea", user_id="noor")["results"] == []
    by_topic = mem0.get_all(filters={"user_id": "maya", "topic": "home"})["results"]
    assert [entry["id"] for entry in by_topic] == [ghent["id"]]  # one of the facts behind it was told with that topic


@pytest.mark.integration
def test_mem0_update_history_delete(mem0: Mem0Memory, tmp_path: Path) -> None:
    [added] = mem0.add(DOG, user_id="maya", metadata={"topic": "pets"})["results"]
    mem0.update(added["id"], "Has a cat.")
    item = mem0.get(added["id"])
    assert item is not None
    assert (item["id"], item["memory"], item["metadata"]) == (added["id"], "Has a cat.", {"topic": "pets"})
    assert [entry["id"] for entry in mem0.get_all(user_id="maya")["results"]] == [added["id"]]
    mem0.update(added["id"], "Has a cat.")  # once more changes nothing
    events = mem0.history(added["id"])
    assert [(row["event"], row["old_memory"], row["new_memory"]) for row in events] == [
        ("ADD", None, DOG), ("UPDATE", DOG, "Has a cat."),
    ]  # fmt: skip
    mem0.delete(added["id"])
    assert mem0.get(added["id"]) is None
    with pytest.raises(NotFoundError, match="no memory"):
        mem0.history(added["id"])
    raw = (tmp_path / "m.db").read_bytes()
    assert b"Has a cat" not in raw
    assert b"Has a dog" not in raw


@pytest.mark.integration
def test_S11_mem0_delete_all_takes_all_and_says_how_many(mem0: Mem0Memory) -> None:
    for number in range(40):
        mem0.add(f"Fact number {number}.", user_id="maya", run_id="r1" if number < 5 else None)
    mem0.add(DOG, user_id="noor")
    assert mem0.delete_all(user_id="maya", run_id="r1")["message"].startswith("5 ")
    assert len(mem0.get_all(user_id="maya")["results"]) == 35
    assert mem0.delete_all(user_id="maya")["message"].startswith("35 ")
    assert mem0.get_all(user_id="maya")["results"] == []
    assert len(mem0.get_all(user_id="noor")["results"]) == 1


@pytest.mark.integration
def test_mem0_scopes(mem0: Mem0Memory) -> None:
    mem0.add(LYON, user_id="maya", agent_id="chef", run_id="r1")
    mem0.add(TEA, user_id="maya", agent_id="guide")
    mem0.add(DOG, agent_id="chef")
    texts = lambda **scope: [entry["memory"] for entry in mem0.get_all(**scope)["results"]]  # noqa: E731
    assert texts(user_id="maya") == [LYON, TEA]
    assert texts(user_id="maya", agent_id="chef") == [LYON]
    assert texts(user_id="maya", run_id="r2") == []
    assert texts(agent_id="chef") == [DOG]
    [item] = mem0.get_all(agent_id="chef")["results"]
    assert (item["agent_id"], "user_id" in item) == ("chef", False)
    for wrong in ({}, {"filters": {"OR": []}}, {"user_id": "agent_id:chef"}, {"user_id": ""}):
        with pytest.raises(InputError):
            mem0.get_all(**wrong)
    with pytest.raises(InputError, match="metadata"):
        mem0.add(LYON, user_id="maya", metadata={"long": "x" * 300})


@pytest.mark.integration
def test_mem0_facts_come_from_the_given_extraction(memory: Memory) -> None:
    seen: list[Any] = []

    def extract(messages: Any) -> list[str]:
        seen.append(messages)
        return [LYON, TEA]

    mem0 = Mem0Memory(memory, extract=extract)
    assert (
        len(mem0.add([{"role": "user", "content": "Hi, I am from Lyon and like tea"}], user_id="maya")["results"]) == 2
    )
    assert len(mem0.add("Has a dog.", user_id="maya", infer=False)["results"]) == 1
    assert len(seen) == 1


@needs_mem0
@pytest.mark.integration
def test_mem0s_own_class_takes_the_same_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEM0_TELEMETRY", "False")
    monkeypatch.setenv("MEM0_DIR", str(tmp_path))
    from mem0 import Memory as Original

    for name in ("add", "get", "get_all", "search", "update", "delete", "delete_all", "history"):
        theirs = inspect.signature(getattr(Original, name)).parameters
        ours = inspect.signature(getattr(Mem0Memory, name)).parameters
        asked = [key for key, value in theirs.items() if value.kind.name != "VAR_KEYWORD"]
        assert [key for key in asked if key not in ours and key not in FOREIGN] == [], name
        by_place = [key for key, value in theirs.items() if value.kind.name == "POSITIONAL_OR_KEYWORD"]
        for place, key in enumerate(by_place):
            if key in ours and ours[key].kind.name == "POSITIONAL_OR_KEYWORD":
                assert list(ours)[place] == key, (name, key)


@pytest.mark.integration
def test_mem0s_names_of_yesterday_and_what_is_not_there(mem0: Mem0Memory) -> None:
    [added] = mem0.add(DOG, user_id="maya", metadata={"topic": "pets"}, prompt=None, timestamp="2026-01-05")["results"]
    for number in range(25):
        mem0.add(f"Fact number {number}.", user_id="maya")
    assert len(mem0.search("A fact?", user_id="maya", rerank=False)["results"]) == 20
    assert len(mem0.search("A fact?", user_id="maya", limit=3)["results"]) == 3
    assert len(mem0.get_all(user_id="maya", limit=2)["results"]) == 2
    mem0.update(added["id"], metadata={"topic": "animals"})
    item = mem0.get(added["id"])
    assert item is not None
    assert (item["memory"], item["metadata"]) == (DOG, {"topic": "animals"})
    assert item["created_at"].startswith("2026-01-05")
    mem0.update(added["id"], data="Has a cat.")
    mem0.update(memory_id=added["id"], text="Has two cats.")
    assert [row["new_memory"] for row in mem0.history(added["id"])] == [DOG, DOG, "Has a cat.", "Has two cats."]
    wrong: list[Any] = [
        lambda: mem0.update(added["id"]),
        lambda: mem0.update(added["id"], ""),
        lambda: mem0.update(added["id"], "One.", data="Two."),
        lambda: mem0.add(DOG, user_id="maya", expiration_date="2027-01-01"),
        lambda: mem0.add(DOG, user_id="maya", user="noor"),
        lambda: mem0.search("cats", user_id="maya", rerank=True),
        lambda: mem0.search("cats", user_id="maya", top_k=0),
        lambda: mem0.get_all(filters={"user_id": "*"}),
        lambda: mem0.get_all(filters={"user_id": {"in": ["maya"]}}),
        lambda: mem0.add(42, user_id="maya"),  # type: ignore[arg-type]
        lambda: mem0.add([DOG], user_id="maya"),  # type: ignore[list-item]
        lambda: mem0.add([{"role": "user"}], user_id="maya"),
        lambda: mem0.add([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], user_id="maya"),
    ]
    for call in wrong:
        with pytest.raises(InputError):
            call()


# Versions -------------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_what_an_item_carries_survives_as_source() -> None:
    extras = {"agent_id": "chef", "metadata": {"n": 1, "s": "é"}}
    assert unpack(pack(extras)) == extras
    assert unpack(pack({})) == {}
    assert unpack("chat-12") == {"source": "chat-12"}
    assert unpack("{broken") == {"source": "{broken"}
    with pytest.raises(InputError):
        pack({"x": float("nan")})
    with pytest.raises(InputError):
        pack({"x": object()})
    assert (item_id("a~2"), item_id("a~b"), item_id("a")) == ("a", "a~b", "a")


# LangGraph ------------------------------------------------------------------------------------------------------


@needs_langgraph
@pytest.mark.integration
def test_langgraph_puts_gets_searches_and_deletes(memory: Memory, tmp_path: Path) -> None:
    from langgraph.store.base import BaseStore

    from roam.integrations.langgraph import RoamStore

    store = RoamStore(memory)
    assert isinstance(store, BaseStore)
    maya, noor = ("users", "maya"), ("users", "noor")
    store.put(maya, "home", {"text": LYON, "observed_at": "2026-01-05", "topic": "home"})
    store.put(noor, "home", {"text": TEA})
    item = store.get(maya, "home")
    assert item is not None
    assert item.value == {"text": LYON, "observed_at": "2026-01-05", "topic": "home"}
    assert (item.key, item.namespace) == ("home", maya)
    assert store.get(maya, "nothing") is None
    store.put(maya, "later", {"text": GHENT, "observed_at": "2026-03-01"})
    [found] = store.search(maya, query="Where does the user live?")
    assert (found.key, found.value["text"]) == ("later", f"{LYON} -> {GHENT}")
    assert found.score is not None
    assert store.get(maya, "home").value["text"] == LYON  # type: ignore[union-attr]
    assert {entry.namespace for entry in store.search(("users",))} == {maya, noor}
    assert store.search(maya, filter={"topic": "home"}) == []
    assert [entry.key for entry in store.search(noor, filter={"topic": {"$ne": "home"}})] == ["home"]
    assert store.list_namespaces(prefix=("users",)) == [maya, noor]
    assert store.list_namespaces(max_depth=1) == [("users",)]
    assert store.list_namespaces(suffix=("noor",)) == [noor]
    store.put(maya, "later", {"text": BEAGLE})
    assert store.get(maya, "later").value == {"text": BEAGLE}  # type: ignore[union-attr]
    assert [entry.value["text"] for entry in store.search(maya)] == [LYON, BEAGLE]  # what was overwritten is undone
    store.delete(maya, "later")
    assert store.get(maya, "later") is None
    assert GHENT.encode() not in (tmp_path / "m.db").read_bytes()
    for wrong in ({"content": LYON}, {"text": 3}):
        with pytest.raises(InputError, match="field"):
            store.put(maya, "x", wrong)
    with pytest.raises(InputError, match=r"\$regex"):
        store.search(maya, filter={"topic": {"$regex": "x"}})
    with pytest.raises(InputError, match="number"):
        store.search(maya, filter={"topic": {"$gt": "x"}})


@needs_langgraph
@pytest.mark.integration
def test_langgraph_answers_as_its_own_store_does(memory: Memory) -> None:
    from langgraph.store.memory import InMemoryStore

    from roam.integrations.langgraph import RoamStore

    store, own = RoamStore(memory), InMemoryStore()
    places = [("users", "maya"), ("users", "noor", "pets"), ("a b", "ü/é@x"), ("100%",)]
    for place in places:
        for number in range(3):
            value = {"text": f"{place[-1]} has fact {number}.", "n": number}
            store.put(place, f"k{number}", value)
            own.put(place, f"k{number}", value)
    store.delete(places[0], "k0")
    own.delete(places[0], "k0")
    for options in (
        {}, {"prefix": ("users",)}, {"suffix": ("pets",)}, {"prefix": ("*", "maya")}, {"max_depth": 1},
        {"limit": 1, "offset": 1}, {"prefix": ("nobody",)},
    ):  # fmt: skip
        assert store.list_namespaces(**options) == own.list_namespaces(**options), options
    for place in (*places, ("nobody",)):
        for key in ("k0", "k1", "k9"):
            mine, theirs = store.get(place, key), own.get(place, key)
            assert (mine and mine.value, mine and mine.namespace) == (
                theirs and theirs.value,
                theirs and theirs.namespace,
            )
    filters = ({"n": 1}, {"n": {"$ne": 1}}, {"n": {"$gt": 0}}, {"n": {"$gte": 1, "$lt": 2}}, {"n": {"$lte": 0.5}}, None)
    for where in filters:
        for place in (("users",), *places):
            found = {(item.namespace, item.key) for item in store.search(place, filter=where)}
            assert found == {(item.namespace, item.key) for item in own.search(place, filter=where)}, (where, place)
    pages = [[item.key for item in store.search(places[1], limit=2, offset=start)] for start in (0, 2)]
    assert [len(page) for page in pages] == [2, 1]
    assert {key for page in pages for key in page} == {"k0", "k1", "k2"}


@needs_langgraph
@pytest.mark.integration
def test_langgraph_hands_the_store_to_a_graphs_nodes(memory: Memory) -> None:
    graphs = pytest.importorskip("langgraph.graph", reason="only langgraph-checkpoint is installed")
    from langgraph.store.base import BaseStore
    from typing_extensions import TypedDict

    from roam.integrations.langgraph import RoamStore

    class State(TypedDict):
        said: str
        known: str

    async def node(state: State, *, store: BaseStore) -> dict[str, str]:
        found = await store.asearch(("maya",), query=state["said"])
        await store.aput(("maya",), state["said"][:8], {"text": state["said"]})
        return {"known": "; ".join(item.value["text"] for item in found)}

    builder = graphs.StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(graphs.START, "node")
    graph = builder.compile(store=RoamStore(memory))
    assert asyncio.run(graph.ainvoke({"said": DOG, "known": ""}))["known"] == ""
    assert asyncio.run(graph.ainvoke({"said": BEAGLE, "known": ""}))["known"] == DOG
    assert [view.atomic_text for view in memory.primaries(user="maya")] == [BEAGLE]


# LlamaIndex -----------------------------------------------------------------------------------------------------


@needs_llama
@pytest.mark.integration
def test_llama_index_stores_what_leaves_the_window_and_brings_back_what_fits(memory: Memory) -> None:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import BaseMemoryBlock

    from roam.integrations.llama_index import RoamMemoryBlock

    block = RoamMemoryBlock(memory=memory, user="maya", budget=20)
    assert isinstance(block, BaseMemoryBlock)

    async def run() -> None:
        said = [
            ChatMessage(role="user", content=LYON),
            ChatMessage(role="assistant", content="Nice."),
            ChatMessage(role="user", content=GHENT),
        ]
        await block.aput(said, from_short_term_memory=True)
        asked = [ChatMessage(role="user", content="Where does the user live?")]
        assert await block.aget(asked) == f"{LYON} -> {GHENT}"
        assert await block.aget([]) == ""
        assert await block.atruncate("one two\nthree four five", 3) == "one two"
        assert await block.atruncate("one two", 2) is None

    asyncio.run(run())
    assert len(texts_of(memory, memory.primaries(user="maya")[0].id)) == 1


@needs_llama
@pytest.mark.integration
def test_llama_index_has_its_own_memory_use_the_block(memory: Memory) -> None:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import Memory as ChatMemory

    from roam.integrations.llama_index import RoamMemoryBlock

    async def run() -> str:
        chat = ChatMemory.from_defaults(
            session_id="maya",
            token_limit=60,
            chat_history_token_ratio=0.3,
            token_flush_size=15,
            memory_blocks=[RoamMemoryBlock(memory=memory, user="maya", budget=40)],
            tokenizer_fn=str.split,
        )
        for text in (LYON, DOG, GHENT, BEAGLE, *(f"Said number {number} of the small talk." for number in range(8))):
            await chat.aput(ChatMessage(role="user", content=text))
        await chat.aput(ChatMessage(role="user", content="Where does the user live?"))
        return " ".join(str(message.content) for message in await chat.aget())

    prompt = asyncio.run(run())
    assert f"<long_term_memory>\n{GHENT}" in prompt  # from the store: the message itself has left the window
    assert {LYON, GHENT, DOG, BEAGLE} <= {
        memory.get(member).observation.text for view in memory.primaries(user="maya") for member in view.members
    }
