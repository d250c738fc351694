"""The fusion report: its measures, its columns and its command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from data.fusion import FusionExample, read_fusion
from eval.fusion import FUSERS, System, evaluate, main
from eval.fusion_report import chrf, score_view, summarise, survivor_of
from roam.fusion import DeterministicFuser
from roam.records import FusionRequest, TimedText
from roam.relations import Relation

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    {
        "id": "a",
        "relation": "CON",
        "inputs": [
            {"text": "User's bank is ING.", "time": "2024-01-01"},
            {"text": "User's bank is N26.", "time": None},
        ],
        "target": "User's bank: ING -> N26 (current)",
        "must_keep": ["ING", "N26"],
        "must_not": ["ING (current"],
        "tags": ["work"],
    },
    {
        "id": "b",
        "relation": "NSO",
        "inputs": [
            {"text": "User has a pug.", "time": "2024-01-01"},
            {"text": "User has a dog.", "time": "2024-02-01"},
        ],
        "target": "User has a pug.",
        "must_keep": ["pug"],
        "must_not": ["a dog"],
        "tags": ["pets"],
    },
]


class EchoFuser:
    """A learned fuser that fails: it repeats the last input twice."""

    name = "echo"

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        return [f"{request.inputs[-1].text} {request.inputs[-1].text}" for request in requests]


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    path = tmp_path / "examples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def test_chrf_agrees_with_the_published_measure() -> None:
    # Figures of sacrebleu 2.6, CHRF(word_order=0).sentence_score, divided by 100.
    assert chrf("The user works at Nokia.", "The user works at Nokia.") == 1.0
    assert chrf("abc", "xyz") == 0.0
    assert chrf("The user has a cat.", "The user has a dog.") == pytest.approx(0.68493728, abs=1e-6)


def test_a_view_is_scored_by_case_sensitive_substrings() -> None:
    inputs = (TimedText("User has a pug.", None), TimedText("User has a dog.", None))
    example = FusionExample("x", Relation.NSO, inputs, "User has a pug.", ("pug", "Rex"), ("Dog", "a dog"))
    score = score_view(example, "User has a pug, a dog.")
    assert (score.exact, score.lost, score.violated) == (False, ("Rex",), ("a dog",))
    assert score.length_ratio == 22 / 30


def test_rates_count_views_not_strings() -> None:
    inputs = (TimedText("a", None), TimedText("b", None))
    example = FusionExample("x", Relation.EQV, inputs, "a", ("a", "b"), ("c", "d"))
    rates = summarise([score_view(example, "a"), score_view(example, "a b c d")])
    assert (rates["exact"], rates["keep_rate"], rates["violation_rate"]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("relation", "tags", "index"),
    [("EQV", (), 0), ("NSO", (), 0), ("OSN", (), 2), ("CON", (), 2), ("OSN", ("out_of_order",), 0),
     ("NSO", ("out_of_order",), 2), ("CON", ("out_of_order",), 2)],
)  # fmt: skip
def test_the_survivor_follows_the_papers_table_1(relation: str, tags: tuple[str, ...], index: int) -> None:
    inputs = (TimedText("a", None),) * 3
    assert survivor_of(FusionExample("x", Relation[relation], inputs, "a", tags=tags)) == index


def test_the_report_has_all_fusers_side_by_side(
    examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["--examples", str(examples), "--out", str(out)]) == 0
    report = json.loads((out / "report.json").read_text())
    assert set(report["fusers"]) == set(FUSERS)
    raw = report["fusers"]["deterministic"]["raw"]
    assert (raw["exact"], raw["keep_rate"], raw["violation_rate"]) == (1.0, 1.0, 0.0)
    assert set(raw["by_relation"]) == {"CON", "NSO"}
    assert set(raw["by_tag"]) == {"work", "pets"}
    newest = report["fusers"]["newest"]["raw"]
    assert newest["by_relation"]["NSO"]["violation_rate"] == 1.0
    assert [row["id"] for row in newest["failures"]] == ["a", "b"]
    assert report["fusers"]["concatenate"]["raw"]["keep_rate"] == 1.0
    assert json.loads((out / "timings.json").read_text())["seconds_a_view"]["deterministic (raw)"] > 0
    assert (out / "fusion.png").read_bytes().startswith(b"\x89PNG")
    assert "| deterministic (raw) | all | 2 | 100.0 %" in (out / "report.md").read_text()
    assert "deterministic (raw): exact 1.000" in capsys.readouterr().out


def test_the_same_examples_give_the_same_bytes(examples: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        evaluate([System(DeterministicFuser())], examples, tmp_path / name)
    assert (tmp_path / "one/report.json").read_bytes() == (tmp_path / "two/report.json").read_bytes()
    assert (tmp_path / "one/views.jsonl").read_bytes() == (tmp_path / "two/views.jsonl").read_bytes()


def test_a_guarded_fuser_is_reported_beside_the_raw_one_with_its_fallbacks_by_reason(
    examples: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    report = evaluate([System(EchoFuser(), guarded=True)], examples, out)["fusers"]["echo"]
    assert report["fallback_rate"] == 1.0
    assert report["fallback_reasons"] == {"LENGTH": 1.0}
    assert report["raw"]["keep_rate"] == 0.0
    assert (report["guarded"]["keep_rate"], report["guarded"]["violation_rate"]) == (1.0, 0.0)
    page = (out / "report.md").read_text()
    assert "- echo: 100.0 % of all views\n    - too long or repeats itself: 100.0 %" in page
    assert "| echo (guarded) | all | 2 | 100.0 %" in page


def test_a_trained_adapter_that_is_not_there_ends_with_one_line(
    examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--examples", str(examples), "--out", str(tmp_path / "out"), "--relation", "none", "--adapter"]
    assert main([*args, str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_bad_files_end_with_one_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "a", "relation": "IND"}\n', encoding="utf-8")
    assert main(["--examples", str(bad), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(SystemExit) as stop:
        main(["--examples", str(bad), "--out", str(tmp_path), "--fuser", "magic"])
    assert stop.value.code == 2


def test_rules_are_faithful_on_the_bundled_training_examples() -> None:
    examples = read_fusion(ROOT / "data" / "fusion_train.jsonl")
    requests = [FusionRequest(item.inputs, item.relation, survivor_of(item)) for item in examples]
    views = DeterministicFuser().fuse(requests)
    rates = summarise([score_view(item, view) for item, view in zip(examples, views, strict=True)])
    assert rates["keep_rate"] >= 0.98
    assert rates["violation_rate"] <= 0.002
    assert rates["exact"] >= 0.80
