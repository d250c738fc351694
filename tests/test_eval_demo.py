"""The bundled stream and questions, and the page that `make run` ends with."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import roam.embedders
import roam.managers
from eval.demo import growth, main
from eval.demo_data import Outcome, StreamFact, outcomes, read_questions, read_stream, superseded
from roam.errors import DataError
from roam.fusion import DeterministicFuser
from roam.managers import Manager
from roam.records import Decision, Observation
from roam.relations import RELATIONS, Relation
from roam.validation import parse_time
from tests.stubs import HashEmbedder, ScriptedRelations

AUTHORED = ("families.jsonl", "relation_test_843.jsonl", "fusion_train.jsonl", "fusion_test.jsonl")


@pytest.fixture(scope="module")
def stream() -> list[StreamFact]:
    return read_stream(Path(__file__).parent.parent / "data" / "demo_stream.jsonl")


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def normal(text: str) -> str:
    return re.sub(r"\W+", " ", text.casefold()).strip()


@pytest.mark.unit
def test_the_stream_is_what_the_readme_says(stream: list[StreamFact]) -> None:
    labels = Counter(fact.expected for fact in stream)
    assert len(stream) >= 220
    assert len({fact.observation.user for fact in stream}) >= 4
    assert labels[Relation.IND] > len(stream) / 2
    assert all(labels[relation] >= 15 for relation in RELATIONS)
    times = [fact.observation.observed_at for fact in stream]
    assert all(times)
    latest, late = {}, 0
    for fact, time in zip(stream, times, strict=True):
        assert time is not None
        user = fact.observation.user
        late += time < latest.get(user, time)
        latest[user] = max(time, latest.get(user, time))
    assert late >= 5
    assert (max(t for t in times if t) - min(t for t in times if t)).days > 180


@pytest.mark.unit
def test_the_stream_shares_no_text_with_the_data_sets(stream: list[StreamFact], root: Path) -> None:
    authored = {
        normal(text)
        for name in AUTHORED
        for line in (root / "data" / name).read_text(encoding="utf-8").splitlines()
        for text in strings(json.loads(line))
    }
    own = [(fact.observation.user, normal(fact.observation.text)) for fact in stream]
    assert [text for _, text in own if text in authored] == []
    assert len(set(own)) == len(own)


@pytest.mark.unit
def test_every_question_has_an_answer_in_the_stream(stream: list[StreamFact], root: Path) -> None:
    questions = read_questions(root / "data" / "demo_questions.jsonl")
    assert len(questions) >= 12
    outdated = superseded(stream)
    for question in questions:
        mine = [fact.observation for fact in stream if fact.observation.user == question.user]
        current = [fact.text.casefold() for fact in mine if fact.id not in outdated]
        answers = [text for text in current if question.must_contain[0].casefold() in text]
        assert answers, question
        for old in map(str.casefold, question.not_current):
            assert any(old in fact.text.casefold() for fact in mine), question
            assert not any(old in text for text in answers), question


def fact(id: str, expected: str, reference: str | None = None, day: str = "2026-01-01") -> StreamFact:
    return StreamFact(Observation(f"text {id}", "u", parse_time(day), None, id), Relation(expected), reference)


def decision(id: str, relation: str, primary: str, demoted: tuple[str, ...], matched: tuple[str, ...]) -> Decision:
    return Decision(f"e-{id}", id, Relation(relation), primary, demoted, matched)


@pytest.mark.unit
def test_outcomes_follow_groups_at_the_time_of_each_decision() -> None:
    facts = [fact("a", "IND"), fact("b", "CON", "a"), fact("c", "EQV", "a"), fact("d", "IND"), fact("e", "NSO", "d"),
             fact("f", "EQV", "d"), fact("g", "OSN", "d")]  # fmt: skip
    decisions = [
        decision("a", "IND", "a", (), ()),
        decision("b", "CON", "b", ("a",), ("a",)),
        decision("c", "CON", "c", ("b",), ("b",)),  # b stands for a by now: the right group, another relation
        decision("d", "EQV", "c", ("d",), ("c",)),  # independent, but merged
        decision("e", "NSO", "c", ("e",), ("c",)),  # c stands for d
        decision("f", "IND", "f", (), ()),
        decision("g", "OSN", "g", ("f",), ("f",)),
    ]
    assert outcomes(facts, decisions) == [
        Outcome.RIGHT, Outcome.RIGHT, Outcome.OTHER_RELATION, Outcome.OTHER_GROUP, Outcome.RIGHT, Outcome.MISSED,
        Outcome.OTHER_GROUP,
    ]  # fmt: skip
    assert growth(facts, decisions) == [1, 1, 1, 1, 1, 2, 2]


@pytest.mark.unit
def test_the_older_side_of_a_conflict_is_outdated_whatever_came_first() -> None:
    facts = [
        fact("a", "IND", day="2026-02-01"),
        fact("b", "CON", "a", day="2026-03-01"),
        fact("c", "CON", "b", day="2026-01-01"),
    ]
    assert superseded(facts) == {"a", "c"}
    same, weaker, stronger = fact("d", "EQV", "a"), fact("e", "NSO", "a"), fact("f", "OSN", "d")
    assert superseded([*facts, same, weaker, stronger]) == {"a", "c", "d", "f"}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expect": "CON"}, "names no earlier fact"),
        ({"expect": "CON:d9"}, "names no earlier fact"),
        ({"expect": "SAME:d1"}, "unknown relation"),
        ({"observed_at": "spring"}, "observed_at"),
        ({"id": "d1"}, "is taken"),
        ({"text": None}, None),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, change: dict[str, object], message: str | None) -> None:
    row = {"id": "d1", "user": "u", "text": "x", "observed_at": "2026-01-01", "source": "s", "expect": "IND"}
    other: dict[str, object] = {**row, "id": "d2", **change}
    if message is None:
        del other["text"]
    file = tmp_path / "stream.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps(other) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=message or "no 'text'") as caught:
        read_stream(file)
    assert f"{file}:2" in str(caught.value)


def write_report(folder: Path) -> None:
    score = {"precision": 0.5, "recall": 0.25, "f1": 0.375, "support": 7}
    report = {
        "data": "pairs.jsonl", "pairs": 35, "macro_f1": 0.375, "accuracy": 0.5,
        "per_class": {str(relation): score for relation in RELATIONS}, "intervals": {"macro_f1": [0.3, 0.4]},
    }  # fmt: skip
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


@pytest.mark.integration
def test_the_page_of_a_manager_that_knows_the_notes(
    stream: list[StreamFact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = {fact.observation.id: fact.observation.text for fact in stream}
    script = {(text[f.reference], f.observation.text): f.expected for f in stream if f.reference}
    manager = Manager(ScriptedRelations(script), DeterministicFuser())
    monkeypatch.setattr(roam.managers, "load_manager", lambda name, base=None: manager)
    monkeypatch.setattr(roam.embedders, "load_embedder", HashEmbedder)
    write_report(tmp_path / "report")
    out = tmp_path / "out"
    assert main(["--report", str(tmp_path / "report"), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() == (out / "page.md").read_text(encoding="utf-8").strip()
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    before, after, cost = page["before"], page["after"], page["cost"]
    assert (before["primaries"], before["evidence"]) == (len(stream), 0)
    assert after["primaries"] + after["evidence"] == len(stream)
    assert after["primaries"] == page["growth"][-1] < before["primaries"]
    assert after["outdated_primaries"] < before["outdated_primaries"] == after["outdated"]
    assert cost["prompted_calls"] == cost["prompted_relation_calls"] + after["evidence"]
    assert cost["llm_calls"] == 0
    assert 0 < cost["forward_passes"] <= len(stream)
    counts = page["agreement"]["by_relation"]
    assert sum(sum(row.values()) for row in counts.values()) == len(stream)
    assert counts["IND"]["right"] == sum(fact.expected is Relation.IND for fact in stream)
    assert page["agreement"]["wrong_merges_of_independent"] == {}
    assert all(row["tokens"] <= 256 for row in page["questions"])
    for part in ("| CON ", "37.5", "append-all", "forward passes", "LLM calls", "report.json"):
        assert part in printed


@pytest.mark.unit
def test_without_a_report_the_demo_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--report", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "eval.relation" in error
    assert error.count("\n") == 1
