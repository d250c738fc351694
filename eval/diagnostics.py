"""What became of an episode's memories in a store, and what the answer model would get to read.

`diagnose` is a pure function of an episode and of the store's final state. Coverage, recall and confounder share are
the paper's (appendix F.2, equations 10-12). They go by members, so a view that swallowed unrelated facts covers them
all; `stated_gold`, `background_primary` and `gold_demoted` show what that hides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eval.bootstrap import share_interval
from eval.episodes import Episode, MemoryRole
from eval.stated import states
from roam.relations import Relation

MACRO_METRICS = ("any_source", "all_source", "gold_recall", "stated_gold", "confounder_share", "units", "tokens")
"""Averaged over episodes, as in the paper."""
POOLED_METRICS = ("background_primary", "gold_demoted", "gold_lost")
"""Shares of memories, pooled over episodes."""


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
    background memories that ended as Evidence, by the relation that demoted them.
    """

    episode: str
    type: str
    values: Mapping[str, float]
    counts: Mapping[str, tuple[int, int]]
    merged: Mapping[str, int]


def diagnose(episode: Episode, state: FinalState) -> Diagnosis:
    """Measure one episode.

    - any_source, all_source, gold_recall: whether at least one / all / which share of the gold memories are members of
      a view that contributes tokens to the context (equations 10-12).
    - stated_gold: share of gold memories that the retained text of such a view still states (`eval.stated`).
    - confounder_share: share of the retained tokens in views all of whose members are confounders; mixed views count
      in the denominator alone (F.2).
    - units, tokens: views that contribute tokens, and how many tokens they do.
    - background_primary: background memories that are Primary at the end.
    - gold_demoted: gold memories that ended as Evidence of a Primary that is not gold.
    - gold_lost: gold memories that the store no longer holds at all (a manager that rewrites or deletes).
    """
    gold = episode.ids(MemoryRole.GOLD)
    background = episode.ids(MemoryRole.BACKGROUND)
    confounders = episode.ids(MemoryRole.CONFOUNDER)
    units = [unit for unit in state.units if unit.tokens > 0]
    covered = frozenset().union(*(unit.members for unit in units)) & gold
    texts = {memory.id: memory.text for memory in episode.memories}
    stated = [g for g in sorted(covered) if any(g in u.members and states(u.text, texts[g]) for u in units)]
    tokens = sum(unit.tokens for unit in units)
    of_confounders = sum(unit.tokens for unit in units if unit.members and unit.members <= confounders)
    survivor = state.primary_of
    demoted = [m for m in sorted(background) if survivor.get(m) != m]
    return Diagnosis(
        episode=episode.id,
        type=episode.type,
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
            "gold_demoted": (sum(g in survivor and survivor[g] not in gold for g in gold), len(gold)),
            "gold_lost": (sum(g not in survivor for g in gold), len(gold)),
        },
        merged=Counter(str(state.demoted_by.get(m, "unknown")) for m in demoted),
    )


def summarise(diagnoses: Sequence[Diagnosis], seed: int) -> dict[str, Any]:
    """Means of `MACRO_METRICS`, pooled shares of `POOLED_METRICS`, their counts and 95 % intervals over episodes."""
    index = np.arange(len(diagnoses))
    summary: dict[str, Any] = {"episodes": len(diagnoses)}
    intervals: dict[str, Any] = {}
    for name in MACRO_METRICS:
        values = np.array([diagnosis.values[name] for diagnosis in diagnoses])
        summary[name] = float(values.mean())
        intervals[name] = share_interval(values, np.ones_like(values), index, seed)
    counts: dict[str, Any] = {}
    for name in POOLED_METRICS:
        pairs = np.array([diagnosis.counts[name] for diagnosis in diagnoses])
        hits, total = pairs.sum(axis=0).tolist()
        summary[name] = hits / total if total else None
        counts[name] = [hits, total]
        intervals[name] = share_interval(pairs[:, 0], pairs[:, 1], index, seed)
    merged: Counter[str] = Counter()
    for diagnosis in diagnoses:
        merged.update(diagnosis.merged)
    return summary | {"counts": counts, "background_merged_by": dict(sorted(merged.items())), "intervals": intervals}


def summarise_by_type(diagnoses: Sequence[Diagnosis], seed: int) -> dict[str, Any]:
    """`summarise` over all episodes, with `by_type` {"I": ..., "II": ...} for the types that occur."""
    types = sorted({diagnosis.type for diagnosis in diagnoses})
    by_type = {name: summarise([d for d in diagnoses if d.type == name], seed) for name in types}
    return summarise(diagnoses, seed) | {"by_type": by_type}
