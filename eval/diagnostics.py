"""What became of an episode's memories in a store, and what the answer model would get to read.

`diagnose` is a pure function of an episode and of the store's final state, `measure` of any question's roles. Coverage,
recall and confounder share are the paper's (appendix F.2, equations 10-12). They go by members, so a view that
swallowed unrelated facts covers them all; `stated_gold`, `background_primary` and `gold_demoted` show what that hides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from eval.bootstrap import FloatArray, group_index, interval, resample_weights
from eval.episodes import Episode, MemoryRole
from eval.metrics import IntArray
from eval.stated import states
from roam.relations import Relation

MACRO_METRICS = ("any_source", "all_source", "gold_recall", "stated_gold", "confounder_share", "units", "tokens")
"""Averaged over episodes, as in the paper."""
POOLED_METRICS = ("background_primary", "confounder_primary", "gold_demoted", "gold_lost")
"""Shares of memories, pooled over episodes."""


@dataclass(frozen=True, slots=True)
class Roles:
    """What each memory of a store is to one question: texts of the gold ones by id, ids of the others."""

    gold: Mapping[str, str]
    background: frozenset[str] = frozenset()
    confounders: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RetainedUnit:
    """One view in the context: its text as cut at the budget, its length in tokens, the memories it stands for."""

    text: str
    tokens: int
    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class FinalState:
    """A store after the last memory and one search.

    `primary_of` maps each memory that the store still holds to the memory that survives as Primary for it (itself for a
    Primary); `demoted_by` maps an Evidence memory to the relation that demoted it.
    """

    units: tuple[RetainedUnit, ...]
    primary_of: Mapping[str, str]
    demoted_by: Mapping[str, Relation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Measures of one episode.

    `values` holds `MACRO_METRICS`; `counts` maps each of `POOLED_METRICS` to (memories, out of); `merged` counts the
    background memories that ended as Evidence, by the relation that demoted them; `fates` counts the gold memories by
    what became of them. Questions put to one store share a `group`, which intervals resample as a whole.
    """

    episode: str
    type: str
    values: Mapping[str, float]
    counts: Mapping[str, tuple[int, int]]
    merged: Mapping[str, int]
    fates: Mapping[str, int] = field(default_factory=dict)
    group: str = ""


def diagnose(episode: Episode, state: FinalState) -> Diagnosis:
    """`measure` for an episode whose memories name their roles."""
    roles = Roles(
        gold={memory.id: memory.text for memory in episode.memories if memory.role is MemoryRole.GOLD},
        background=episode.ids(MemoryRole.BACKGROUND),
        confounders=episode.ids(MemoryRole.CONFOUNDER),
    )
    return measure(episode.id, episode.type, roles, state)


def measure(identifier: str, kind: str, roles: Roles, state: FinalState, group: str = "") -> Diagnosis:
    """Measure one question that needs the memories `roles.gold`; `kind` is what results are grouped by.

    - any_source, all_source, gold_recall: whether at least one / all / which share of the gold memories are members of
      a view that contributes tokens to the context (equations 10-12).
    - stated_gold: share of gold memories that the retained text of such a view still states (`eval.stated`).
    - confounder_share: share of the retained tokens in views all of whose members are confounders; mixed views count
      in the denominator alone (F.2).
    - units, tokens: views that contribute tokens, and how many tokens they do.
    - background_primary, confounder_primary: those memories that are Primary at the end.
    - gold_demoted: gold memories that ended as Evidence of a Primary that is not gold.
    - gold_lost: gold memories that the store no longer holds at all (a manager that rewrites or deletes).
    """
    gold, background, confounders = frozenset(roles.gold), roles.background, roles.confounders
    units = [unit for unit in state.units if unit.tokens > 0]
    covered = frozenset().union(*(unit.members for unit in units)) & gold
    stated = [g for g in sorted(covered) if any(g in u.members and states(u.text, roles.gold[g]) for u in units)]
    tokens = sum(unit.tokens for unit in units)
    of_confounders = sum(unit.tokens for unit in units if unit.members and unit.members <= confounders)
    survivor = state.primary_of
    demoted = [m for m in sorted(background) if survivor.get(m) != m]
    return Diagnosis(
        episode=identifier,
        type=kind,
        values={
            "any_source": float(bool(covered)),
            "all_source": float(gold <= covered),
            "gold_recall": len(covered) / len(gold),
            "stated_gold": len(stated) / len(gold),
            "confounder_share": of_confounders / tokens if tokens else 0.0,
            "units": float(len(units)),
            "tokens": float(tokens),
        },
        counts={
            "background_primary": (len(background) - len(demoted), len(background)),
            "confounder_primary": (sum(survivor.get(m) == m for m in confounders), len(confounders)),
            "gold_demoted": (sum(g in survivor and survivor[g] not in gold for g in gold), len(gold)),
            "gold_lost": (sum(g not in survivor for g in gold), len(gold)),
        },
        merged=dict(Counter(str(state.demoted_by.get(m, "unknown")) for m in demoted)),
        fates=dict(Counter(_fate(g, gold, covered, frozenset(stated), state) for g in gold)),
        group=group,
    )


def _fate(memory: str, gold: frozenset[str], covered: frozenset[str], stated: frozenset[str], state: FinalState) -> str:
    """What became of a gold memory, in words: which decision to look at when it can't be read in the context."""
    if memory in stated:
        return "stated"
    survivor = state.primary_of.get(memory)
    if survivor is None:
        return "lost"
    behind = "" if survivor in gold else f", behind a non-gold Primary by {state.demoted_by.get(memory, 'unknown')}"
    return ("retrieved, not stated" if memory in covered else "not retrieved") + behind


def summarise(diagnoses: Sequence[Diagnosis], seed: int) -> dict[str, Any]:
    """Means of `MACRO_METRICS`, pooled shares of `POOLED_METRICS`, their counts and 95 % intervals over episodes."""
    groups = _groups(diagnoses)
    weights = _weights(int(groups.max()) + 1, seed)
    summary: dict[str, Any] = {"episodes": len(diagnoses)}
    intervals: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for name in (*MACRO_METRICS, *POOLED_METRICS):
        parts = _fractions(diagnoses, name, groups)
        hits, total = parts.sum(axis=0).tolist()
        summary[name] = hits / total if total else None
        intervals[name] = list(interval(_ratios(weights, parts))) if total else None
        if name in POOLED_METRICS:
            counts[name] = [int(hits), int(total)]
    merged: Counter[str] = Counter()
    fates: Counter[str] = Counter()
    for diagnosis in diagnoses:
        merged.update(diagnosis.merged)
        fates.update(diagnosis.fates)
    return summary | {
        "counts": counts,
        "background_merged_by": dict(sorted(merged.items())),
        "gold_fates": dict(sorted(fates.items())),
        "intervals": intervals,
    }


def summarise_by_type(diagnoses: Sequence[Diagnosis], seed: int) -> dict[str, Any]:
    """`summarise` over all episodes, with `by_type` {type: ...} for the types that occur ("I" and "II", or tasks)."""
    types = sorted({diagnosis.type for diagnosis in diagnoses})
    by_type = {name: summarise([d for d in diagnoses if d.type == name], seed) for name in types}
    return summarise(diagnoses, seed) | {"by_type": by_type}


def paired_differences(ours: Sequence[Diagnosis], theirs: Sequence[Diagnosis], seed: int) -> dict[str, dict[str, Any]]:
    """{metric: {difference, interval}} of two methods on the same episodes in the same order; 95 % paired bootstrap.

    One draw of episodes serves both methods, so what depends on which episodes were drawn cancels out. Metrics that
    count nothing (no background, say) are left out.
    """
    if [d.episode for d in ours] != [d.episode for d in theirs]:
        raise ValueError("paired methods must have run on the same episodes in the same order")
    groups = _groups(ours)
    weights = _weights(int(groups.max()) + 1, seed)
    found: dict[str, dict[str, Any]] = {}
    for name in (*MACRO_METRICS, *POOLED_METRICS):
        one, two = _fractions(ours, name, groups), _fractions(theirs, name, groups)
        if one[:, 1].sum() == 0 or two[:, 1].sum() == 0:
            continue
        difference = one[:, 0].sum() / one[:, 1].sum() - two[:, 0].sum() / two[:, 1].sum()
        samples = _ratios(weights, one) - _ratios(weights, two)
        found[name] = {"difference": float(difference), "interval": list(interval(samples))}
    return found


@lru_cache(maxsize=64)
def _weights(groups: int, seed: int) -> FloatArray:
    return resample_weights(groups, seed)


def _groups(diagnoses: Sequence[Diagnosis]) -> IntArray:
    return group_index([diagnosis.group for diagnosis in diagnoses], len(diagnoses))


def _fractions(diagnoses: Sequence[Diagnosis], name: str, groups: IntArray) -> FloatArray:
    """Numerator and denominator of each group, shape (groups, 2)."""
    if name in MACRO_METRICS:
        parts = np.array([(diagnosis.values[name], 1.0) for diagnosis in diagnoses])
    else:
        parts = np.array([diagnosis.counts[name] for diagnosis in diagnoses], dtype=np.float64)
    summed = np.zeros((int(groups.max()) + 1, 2))
    np.add.at(summed, groups, parts)
    return summed


def _ratios(weights: FloatArray, fractions: FloatArray) -> FloatArray:
    top, bottom = weights @ fractions[:, 0], weights @ fractions[:, 1]
    return np.divide(top, bottom, out=np.full_like(bottom, np.nan), where=bottom > 0)
