"""The error atlas: what the tagger sees in a pair, and the table of errors by phenomenon."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.pairs import LabelledPair, file_sha256, write_pairs
from eval import atlas, experiments_record
from eval.atlas_tags import NONE, PHENOMENA, tags
from roam.errors import DataError
from roam.relations import RELATIONS, Relation

pytestmark = pytest.mark.unit

# One pair for each phenomenon, and one beside it that must not have the tag.
CASES = {
    "number": ("User has two cats.", "User has 3 cats.", "User has 2 cats.", "User has two cats."),
    "bound": ("Runs at least 5 km.", "Runs 5 km.", "Runs 5 km.", "Runs 6 km."),
    "date": ("Flies out on 3 May.", "Flies out on 3 June.", "It may rain.", "It will rain."),
    "unit": ("Swims 1500 metres.", "Swims 1.5 km.", "Swims 2 km.", "Swims 3 km."),
    "negation": ("Eats meat.", "Doesn't eat meat.", "Eats meat.", "Eats fish."),
    "both_negated": ("Never smokes.", "Does not smoke.", "Never smokes.", "Smokes."),
    "quantifier": ("Reads all of it.", "Reads some of it.", "Earns no more than Ana.", "Earns less than Ana."),
    "frequency": ("Swims weekly.", "Swims daily.", "Swims weekly.", "Runs weekly."),
    "comparison": ("Prefers tea to coffee.", "Drinks tea.", "Drinks tea before bed.", "Drinks tea."),
    "comparison_reversed": (
        "Prefers vinyasa to hot yoga.", "Prefers hot yoga to vinyasa.",
        "Prefers vinyasa to hot yoga.", "Prefers vinyasa to yin.",
    ),
    "place": ("Lives in Berlin.", "Lives in Germany.", "Lives in Berlin.", "Berlin is home."),
    "other_person": ("User's sister is a nurse.", "User is a nurse.", "My sister is here.", "My sister left."),
    "other_name": ("Works with Ana.", "Works with Bela.", "Works with Ana.", "Ana works here."),
    "added_name": ("Has a dog named Rex.", "Has a dog.", "Has a dog named Rex.", "Rex is the dog."),
    "plan": ("Plans to move.", "Has moved house.", "Was born in May.", "Was born in June."),
    "liking": ("Likes chess.", "Plays chess.", "Would like to move.", "Wants to move."),
    "time_scope": ("No longer smokes.", "Smokes.", "Smokes.", "Drinks."),
    "only": ("Eats only rice.", "Eats rice.", "Eats rice.", "Eats bread."),
    "degree": ("Is very tired.", "Is tired.", "Is tired.", "Is awake."),
    "condition": ("Walks if it is dry.", "Walks.", "Walks.", "Runs."),
    "list": ("Has a cat and a dog.", "Has a dog.", "Has a cat and a dog.", "Has a cat and a rat."),
    "low_overlap": ("Plays chess.", "Bakes bread on Sunday.", "Plays chess.", "Plays chess at school."),
    "same_words": ("Paints pictures.", "Pictures are what she paints.", "Paints pictures.", "Paints walls."),
    "one_word": ("Has a red car.", "Has a blue car.", "Has a red car.", "Has a car."),
    "contained": ("Has a car.", "Has a red car.", "Has a red car.", "Has a blue car."),
    "converse": ("Was hired by Siemens.", "Siemens took her on.", "Owns a car.", "Owns a van."),
    "person_mix": ("I have a dog.", "The user has a dog.", "I have a dog.", "My dog is old."),
    "first_person": ("I have a dog.", "My dog is old.", "I have a dog.", "The user has a dog."),
    "much_longer": ("Has a dog.", "Has a small dog that barks a lot.", "Has a dog.", "Has a big dog."),
    "long": ("Has " + "a very " * 15 + "old dog.", "Has a dog.", "Has a dog.", "Has a cat."),
}  # fmt: skip


def test_every_phenomenon_has_a_case() -> None:
    assert set(CASES) == set(PHENOMENA)


@pytest.mark.parametrize("name", CASES)
def test_the_tagger_sees_what_it_should_and_not_more(name: str) -> None:
    old, new, beside_old, beside_new = CASES[name]
    assert name in tags(old, new)
    assert name not in tags(beside_old, beside_new)


def test_pairs_that_no_rule_fits_are_kept() -> None:
    assert tags("Uses a printer at work.", "Keeps a printer at work.") == {"one_word"}
    assert tags("A printer stands at work.", "At work, a laptop stands idle.") == {NONE}


@given(st.text(max_size=80), st.text(max_size=80))
def test_tags_do_not_depend_on_the_order_of_the_texts(old: str, new: str) -> None:
    assert tags(old, new) == tags(new, old)


def report_on(path: Path, folder: Path, wrong: frozenset[str]) -> Path:
    """A relation report's files in which the ids in `wrong` are predicted CON, or IND when they are CON."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for line in path.read_text().splitlines():
        pair = json.loads(line)
        guess = pair["label"] if pair["id"] not in wrong else ("IND" if pair["label"] == "CON" else "CON")
        rest = {str(relation): 0.05 for relation in RELATIONS}
        rows.append({"id": pair["id"], "gold": pair["label"], "pred": guess, "probs": rest | {guess: 0.8}})
    (folder / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {"model": "stub", "data": path.name, "hashes": {"pairs": file_sha256(path)}}
    (folder / "report.json").write_text(json.dumps(values))
    return folder


def some_pairs() -> list[LabelledPair]:
    """20 pairs whose numbers differ and 30 whose places differ, labels in turn."""
    out = []
    for at in range(50):
        old, new = ("Has 2 cats.", f"Has {at + 3} cats.") if at < 20 else ("Lives in Rome.", f"Lives in Rome{at}.")
        out.append(LabelledPair(f"P{at}", old, new, RELATIONS[at % 5], f"g{at // 2}"))
    return out


def test_the_worst_phenomenon_comes_first_with_its_errors(tmp_path: Path) -> None:
    pairs = tmp_path / "mine.jsonl"
    write_pairs(pairs, some_pairs())
    wrong = frozenset(f"P{at}" for at in range(10)) | {"P30"}
    folder = report_on(pairs, tmp_path / "report", wrong)
    out = tmp_path / "atlas"
    found = atlas.write_atlas(folder, pairs, out, least=15)
    rows = {row["phenomenon"]: row for row in found["phenomena"]}
    assert found["phenomena"][0]["phenomenon"] == "number"
    row = rows["number"]
    assert (row["pairs"], row["errors"], row["accuracy"]) == (20, 10, 0.5)
    assert row["excess"] == pytest.approx(10 - 20 * 11 / 50)
    assert row["interval"][0] < 0.5 < row["interval"][1]
    assert {(turn["gold"], turn["predicted"]): turn["count"] for turn in row["turned"]} == {
        ("IND", "CON"): 2, ("EQV", "CON"): 2, ("OSN", "CON"): 2, ("NSO", "CON"): 2, ("CON", "IND"): 2,
    }  # fmt: skip
    assert row["hides"] == 4  # IND and NSO taken for CON lose the stored fact; the others lose nothing that is not said
    assert rows["place"]["errors"] == 1
    assert sum(found["phenomena"][0]["gold"].values()) == 20
    assert (out / "atlas.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "atlas.json").read_text()) == json.loads(json.dumps(found))
    assert "| another number or quantity | 20 | 50.0 |" in (out / "atlas.md").read_text()


def test_texts_of_other_peoples_pairs_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside, inside = tmp_path / "else" / "pairs.jsonl", tmp_path / "data" / "pairs.jsonl"
    write_pairs(outside, some_pairs())
    inside.parent.mkdir()
    shutil.copy(outside, inside)
    monkeypatch.setattr(atlas, "DATA", tmp_path / "data")
    folder = report_on(outside, tmp_path / "report", frozenset({"P3", "P40"}))
    atlas.write_atlas(folder, outside, tmp_path / "a")
    written = "".join((tmp_path / "a" / name).read_text() for name in ("atlas.json", "atlas.md"))
    assert "cats" not in written
    assert "Rome" not in written
    assert '"P40"' in written
    atlas.write_atlas(folder, inside, tmp_path / "b")
    assert "“Has 2 cats.” / “Has 6 cats.”" in (tmp_path / "b" / "atlas.md").read_text()


def test_the_test_set_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "copied.jsonl"
    write_pairs(source, some_pairs())
    write_pairs(tmp_path / "test.jsonl", some_pairs())
    monkeypatch.setattr(experiments_record, "TEST_FILE", tmp_path / "test.jsonl")
    found = atlas.write_atlas(report_on(source, tmp_path / "report", frozenset()), source, tmp_path / "out")
    assert found["test_set"] is True
    assert found["errors"] == 0
    assert "These are test pairs" in (tmp_path / "out" / "atlas.md").read_text()


def test_a_report_on_other_pairs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write_pairs(pairs, some_pairs())
    write_pairs(other, some_pairs()[:40])
    folder = report_on(pairs, tmp_path / "report", frozenset())
    with pytest.raises(DataError, match="not on"):
        atlas.build_atlas(folder, other, 3, 0)
    for arguments, message in (
        (["--report", str(folder), "--pairs", str(other)], "reports on a.jsonl"),
        (["--report", str(tmp_path / "none"), "--pairs", str(pairs)], "eval.relation"),
    ):
        assert atlas.main([*arguments, "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert message in error
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_worst(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = tmp_path / "mine.jsonl"
    write_pairs(pairs, some_pairs())
    folder = report_on(pairs, tmp_path / "report", frozenset({"P1"}))
    assert atlas.main(["--report", str(folder), "--pairs", str(pairs), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("another number or quantity")
    assert some_pairs()[1].label is Relation.EQV
