"""Pair, family and fusion files: what is read, what is refused and with which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.families import read_families, scan_families
from data.fusion import read_fusion, scan_fusion
from data.pairs import LabelledPair, file_sha256, normalise_text, read_pairs, scan_pairs, write_pairs
from roam.errors import DataError
from roam.relations import RELATIONS, Relation

ROOT = Path(__file__).parent.parent
PAIR = {"id": "1", "old": "Has a dog.", "new": "Has a brown dog.", "label": "OSN", "group": "g"}


def write_lines(path: Path, *rows: object) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def test_our_test_set_has_843_balanced_pairs() -> None:
    pairs = read_pairs(ROOT / "data" / "relation_test_843.jsonl")
    assert len(pairs) == 843
    counts = [sum(pair.label is relation for pair in pairs) for relation in RELATIONS]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_csv_with_any_delimiter_case_and_byte_order_mark(tmp_path: Path, delimiter: str, encoding: str) -> None:
    rows = [["OLD", "New", "Relation", "Topic"], ['"Likes tea, milk; and\tcafé"', "Likes tea.", "nso", "food"]]
    path = tmp_path / "pairs.csv"
    path.write_text("\r\n".join(delimiter.join(row) for row in rows), encoding=encoding, newline="")
    (pair,) = read_pairs(path)
    assert (pair.old, pair.new) == ("Likes tea, milk; and\tcafé", "Likes tea.")
    assert (pair.label, pair.domain, pair.id, pair.line) == (Relation.NSO, "food", "pairs:2", 2)


@pytest.mark.parametrize(
    "keys",
    [("old_text", "new_text", "label"), ("Old_Fact", "New_Fact", "RELATION"), ("premise", "hypothesis", "gold_label")],
)
def test_other_key_names(tmp_path: Path, keys: tuple[str, str, str]) -> None:
    path = write_lines(tmp_path / "a.jsonl", dict(zip(keys, ("a", "b", " con "), strict=True)))
    (pair,) = read_pairs(path)
    assert (pair.old, pair.new, pair.label) == ("a", "b", Relation.CON)


def test_line_numbers_count_line_breaks_inside_csv_fields(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", "old,new,label", '"a\nb",c,IND', "d,e,XYZ")
    pairs, problems = scan_pairs(path)
    assert [pair.line for pair in pairs] == [2]
    assert [problem.line for problem in problems] == [4]


def test_pairs_without_group_are_grouped_by_shared_texts(tmp_path: Path) -> None:
    rows = [("a", "b"), ("c", "d"), ("B ", "c"), ("x", "y")]
    path = write_lines(tmp_path / "a.jsonl", *({"old": old, "new": new, "label": "IND"} for old, new in rows))
    first, second, third, other = (pair.group for pair in read_pairs(path))
    assert first == second == third != other
    backwards = write_lines(
        tmp_path / "b.jsonl", *({"old": old, "new": new, "label": "IND"} for old, new in reversed(rows))
    )
    assert [pair.group for pair in read_pairs(backwards)] == [other, third, second, first]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**PAIR, "label": "EQ"}, "did you mean EQV?"),
        ({**PAIR, "label": 3}, "unknown relation 3"),
        ({**PAIR, "relation": "CON"}, "two different values for label"),
        ({**PAIR, "old": ""}, "old is empty"),
        ({**PAIR, "old": ["a"]}, "not a text"),
        ({**PAIR, "new": "a\x00b"}, "U+0000"),
        ({**PAIR, "new": "a\ud800b"}, "U+D800"),
        ({"old": "a", "label": "IND"}, "no new (keys: old, label)"),
        ({**PAIR, "old_time": "3 March"}, "use ISO 8601"),
        ({**PAIR, "probs": [0.2] * 5}, "use an object by relation"),
        ({**PAIR, "probs": {"IND": 1.0}}, "one number for each of"),
        ({**PAIR, "probs": dict.fromkeys(RELATIONS, 0.3)}, "sum to 1"),
        ('{"old": "a", "old": "b", "new": "c", "label": "IND"}', "twice"),
        ('{"old": "a", "Old": "b", "new": "c", "label": "IND"}', "differ in case only"),
        ("[1]", "not an object"),
        ('{"old": "a"', "not JSON"),
    ],
)
def test_bad_rows_are_refused_with_file_and_line(tmp_path: Path, row: object, message: str) -> None:
    path = write_lines(tmp_path / "bad.jsonl", PAIR, "", row)
    with pytest.raises(DataError) as caught:
        read_pairs(path)
    assert f"{path}:3: " in str(caught.value)
    assert message in str(caught.value)


def test_all_bad_lines_are_counted_and_the_first_ones_shown(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "bad.jsonl", *([PAIR, {**PAIR, "label": "NEI"}] * 20))
    with pytest.raises(DataError, match=r"20 bad lines") as caught:
        read_pairs(path)
    assert "and 15 more" in str(caught.value)
    with pytest.warns(UserWarning, match="20 bad lines"):
        assert len(read_pairs(path, strict=False)) == 20


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", b"", "no pairs in it"),
        ("latin.jsonl", b'{"old": "caf\xe9"}', "not UTF-8"),
        ("columns.csv", b"text,label\na,IND\n", "the header has columns ['text', 'label']"),
        ("twice.csv", b"old,new,label,label\na,b,IND,IND\n", "twice in the header"),
        ("fields.csv", b"old,new,label\na,b\n", "2 fields where the header has 3"),
        ("quote.csv", b'old,new,label\n"a,b,IND\n', "not CSV"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_pairs(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_pairs(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="is a folder"):
        read_pairs(tmp_path)


TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1).map(str.strip).filter(bool)
OPTIONAL = st.none() | TEXTS
PAIRS = st.builds(
    LabelledPair,
    id=TEXTS,
    old=TEXTS,
    new=TEXTS,
    label=st.sampled_from(RELATIONS),
    group=TEXTS,
    domain=OPTIONAL,
    source=OPTIONAL,
    old_time=st.none() | st.datetimes().map(lambda time: time.isoformat()),
    probs=st.none() | st.just(dict.fromkeys(RELATIONS, 0.2)),
)


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(PAIRS, min_size=1, max_size=5), suffix=st.sampled_from([".jsonl", ".csv", ".tsv"]))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[LabelledPair], suffix: str
) -> None:
    path = tmp_path_factory.mktemp("pairs") / f"pairs{suffix}"
    write_pairs(path, pairs)
    assert read_pairs(path) == pairs
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # no partial file stays


def test_normalised_text_ignores_case_and_spacing_only() -> None:
    assert normalise_text(" Has  a\nDOG. ") == normalise_text("has a dog.")
    assert normalise_text("cafe\u0301") == normalise_text("café")
    assert normalise_text("Has a dog.") != normalise_text("Has a dog")


def test_file_digest(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(DataError, match="cannot be read"):
        file_sha256(tmp_path / "none")


FAMILY = {
    "family": "A",
    "domain": "food",
    "base": "b",
    "eqv": ["e"],
    "spec": ["s"],
    "gen": ["g"],
    "con": [],
    "near": [],
}


def test_families(tmp_path: Path) -> None:
    path = ROOT / "data" / "families.jsonl"
    assert len(read_families(path)) == len(path.read_text(encoding="utf-8").splitlines()) > 5000
    (family,) = read_families(write_lines(tmp_path / "f.jsonl", FAMILY))
    assert family.texts() == ("b", "e", "s", "g")
    assert list(family.slots()) == ["base", "eqv", "spec", "gen", "con", "near"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({key: value for key, value in FAMILY.items() if key != "gen"}, "no slot gen"),
        ({**FAMILY, "gen": "g"}, "not a list"),
        ({**FAMILY, "gen": ["g", 1]}, "gen[1] is 1"),
        ({**FAMILY, "base": " "}, "base is empty"),
        ({**FAMILY, "specs": []}, "unknown slot specs"),
        (FAMILY, "is also on line 1"),
    ],
)
def test_bad_families(tmp_path: Path, row: dict[str, object], message: str) -> None:
    families, problems = scan_families(write_lines(tmp_path / "f.jsonl", FAMILY, row))
    assert len(families) == 1
    assert [problem.line for problem in problems] == [2]
    assert message in problems[0].message


FUSION = {
    "id": "F1",
    "relation": "eqv",
    "inputs": [{"text": "Has a dog.", "time": "2024-01-01"}, {"text": "Owns a dog.", "time": None}],
    "target": "Has a dog.",
    "must_keep": ["dog"],
    "must_not": ["twice", " times"],
}


def test_fusion(tmp_path: Path) -> None:
    assert len(read_fusion(ROOT / "data" / "fusion_train.jsonl")) == 542
    (example,) = read_fusion(write_lines(tmp_path / "f.jsonl", FUSION))
    assert example.relation is Relation.EQV
    assert example.inputs[1] == ("Owns a dog.", None)
    assert example.must_not == ("twice", " times")  # spaces belong to a substring test


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relation": "IND"}, "fuses nothing"),
        ({"relation": None}, "unknown relation None"),
        ({"inputs": [{"text": "a"}]}, "two or more"),
        ({"inputs": [{"text": "a"}, "b"]}, "inputs[1]"),
        ({"inputs": [{"text": "a", "time": "soon"}, {"text": "b"}]}, "ISO 8601"),
        ({"inputs": [{"text": "a"}, {"text": ""}]}, "inputs[1].text is empty"),
        ({"target": None}, "target is None"),
        ({"must_keep": "dog"}, "must_keep is 'dog'"),
        ({"must_not": [""]}, "must_not is"),
    ],
)
def test_bad_fusion_examples(tmp_path: Path, change: dict[str, object], message: str) -> None:
    examples, problems = scan_fusion(write_lines(tmp_path / "f.jsonl", {**FUSION, **change}))
    assert examples == []
    assert message in problems[0].message
    with pytest.raises(DataError, match="1 bad line"):
        read_fusion(tmp_path / "f.jsonl")
