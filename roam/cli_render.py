"""How records look on a terminal and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from enum import Enum

from roam.records import Decision, Hit, Judgement, Observation, SearchResult, View
from roam.validation import time_text

SHORT = 8  # characters of an id that a person reads; JSON and explain give all


def plain(value: object) -> object:
    """`value` as JSON types: records become objects, times ISO 8601, enums their values."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise TypeError(f"no JSON form for {type(value).__name__}")


def to_json(value: object) -> str:
    """One JSON document, readable and in the letters of the texts."""
    return json.dumps(plain(value), ensure_ascii=False, indent=2)


def when(moment: datetime | None) -> str:
    """A time for a column of a list; undated facts get a dash."""
    return time_text(moment) or "-"


def decision_line(decision: Decision) -> str:
    """What became of one observation, in a line."""
    relation = decision.relation.value
    if decision.primary_id == decision.observation_id:
        fate = "Primary"
    else:
        fate = f"Evidence of {decision.primary_id}"
    demoted = [other for other in decision.demoted_ids if other != decision.observation_id]
    replaced = f", now Evidence: {' '.join(demoted)}" if demoted else ""
    doubt = f", {len(decision.review)} pair(s) to review" if decision.review else ""
    return f"{relation}  {decision.observation_id}  {fate}{replaced}{doubt}"


def view_line(view: View) -> str:
    """A view with its id, time and how many observations stand behind it."""
    behind = f"  [{len(view.members)} facts]" if len(view.members) > 1 else ""
    return f"{view.id}  {when(view.observed_at):<10}  {view.text}{behind}"


def observation_line(observation: Observation) -> str:
    """An observation with its id, time and source."""
    source = f"  ({observation.source})" if observation.source else ""
    return f"{observation.id}  {when(observation.observed_at):<10}  {observation.text}{source}"


def hit_line(hit: Hit) -> str:
    """A search hit; Evidence is marked."""
    return f"{hit.score:.2f}  {hit.id}  {hit.text}" + ("" if hit.role.value == "primary" else f"  [{hit.role.value}]")


def search_text(result: SearchResult) -> str:
    """The hits, and what the context took of its budget."""
    lines = [hit_line(hit) for hit in result.hits] or ["nothing found"]
    return "\n".join([*lines, f"{result.tokens} of {result.budget} tokens"])


def judgement_line(judgement: Judgement) -> str:
    """Which relation counted for one candidate, and the probabilities behind it."""
    raw = "" if judgement.raw_relation is judgement.relation else f" (argmax {judgement.raw_relation.value}, below threshold)"
    return f"{judgement.relation.value}{raw} to {judgement.candidate_id}: {probabilities_text(judgement.probabilities)}"


def probabilities_text(probabilities: Mapping[object, float]) -> str:
    """Probabilities, the largest first."""
    ordered = sorted(probabilities.items(), key=lambda item: -item[1])
    return "  ".join(f"{plain(relation)} {probability:.3f}" for relation, probability in ordered)
