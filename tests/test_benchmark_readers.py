"""Readers of the benchmarks' files: every form, and what they say about bad ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.locomo import read_locomo
from eval.longmemeval import pieces, read_longmemeval
from eval.meme_episodes import read_meme
from eval.record_files import iso_time
from eval.update_stores import UPDATE_ID, read_update_stores
from roam.errors import DataError
from tests.benchmark_samples import (
    LOCOMO,
    LOCOMO_ROWS,
    LONGMEMEVAL,
    LONGMEMEVAL_EVIDENCE,
    MEME,
    UPDATES,
    write_array,
    write_lines,
)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("written", "iso"),
    [
        ("2024-05-01", "2024-05-01"),
        ("2023/04/10 (Mon) 14:47", "2023-04-10T14:47"),
        ("2023/04/10", "2023-04-10T00:00"),
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56"),
    ],
)
def test_dates_of_all_benchmarks(written: str, iso: str) -> None:
    assert iso_time(written) == iso


@pytest.mark.unit
@pytest.mark.parametrize("bad", ["yesterday", "2023/13/01 (Mon) 10:00", "", None, 5])
def test_other_dates_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="time"):
        iso_time(bad)


@pytest.mark.unit
def test_update_stores(tmp_path: Path) -> None:
    (store,) = read_update_stores(write_lines(tmp_path / "u.jsonl", UPDATES))
    assert [fact.id for fact in store.facts] == ["a0", "a1", "a2"]
    first, second = store.updates
    assert first.fact == (UPDATE_ID, "Ilse Brandt repairs clocks in Linz.", None)
    assert (first.gold, second.gold) == (("a0",), ("a1", "a2"))


@pytest.mark.unit
def test_meme_episodes(tmp_path: Path) -> None:
    (episode,) = read_meme(write_array(tmp_path / "m.json", [MEME]))
    assert episode.stream.facts[0] == ("x0", "The user lives in Osterby.", "2024-02-01T09:00")
    assert [question.kind for question in episode.stream.questions] == ["Cas", "Del", "ER"]
    assert episode.unsupported == 1
    assert episode.chains() == [("x0", "x5")]
    assert episode.deletions() == [("x3", "x6")]


@pytest.mark.unit
def test_longmemeval_released_and_evidence(tmp_path: Path) -> None:
    abstention = LONGMEMEVAL | {"question_id": "q2_abs"}
    found = read_longmemeval(write_array(tmp_path / "l.json", [LONGMEMEVAL, abstention]))
    (stream,) = found.streams
    assert found.left_out == 1
    assert [(fact.id, fact.time) for fact in stream.facts] == [
        ("s1.t0", "2024-05-01T21:15"), ("s0.t0", "2024-05-02T08:30"), ("s0.t1", "2024-05-02T08:30"),
    ]  # fmt: skip
    assert stream.questions[0].gold == ("s0.t0",)
    (evidence,) = read_longmemeval(write_lines(tmp_path / "e.jsonl", LONGMEMEVAL_EVIDENCE)).streams
    assert [fact.text for fact in evidence.facts] == ["I bought new reeds for my oboe."]
    assert evidence.questions[0].gold == ("s0.t0",)


@pytest.mark.unit
def test_long_turns_are_cut_between_sentences() -> None:
    assert pieces("One two.  Three\nfour. Five six seven.", 20) == ["One two. Three four.", "Five six seven."]
    assert pieces("abcdefgh ij", 5) == ["abcde", "ij"]
    text = "A short one. " * 300
    assert all(len(part) <= 2000 for part in pieces(text, 2000))
    assert " ".join(pieces(text, 2000)) == text.strip()


@pytest.mark.unit
def test_locomo_released_and_rows(tmp_path: Path) -> None:
    found = read_locomo(write_array(tmp_path / "l.json", [LOCOMO]))
    (stream,) = found.streams
    assert [(fact.id, fact.time) for fact in stream.facts] == [
        ("s1.Ada.0", "2024-03-03T16:05"), ("s1.Bo.0", "2024-03-03T16:05"), ("s2.Ada.0", "2024-03-09T09:00"),
    ]  # fmt: skip
    assert [(question.kind, question.gold) for question in stream.questions] == [
        ("single-hop", ("s2.Ada.0",)), ("multi-hop", ("s1.Ada.0", "s2.Ada.0")),
    ]  # fmt: skip
    assert found.uncovered == 2
    (rows,) = read_locomo(write_lines(tmp_path / "l.jsonl", LOCOMO_ROWS)).streams
    assert rows.questions[0].gold == ("d1.1",)


def changed(record: dict[str, Any], place: str, value: object) -> dict[str, Any]:
    """`record` with the value at a dotted place ("questions.0.answer") replaced."""
    head, _, rest = place.partition(".")
    if not rest:
        return record | {head: value}
    inner = record[head]
    if isinstance(inner, list):
        number, _, rest = rest.partition(".")
        copy = list(inner)
        copy[int(number)] = changed(copy[int(number)], rest, value)
        return record | {head: copy}
    return record | {head: changed(inner, rest, value)}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("read", "record", "place", "value", "said"),
    [
        (read_update_stores, UPDATES, "atoms.0.text", " ", "text"),
        (read_update_stores, UPDATES, "atoms.0.id", UPDATE_ID, "twice"),
        (read_update_stores, UPDATES, "questions.0.gold_atom_ids", ["a9"], "a9"),
        (read_update_stores, UPDATES, "questions", [], "0 questions"),
        (read_update_stores, UPDATES, "questions.0.update", None, "NoneType"),
        (read_meme, MEME, "atoms.0.kind", "story", "story"),
        (read_meme, MEME, "atoms.5.supersedes", "x6", "no earlier atom"),
        (read_meme, MEME, "questions.1.gold_atom_ids", ["x77"], "x77"),
        (read_meme, MEME, "questions.1.task", "Sum", "Sum"),
        (read_meme, MEME, "atoms.0.time", "soon", "soon"),
        (read_longmemeval, LONGMEMEVAL, "question_type", "riddle", "riddle"),
        (read_longmemeval, LONGMEMEVAL, "haystack_dates", [], "0 dates"),
        (read_longmemeval, _without := {k: v for k, v in LONGMEMEVAL.items() if "haystack" not in k}, "answer", "",
         "neither"),
        (read_locomo, LOCOMO, "qa.0.category", 9, "category 9"),
        (read_locomo, LOCOMO, "observation", {"notes": {}}, "session_1_observation"),
        (read_locomo, LOCOMO, "conversation", {}, "session_2_date_time"),
        (read_locomo, LOCOMO_ROWS, "atoms", [], "no observation"),
    ],
)  # fmt: skip
def test_bad_records_are_named_by_line(
    tmp_path: Path, read: Callable[[Path], object], record: dict[str, Any], place: str, value: object, said: str
) -> None:
    good = LOCOMO if record is LOCOMO_ROWS else LONGMEMEVAL if record is _without else record
    path = write_lines(tmp_path / "bad.jsonl", good, changed(record, place, value))
    with pytest.raises(DataError, match=r"1 bad .*bad\.jsonl:2: ") as caught:
        read(path)
    assert said in str(caught.value)


@pytest.mark.unit
@pytest.mark.parametrize(("text", "said"), [("[1]", r"\[0\]: a JSON int"), ("[{", "JSON array"), ("\n", "no MEME"),
                                            ("7", ":1: a JSON int")])  # fmt: skip
def test_files_of_another_shape_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(DataError, match=said):
        read_meme(tmp_path / "f")
    with pytest.raises(DataError, match="cannot be read"):
        read_meme(tmp_path / "missing")
