"""Experiments: folders of differences, kept results, the table over them, and a whole run on a tiny base."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from data.pairs import write_pairs
from eval import bootstrap, experiments, experiments_record, metrics
from eval.experiments_compare import against_previous_best, recipes
from eval.experiments_record import digits, pair_key, read_runs, read_set, write_run, write_set
from roam.errors import ConfigError, DataError, InputError
from roam.relations import RELATIONS
from tests.tiny import save_base, toy_pairs
from training import experiment
from training.config import RelationConfig

pytestmark = pytest.mark.unit
PAIRS = toy_pairs(300, 5, "p")
GOLD = metrics.columns([pair.label for pair in PAIRS])


def guess(share_wrong: float, seed: int, gold: np.ndarray = GOLD) -> np.ndarray:
    """Gold with a share of the pairs set to the next relation."""
    wrong = np.random.default_rng(seed).random(len(gold)) < share_wrong
    return np.where(wrong, (gold + 1) % len(RELATIONS), gold)


def keep(results: Path, name: str, seed: int, share_wrong: float, day: int, **changes: Any) -> Path:
    """A kept run on PAIRS with a share of wrong predictions."""
    source = results / "pairs" / "dev.jsonl"
    write_pairs(source, PAIRS)
    predicted = guess(share_wrong, seed)
    entry = {
        "file": "dev.jsonl", "sha256": "0", "set": write_set(source, PAIRS, results), "pairs": len(PAIRS),
        "macro_f1": metrics.macro_f1(GOLD, predicted), "per_class": metrics.per_class(GOLD, predicted),
        "interval": [0.1, 0.9], "ece": 0.02, "swap_consistency": 0.9, "false_demotion_rate": 0.1,
        "pairs_per_second": 100.0, "predicted": "".join(map(str, predicted.tolist())),
    }  # fmt: skip
    values = {
        "experiment": name, "seed": seed, "note": None, "finished": f"2026-01-{day:02d}T00:00:00+00:00",
        "recipe": "relation/minilm.yaml", "differences": {"lora_rank": 8}, "build": {"eqv": 2}, "config_digest": name,
        "commit": "abcdef0123", "base": "tiny", "parameters": {"total": 22_700_000, "trained": 300_000},
        "data": {"train": "1", "train_pairs": 10}, "chosen_on": ["dev"], "sets": {"dev": entry}, **changes,
    }  # fmt: skip
    return write_run(values, results)


def test_seeds_are_put_together_and_compared_with_the_best_before(tmp_path: Path) -> None:
    for seed in range(3):
        keep(tmp_path, "first", seed, 0.30, 1)
        keep(tmp_path, "worse", seed, 0.50, 2)
        keep(tmp_path, "better", seed, 0.10, 3)
    rows = recipes(read_runs(tmp_path)[0])
    assert [row.label for row in rows] == ["first", "worse", "better"]
    spread = rows[0].spread("dev", "macro_f1")
    scores = [metrics.macro_f1(GOLD, guess(0.30, seed)) for seed in range(3)]
    assert spread is not None
    assert (spread.mean, spread.low, spread.high) == pytest.approx((np.mean(scores), min(scores), max(scores)))
    none, worse, better = against_previous_best(rows, "dev", tmp_path, 0)
    assert none is None
    assert worse is not None
    assert better is not None
    assert worse.other == better.other == "first"  # not "worse", which came in between
    assert worse.high < 0 < better.low <= better.macro_f1 <= better.high
    assert better.pairs == len({pair_key(pair) for pair in PAIRS})


def test_with_one_seed_each_the_difference_is_the_paired_bootstrap(tmp_path: Path) -> None:
    unique = list({pair_key(pair): pair for pair in PAIRS}.values())
    gold = metrics.columns([pair.label for pair in unique])
    keep(tmp_path, "a", 0, 0.3, 1)
    keep(tmp_path, "b", 1, 0.2, 2)
    found = against_previous_best(recipes(read_runs(tmp_path)[0]), "dev", tmp_path, 7)[1]
    place = {pair_key(pair): at for at, pair in enumerate(PAIRS)}
    at = [place[pair_key(pair)] for pair in unique]
    first, second = guess(0.3, 0)[at], guess(0.2, 1)[at]
    # The pair file's own groups, for the pairs that stand for their key.
    group = bootstrap.group_index([PAIRS[index].group for index in at], len(at))
    expected = bootstrap.paired_difference(gold, second, first, [str(number) for number in group], 7)
    assert found is not None
    assert found.macro_f1 == pytest.approx(expected["macro_f1"])
    assert (found.low, found.high) == pytest.approx(
        expected["interval"], abs=0.01
    )  # groups are numbered in another order


def test_runs_on_a_grown_pair_file_are_compared_on_the_common_pairs(tmp_path: Path) -> None:
    unique = list({pair_key(pair): pair for pair in PAIRS}.values())
    assert len(unique) > 150
    for name, kept, day in (("small", unique[:140], 1), ("grown", unique[20:], 2)):
        source = tmp_path / name / "dev.jsonl"
        mixed = random.Random(day).sample(kept, len(kept))
        write_pairs(source, mixed)
        gold = metrics.columns([pair.label for pair in mixed])
        path = keep(tmp_path, name, 0, 0.0, day)
        values = json.loads(path.read_text())
        values["sets"]["dev"] |= {"set": write_set(source, mixed, tmp_path), "pairs": len(mixed),
                                  "predicted": "".join(map(str, gold.tolist()))}  # fmt: skip
        path.write_text(json.dumps(values))
    found = against_previous_best(recipes(read_runs(tmp_path)[0]), "dev", tmp_path, 0)[1]
    assert found is not None
    assert found.pairs == 120
    assert found.macro_f1 == found.low == found.high == 0  # both know every common pair


def test_the_command_writes_table_csv_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, out = tmp_path / "results", tmp_path / "out"
    for seed in range(3):
        keep(results, "whole", seed, 0.2, 1, note="Three seeds.")
    keep(results, "hint", 0, 0.1, 2)
    (results / "dead.json").write_text(json.dumps({"experiment": "dead", "note": "Stays at the prior."}))
    assert experiments.main(["--results", str(results), "--out", str(out)]) == 0
    page = (out / "experiments.md").read_text()
    assert capsys.readouterr().out.strip() == page.strip()
    for text in ("relation/minilm.yaml: lora_rank=8, build.eqv=2", "22.7 (0.30)", "abcdef012", "**dead**: Stays at the",
                 "no claim yet: hint", "**whole**: Three seeds."):  # fmt: skip
        assert text in page
    row = next(line for line in page.splitlines() if line.startswith("| hint |"))
    assert " on whole |" in row
    assert "| dev |" in row
    with (out / "experiments.csv").open() as stream:
        flat = list(csv.DictReader(stream))
    assert [entry["seed"] for entry in flat] == ["0", "1", "2", "0"]
    assert float(flat[0]["f1_CON"]) == pytest.approx(metrics.per_class(GOLD, guess(0.2, 0))["CON"]["f1"])
    assert (out / "experiments.png").read_bytes().startswith(b"\x89PNG")


def test_a_changed_recipe_under_the_same_name_is_a_row_of_its_own(tmp_path: Path) -> None:
    keep(tmp_path, "same", 0, 0.2, 1, config_digest="a" * 64)
    keep(tmp_path, "same", 1, 0.2, 2, config_digest="b" * 64)
    assert [row.label for row in recipes(read_runs(tmp_path)[0])] == ["same (aaaaaaa)", "same (bbbbbbb)"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chosen_on": ["relation_test_843"]}, "test set"),
        ({"config_digest": None}, "no config_digest"),
        ({"sets": {}}, "neither sets nor a note"),
        ({"short": True}, "299 predictions for 300 pairs"),
        ({"experiment": None}, "no experiment name"),
    ],
)
def test_broken_results_are_named(
    changes: Mapping[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = keep(tmp_path, "x", 0, 0.2, 1)
    values = json.loads(path.read_text())
    if changes.get("short"):
        values["sets"]["dev"]["predicted"] = values["sets"]["dev"]["predicted"][1:]
    else:
        values = {key: value for key, value in (values | changes).items() if value is not None}
    path.write_text(json.dumps(values))
    assert experiments.main(["--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert str(path) in error


def test_missing_results_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert experiments.main(["--results", str(tmp_path / "none"), "--out", str(tmp_path)]) == 2
    assert "no results folder" in capsys.readouterr().err


def test_set_files_hold_no_text(tmp_path: Path) -> None:
    keep(tmp_path, "x", 0, 0.2, 1)
    (path,) = (tmp_path / "sets").glob("*.json")
    text = path.read_text()
    assert not any(word in text for pair in PAIRS for word in (pair.old, pair.new))
    pairs = read_set(path)
    assert pairs.keys[7] == pair_key(PAIRS[7])
    assert pairs.gold.tolist() == GOLD.tolist()
    assert (pairs.group[0] == pairs.group[1]) == (PAIRS[0].group == PAIRS[1].group)
    assert digits("0431").tolist() == [0, 4, 3, 1]


def test_the_kept_results_can_be_read() -> None:
    runs, notes = read_runs(experiments_record.RESULTS)
    for run in runs:
        for name, entry in run.sets.items():
            assert len(read_set(experiments_record.RESULTS / entry["set"]).keys) == entry["pairs"], (run.path, name)
            score = metrics.macro_f1(read_set(experiments_record.RESULTS / entry["set"]).gold, run.predicted(name))
            assert score == pytest.approx(entry["macro_f1"], abs=1e-6)
    assert all(note.values["note"] for note in notes)


# The runner


def folder_of(tmp_path: Path, values: Mapping[str, Any], name: str = "trial") -> Path:
    folder = tmp_path / "experiments" / name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(values)))
    return folder


def test_differences_build_and_seed_make_the_recipe(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {
        "recipe": "relation/minilm.yaml", "build": {"first_person": 0.3, "no_neighbours": True, "seed": 4},
        "differences": {"lora_rank": 64, "initial_adapter": "runs/experiments/stage-seed{seed}/adapter"},
    })  # fmt: skip
    found = experiment.read_experiment(folder)
    config = experiment.resolve(found, folder, 2)
    assert (config.lora_rank, config.seed, config.out) == (64, 2, "runs/experiments/trial-seed2")
    assert config.base == "all-MiniLM-L6-v2"
    assert config.initial_adapter == "runs/experiments/stage-seed2/adapter"
    assert config.train == "data/derived/experiments/trial/train.jsonl"
    assert found.build is not None
    assert experiment.build_arguments(found.build, Path("x"), "") == [
        "--out", "x", "--first-person", "0.3", "--no-neighbours", "--seed", "4",
    ]  # fmt: skip
    digest = experiment.config_digest(found, config)
    assert digest == experiment.config_digest(found, experiment.resolve(found, folder, 0))
    assert digest != experiment.config_digest(experiment.Experiment(found.recipe, found.differences), config)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"differences": {"learning_rat": 1e-3}}, "did you mean 'learning_rate'"),
        ({"differences": {"seed": 3}}, "the runner sets"),
        ({"recipe": "relation/none.yaml"}, "no config file"),
        ({"build": {"eqvs": 3}}, "does not take"),
        ({"build": {"out": "x"}}, "build.out"),
        ({"differences": 3}, "must be dict"),
        ({"recipes": "x"}, "did you mean 'recipe'"),
    ],
)
def test_a_wrong_experiment_is_one_line_and_exit_code_2(
    values: Mapping[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path, values)
    assert experiment.main([str(folder), "--results", str(tmp_path / "results")]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    assert not (tmp_path / "results").exists()


def test_no_folder_or_a_bad_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no .*config\.yaml"):
        experiment.read_experiment(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="no experiment name"):
        experiment.read_experiment(tmp_path / "Bad Name")


def test_the_test_set_is_refused_under_any_name(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "dev.jsonl"
    copy.write_bytes((root / "data" / "relation_test_843.jsonl").read_bytes())
    with pytest.raises(InputError, match="test set"):
        experiment.run_experiment(folder_of(tmp_path, {}), 0, natural=copy, results=tmp_path / "results")
    as_dev = folder_of(tmp_path, {"differences": {"train": str(copy), "dev": str(copy)}}, "as-dev")
    with pytest.raises(InputError, match="test set"):
        experiment.run_experiment(as_dev, 0, results=tmp_path / "results")


@pytest.mark.integration
def test_an_experiment_from_folder_to_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed in (("train", 0), ("dev", 1), ("chat", 2)):
        write_pairs(tmp_path / f"{name}.jsonl", toy_pairs(60, seed, name[0]))
    folder = folder_of(tmp_path, {"differences": {
        "base": str(save_base(tmp_path / "base")), "train": "train.jsonl", "dev": "dev.jsonl", "device": "cpu",
        "precision": "fp32", "max_steps": 4, "batch_size": 8, "lora_rank": 4,
    }})  # fmt: skip
    results = tmp_path / "results"
    path = experiment.run_experiment(folder, 1, natural=tmp_path / "chat.jsonl", results=results)
    assert path == results / "trial-seed1.json"
    values = json.loads(path.read_text())
    assert set(values["sets"]) == {"dev", "chat"} == set(values["chosen_on"])
    assert values["data"]["train_pairs"] == 60
    assert values["parameters"]["trained"] < values["parameters"]["total"]
    assert "Ana" not in path.read_text()
    assert path.stat().st_size < 20_000

    # Measuring the finished run again gives the same, and another recipe's run is refused.
    run = tmp_path / "runs" / "experiments" / "trial-seed1"
    again = json.loads(experiment.run_experiment(folder, 1, run=run, results=tmp_path / "again").read_text())
    assert again["sets"]["dev"]["predicted"] == values["sets"]["dev"]["predicted"]
    assert again["config_digest"] == values["config_digest"]
    assert again["adapter"] == values["adapter"]
    with pytest.raises(ConfigError, match="seed 1 instead of 0"):
        experiment.run_experiment(folder, 0, run=run, results=results)
    page = experiments.write(results, tmp_path / "out")
    assert "chat macro-F1" in page


def test_the_default_pairs_are_drawn_only_when_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[list[str]] = []

    def build(arguments: list[str]) -> int:
        calls.append(arguments)
        return 0

    monkeypatch.setattr("data.build.main", build)
    experiment.prepare_data(experiment.Experiment(), RelationConfig())
    experiment.prepare_data(experiment.Experiment(), RelationConfig(train="elsewhere.jsonl"))
    assert calls == [[]]
    Path(RelationConfig.train).parent.mkdir(parents=True)
    Path(RelationConfig.train).touch()
    experiment.prepare_data(experiment.Experiment(), RelationConfig())
    assert calls == [[]]
    monkeypatch.setattr("data.build.main", lambda arguments: 2)
    with pytest.raises(DataError, match="failed"):
        experiment.prepare_data(experiment.Experiment(build={"eqv": 3}), RelationConfig(train="x/train.jsonl"))
