"""The paper's baselines behind one interface, on a scripted LLM: what they do, what they lose, what they keep."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval import benchmark
from eval.answering import accuracy
from eval.methods import Method, build_methods, needs_llm
from eval.peers.coverage import represented, represents
from eval.peers.evermemos import EverMemOS
from eval.peers.mem0 import Mem0
from eval.peers.mem0_package import Mem0Package
from eval.peers.mem0_prompt import parse_answer
from eval.peers.store import Unit, primary_of, run_peer
from eval.store_run import Fact, Settings
from roam.errors import InputError
from roam.llm import LLMClient, LLMSettings
from roam.llm.replies import UnusableReplyError
from tests.benchmark_samples import UPDATES, write_lines
from tests.llm_server import MODEL, Body, Stub, in_turn, serving
from tests.stubs import HashEmbedder, ScriptedRelations

PIE, CHERRY = (
    Fact("f1", "The user's favourite pie is apple pie."),
    Fact("f2", "The user's favourite pie is cherry pie."),
)
CAT = Fact("f3", "Otto the cat sleeps in a drawer.")


def client(stub: Stub, **settings: Any) -> LLMClient:
    settings = {"timeout": 10.0, "transport_retries": 0, "answer_retries": 0, **settings}
    return LLMClient(LLMSettings(stub.url, MODEL, **settings))


def operation(identifier: str, text: str, event: str) -> dict[str, Any]:
    return {"id": identifier, "text": text, "event": event, "old_memory": None}


def told(*operations: Mapping[str, Any]) -> str:
    return json.dumps({"memory": operations})


def fed(stub: Stub, facts: Sequence[Fact], peer: Any = Mem0) -> list[Unit]:
    store = peer(client(stub)).open(HashEmbedder(), 5)
    for fact in facts:
        store.add(fact)
    return list(store.units())


# Mem0 -------------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_memories_are_added_updated_and_deleted() -> None:
    replies = [
        told(operation("0", PIE.text, "ADD")),
        told(operation("0", CHERRY.text, "UPDATE")),
        told(operation("0", CHERRY.text, "NONE"), operation("1", CAT.text, "ADD")),
    ]
    with serving(in_turn(replies)) as stub:
        units = fed(stub, [PIE, CHERRY, CAT])
        assert "no memories yet" in stub.prompts()[0]
        assert json.loads(stub.prompts()[1].splitlines()[0].partition(": ")[2]) == [{"id": "0", "text": PIE.text}]
    # By the paper's ratio the new wording still represents the old one; whether it states it is another measure.
    assert units == [Unit(CHERRY.text, "f2", ("f1", "f2")), Unit(CAT.text, "f3", ("f3",))]
    with serving(in_turn([replies[0], told(operation("0", PIE.text, "DELETE"))])) as stub:
        assert fed(stub, [PIE, CHERRY]) == []  # as in reports about the real one: nothing is left of either


@pytest.mark.integration
def test_rubbish_and_operations_on_nothing_add_the_fact() -> None:
    replies = [
        "no idea",
        told(operation("7", "made up", "UPDATE"), operation("8", "", "DELETE")),
        told(operation("0", "", "NONE")),
    ]
    with serving(in_turn(replies)) as stub:
        store = Mem0(client(stub)).open(HashEmbedder(), 5)
        for fact in (PIE, CAT, Fact("f4", PIE.text.upper())):
            store.add(fact)
        units = store.units()
    assert [unit.text for unit in units] == [PIE.text, CAT.text]
    assert units[0].members == ("f1", "f4")  # "already there" is covered by what is there
    assert store.misplaced == 2
    assert (store.client.usage.given_up, store.client.usage.calls) == (1, 3)


@pytest.mark.unit
@pytest.mark.parametrize(
    "text",
    ["[]", '{"memories": []}', '{"memory": {}}', told({"id": "0", "text": "a"}), told(operation("0", "a", "KEEP")),
     told(operation("0", "", "ADD")), told({**operation("0", "a", "ADD"), "id": None})],
)  # fmt: skip
def test_other_answers_are_refused(text: str) -> None:
    with pytest.raises(UnusableReplyError):
        parse_answer(text)


# EverMemOS --------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_like_facts_become_one_text_that_stands_for_all_of_them() -> None:
    with serving(lambda body: "The user likes apple and cherry pie.") as stub:
        units = fed(stub, [PIE, CAT, CHERRY], EverMemOS)
        assert len(stub.requests) == 1
        assert stub.prompts()[0].splitlines()[1:3] == [f"- {PIE.text}", f"- {CHERRY.text}"]
    assert units == [Unit("The user likes apple and cherry pie.", "f1", ("f1", "f2")), Unit(CAT.text, "f3", ("f3",))]


@pytest.mark.integration
def test_without_a_usable_text_the_facts_are_listed_and_groups_stay_within_a_memory() -> None:
    long = [Fact(f"g{n}", f"The user's favourite pie is {'apple ' * 150}pie {n}.") for n in range(4)]
    with serving(lambda body: "<think>hm</think>") as stub:
        units = fed(stub, [PIE, CHERRY, *long], EverMemOS)
    assert units[0].text.startswith(f"{PIE.text}; {CHERRY.text}")
    assert {member for unit in units for member in unit.members} == {"f1", "f2", "g0", "g1", "g2", "g3"}
    assert len(units) > 1
    assert all(len(unit.text) <= 2000 for unit in units)


# Coverage ---------------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_coverage_is_identity_then_the_ratio() -> None:
    lineage = {"same": "The user swims.", "near": "The user swims daily.", "far": "Otto sleeps in a drawer all day."}
    assert represented("the  user SWIMS", lineage) == ("same", "near")
    assert not represents("The user swims.", "Otto.")


@pytest.mark.unit
@given(st.text(max_size=30))
def test_every_text_represents_itself(text: str) -> None:
    assert represents(text, f" {text}. ")


@pytest.mark.unit
def test_a_fact_goes_with_the_text_it_wrote() -> None:
    units = [Unit("x", "b", ("a", "b")), Unit("y", "a", ("a",)), Unit("z", "", ("c",))]
    assert primary_of(units) == {"a": "a", "b": "b", "c": ""}


@pytest.mark.integration
def test_a_run_of_a_peer_is_what_benchmarks_measure() -> None:
    replies = [told(operation("0", PIE.text, "ADD")), told(operation("0", CAT.text, "ADD")),
               told(operation("0", CHERRY.text, "UPDATE"))]  # fmt: skip
    question = "Which pie does the user like best?"
    with serving(in_turn(replies)) as stub:
        run = run_peer([PIE, CAT, CHERRY], [question], Mem0(client(stub)), HashEmbedder(), Settings((64,)))
    assert run.primary_of == {"f1": "f2", "f2": "f2", "f3": "f3"}
    assert run.last_demoted == {"f1"}
    assert run.last_relation == "none"
    assert {unit.text: unit.members for unit in run.retrieved[question, 64]} == {
        CHERRY.text: frozenset({"f1", "f2"}), CAT.text: frozenset({"f3"}),
    }  # fmt: skip


# By name ----------------------------------------------------------------------------------------------------------


def methods(*names: str, stub: Stub | None = None) -> list[Method]:
    from contextlib import ExitStack

    asking = None if stub is None else client(stub)
    with ExitStack() as stack:
        return build_methods(names, HashEmbedder(), cache=":memory:", thresholds=None, stack=stack, client=asking)


@pytest.mark.unit
def test_methods_that_ask_an_llm() -> None:
    names = ("prompted", "prompted:con", "prompted:nofusion", "mem0", "evermemos", "evermemos:0.7")
    stub = Stub(lambda body: "", url="http://127.0.0.1:9/v1")
    found = methods(*names, stub=stub)
    assert len({json.dumps(method.identity()) for method in found}) == len(names)
    assert all(MODEL in json.dumps(method.identity()) for method in found)
    assert [method.one_by_one for method in found] == [True] * 3 + [False] * 3
    assert [needs_llm(name) for name in ("roam", "append", *names)] == [False, False] + [True] * len(names)
    with pytest.raises(InputError, match="--llm"):
        methods("mem0")
    for name in ("prompted:often", "mem0:x", "evermemos:x"):
        with pytest.raises(InputError, match=name):
            methods(name, stub=stub)


@pytest.mark.unit
@pytest.mark.parametrize("version", [None, "2.2.1"])
def test_the_real_package_must_be_the_release_that_manages(
    monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    def installed(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", installed)
    with pytest.raises(InputError, match=r"pip install mem0ai==1\.0\.11"):
        Mem0Package(LLMClient(LLMSettings("http://127.0.0.1:9/v1", MODEL)))


@pytest.mark.integration
def test_the_real_package_is_fed_the_same_facts_and_drops_what_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEM0_TELEMETRY", "False")  # read at import
    pytest.importorskip("mem0", reason="pip install mem0ai==1.0.11 in an environment of its own")
    replies = [
        told(operation("0", PIE.text, "ADD")),
        told(operation("0", CHERRY.text, "UPDATE")),
        "no idea",
        told(operation("0", CHERRY.text, "NONE"), operation("1", "Bo bakes bread.", "ADD")),
    ]
    with serving(in_turn(replies)) as stub:
        peer = Mem0Package(client(stub))
        store = peer.open(HashEmbedder(), 5)
        for fact in (PIE, CHERRY, CAT, Fact("f4", "Bo bakes bread.")):
            store.add(fact)
        units = sorted(store.units(), key=lambda unit: unit.anchor)
    assert units == [Unit(CHERRY.text, "f2", ("f1", "f2")), Unit("Bo bakes bread.", "f4", ("f4",))]
    assert peer.usage.calls == 4  # the extraction call is answered with the atom


@pytest.mark.integration
def test_benchmarks_take_all_managers_and_an_answerer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("roam.embedders.load_embedder", lambda name: HashEmbedder())

    def answer(body: Body) -> str:
        rules, last = body["messages"][0]["content"], body["messages"][-1]["content"]
        if "four operations" in rules or "one of four" in rules:
            fact = json.loads(last.splitlines()[-1].partition(": ")[2])[0]
            return told(operation("x", fact, "ADD"))
        if '"relation"' in rules:
            return '{"relation": "IND"}'
        return "merged"

    data = write_lines(tmp_path / "u.jsonl", UPDATES)
    with serving(answer) as stub:
        argv = ["updates", "--data", str(data), "--managers", "append,prompted,mem0,evermemos", "--llm", stub.endpoint,
                "--out", str(tmp_path / "out")]  # fmt: skip
        assert benchmark.main(argv) == 0
        sent = len(stub.requests)
        assert benchmark.main([*argv, "--cache", str(tmp_path / "other.sqlite")]) == 0
        assert len(stub.requests) == sent  # the answers are on disk
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert {name: entry["new_retrievable"] for name, entry in report["managers"].items()} == dict.fromkeys(
        ("append", "prompted", "mem0", "evermemos"), 1.0
    )
    timings = json.loads((tmp_path / "out" / "timings.json").read_text(encoding="utf-8"))
    assert timings["llm"]["calls"] == 0
    assert timings["llm"]["replayed"] >= sent


@pytest.mark.integration
def test_answers_are_judged_by_question_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("roam.embedders.load_embedder", lambda name: HashEmbedder())
    monkeypatch.setattr("eval.methods._load", lambda name: ScriptedRelations({}))

    def memory(identifier: str, text: str, role: str) -> dict[str, Any]:
        return {"id": identifier, "text": text, "time": "2026-01-05", "role": role, "ctype": None}

    episodes = [
        {"question_id": f"q{n}", "question_type": kind, "question": f"Which {pie} pie?", "answer": pie,
         "question_date": "2026-05-01", "memories": [memory("g", f"The user likes {pie} pie.", "gold")]}
        for n, (kind, pie) in enumerate([("single", "apple"), ("single", "pear"), ("update", "plum")])
    ]  # fmt: skip

    def answer(body: Body) -> str:
        told = body["messages"][1]["content"]
        if told.startswith("Notes:"):
            assert "Current date: 2026-05-01" in told
            return next(pie for pie in ("apple", "pear", "plum") if f"likes {pie}" in told)
        return "unsure" if "plum" in told else json.dumps({"correct": "apple" in told})

    with serving(answer) as stub:
        argv = ["controlled", "--data", str(write_lines(tmp_path / "e.jsonl", *episodes)), "--managers", "append",
                "--answerer", stub.endpoint, "--confounders", "0", "--out", str(tmp_path / "out")]  # fmt: skip
        assert benchmark.main(argv) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    entry = report["managers"]["append"]
    assert entry["accuracy"] == pytest.approx(1 / 3)
    assert entry["accuracy_by_question_type"] == {"single": 0.5, "update": 0.0}
    assert entry["unjudged"] == 1
    page = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "## Answer accuracy" in page
    assert accuracy([])["accuracy"] is None


@pytest.mark.unit
def test_a_judge_without_an_answerer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        benchmark.main(["updates", "--data", "x", "--judge", "m@http://h/v1", "--out", str(tmp_path)])
    assert stopped.value.code == 2
