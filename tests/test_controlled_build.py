"""Controlled episodes written with an LLM: what it is asked, how its texts are dated, filtered and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.controlled_build import main
from eval.episodes import MemoryRole, read_episodes
from roam import embedders
from tests.benchmark_samples import write_lines
from tests.llm_server import Body, serving
from tests.stubs import HashEmbedder
from tests.test_controlled import BIRDS, record

pytestmark = pytest.mark.unit
GOLD = "The user takes violin lessons with Petra Hulst."


@pytest.fixture(autouse=True)
def hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedders, "load_embedder", HashEmbedder)


def without_confounders(question_type: str) -> dict[str, Any]:
    found = record(question_type)
    found["memories"] = [memory for memory in found["memories"] if memory["role"] != "confounder"]
    found["memories"][0]["id"] = "c0"  # no id that a confounder may take again
    return found


def writes(body: Body) -> str:
    """Ten texts that pass, one that states the answer, one that repeats another."""
    old = "earlier state" in body["messages"][0]["content"]
    lesson = "The user takes violin lessons with {} Maddox." if old else "A {} near the user's violin school sings."
    texts = [lesson.format(bird.title()) for bird in BIRDS]
    return json.dumps({"facts": [GOLD, texts[0], *texts]})


@pytest.mark.parametrize(("question_type", "kind"), [("single-session-user", "I"), ("knowledge-update", "II")])
def test_eight_that_pass_are_kept(tmp_path: Path, question_type: str, kind: str) -> None:
    path = write_lines(tmp_path / "in.jsonl", [without_confounders(question_type)])
    with serving(writes) as server:
        arguments = [str(path), "--llm", server.endpoint, "--out", str(tmp_path / "out.jsonl")]
        assert main(arguments) == 0
        assert main(arguments) == 0
        assert len(server.requests) == 1  # the second run took the answer from the cache
        assert "Petra Hulst" in server.prompts()[0]
        assert "painted shelf" not in server.prompts()[0]  # nothing but the question and what answers it
    [episode] = read_episodes(tmp_path / "out.jsonl")
    gold = [memory.time for memory in episode.memories if memory.role is MemoryRole.GOLD]
    added = [memory for memory in episode.memories if memory.role is MemoryRole.CONFOUNDER]
    assert len(added) == 8
    assert len({memory.text for memory in added}) == 8
    assert all(memory.type == kind and "Petra" not in memory.text for memory in added)
    if kind == "II":
        assert all(memory.time < min(gold) for memory in added)
        assert len({memory.time for memory in added}) == 8
    else:
        assert {memory.time for memory in added} <= {memory.time for memory in episode.memories if memory not in added}


def test_from_longmemeval_turns_become_atoms(tmp_path: Path) -> None:
    row = {
        "question_id": "q1", "question_type": "single-session-user", "question": "Who gives the user violin lessons?",
        "answer": "Petra Hulst", "haystack_dates": ["2024/03/01 (Fri) 10:00"], "haystack_session_ids": ["s"],
        "haystack_sessions": [[{"role": "user", "content": "I paint shelves."},
                               {"role": "user", "content": "Petra Hulst teaches me.", "has_answer": True}]],
    }  # fmt: skip

    def answer(body: Body) -> str:
        said = body["messages"][-1]["content"]
        if "question" in said:
            return writes(body)
        text = GOLD if "Petra" in said else "The user paints shelves."
        return json.dumps({"facts": [{"text": text, "time": None, "turn": 1}]})

    path = write_lines(tmp_path / "lme.jsonl", [row, {**row, "question_id": "q2_abs"}])
    with serving(answer) as server:
        arguments = ["--longmemeval", "--llm", server.endpoint, "--out", str(tmp_path / "out.jsonl")]
        assert main([str(path), *arguments]) == 0
    [episode] = read_episodes(tmp_path / "out.jsonl")
    roles = {memory.text: memory.role for memory in episode.memories if memory.role is not MemoryRole.CONFOUNDER}
    assert roles == {GOLD: MemoryRole.GOLD, "The user paints shelves.": MemoryRole.BACKGROUND}


def test_an_llm_that_writes_too_little_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_lines(tmp_path / "in.jsonl", [without_confounders("single-session-user")])
    out = tmp_path / "out.jsonl"
    for answer, message in (('{"facts": ["One."]}', "1 of its candidates pass"), ("no", "no usable answer")):
        with serving(lambda _body, answer=answer: answer) as server:
            cache = str(tmp_path / f"{len(answer)}.sqlite")
            assert main([str(path), "--llm", server.endpoint, "--out", str(out), "--cache", cache]) == 2
        printed = capsys.readouterr()
        assert message in printed.out
        assert "no episode has eight" in printed.err
    assert not out.exists()
    assert main([str(path), "--llm", "m@http://127.0.0.1:9/v1", "--out", str(out), "--candidates", "3"]) == 2
    assert "write 8 or more" in capsys.readouterr().err
