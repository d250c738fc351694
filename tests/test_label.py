"""Candidates from PersonaMem's persona files, labels by teachers, balanced sets split by persona."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from data import label, personamem
from data.label_sets import OWN_SET, balanced, check_given, split_personas
from data.pairs import LabelledPair, read_pairs, write_pairs
from data.personamem import Origin, candidates, read_personas, update_chains
from roam.errors import DataError
from roam.relations import RELATIONS, Relation
from tests.benchmark_samples import write_lines
from tests.llm_server import relations, serving
from tests.stubs import HashEmbedder

PERSONA: Mapping[str, Any] = {
    "name": "Ilse Brandt",
    "stereotypical_preferences": ["Enjoys repairing clocks.", "Enjoys repairing old clocks.", "Dislikes loud bars."],
    "anti_stereotypical_preferences": ["Swims every\nmorning."],
    "therapy_background": ["Grew up with a strict aunt."],
    "health_and_medical_conditions": ["Allergic to hazel pollen."],
    "sensitive_information": {"phone_number": "+49-0-0"},
    "preference_updates": {"Dislikes loud bars.": "Likes loud bars."},
    "conversations": {
        "email": [
            {"preference": "Likes loud bars.", "pref_type": "stereotypical_pref", "who": "self", "updated": True,
             "prev_pref": "Dislikes loud bars.", "conversations": [{"role": "user", "content": "See you there!"}]},
            {"preference": "Runs a loud bar.", "pref_type": "stereotypical_pref", "who": "self", "updated": True,
             "prev_pref": "Likes loud bars.", "conversations": []},
            {"preference": "Collects stamps.", "pref_type": "stereotypical_pref", "who": "others", "conversations": []},
            {"preference": "Do not remember 'Swims'", "pref_type": "ask_to_forget", "who": "self", "updated": True,
             "prev_pref": "Swims every morning.", "conversations": []},
            {"sensitive_info": "phone_number: +49-0-0", "who": "self", "conversations": []},
        ],
        "chat": [],
    },
}  # fmt: skip


@pytest.fixture
def personas(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(2):
        path = folder / f"interactions_persona{number}.json"
        path.write_text(json.dumps({str(number): PERSONA}), encoding="utf-8")
    return folder


# Candidates -------------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_a_persona_is_what_it_says_of_itself(personas: Path) -> None:
    first, second = read_personas([personas])
    assert first.id != second.id
    assert first.updates == (("Dislikes loud bars.", "Likes loud bars."), ("Likes loud bars.", "Runs a loud bar."))
    assert set(first.statements) == {
        "Enjoys repairing clocks.", "Enjoys repairing old clocks.", "Dislikes loud bars.", "Likes loud bars.",
        "Runs a loud bar.", "Swims every morning.", "Grew up with a strict aunt.", "Allergic to hazel pollen.",
    }  # fmt: skip


@pytest.mark.unit
def test_updates_make_chains() -> None:
    assert update_chains([("a", "b"), ("b", "c"), ("x", "y"), ("c", "a")]) == [
        ("a", "b"), ("b", "c"), ("x", "y"), ("c", "a"), ("a", "c"), ("b", "a"), ("c", "b"),
    ]  # fmt: skip


@pytest.mark.unit
def test_candidates_come_from_updates_neighbours_and_chance(personas: Path) -> None:
    found = read_personas([personas])
    pairs = candidates(found, HashEmbedder(), near=1, random_per_persona=3, seed=0)
    assert pairs == candidates(found, HashEmbedder(), near=1, random_per_persona=3, seed=0)
    assert pairs != candidates(found, HashEmbedder(), near=1, random_per_persona=3, seed=1)
    assert {pair.source for pair in pairs} == {f"personamem-{origin}" for origin in Origin}
    assert len({pair.id for pair in pairs}) == len(pairs)
    mine = [pair for pair in pairs if pair.group == found[0].id]
    assert [(p.old, p.new) for p in mine if p.source == "personamem-update"] == [
        ("Dislikes loud bars.", "Likes loud bars."), ("Likes loud bars.", "Runs a loud bar."),
        ("Dislikes loud bars.", "Runs a loud bar."),
    ]  # fmt: skip
    clocks = frozenset({"Enjoys repairing clocks.", "Enjoys repairing old clocks."})
    assert next(p.source for p in mine if {p.old, p.new} == clocks) == "personamem-near"
    assert max(Counter(frozenset((p.old, p.new)) for p in mine).values()) == 1
    assert mine == candidates(found[:1], HashEmbedder(), near=1, random_per_persona=3, seed=0)


@pytest.mark.integration
def test_the_candidate_program(personas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roam.embedders.load_embedder", lambda name: HashEmbedder())
    out = tmp_path / "c.jsonl"
    assert personamem.main([str(personas), "--out", str(out), "--near", "1"]) == 0
    assert len(label.read_candidates(out)) > 10


@pytest.mark.unit
@pytest.mark.parametrize(
    "content",
    ["[1]", "{", '{"p": 1}', '{"p": {"stereotypical_preferences": [1]}}', '{"p": {"conversations": [1]}}', "{}",
     '{"p": {"preference_updates": ["a"]}}'],
)  # fmt: skip
def test_files_that_are_no_personas(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roam.embedders.load_embedder", lambda name: HashEmbedder())
    path = tmp_path / "p.json"
    path.write_text(content, encoding="utf-8")
    assert personamem.main([str(path), "--out", str(tmp_path / "c.jsonl")]) == 2
    told = capsys.readouterr().err
    assert str(path) in told
    assert len(told.strip().splitlines()) == 1


# Labels -----------------------------------------------------------------------------------------------------------


def pair(number: int, relation: Relation, persona: str) -> LabelledPair:
    return LabelledPair(
        f"{relation}-{number}", f"old {relation} {number}", f"new {relation} {number}", relation, persona
    )


def candidate_file(path: Path, pairs: list[LabelledPair]) -> Path:
    return write_lines(path, *({"id": p.id, "old": p.old, "new": p.new, "group": p.group} for p in pairs))


@pytest.mark.integration
def test_teachers_label_and_disagreements_go_to_a_person(tmp_path: Path) -> None:
    pairs = [pair(number, relation, f"p{number % 4}") for relation in RELATIONS for number in range(8)]
    script = {(p.old, p.new): str(p.label) for p in pairs}
    doubtful = {(p.old, p.new): "IND" for p in pairs if p.label is Relation.CON and p.id.endswith("0")}
    silent = {(p.old, p.new): "hm" for p in pairs if p.id == "EQV-3"}
    out = tmp_path / "out"
    with serving(relations(script)) as one, serving(relations(script | doubtful | silent)) as two:
        argv = [str(candidate_file(tmp_path / "c.jsonl", pairs)), "--teacher", one.endpoint, "--teacher", two.endpoint,
                "--out", str(out), "--test-share", "0.25"]  # fmt: skip
        assert label.main(argv) == 0
        sent = len(one.requests), len(two.requests)
        assert label.main(argv) == 0
        assert (len(one.requests), len(two.requests)) == sent  # a second run takes the answers from the disk
    kept = read_pairs(out / "labelled.jsonl")
    assert {p.id: p.label for p in kept} == {p.id: p.label for p in pairs if p.id not in ("CON-0", "EQV-3")}
    review = [json.loads(line) for line in (out / "review.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row["id"]: sorted(row["said"].values())[0][:9] for row in review} == {"CON-0": "CON", "EQV-3": "EQV"}
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["agreement"]["pairs"] == 39
    assert report["agreement"]["share"] == pytest.approx(38 / 39)
    assert 0.9 < report["agreement"]["kappa"] < 1
    assert "not the paper's 843" in report["whose"]
    train, test = read_pairs(out / "train.jsonl"), read_pairs(out / "test.jsonl")
    assert set(Counter(p.label for p in [*train, *test]).values()) == {7}
    assert not {p.group for p in train} & {p.group for p in test}
    assert report["test"]["pairs"] == len(test) > 0


@pytest.mark.integration
def test_one_teacher_and_a_relation_that_never_comes(tmp_path: Path) -> None:
    pairs = [pair(n, Relation.IND, "p") for n in range(3)]
    with serving(relations({})) as stub:
        argv = [str(candidate_file(tmp_path / "c.jsonl", pairs)), "--teacher", stub.endpoint, "--out", str(tmp_path)]
        assert label.main(argv) == 0
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["agreement"] is None
    assert report["kept"] == 3
    assert "EQV, OSN, NSO, CON" in report["not_balanced"]
    assert not (tmp_path / "train.jsonl").exists()


@pytest.mark.unit
def test_a_balanced_set_takes_personas_in_turns() -> None:
    pairs = [pair(n, relation, "big" if n < 8 else f"small{n}") for relation in RELATIONS for n in range(10)]
    chosen = balanced(pairs, 3, seed=1)
    assert Counter(p.label for p in chosen) == dict.fromkeys(RELATIONS, 3)
    assert Counter(p.group for p in chosen)["big"] == len(RELATIONS)
    assert chosen == balanced(pairs, 3, seed=1)
    with pytest.raises(DataError, match="--per-class is 11"):
        balanced(pairs, 11, seed=1)
    for share in (0.0, 0.5, 1.0):
        train, test = split_personas(pairs, share, seed=3)
        assert sorted(p.id for p in [*train, *test]) == sorted(p.id for p in pairs)
    assert split_personas(pairs, 0.0, 0)[1] == []
    assert split_personas(pairs, 1.0, 0)[0] == []


# Somebody else's labels -------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_a_given_set_is_checked_and_the_report_says_whose_it_is(tmp_path: Path) -> None:
    relation_of = [RELATIONS[number % 5] for number in range(843)]
    good = tmp_path / "theirs.jsonl"
    write_pairs(good, [pair(n, relation, f"p{n}") for n, relation in enumerate(relation_of)])
    assert label.main(["--given", str(good), "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert (report["pairs"], report["faults"]) == (843, [])
    assert report["whose"].startswith("given as the paper's pairs")
    assert check_given(OWN_SET)["whose"].startswith("this project's own")


@pytest.mark.unit
def test_a_set_of_another_size_or_balance_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = tmp_path / "few.jsonl"
    write_pairs(few, [pair(n, Relation.CON, "p") for n in range(10)])
    assert label.main(["--given", str(few), "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "10 pairs, and the paper has 843" in told
    assert "100.0% of the pairs are CON" in told
    assert (tmp_path / "report.json").exists()


@pytest.mark.unit
@pytest.mark.parametrize(
    "argv",
    [[], ["c.jsonl"], ["c.jsonl", "--given", "x"], ["c.jsonl", "--teacher", "a@http://h", "--teacher", "a@http://h"],
     ["c.jsonl", "--teacher", "a@http://h", "--per-class", "0"],
     ["c.jsonl", "--teacher", "a@http://h", "--test-share", "2"]],
)  # fmt: skip
def test_bad_arguments(argv: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        label.main([*argv, "--out", str(tmp_path)])
    assert stopped.value.code == 2


@pytest.mark.unit
@pytest.mark.parametrize(
    "lines", [[], [{"id": "a", "old": "x", "new": "y"}], [{"id": 1, "old": "x", "new": "", "group": "p"}]]
)
def test_bad_candidates(lines: list[Mapping[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_lines(tmp_path / "c.jsonl", *lines)
    assert label.main([str(path), "--teacher", "m@http://127.0.0.1:9/v1", "--out", str(tmp_path / "out")]) == 2
    assert str(path) in capsys.readouterr().err
