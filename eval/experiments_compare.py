"""Rows of the experiments' table: seeds put together, and each recipe against the best one before it.

The comparison is a paired bootstrap over the groups of the pairs that both were measured on. A recipe with several
seeds enters with the mean macro-F1 of its seeds in every replicate; the interval says how sure the difference is given
these trained models, the range over the seeds beside it how much training itself varies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval import bootstrap
from eval.bootstrap import FloatArray
from eval.experiments_record import PairSet, Run, read_set
from roam.errors import DataError
from roam.relations import RELATIONS

LEAST_COMMON = 100
"""Fewer common pairs than this are no basis for a comparison."""


@dataclass(frozen=True)
class Spread:
    """Mean and range over seeds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """Macro-F1 minus that of `other` on `pairs` common pairs, with the paired 95 % interval."""

    other: str
    macro_f1: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class Recipe:
    """All seeds of one experiment with one configuration."""

    label: str
    runs: tuple[Run, ...]

    def spread(self, name: str, *keys: str) -> Spread | None:
        """Mean and range of a measure on set `name`; None where no seed has it."""
        values = []
        for run in self.runs:
            value: Any = run.sets.get(name)
            for key in keys:
                value = None if value is None else value.get(key)
            if value is not None:
                values.append(float(value))
        return Spread(float(np.mean(values)), min(values), max(values)) if values else None

    def worst_class(self, name: str) -> tuple[str, float] | None:
        """The relation of lowest mean F1 on set `name`."""
        found = [
            (str(relation), score.mean)
            for relation in RELATIONS
            if (score := self.spread(name, "per_class", str(relation), "f1")) is not None
        ]
        return min(found, key=lambda entry: entry[1]) if found else None


def recipes(runs: Sequence[Run]) -> list[Recipe]:
    """Runs by experiment and configuration, in the order in which the first of each was finished.

    An experiment whose folder was changed between seeds makes two rows; their labels then carry the digest.
    """
    grouped: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        grouped.setdefault((run.name, str(run.values["config_digest"])), []).append(run)
    names = [name for name, _ in grouped]
    out = []
    for (name, digest), members in grouped.items():
        label = name if names.count(name) == 1 else f"{name} ({digest[:7]})"
        out.append(Recipe(label, tuple(sorted(members, key=lambda run: run.seed))))
    return sorted(out, key=lambda recipe: (min(str(run.values["finished"]) for run in recipe.runs), recipe.label))


def against_previous_best(rows: Sequence[Recipe], name: str, results: Path, seed: int) -> list[Difference | None]:
    """For each row, its difference on set `name` to the best earlier row; None for the first, or without the set."""
    out: list[Difference | None] = []
    best: tuple[float, Recipe] | None = None
    for row in rows:
        score = row.spread(name, "macro_f1")
        if score is None:
            out.append(None)
            continue
        out.append(difference(row, best[1], name, results, seed) if best else None)
        if best is None or score.mean > best[0]:
            best = (score.mean, row)
    return out


def difference(row: Recipe, other: Recipe, name: str, results: Path, seed: int) -> Difference | None:
    """Paired difference of two recipes on the pairs that all their runs saw; None when these are too few."""
    members = [[run for run in recipe.runs if name in run.sets] for recipe in (row, other)]
    sets = {path: read_set(results / path) for side in members for run in side if (path := _set_of(run, name))}
    common = _common(list(sets.values()))
    if len(common) < LEAST_COMMON:
        return None
    reference = next(iter(sets.values()))
    place = {key: at for at, key in enumerate(reference.keys)}
    at = np.array([place[key] for key in common])
    gold, group = reference.gold[at], np.unique(reference.group[at], return_inverse=True)[1]
    weights = bootstrap.resample_weights(int(group.max()) + 1, seed)
    samples, points = [], []
    for side in members:
        scores = []
        for run in side:
            parts = _confusions(run, name, sets[_set_of(run, name)], common, gold, group)
            scores.append((_macro(np.tensordot(weights, parts, axes=1)), _macro(parts.sum(axis=0))))
        samples.append(np.mean([sample for sample, _ in scores], axis=0))
        points.append(float(np.mean([point for _, point in scores])))
    low, high = bootstrap.interval(samples[0] - samples[1])
    return Difference(other.label, points[0] - points[1], low, high, len(common))


def _set_of(run: Run, name: str) -> str:
    return str(run.sets[name]["set"])


def _common(sets: Sequence[PairSet]) -> list[str]:
    """Keys in every set with the same gold relation everywhere, in order of the first set."""
    tables = [dict(zip(pairs.keys, pairs.gold.tolist(), strict=True)) for pairs in sets]
    first = tables[0]
    return [key for key, gold in first.items() if all(table.get(key) == gold for table in tables[1:])]


def _confusions(
    run: Run, name: str, pairs: PairSet, common: Sequence[str], gold: np.ndarray, group: np.ndarray
) -> FloatArray:
    guess = run.predicted(name)
    if len(guess) != len(pairs.keys):
        raise DataError(f"{run.path}: {len(guess)} predictions for the {len(pairs.keys)} pairs of {_set_of(run, name)}")
    place = {key: at for at, key in enumerate(pairs.keys)}
    return bootstrap.group_confusions(gold, guess[[place[key] for key in common]], group)


def _macro(counts: FloatArray) -> FloatArray:
    return bootstrap.scores_of_confusions(counts)["macro_f1"]
