"""LongMemEval Controlled: managers x confounders x budgets, with paired differences (paper section 3, appendix F)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from eval.answering import accuracy
from eval.benchmark_runner import Runner, diagnosis_of, marked, mean_seconds
from eval.diagnostics import Diagnosis, diagnose, paired_differences, summarise_by_type
from eval.episodes import Episode, MemoryRole
from eval.methods import Method
from eval.relation_report import round_floats
from eval.store_run import Fact, StoreRun, run_store
from roam.errors import DataError
from roam.relations import Relation

LEVELS = (0, 2, 4, 6, 8)
"""N of the paper: confounders a question."""
COMPARED = ("any_source", "all_source", "gold_recall", "stated_gold", "confounder_share", "background_primary")
Cells = dict[tuple[str, int, int], list[Diagnosis]]


def run_controlled(
    episodes: Sequence[Episode], methods: Sequence[Method], runner: Runner, levels: Sequence[int]
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, float]]:
    """Return (report entries, one row a method, level, budget and episode, seconds an episode by method).

    Raises `DataError` when an episode has fewer confounders than the largest of `levels`.
    """
    _check_pools(episodes, max(levels))
    cells: Cells = {}
    rows: list[dict[str, Any]] = []
    seconds: dict[str, float] = {}
    left: dict[str, dict[str, int]] = {}
    answered: dict[str, dict[str, Any]] = {}
    for method in methods:
        for level in levels:
            part = [episode.with_confounders(level) for episode in episodes]

            def work(episode: Episode, method: Method = method) -> Mapping[str, Any]:
                return run_episode(episode, method, runner)

            results = runner.results(f"N={level}", part, method, work)
            seconds[method.name] = mean_seconds(results)
            if level == max(levels):
                left[method.name] = dict(sorted(Counter(j for r in results for j in r["confounders_left"]).items()))
                marks = [
                    (episode.question_type, result["answered"][str(runner.settings.budgets[0])])
                    for episode, result in zip(part, results, strict=True)
                ]
                answered[method.name] = {} if runner.answerer is None else accuracy(marks)
            for budget in runner.settings.budgets:
                found = [diagnosis_of(result["diagnoses"][str(budget)]) for result in results]
                cells[method.name, level, budget] = found
                rows += [
                    _row(method.name, level, budget, episode, diagnosis, result)
                    for episode, diagnosis, result in zip(part, found, results, strict=True)
                ]
    entries = _entries(cells, methods, runner, levels)
    for name, judged in left.items():
        entries["managers"][name] |= {"confounders_left_judged": judged} | answered[name]
    return entries, rows, seconds


def _check_pools(episodes: Sequence[Episode], level: int) -> None:
    for episode in episodes:
        count = len(episode.ids(MemoryRole.CONFOUNDER))
        if count < level:
            raise DataError(
                f"episode {episode.id!r} has {count} confounders and N = {level} is asked for: give at most "
                f"--confounders {count}, or episodes with larger pools"
            )


def run_episode(episode: Episode, method: Method, runner: Runner) -> dict[str, Any]:
    """Fill one store and measure it at every budget; ids and figures only."""
    facts = [Fact(memory.id, memory.text, memory.time) for memory in episode.memories]
    store = run_store(facts, [episode.question], method, runner.embedder, runner.settings)
    states = {budget: store.state(episode.question, budget) for budget in runner.settings.budgets}
    return {
        "diagnoses": {str(budget): asdict(diagnose(episode, state)) for budget, state in states.items()},
        "retained": {
            str(budget): [{"members": sorted(unit.members), "tokens": unit.tokens} for unit in state.units]
            for budget, state in states.items()
        },
        "answered": {
            str(budget): marked(runner.answerer, state.units, episode.question, episode.answer, episode.asked_at)
            for budget, state in states.items()
        },
        "demoted": _demotions(episode, store),
        "confounders_left": _left(episode, store),
    }


def _left(episode: Episode, store: StoreRun) -> list[str]:
    """How each confounder that is Primary at the end was judged: what else than IND was likely, if anything was.

    The judgements are those of its own arrival; the first confounder to arrive has nothing to merge with.
    """
    confounders = episode.ids(MemoryRole.CONFOUNDER)
    found = []
    for decision in store.decisions:
        if (
            decision.observation_id in confounders
            and store.primary_of[decision.observation_id] == decision.observation_id
        ):
            below = {str(j.raw_relation) for j in decision.judgements if j.relation is not j.raw_relation}
            if decision.relation is not Relation.IND:
                found.append(f"{decision.relation}, survives")
            else:
                found.append(f"{'/'.join(sorted(below))} below its threshold" if below else "IND")
    return found


def _demotions(episode: Episode, store: StoreRun) -> list[dict[str, Any]]:
    roles: Mapping[str, MemoryRole] = {memory.id: memory.role for memory in episode.memories}
    by = store.demoted_by
    return [
        {"id": m, "role": str(roles[m]), "primary": p, "primary_role": str(roles[p]), "by": by.get(m)}
        for m, p in sorted(store.primary_of.items())
        if m != p
    ]


def _row(
    method: str, level: int, budget: int, episode: Episode, diagnosis: Diagnosis, result: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "manager": method,
        "n": level,
        "budget": budget,
        "episode": episode.id,
        "type": episode.type,
        "question_type": episode.question_type,
        **round_floats(dict(diagnosis.values)),
        **{name: list(counts) for name, counts in diagnosis.counts.items()},
        "retained": result["retained"][str(budget)],
        "demoted": result["demoted"],
    }


def _entries(cells: Cells, methods: Sequence[Method], runner: Runner, levels: Sequence[int]) -> dict[str, Any]:
    """`managers` holds the largest level at the first budget, `cells` all of them, `comparisons` paired differences."""
    summaries = {place: summarise_by_type(found, runner.seed) for place, found in cells.items()}
    level, budget = max(levels), runner.settings.budgets[0]
    best = reference([method.name for method in methods])
    comparisons = [
        {
            "manager": best,
            "other": name,
            "n": n,
            "budget": b,
            "differences": _differences(cells, best, name, n, b, runner),
        }
        for name, n, b in cells
        if name != best
    ]
    return {
        "managers": {m.name: summaries[m.name, level, budget] | m.identity() for m in methods},
        "cells": [{"manager": name, "n": n, "budget": b} | entry for (name, n, b), entry in summaries.items()],
        "comparisons": comparisons,
    }


def _differences(cells: Cells, one: str, other: str, level: int, budget: int, runner: Runner) -> dict[str, Any]:
    found = paired_differences(cells[one, level, budget], cells[other, level, budget], runner.seed)
    return {name: found[name] for name in COMPARED if name in found}


def reference(names: Sequence[str]) -> str:
    """The method that the others are compared with: `roam` when it runs, otherwise the last one named."""
    return "roam" if "roam" in names else names[-1]
