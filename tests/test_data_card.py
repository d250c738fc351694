"""The data card says what the files say, and the lexical baselines in it measure what their names promise."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from data.baselines import (
    REPORTED,
    cross_validated_baselines,
    lexical_baselines,
    overlap_features,
    sample_groups,
    score,
)
from data.card import ROOT, Registers, fill, lengths, main, stale, write
from data.card_tables import SECTIONS, table
from data.pairs import LabelledPair
from roam.errors import DataError
from roam.relations import RELATIONS, Relation

HINTS = dict(zip(RELATIONS, ("and", "same", "exactly", "some", "not"), strict=True))


def hinted_pairs(count: int, seed: int, names: int = 60) -> list[LabelledPair]:
    """Random words; the last word of NEW gives the label away, OLD says nothing."""
    rng = random.Random(seed)
    vocabulary = [f"w{at}" for at in range(names)]
    out = []
    for at in range(count):
        relation = rng.choice(RELATIONS)
        new = " ".join([*rng.sample(vocabulary, 5), HINTS[relation]])
        out.append(LabelledPair(f"{at}", " ".join(rng.sample(vocabulary, 6)), new, relation, f"g{at // 4}"))
    return out


def test_committed_card_is_up_to_date() -> None:
    assert stale() == []


def test_words_of_new_find_the_hint_and_words_of_old_do_not() -> None:
    scores = lexical_baselines(hinted_pairs(300, 0), hinted_pairs(200, 1))
    assert tuple(scores) == REPORTED
    macro = {name: result["macro_f1"] for name, result in scores.items()}
    assert macro["words of NEW"] == pytest.approx(1.0, abs=0.03)
    assert macro["words of both"] == pytest.approx(1.0, abs=0.03)
    assert macro["words of OLD"] < 0.35  # type: ignore[operator]
    assert macro["majority"] < 0.1  # type: ignore[operator]


def test_same_seed_same_figures() -> None:
    pairs = hinted_pairs(120, 2)
    assert cross_validated_baselines(pairs, 3) == cross_validated_baselines(pairs, 3)


def test_cross_validation_never_trains_on_the_group_it_tests() -> None:
    # The only word that tells the label is the group's own, so across groups nothing can be learnt.
    pairs = [
        LabelledPair(f"{at}", f"a{at}", f"only{at // 5}", RELATIONS[at // 5 % 5], f"g{at // 5}") for at in range(250)
    ]
    scores = cross_validated_baselines(pairs, 0, ["words of NEW"])["words of NEW"]
    assert scores["accuracy"] < 0.4  # type: ignore[operator]
    leaked = [LabelledPair(p.id, p.old, p.new, p.label, p.id) for p in pairs]
    assert cross_validated_baselines(leaked, 0, ["words of NEW"])["words of NEW"]["accuracy"] > 0.95  # type: ignore[operator]


def test_an_absent_class_lowers_macro_f1() -> None:
    result = score(["IND", "EQV"], ["IND", "EQV"])
    assert result["macro_f1"] == pytest.approx(2 / 5)
    assert result["accuracy"] == 1.0
    assert list(result["per_class"]) == list(RELATIONS)  # type: ignore[call-overload]


def test_baselines_refuse_what_they_cannot_fit() -> None:
    pairs = hinted_pairs(20, 0)
    with pytest.raises(DataError, match="two or more classes"):
        lexical_baselines([pair for pair in pairs if pair.label is Relation.IND], pairs)
    with pytest.raises(DataError, match="no pairs to test"):
        lexical_baselines(pairs, [])
    with pytest.raises(DataError, match="unknown baseline 'words'"):
        lexical_baselines(pairs, pairs, names=["words"])
    with pytest.raises(DataError, match="1 groups are too few"):
        cross_validated_baselines(pairs[:4])


def test_overlap_features() -> None:
    pair = LabelledPair("1", "Has a brown dog.", "has a DOG", Relation.NSO, "g")
    assert overlap_features([pair]).tolist() == [[3 / 4, 3 / 4, 1.0]]


def test_sampling_keeps_groups_whole() -> None:
    pairs = hinted_pairs(100, 0)
    sample = sample_groups(pairs, 30, seed=1)
    assert 30 <= len(sample) < 34
    groups = {pair.group for pair in sample}
    assert [pair for pair in pairs if pair.group in groups] == sorted(sample, key=lambda pair: int(pair.id))
    assert sample_groups(pairs, 100, seed=1) == pairs


@pytest.mark.parametrize(
    ("text", "register"),
    [
        ("Has a dog.", "no subject"),
        ("The user has a dog.", "the user"),
        ("User's dog is called Rex.", "the user"),
        ("On Mondays the user rests.", "the user"),
        ("I have a dog.", "first person"),
        ("My dog barks.", "first person"),
        ("Moved to the US.", "no subject"),
        ("Her dog barks.", "name or pronoun"),
        ("Maya's dog barks.", "name or pronoun"),
    ],
)
def test_registers(text: str, register: str) -> None:
    assert Registers(["The dog of Maya barks.", "She has a dog and moved to it."]).of(text) == register


def test_lengths_in_words() -> None:
    assert lengths(["a b c", "a"]) == {"mean": 2.0, "median": 2.0, "p5": 1.1, "p95": 2.9, "max": 3.0}
    assert lengths([]) == {}


def test_filling_keeps_the_prose_and_needs_the_markers() -> None:
    text = "before\n<!-- card:a -->\nold\n<!-- /card:a -->\nafter\n"
    filled = fill(text, "a", table(("x", "y"), [(1, r"\1")]))
    assert filled == "before\n<!-- card:a -->\n| x | y |\n| --- | ---: |\n| 1 | \\1 |\n<!-- /card:a -->\nafter\n"
    assert fill(filled, "a", "old") == text
    with pytest.raises(DataError, match="card:b"):
        fill(text, "b", "")
    with pytest.raises(DataError, match="card:a"):
        fill(text + text, "a", "")


def small_copy(root: Path) -> Path:
    """A data folder with the first rows of each authored file and only the markers of the card."""
    for name, rows in (("families", 20), ("relation_test_843", 60), ("fusion_train", 20), ("fusion_test", 20)):
        lines = (ROOT / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (root / f"{name}.jsonl").write_text("".join(lines[:rows]), encoding="utf-8")
    markers = "".join(f"<!-- card:{name} -->\n<!-- /card:{name} -->\n" for name in SECTIONS)
    (root / "README.md").write_text(f"# Prose\n{markers}More prose.\n", encoding="utf-8")
    return root


def test_card_is_written_and_goes_stale_with_its_files(tmp_path: Path) -> None:
    root = small_copy(tmp_path)
    (root / "derived").mkdir()
    shutil.copy(root / "relation_test_843.jsonl", root / "derived" / "train.jsonl")
    card = write(root, announce=lambda line: None)
    text = (root / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Prose\n")
    assert text.endswith("More prose.\n")
    assert json.loads((root / "card.json").read_text(encoding="utf-8")) == card
    assert card["baselines"]["from_families"]["train"]["pairs"] == 60  # type: ignore[index]
    assert "Fitted on the 60 pairs" in text
    assert stale(root) == []
    (root / "README.md").write_text(text.replace("| CON |", "| CONN |"), encoding="utf-8")
    assert stale(root) == ["README.md: its tables differ from card.json"]
    lines = (root / "families.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (root / "families.jsonl").write_text("".join(lines[1:]), encoding="utf-8")
    assert "card.json: files" in stale(root)
    assert "card.json: families" in stale(root)


def test_check_needs_a_card(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"run python -m data\.card"):
        stale(small_copy(tmp_path))


@pytest.mark.slow
def test_command_line_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    assert capsys.readouterr().out == ""
