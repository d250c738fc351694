"""The speed benchmark: its page from figures, its errors, and (slow) all its parts on a tiny adapter."""

from __future__ import annotations

import argparse
import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data.pairs import write_pairs
from scripts.speed import episode
from scripts.speed.plan import TINY, Plan
from tests.tiny import toy_pairs
from tests.tiny_adapter import save_adapter

ROOT = Path(__file__).parent.parent
ONE = {"pairs_per_second": 10.0, "slowest": 9.0, "fastest": 11.0, "times_peer": 1.0}
PEERS = {
    "peer": "CrossEncoder.predict", "load_seconds": {}, "compared_on": 4,
    "batches": {"10": {"CrossEncoder.predict": ONE, "onnx-int8": {**ONE, "pairs_per_second": 41.0, "times_peer": 4.1}},
                "640": {"CrossEncoder.predict": ONE, "onnx-int8": {**ONE, "times_peer": 3.9}}},
    "same_relation_as_torch": {"CrossEncoder.predict": 1.0, "onnx-int8": 0.99},
}  # fmt: skip


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "bench_speed.py"))


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    return ["--tiny", "--out", str(tmp_path / "out")]


@pytest.mark.unit
def test_the_page_says_which_levels_hold_and_what_is_missing(script: dict[str, Any], tmp_path: Path) -> None:
    report = script["write"](tmp_path, {"peers": PEERS}, {"adapter": "a"})
    assert [level["holds"] for level in report["levels"]] == [True, False]
    page = (tmp_path / "speed.md").read_text("utf-8")
    assert re.search(r"int8 against CrossEncoder.predict, batch of 640, times *\| *at least 4 *\| *3\.90 *\| *no", page)
    assert re.search(r"\| *10 *\| *onnx-int8 *\| *41\.0", page)
    assert "Not measured: start, parity, limit, ingest, training, cascade, growth, episode." in page
    script["keep"](tmp_path, tmp_path / "kept")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["speed.json", "speed.md", "speed.png"]
    assert (tmp_path / "kept" / "speed.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.unit
def test_a_part_that_is_there_is_not_measured_again(
    script: dict[str, Any], arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def figures(plan: object) -> dict[str, Any]:
        calls.append(plan)
        return PEERS

    main = script["main"]
    monkeypatch.setitem(main.__globals__, "part_of", lambda name: figures)
    for again, count in (([], 1), ([], 1), (["--again"], 2)):
        assert main([*arguments, "--parts", "peers", *again]) == 0
        assert len(calls) == count
    kept = tmp_path / "out" / "parts" / "peers.json"
    other = json.loads(kept.read_text("utf-8"))
    kept.write_text(json.dumps({**other, "of": {"adapter": "another", "size": "tiny"}}))
    assert main([*arguments, "--parts", "peers"]) == 0
    assert len(calls) == 3


@pytest.mark.unit
def test_the_episode_part_takes_its_figures_from_the_cost_report(
    script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = json.loads((ROOT / "eval" / "results" / "pretrained" / "overhead.json").read_text("utf-8"))
    asked = []

    def overhead(args: argparse.Namespace) -> dict[str, Any]:
        asked.append(args)
        return report

    monkeypatch.setattr(episode, "overhead", overhead)
    plan = Plan(adapter=tmp_path, pairs=tmp_path, train=tmp_path, parity=tmp_path, sizes=TINY, scratch=tmp_path)
    assert episode.run(plan) is None
    figures = episode.run(replace(plan, gguf=tmp_path / "small.gguf"))
    assert (asked[0].managers, asked[0].gguf, asked[0].episodes) == ("roam,prompted", tmp_path / "small.gguf", 1)
    levels = script["write"](tmp_path, {"episode": figures}, {})["levels"]
    assert {level["what"] for level in levels} == {
        "an episode by prompts against roam, times", "an episode by prompts against roam, batched, times",
    }  # fmt: skip
    costs = report["managers"]
    assert levels[0]["measured"] == f"{costs['prompted']['seconds'] / costs['roam']['seconds']:.2f}"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--parts", "peers,walk"], "'walk' does not exist; parts are: start, peers"),
        (["--adapter", "nowhere"], "no adapter folder 'nowhere'"),
        (["--parts", "peers", "--pairs", "none.jsonl"], "none.jsonl does not exist: `python -m data.build`"),
    ],
)
def test_bad_arguments(
    more: list[str], message: str, script: dict[str, Any], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script["main"]([*arguments, *more]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bench_speed: ")
    assert message in error


@pytest.mark.slow
def test_all_parts_run_on_a_tiny_adapter(
    script: dict[str, Any], arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setenv("ROAM_CACHE", str(tmp_path / "cache"))
    adapter = save_adapter(tmp_path / "tiny", "bert", swap_margin=0.5, max_length=32)
    for name, count, seed in (("pairs", 40, 1), ("train", 80, 2)):
        write_pairs(tmp_path / f"{name}.jsonl", toy_pairs(count, seed, name))
    more = ["--adapter", str(adapter), "--fast", str(adapter), "--base", str(adapter.parent / "base"),
            "--pairs", str(tmp_path / "pairs.jsonl"), "--train", str(tmp_path / "train.jsonl"),
            "--parity", str(tmp_path / "pairs.jsonl")]  # fmt: skip
    assert script["main"]([*arguments, *more]) == 0
    report = json.loads((tmp_path / "out" / "speed.json").read_text("utf-8"))
    assert list(report["parts"]) == ["start", "peers", "parity", "limit", "ingest", "training", "growth", "cascade"]
    assert report["parts"]["parity"]["onnx"]["agreement"] == 1.0
    assert report["parts"]["ingest"]["one_by_one_torch"]["same_decision"] > 0.9
    shares = report["parts"]["limit"]["onnx-int8"]
    assert 0 < shares["share_of_machine"] < 1
    assert sum(shares["profile"].values()) == pytest.approx(1, abs=0.01)
    first, *_, last = report["parts"]["cascade"]["int8 before fp32"]
    assert (first["asked_again"], last["asked_again"], last["agreement_with_accurate"]) == (0, 1, 1)
