"""Update stores: after one contradicting fact, is the new one found, the old one out of the way, the rest untouched?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eval.benchmark_controlled import reference
from eval.benchmark_runner import Runner, mean_seconds
from eval.diagnostics import RetainedUnit
from eval.methods import Method
from eval.shares import paired_shares, summarise_shares
from eval.stated import states
from eval.store_run import StoreRun, run_store
from eval.update_stores import UPDATE_ID, Update, UpdateStore

SHARES = ("new_retrievable", "new_stated", "new_primary", "old_demoted", "bystanders_primary", "bystanders_kept",
          "stale_answer")  # fmt: skip


class Trial(NamedTuple):
    """One update of one store."""

    store: str
    number: int
    facts: UpdateStore
    update: Update


def run_updates(
    stores: Sequence[UpdateStore], methods: Sequence[Method], runner: Runner
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, float]]:
    """Return (report entries, one row a method and update, seconds an update by method).

    Shares over all updates, at each budget:

    - new_retrievable: a view in the context stands for the new fact; new_stated: its text states it as well.
    - new_primary: the new fact is Primary at the end.
    - old_demoted: the old fact is Evidence of the new one. Only of updates that contradict a single fact.
    - bystanders_primary: other facts that are Primary at the end; bystanders_kept: those that the update itself did
      not demote (facts of one store may have merged before).
    - stale_answer: a view in the context states an old fact, and none states the new one.
    """
    trials = [Trial(store.id, n, store, update) for store in stores for n, update in enumerate(store.updates)]
    groups = [trial.store for trial in trials]
    rows: list[dict[str, Any]] = []
    seconds: dict[str, float] = {}
    shares: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    missed: dict[str, dict[str, dict[str, int]]] = {}
    for method in methods:

        def work(trial: Trial, method: Method = method) -> Mapping[str, Any]:
            return run_update(trial, method, runner)

        results = runner.results("updates", trials, method, work)
        seconds[method.name] = mean_seconds(results)
        missed[method.name] = _causes(results)
        for budget in runner.settings.budgets:
            shares[method.name, budget] = [result["shares"][str(budget)] for result in results]
        rows += [
            {"manager": method.name, "store": t.store, "update": t.number}
            | {key: value for key, value in result.items() if key != "seconds"}
            for t, result in zip(trials, results, strict=True)
        ]
    first = runner.settings.budgets[0]
    summaries = {place: summarise_shares(items, groups, runner.seed) for place, items in shares.items()}
    best = reference([method.name for method in methods])
    entries = {
        "updates": len(trials),
        "single_gold": sum(len(trial.update.gold) == 1 for trial in trials),
        "managers": {m.name: summaries[m.name, first] | m.identity() | missed[m.name] for m in methods},
        "cells": [{"manager": name, "budget": budget} | entry for (name, budget), entry in summaries.items()],
        "comparisons": [
            {"manager": best, "other": name, "budget": budget,
             "differences": paired_shares(shares[best, budget], items, groups, runner.seed)}
            for (name, budget), items in shares.items() if name != best
        ],
    }  # fmt: skip
    return entries, rows, seconds


def run_update(trial: Trial, method: Method, runner: Runner) -> dict[str, Any]:
    """Fill one store, add the update and measure at every budget; ids, relations and counts only."""
    update, facts = trial.update, trial.facts.facts
    store = run_store([*facts, update.fact], [update.question], method, runner.embedder, runner.settings)
    primary_of = store.primary_of
    bystanders = [fact.id for fact in facts if fact.id not in update.gold]
    single = len(update.gold) == 1
    fixed = {
        "new_primary": (int(primary_of.get(UPDATE_ID) == UPDATE_ID), 1),
        "old_demoted": (sum(primary_of.get(old) == UPDATE_ID for old in update.gold) if single else 0, int(single)),
        "bystanders_primary": (sum(primary_of.get(id) == id for id in bystanders), len(bystanders)),
        "bystanders_kept": (sum(id not in store.last_demoted for id in bystanders), len(bystanders)),
    }
    texts = {fact.id: fact.text for fact in facts} | {UPDATE_ID: update.fact.text}
    return {
        "shares": {
            str(budget): _retrieved(store.retrieved[update.question, budget], update, texts) | fixed
            for budget in runner.settings.budgets
        },
        "relation": store.last_relation,
        "old": [{"id": old, "demoted": primary_of.get(old) == UPDATE_ID, "judged": judged_as(store, UPDATE_ID, old)}
                for old in update.gold],
        "bystanders_lost": [{"id": id, "primary": primary_of.get(id), "by": store.demoted_by.get(id),
                             "by_update": id in store.last_demoted}
                            for id in bystanders if primary_of.get(id) != id],
    }  # fmt: skip


def _retrieved(units: Sequence[RetainedUnit], update: Update, texts: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    stands = any(UPDATE_ID in unit.members for unit in units)
    stated = is_stated(units, UPDATE_ID, texts)
    stale = not stated and any(is_stated(units, old, texts) for old in update.gold)
    return {"new_retrievable": (int(stands), 1), "new_stated": (int(stated), 1), "stale_answer": (int(stale), 1)}


def is_stated(units: Sequence[RetainedUnit], fact: str, texts: Mapping[str, str]) -> bool:
    """Whether a view in the context stands for the fact and its text states it."""
    return any(fact in unit.members and states(unit.text, texts[fact]) for unit in units)


def judged_as(store: StoreRun, new: str, old: str) -> str:
    """The judgement of (old, new) in words: a relation, one that its threshold turned into IND, or "not compared"."""
    judgement = store.judgement(new, old)
    if judgement is None:
        return "not compared"
    if judgement.relation is not judgement.raw_relation:
        return f"{judgement.raw_relation} below its threshold"
    return str(judgement.relation)


def _causes(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How the old facts that stayed were judged, and by which relation bystanders were lost."""
    stayed: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for result in results:
        if len(result["old"]) == 1:
            stayed.update(old["judged"] for old in result["old"] if not old["demoted"])
        lost.update(
            f"{entry['by']} {'by the update' if entry['by_update'] else 'before it'}"
            for entry in result["bystanders_lost"]
        )
    return {"old_stayed_judged": dict(sorted(stayed.items())), "bystanders_lost_by": dict(sorted(lost.items()))}
