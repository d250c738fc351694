"""Results of experiments as files: one small JSON a run, and one file a pair set that all runs on it share.

A run file holds figures, digests and the predicted relations as one digit a pair (columns of `RELATIONS`, in the order
of the pair file). The set file holds a key (a hash of both texts), the gold relation and the group of every pair, so
that any two runs can be compared pair by pair later, without the texts and although the pair file has grown since.
A file without `sets` is a plain note: an outcome (often a negative one) that no figures are kept of.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.pairs import LabelledPair, file_sha256, normalise_text, read_pairs
from eval import bootstrap, metrics
from eval.metrics import IntArray
from eval.provenance import write_json
from roam.errors import DataError
from roam.relations import RELATIONS, parse_relation

RESULTS = Path(__file__).resolve().parent / "results" / "experiments"
SET_FOLDER = "sets"
TEST_FILE = Path(__file__).resolve().parent.parent / "data" / "relation_test_843.jsonl"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
KEY_DIGITS = 10
"""Hexadecimal digits of a pair's key: with 40 bits, two of 10,000 pairs collide by chance once in 20,000 files."""
COPIED = (
    "pairs", "macro_f1", "accuracy", "per_class", "ece", "swap_consistency", "merge_error_rate",
    "false_demotion_rate",
)  # fmt: skip
NEEDED = ("experiment", "seed", "finished", "config_digest", "differences", "data", "parameters", "chosen_on")


@dataclass(frozen=True)
class PairSet:
    """What comparing two runs needs of a pair file: keys, gold columns and group numbers, in file order."""

    keys: tuple[str, ...]
    gold: IntArray
    group: IntArray


@dataclass(frozen=True)
class Run:
    """One results file. `values` is its content; `sets` maps a set's name to its measures."""

    path: Path
    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.values["experiment"])

    @property
    def seed(self) -> int:
        return int(self.values["seed"])

    @property
    def sets(self) -> Mapping[str, Mapping[str, Any]]:
        found: Mapping[str, Mapping[str, Any]] = self.values.get("sets", {})
        return found

    def predicted(self, name: str) -> IntArray:
        """Predicted columns on a set, shape (pairs,)."""
        return digits(str(self.sets[name]["predicted"]))


def digits(text: str) -> IntArray:
    """Columns of a string of one digit a pair."""
    return np.array([int(character) for character in text], dtype=np.int64)


def as_digits(columns: IntArray) -> str:
    return "".join(map(str, columns.tolist()))


def pair_key(pair: LabelledPair) -> str:
    """The same for the same two texts in any file (spacing and case aside)."""
    text = f"{normalise_text(pair.old)}\x1f{normalise_text(pair.new)}"
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def is_test(path: Path) -> bool:
    """Whether `path` is the test set, under any name."""
    return TEST_FILE.is_file() and file_sha256(path) == file_sha256(TEST_FILE)


def measured(report_folder: Path, pairs_path: Path, results: Path) -> dict[str, Any]:
    """A set's entry of a run file, from the folder that `eval.relation` wrote for `pairs_path`.

    Writes the set file beside it if it is not there yet. `DataError` when the report is of another pair file.
    """
    report = _json(report_folder / "report.json")
    timings = _json(report_folder / "timings.json")
    digest = file_sha256(pairs_path)
    if report["hashes"]["pairs"] != digest:
        raise DataError(f"{report_folder} reports on other pairs than {pairs_path}: evaluate that file again")
    pairs = read_pairs(pairs_path)
    rows = [json.loads(line) for line in (report_folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    if [row["id"] for row in rows] != [pair.id for pair in pairs]:
        raise DataError(f"{report_folder}/predictions.jsonl has other ids than {pairs_path}: evaluate that file again")
    predicted = metrics.columns([parse_relation(row["pred"]) for row in rows])
    return {
        "file": pairs_path.name,
        "sha256": digest,
        "set": write_set(pairs_path, pairs, results),
        **{name: report[name] for name in COPIED},
        "interval": report["intervals"]["macro_f1"],
        "risk_coverage_area": report["risk_coverage"]["area"],
        "at_thresholds": {name: report["at_thresholds"][name] for name in ("macro_f1", "false_demotion_rate")},
        "pairs_per_second": round(timings["pairs_per_second"], 1),
        "predicted": as_digits(predicted),
    }


def write_set(pairs_path: Path, pairs: Sequence[LabelledPair], results: Path) -> str:
    """Write the set file of `pairs` and return its path relative to `results`."""
    name = f"{SET_FOLDER}/{pairs_path.stem}-{file_sha256(pairs_path)[:8]}.json"
    path = results / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        group = bootstrap.group_index([pair.group for pair in pairs], len(pairs))
        path.write_text(
            json.dumps(
                {
                    "file": pairs_path.name,
                    "labels": [str(relation) for relation in RELATIONS],
                    "keys": " ".join(pair_key(pair) for pair in pairs),
                    "gold": as_digits(metrics.columns([pair.label for pair in pairs])),
                    "groups": " ".join(map(str, group.tolist())),
                },
                indent=1,
            )
            + "\n",
            encoding="utf-8",
        )
    return name


def read_set(path: Path) -> PairSet:
    """The set file `path`; `DataError` when it is of another label order."""
    values = _json(path)
    if values["labels"] != [str(relation) for relation in RELATIONS]:
        raise DataError(f"{path}: labels {values['labels']} are not in the project's order; measure its runs again")
    groups = np.array([int(number) for number in values["groups"].split()], dtype=np.int64)
    return PairSet(tuple(values["keys"].split()), digits(values["gold"]), groups)


def write_run(values: Mapping[str, Any], results: Path) -> Path:
    """Write NAME-seedN.json and return its path."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{values['experiment']}-seed{values['seed']}.json"
    write_json(path, values)
    return path


def read_runs(results: Path) -> tuple[list[Run], list[Run]]:
    """(runs, notes) of a folder, each in order of file names.

    `DataError` names a file that lacks a key, holds predictions of the wrong length, or was chosen on the test set.
    """
    if not results.is_dir():
        raise DataError(f"no results folder {str(results)!r}; run `python -m training.experiment` first")
    runs, notes = [], []
    for path in sorted(results.glob("*.json")):
        run = Run(path, _json(path))
        if not isinstance(run.values.get("experiment"), str):
            raise DataError(f"{path}: no experiment name; a note is {{experiment, note}}, runs are written by "
                            "`python -m training.experiment`")  # fmt: skip
        if not run.sets:
            if not run.values.get("note"):
                raise DataError(f"{path}: neither sets nor a note; write what was found under note")
            notes.append(run)
            continue
        _check(run)
        runs.append(run)
    return runs, notes


def _check(run: Run) -> None:
    missing = [name for name in NEEDED if name not in run.values]
    if missing:
        raise DataError(f"{run.path}: no {', '.join(missing)}; write it with `python -m training.experiment`")
    if any("test" in str(name) for name in (*run.values["chosen_on"], *run.sets)):
        raise DataError(f"{run.path}: chosen or measured on a test set; experiments are chosen on dev data only")
    for name, entry in run.sets.items():
        if len(entry["predicted"]) != entry["pairs"]:
            raise DataError(f"{run.path}: {len(entry['predicted'])} predictions for {entry['pairs']} pairs of {name}")


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path}: holds a {type(values).__name__}, not an object")
    return values
