"""`python -m data.check`: every kind of fault is found, a clean file is clean, exit codes are 0, 1 and 2."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from data.check import Report, check_files, main
from data.findings import MEANINGS
from roam.errors import DataError
from roam.relations import RELATIONS

DATA = Path(__file__).parent.parent / "data"
CLEAN = [
    {"id": f"{number}", "old": f"old {number}", "new": f"new {number}", "label": relation, "group": f"g{number}"}
    for number, relation in enumerate(RELATIONS)
]
FAMILY: dict[str, object] = {
    "family": "A", "domain": "food", "base": "Likes tea.", "eqv": ["Is fond of tea."], "spec": ["Likes green tea."],
    "gen": ["Likes a hot drink."], "con": ["Dislikes tea."], "near": ["Drinks tea."],
}  # fmt: skip
FUSION: dict[str, object] = {
    "id": "F1",
    "relation": "EQV",
    "inputs": [{"text": "Has a dog.", "time": "2024-01-01"}, {"text": "Owns a dog.", "time": None}],
    "target": "Has a dog.",
    "must_keep": ["dog"],
    "must_not": ["twice"],
}


def write(path: Path, *rows: object) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def pair(old: str, new: str, label: str, **more: str) -> dict[str, str]:
    return {"id": f"{old}>{new}>{label}", "old": old, "new": new, "label": label, "group": "g", **more}


def kinds(report: Report) -> dict[str, list[list[int]]]:
    out: dict[str, list[list[int]]] = {}
    for finding in report.findings:
        out.setdefault(finding.kind, []).append([place.line for place in finding.places])
    return out


def test_clean_file(tmp_path: Path) -> None:
    assert check_files([write(tmp_path / "a.jsonl", *CLEAN)]).findings == []


@pytest.mark.parametrize(
    ("rows", "kind", "lines"),
    [
        (['{"old": 1'], "malformed", [6]),
        ([pair("", "b", "IND")], "schema", [6]),
        ([pair("a", "b", "EVQ")], "label", [6]),
        ([pair("a", "b", "IND"), pair(" A", "b", "IND", id="x")], "duplicate", [6, 7]),
        ([pair("a", "b", "IND", id="x"), pair("c", "d", "IND", id="x")], "duplicate_id", [6, 7]),
        ([pair("a", "b", "IND"), pair("a", "B ", "CON")], "two_labels", [6, 7]),
        ([pair("a", "b", "OSN"), pair("b", "a", "OSN")], "swap_conflict", [6, 7]),
        ([pair("a", "b", "EQV"), pair("b", "a", "IND")], "swap_conflict", [6, 7]),
        ([pair("a", "A", "IND")], "identical_not_eqv", [6]),
    ],
)
def test_each_fault_of_pairs_is_found_once(tmp_path: Path, rows: list[object], kind: str, lines: list[int]) -> None:
    report = check_files([write(tmp_path / "a.jsonl", *CLEAN, *rows)])
    assert kinds(report) == {kind: [lines]}


@pytest.mark.parametrize(("there", "back"), [("OSN", "NSO"), ("EQV", "EQV"), ("CON", "CON"), ("IND", "IND")])
def test_consistent_swaps_are_no_fault(tmp_path: Path, there: str, back: str) -> None:
    report = check_files([write(tmp_path / "a.jsonl", *CLEAN, pair("a", "b", there), pair("b", "a", back))])
    assert report.findings == []


def test_swap_conflicts_and_two_labels_are_found_across_files(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", *CLEAN, pair("a", "b", "OSN"), pair("c", "d", "EQV"))
    rows = [
        {**row, "old": f"{row['old']}!", "new": f"{row['new']}!", "group": f"h{at}"} for at, row in enumerate(CLEAN)
    ]
    second = write(tmp_path / "b.jsonl", *rows, pair("b", "a", "EQV", group="h"), pair("c", "d", "CON", group="h"))
    found = kinds(check_files([first, second]))
    assert found["swap_conflict"] == [[6, 6]]
    assert found["two_labels"] == [[7, 7]]


def test_every_wrong_label_is_counted_with_the_nearest_valid_one(tmp_path: Path) -> None:
    rows = [pair(f"a{at}", "b", "CONN") for at in range(12)]
    report = check_files([write(tmp_path / "a.jsonl", *CLEAN, *rows)])
    assert len(kinds(report)["label"]) == 12
    assert all("did you mean CON?" in finding.message for finding in report.findings)
    assert "12 label" in report.to_text()


def test_missing_class(tmp_path: Path) -> None:
    report = check_files([write(tmp_path / "a.jsonl", *CLEAN[:4])])
    assert kinds(report) == {"class_missing": [[]]}
    assert "no row of CON" in report.findings[0].message


def test_group_cut_and_shared_text_between_splits(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", *CLEAN)
    other = [
        {**row, "old": f"{row['old']} x", "new": f"{row['new']} x", "group": f"t{at}"} for at, row in enumerate(CLEAN)
    ]
    assert check_files([train], [write(tmp_path / "test.jsonl", *other)]).findings == []
    other[2]["group"] = "g1"
    other[3]["old"] = "NEW  1"
    found = kinds(check_files([train], [write(tmp_path / "test.jsonl", *other)]))
    assert found == {"group_cut": [[2, 3]], "shared_text": [[2, 4]]}


def test_text_groups_made_up_by_the_reader_are_not_reported_as_cut(tmp_path: Path) -> None:
    rows = [{"old": row["old"], "new": row["new"], "relation": row["label"]} for row in CLEAN]
    copy = [{**row, "new": f"{row['new']} x"} for row in rows]
    found = kinds(check_files([write(tmp_path / "a.jsonl", *rows), write(tmp_path / "b.jsonl", *copy)]))
    assert list(found) == ["shared_text"]
    assert len(found["shared_text"]) == 5


def test_giveaways_are_measured_and_found(tmp_path: Path) -> None:
    rng = random.Random(0)
    hints = dict(zip(RELATIONS, ("and", "same", "exactly", "some", "not"), strict=True))
    names = [f"w{at}" for at in range(50)]
    rows = []
    for number in range(200):
        relation = RELATIONS[number % 5]
        old, new = " ".join(rng.sample(names, 6)), " ".join([*rng.sample(names, 5), hints[relation]])
        rows.append(pair(f"{old} {number}", f"{new} {number}", relation, group=f"g{number // 4}"))
    path = write(tmp_path / "a.jsonl", *rows)
    report = check_files([path])
    assert [finding.kind for finding in report.findings] == ["giveaway"]
    assert "words of NEW" in report.findings[0].message
    giveaways = report.files[0].giveaways
    assert giveaways is not None
    scores = giveaways["macro_f1"]
    assert isinstance(scores, dict)
    assert scores["words of NEW"] > 0.95
    assert scores["words of OLD"] < 0.4
    assert report.to_json() == check_files([path]).to_json()
    assert check_files([path], with_giveaways=False).findings == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"near": ["Dislikes tea."]}, "slot_conflict"),
        ({"gen": ["likes TEA."]}, "slot_conflict"),
        ({"eqv": ["Likes tea."]}, "duplicate"),
        ({"con": ["Dislikes tea.", "Dislikes  tea."]}, "duplicate"),
        ({"con": "Dislikes tea."}, "schema"),
        ({"con": []}, "class_missing"),
    ],
)
def test_families(tmp_path: Path, change: dict[str, object], kind: str) -> None:
    assert check_files([write(tmp_path / "f.jsonl", FAMILY)]).findings == []
    assert list(kinds(check_files([write(tmp_path / "g.jsonl", {**FAMILY, **change})]))) == [kind]


def test_families_may_share_a_text_but_not_disagree_on_a_pair(tmp_path: Path) -> None:
    slots = {name: [f"{name} x"] for name in ("eqv", "spec", "gen", "con", "near")}
    other = {**slots, "family": "B", "domain": "work", "base": FAMILY["base"]}
    assert check_files([write(tmp_path / "f.jsonl", FAMILY, other)]).findings == []
    disagreeing = {**other, "near": FAMILY["con"]}
    report = check_files([write(tmp_path / "g.jsonl", FAMILY, disagreeing)])
    assert set(kinds(report)) == {"family_conflict"}
    assert "is CON in family" in report.findings[0].message


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"must_keep": ["cat"]}, "keep_not_in_target"),
        ({"target": "Has a dog and a cat.", "must_keep": ["cat"]}, "keep_not_in_input"),
        ({"target": "Has a dog twice."}, "forbidden_in_target"),
        ({"target": "Has a dog"}, "convention"),
        ({"target": "has a dog."}, "convention"),
        ({"target": "Has a dog → cat."}, "convention"),
        ({"id": "F2", "target": "Owns a dog."}, "two_targets"),
        ({"id": "F2"}, "duplicate"),
        ({"id": "F1", "inputs": [{"text": "Has a dog."}, {"text": "Has dog x."}]}, "duplicate_id"),
        ({"id": "F2", "relation": "IND"}, "label"),
    ],
)
def test_fusion(tmp_path: Path, change: dict[str, object], kind: str) -> None:
    rest = [{**FUSION, "id": name, "relation": name, "must_keep": ["twice"], "must_not": [],
             "target": "Has had a dog twice."} for name in ("OSN", "NSO", "CON")]  # fmt: skip
    assert check_files([write(tmp_path / "f.jsonl", FUSION, *rest)]).findings == []
    twin = {"duplicate", "two_targets", "duplicate_id", "label"}
    rows = [FUSION, {**FUSION, **change}] if kind in twin else [{**FUSION, **change}]
    assert list(kinds(check_files([write(tmp_path / "g.jsonl", *rows, *rest)]))) == [kind]


def test_exit_codes_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean = str(write(tmp_path / "a.jsonl", *CLEAN))
    assert main([clean]) == 0
    assert "Clean" in capsys.readouterr().out
    bad = str(write(tmp_path / "b.jsonl", *CLEAN, pair("a", "b", "EVQ")))
    assert main([bad, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["counts"] == {"label": 1}
    assert report["clean"] is False
    assert report["findings"][0]["places"] == [{"path": bad, "line": 6}]
    assert report["files"][0]["rows"] == 5


@pytest.mark.parametrize("arguments", [["none.jsonl"], ["latin.csv"], ["a.jsonl", "a.jsonl"], ["empty.jsonl"]])
def test_unusable_files_exit_2_without_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    write(tmp_path / "a.jsonl", *CLEAN)
    (tmp_path / "latin.csv").write_bytes(b"old,new,label\ncaf\xe9,b,IND\n")
    (tmp_path / "empty.jsonl").write_text("\n")
    assert main([str(tmp_path / name) for name in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["a.jsonl", "--kind", "pair"], ["a.jsonl", "--examples", "-1"]])
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_without_scikit_learn_the_check_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.jsonl", *CLEAN)
    monkeypatch.delitem(sys.modules, "data.baselines", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn.dummy", None)
    with pytest.raises(DataError, match="--no-giveaways"):
        check_files([path])
    assert check_files([path], with_giveaways=False).findings == []


def test_kind_can_be_forced(tmp_path: Path) -> None:
    path = write(tmp_path / "f.jsonl", FAMILY)
    assert check_files([path]).files[0].kind == "families"
    assert "schema" in kinds(check_files([path], kind="pairs"))
    with pytest.raises(DataError, match="nothing in it"):
        check_files([write(tmp_path / "e.jsonl")])


def test_our_files_have_no_contradictions() -> None:
    paths = [DATA / name for name in ("families.jsonl", "fusion_train.jsonl", "fusion_test.jsonl")]
    report = check_files([*paths, DATA / "relation_test_843.jsonl"], with_giveaways=False)
    # Short everyday facts stand in several files and families: data.build keeps test texts out of training.
    assert set(kinds(report)) <= {"shared_text"}


def test_every_kind_has_a_meaning(tmp_path: Path) -> None:
    report = check_files([write(tmp_path / "a.jsonl", *CLEAN, "[]", pair("a", "a", "CON"))])
    assert set(kinds(report)) <= set(MEANINGS)
    for kind in kinds(report):
        assert MEANINGS[kind] in report.to_text()
