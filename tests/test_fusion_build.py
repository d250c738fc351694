"""Fusion examples by rule: labels follow from the families, targets from the convention, nothing held gets in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data.build import split_families
from data.check import check_files
from data.families import read_families
from data.fusion import read_fusion
from data.fusion_build import build, main
from data.fusion_rules import is_natural
from data.pairs import normalise_text
from eval.fusion_report import request_of, score_view
from roam.fusion import GuardedFuser, parse_chain
from roam.records import FusionRequest

ROOT = Path(__file__).resolve().parent.parent
STREETS = ("Oak", "Elm", "Ash", "Fir", "Yew", "Bay", "Box", "Lime", "Plum", "Pear", "Rose", "Fern")


def family(number: int) -> dict[str, Any]:
    town, street = f"Town{number}", STREETS[number % len(STREETS)]
    return {
        "family": f"F{number}", "domain": "housing" if number % 2 else "pet",
        "base": f"The user lives in {town}.", "eqv": [f"User's home is in {town}.", f"{town} is home to the user."],
        "spec": [f"The user lives on {street} Street in {town}.", f"The user lives in {town} with two cats."],
        "gen": [f"The user lives in a town called {town}"],
        "con": [f"The user lives in Port{number}.", f"The user lives in Cape{number}."],
        "near": [],
    }  # fmt: skip


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("families") / "families.jsonl"
    rows = [family(number) for number in range(26)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("held") / "fusion_held.jsonl"
    inputs = [{"text": "The user lives in Town7.", "time": None}, {"text": "User's home is in Town8.", "time": None}]
    row = {"id": "h", "relation": "EQV", "inputs": inputs, "target": "The user lives in Town9."}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def built(families: Path, held: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    build(families, [held], out, dev_share=0.2)
    return out


def test_targets_keep_what_they_must_and_pass_the_guard(built: Path) -> None:
    examples = read_fusion(built / "fusion_train.jsonl")
    assert len(examples) >= 25
    for example in examples:
        score = score_view(example, example.target)
        assert not score.lost, example
        assert not score.violated, example

    class Targets:
        name = "targets"

        def fuse(self, requests: list[FusionRequest]) -> list[str]:
            return [example.target for example in examples]

    guard = GuardedFuser(Targets())  # type: ignore[arg-type]
    guard.fuse([request_of(example) for example in examples])
    assert not guard.reasons


def test_all_kinds_of_examples_are_there(built: Path) -> None:
    summary = json.loads((built / "fusion_build.json").read_text())
    assert set(summary["relations"]) == {"CON", "EQV", "OSN", "NSO"}
    for tag in ("stable", "plain", "out_of_order", "unrelated", "chain", "chain_ext", "with_chain"):
        assert summary["tags"].get(tag, 0) > 0, tag
    assert summary["examples"] == sum(summary["relations"].values())


def test_the_specific_fact_is_the_view_and_a_chain_is_told_in_the_order_of_its_updates(built: Path) -> None:
    for example in read_fusion(built / "fusion_train.jsonl"):
        if "plain" in example.tags and "unrelated" not in example.tags:
            specific = example.inputs[request_of(example).survivor].text
            assert example.target.rstrip(".") == specific.rstrip(".")
        if "chain" in example.tags:
            chain = parse_chain(example.target.split("; ")[0])
            assert chain is not None
            assert chain.date == example.inputs[-1].time


def test_no_text_of_dev_families_or_held_files_gets_in(built: Path, families: Path) -> None:
    _, dev = split_families(read_families(families), 0.2, 0)
    assert len(dev) >= 3
    forbidden = [text for entry in dev for text in entry.texts()]
    forbidden += ["The user lives in Town7.", "User's home is in Town8.", "The user lives in Town9."]
    lines = (built / "fusion_train.jsonl").read_text().splitlines()
    told = [normalise_text(text) for line in lines for text in _texts(json.loads(line))]
    for text in forbidden:
        assert normalise_text(text) not in told
        assert not any(f"{normalise_text(text).rstrip('.')}; " in other for other in told)


def _texts(row: dict[str, Any]) -> list[str]:
    return [row["target"], *(item["text"] for item in row["inputs"])]


def test_same_seed_same_bytes(families: Path, held: Path, built: Path, tmp_path: Path) -> None:
    for name, seed in (("again", 0), ("other", 1)):
        build(families, [held], tmp_path / name, dev_share=0.2, seed=seed, limit=3)
    first = (built / "fusion_train.jsonl").read_bytes()
    again = (tmp_path / "again" / "fusion_train.jsonl").read_bytes()
    assert first.startswith(again)
    assert again.count(b"\n") == 3
    assert not first.startswith((tmp_path / "other" / "fusion_train.jsonl").read_bytes())


def test_the_file_passes_the_checks_of_the_data(built: Path) -> None:
    found = check_files([built / "fusion_train.jsonl"], with_giveaways=False).findings
    assert [finding for finding in found if finding.kind in ("schema", "label", "must_keep", "must_not")] == []


@pytest.mark.parametrize(
    ("chain", "texts", "natural"),
    [
        ("The user's home city: Ghent -> Lyon (current)", ("User lives in Ghent.", "User lives in Lyon."), True),
        ("User's praying habit: prayed daily -> prays (current)", ("User prays daily.", "User prays."), True),
        ("User's tenniing habit: did tennis -> plays golf (current)", ("User did tennis.", "User plays golf."), False),
        ("User's knee: was fine -> says it hurts (current)", ("User's knee is fine.", "User says it hurts."), False),
        ("He's job: cook -> waiter (current)", ("He is a cook.", "He is a waiter."), False),
        ("User's home city: Ghent -> it is in Lyon that user lives (current)", ("a", "b"), False),
    ],
)  # fmt: skip
def test_only_histories_that_read_well_are_kept(chain: str, texts: tuple[str, ...], natural: bool) -> None:
    parsed = parse_chain(chain)
    assert parsed is not None
    assert is_natural(parsed, texts) is natural


def test_bad_files_end_with_one_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--families", str(tmp_path / "none.jsonl"), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
