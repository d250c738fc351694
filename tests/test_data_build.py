"""Pairs derived from families: what the slots imply, split by family, seeded, nothing of the tests in training."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from data.build import Mix, build, build_split, main, ordered_pairs, sample_family, split_families
from data.families import Family, read_families
from data.pairs import normalise_text, read_pairs
from data.topics import topics, unrelated
from roam.relations import SWAPPED, Relation
from tests.stubs import HashEmbedder

DATA = Path(__file__).parent.parent / "data"
AS_WRITTEN = Mix(neighbour=2, first_person=0.0)  # so that every text is found in its family
FAMILY = Family(family="X", domain="pets", base="b", eqv=("e",), spec=("s",), gen=("g",), con=("c",), near=("n",))


def test_ordered_pairs_are_what_labels_md_says() -> None:
    pairs = ordered_pairs(FAMILY)
    assert set(pairs[Relation.EQV]) == {("b", "e"), ("e", "b")}
    assert set(pairs[Relation.OSN]) == {("b", "s"), ("e", "s"), ("g", "b"), ("g", "e"), ("g", "s")}
    assert set(pairs[Relation.NSO]) == {(new, old) for old, new in pairs[Relation.OSN]}
    conflicts = {(a, "c") for a in "bes"}
    assert set(pairs[Relation.CON]) == conflicts | {(new, old) for old, new in conflicts}
    near = {(a, "n") for a in "be"}
    assert set(pairs[Relation.IND]) == near | {(new, old) for old, new in near}


def test_sampled_pairs_agree_with_all_pairs_and_hold_both_directions() -> None:
    for family in read_families(DATA / "families.jsonl")[:50]:
        everything = ordered_pairs(family)
        rows = list(sample_family(family, Mix(), random.Random(1)))
        assert all((old, new) in everything[relation] for old, new, relation in rows)
        directed = {(old, new): relation for old, new, relation in rows if relation in (Relation.OSN, Relation.NSO)}
        assert all(directed[new, old] is SWAPPED[relation] for (old, new), relation in directed.items())


@pytest.fixture(scope="module")
def some_families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every eighth family: all of them take a minute to draw from."""
    path = tmp_path_factory.mktemp("families") / "families.jsonl"
    lines = (DATA / "families.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[::8]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def built(some_families: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("derived")
    build(some_families, [DATA / "relation_test_843.jsonl"], out, embedder=HashEmbedder(), mix=AS_WRITTEN)
    return out


def test_split_is_by_family_and_free_of_test_texts(built: Path) -> None:
    train, dev = read_pairs(built / "train.jsonl"), read_pairs(built / "dev.jsonl")
    assert not {p.group for p in train} & {p.group for p in dev}
    train_texts = {normalise_text(text) for p in train for text in (p.old, p.new)}
    dev_texts = {normalise_text(text) for p in dev for text in (p.old, p.new)}
    test = read_pairs(DATA / "relation_test_843.jsonl")
    test_texts = {normalise_text(text) for p in test for text in (p.old, p.new)}
    assert not train_texts & test_texts
    assert not train_texts & dev_texts
    assert not dev_texts & test_texts
    assert {p.label for p in train} == {p.label for p in dev} == set(Relation)


def test_no_ordered_pair_has_two_labels(built: Path) -> None:
    for name in ("train.jsonl", "dev.jsonl"):
        labels = {}
        for pair in read_pairs(built / name):
            key = normalise_text(pair.old), normalise_text(pair.new)
            assert key not in labels
            labels[key] = pair.label
        assert all(labels.get((new, old), SWAPPED[label]) is SWAPPED[label] for (old, new), label in labels.items())


def test_crossed_independents_come_from_topics_that_cannot_meet(built: Path) -> None:
    families = {family.family: family for family in read_families(DATA / "families.jsonl")}
    domains: dict[str, set[str]] = {}  # a few texts stand in two families
    for family in families.values():
        for text in family.texts():
            domains.setdefault(text, set()).add(family.domain)
    crossed = [
        pair for pair in read_pairs(built / "train.jsonl")
        if pair.label is Relation.IND and not {pair.old, pair.new} <= set(families[pair.group].texts())
    ]  # fmt: skip
    assert len(crossed) > 500
    for pair in crossed:
        assert any(unrelated(a, b) for a in domains[pair.old] for b in domains[pair.new]), pair


def test_build_is_seeded_and_idempotent(built: Path, some_families: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "again", tmp_path / "again"):
        build(some_families, [DATA / "relation_test_843.jsonl"], folder, embedder=HashEmbedder(),
              mix=AS_WRITTEN)  # fmt: skip
        for name in ("train.jsonl", "dev.jsonl", "build.json"):
            assert (folder / name).read_bytes() == (built / name).read_bytes()
    other = build(some_families, [], tmp_path / "other", seed=1)
    assert other["outputs"] != json.loads((built / "build.json").read_text())["outputs"]


def test_families_that_share_a_text_stay_on_one_side() -> None:
    families = read_families(DATA / "families.jsonl")
    train, dev = split_families(families, 0.3, 5)
    texts = [{normalise_text(text) for family in side for text in family.texts()} for side in (train, dev)]
    assert not texts[0] & texts[1]


def test_topics_are_careful() -> None:
    assert not unrelated("food", "food_and_drink")
    assert not unrelated("food", "diet_and_health")
    assert not unrelated("pets", "preferences")  # can hold anything
    assert not unrelated("work", "employment_and_career")
    assert unrelated("pets", "personal_finance")
    assert topics("plans_goals") == frozenset()


def test_bad_input_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.jsonl").write_text('{"family": "A"}\n')
    assert main(["--families", str(tmp_path / "f.jsonl"), "--no-neighbours", "--out", str(tmp_path / "o")]) == 2
    assert "f.jsonl" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
    families = tmp_path / "two.jsonl"
    rows = [{"family": name, "domain": "pets", "base": f"Has a {name}.", "eqv": [], "spec": [], "gen": [], "con": [],
             "near": []} for name in ("dog", "cat")]  # fmt: skip
    families.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bad_fusion = tmp_path / "fusion_bad.jsonl"
    bad_fusion.write_text('{"id": "F"\n')
    plain = ["--no-neighbours", "--families", str(families), "--dev-share", "0.5"]
    for arguments, message in (
        (["--test", str(bad_fusion)], "not JSON"),
        (["--test", str(tmp_path / "fusion_none.jsonl")], "no such file"),
        (["--first-person", "2"], "between 0 and 1"),
        (["--eqv", "-1"], "0 or more"),
        (["--test", "--out", str(families)], "a folder that can be written"),
    ):
        assert main([*plain, "--out", str(tmp_path / "o"), *arguments]) == 2, arguments
        assert message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_first_person_neither_repeats_a_pair_nor_meets_a_held_text() -> None:
    family = Family(family="X", domain="pets", base="Has a dog.", eqv=("The user has a dog.", "Owns a dog."),
                    spec=("Has a beagle.",), gen=("Has a pet.",))  # fmt: skip
    mix = Mix(eqv=20, subsumed=20, neighbour=0, stranger=0, first_person=1.0)
    plain = build_split([family], replace(mix, first_person=0.0), None, random.Random(0), "T", frozenset())
    spoken = build_split([family], mix, None, random.Random(0), "T", frozenset({"i have a pet."}))
    assert [pair.id for pair in spoken] == [pair.id for pair in plain]  # the same pairs, in other words
    keys = [(pair.old.casefold(), pair.new.casefold()) for pair in spoken]
    assert len(set(keys)) == len(keys)
    assert all(old != new for old, new in keys)
    texts = {text.rstrip(".") for pair in spoken for text in (pair.old, pair.new)}
    assert "I have a beagle" in texts
    assert "Has a pet" in texts
    assert "I have a pet" not in texts


def test_first_person_rendering_keeps_labels_and_held_texts_out(tmp_path: Path) -> None:
    family = Family(family="X", domain="pets", base="Has a dog.", eqv=("Owns a dog.",), spec=("Has a beagle.",),
                    gen=("Has a pet.",), con=("Has no dog.",), near=("Likes dogs.",))  # fmt: skip
    mix = Mix(first_person=1.0, neighbour=0, stranger=0)
    pairs = build_split([family], mix, None, random.Random(0), "T", frozenset({"likes dogs."}))
    texts = {text.rstrip(".") for pair in pairs for text in (pair.old, pair.new)}
    assert texts == {"I have a dog", "I own a dog", "I have a beagle", "I have a pet", "I have no dog"}
    assert {pair.label for pair in pairs} == set(Relation) - {Relation.IND}


def test_only_some_families_are_drawn_from_and_the_split_stays(
    some_families: Path, built: Path, tmp_path: Path
) -> None:
    build(some_families, [], tmp_path, embedder=HashEmbedder(), mix=AS_WRITTEN, only="[KU]")
    drawn, everything = (
        {name: {pair.group for pair in read_pairs(folder / f"{name}.jsonl")} for name in ("train", "dev")}
        for folder in (tmp_path, built)
    )
    assert {group[0] for group in drawn["train"]} == {"K", "U"}
    assert drawn["train"] <= everything["train"]
    assert drawn["dev"] == everything["dev"]


@pytest.mark.parametrize(("pattern", "said"), [("[", "regular expression"), ("nobody", "no training family")])
def test_a_choice_of_families_that_makes_no_sense_is_refused(
    pattern: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["--only", pattern, "--no-neighbours", "--out", str(tmp_path)])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
