"""How records look on a terminal and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from enum import Enum
from functools import singledispatch

from roam.events import Event, Explanation, ImportReport, Receipt, Record
from roam.records import Decision, Hit, Judgement, Observation, Role, SearchResult, View
from roam.relations import Relation
from roam.validation import time_text


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


@singledispatch
def line(record: object) -> str:
    """A record as one line of a list."""
    raise TypeError(f"no line for {type(record).__name__}")


@line.register
def _(record: Decision) -> str:
    survives = record.primary_id == record.observation_id
    fate = "Primary" if survives else f"Evidence of {record.primary_id}"
    demoted = [other for other in record.demoted_ids if other != record.observation_id]
    replaced = f", now Evidence: {' '.join(demoted)}" if demoted else ""
    doubt = f", {len(record.review)} pair(s) to review" if record.review else ""
    return f"{record.relation}  {record.observation_id}  {fate}{replaced}{doubt}"


@line.register
def _(record: View) -> str:
    behind = f"  [{len(record.members)} facts]" if len(record.members) > 1 else ""
    return f"{record.id}  {when(record.observed_at):<10}  {record.text}{behind}"


@line.register
def _(record: Observation) -> str:
    source = f"  ({record.source})" if record.source else ""
    return f"{record.id}  {when(record.observed_at):<10}  {record.text}{source}"


@line.register
def _(record: Record) -> str:
    role = "retracted" if record.role is None else str(record.role)
    owner = f" of {record.primary_id}" if record.role is Role.EVIDENCE else ""
    return f"{line(record.observation)}  [{role}{owner}]"


@line.register
def _(record: Hit) -> str:
    mark = "" if record.role is Role.PRIMARY else f"  [{record.role}]"
    return f"{record.score:.2f}  {record.id}  {record.text}{mark}"


@line.register
def _(record: Judgement) -> str:
    below = (
        "" if record.raw_relation is record.relation else f" ({record.raw_relation} is likeliest, but below threshold)"
    )
    return f"{record.relation}{below} to {record.candidate_id}: {probabilities_text(record.probabilities)}"


@line.register
def _(record: Event) -> str:
    subject = record.observation_id or record.target or ""
    told = f"  {record.decision.relation}, Primary {record.decision.primary_id}" if record.decision else ""
    told += f"  {record.verdict.relation} to {record.verdict.old_id}" if record.verdict else ""
    detail = f"  {record.detail}" if record.detail else ""
    return f"{record.recorded_at:%Y-%m-%d %H:%M:%S}  {record.id}  {record.kind}  {subject}{told}{detail}"


@line.register
def _(record: dict) -> str:  # type: ignore[type-arg]
    told = f"{record['relation']} {record['probability']:.2f}"
    return f"{told}  old {record['old_id']}  {record['old']}\n          new {record['new_id']}  {record['new']}"


@line.register
def _(record: ImportReport) -> str:
    there = f"; there already: {', '.join(record.skipped)}" if record.skipped else ""
    return f"{record.users} users, {record.observations} observations, {record.events} events taken in{there}"


@line.register
def _(record: Receipt) -> str:
    pages = "" if record.scrubbed else "; freed pages may keep bytes until no other process reads them"
    return f"{record.observations} observation(s) erased (event {record.event_id}){pages}"


def search_text(result: SearchResult) -> str:
    """The hits, and what the context took of its budget."""
    lines = [line(hit) for hit in result.hits] or ["nothing found"]
    return "\n".join([*lines, f"{result.tokens} of {result.budget} tokens"])


def explanation_text(explanation: Explanation) -> str:
    """The observation, where it stands, and the decision with the probabilities behind it."""
    decision = explanation.decision
    lines = [line(explanation.observation), f"decision {decision.id}: {line(decision)}"]
    for judgement in decision.judgements:
        lines += [f"  {line(judgement)}", f"    {explanation.candidate_texts.get(judgement.candidate_id, '(erased)')}"]
    if explanation.primary is None:
        lines.append("now: retracted")
    else:
        lines.append(f"now: {explanation.role}; view: {explanation.primary.text}")
    lines += [f"later: {line(event)}" for event in explanation.later]
    return "\n".join(lines)


def probabilities_text(probabilities: Mapping[Relation, float]) -> str:
    """Probabilities, the largest first."""
    ordered = sorted(probabilities.items(), key=lambda item: -item[1])
    return "  ".join(f"{relation} {probability:.3f}" for relation, probability in ordered)
