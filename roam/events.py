"""The log: events as records, and their JSON form.

An event of kind `decision` says what the policy did with one observation. `retract`, `undo`, `review`, `replay` and
`erase` say how the state changed besides. `fusion_fallback` keeps why a fuser's output was not used. Text occurs in
observations and views only, so that erasing an observation has few places to visit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from roam.records import Decision, Judgement, Observation, Role, View
from roam.relations import RELATIONS, Relation


class EventKind(StrEnum):
    """What happened; see the module's docstring."""

    DECISION = "decision"
    RETRACT = "retract"
    UNDO = "undo"
    REVIEW = "review"
    REPLAY = "replay"
    ERASE = "erase"
    FUSION_FALLBACK = "fusion_fallback"


@dataclass(frozen=True, slots=True)
class Change:
    """How the state changed beyond one decision: new Primary of each id (None: out of the state), new view texts."""

    assigned: Mapping[str, str | None] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person says about the observation of a review event: its relation to an earlier one."""

    old_id: str
    relation: Relation


@dataclass(frozen=True, slots=True)
class Replayed:
    """One decision as made anew by a replay, and the view it gave (None: the atomic text)."""

    decision: Decision
    view: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the log. `sequence` is the order of the log; `target` is the event that an undo refers to."""

    id: str
    user: str
    kind: EventKind
    recorded_at: datetime
    sequence: int = 0
    observation_id: str | None = None
    target: str | None = None
    decision: Decision | None = None
    view: str | None = None
    change: Change | None = None
    detail: str | None = None
    verdict: Verdict | None = None
    replayed: tuple[Replayed, ...] = ()


@dataclass(frozen=True, slots=True)
class DoubtfulPair:
    """A pair whose likeliest relation, of NEW to OLD, stayed below its threshold, so that it counts as IND for now."""

    decision_id: str
    relation: Relation
    probability: float
    old: Observation
    new: Observation


@dataclass(frozen=True, slots=True)
class Record:
    """One observation and where it stands now; `primary_id` is None once it is retracted."""

    observation: Observation
    role: Role | None
    primary_id: str | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a fact is where it is: the decision on it, with every probability, and the later events that touched it."""

    observation: Observation
    role: Role | None
    primary: View | None
    decision: Decision
    candidate_texts: Mapping[str, str]
    later: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of an erasure, without content. `scrubbed` is False while another process still reads the old
    pages, and for a store on a server, whose files are cleaned by its operator.
    """

    event_id: str
    observations: int
    scrubbed: bool


@dataclass(frozen=True, slots=True)
class Reindexed:
    """What was embedded anew, and the embedder that the store is bound to now."""

    embedder: str
    users: int
    observations: int


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import took in; `skipped` users were there with the same content already."""

    users: int
    observations: int
    events: int
    skipped: tuple[str, ...] = ()


def new_event_id() -> str:
    """Return a fresh unique event id."""
    return uuid.uuid4().hex


def now() -> datetime:
    """Return the time of recording."""
    return datetime.now(UTC)


def encode_payload(event: Event) -> str:
    """Return the JSON kept in the log for what the columns of the row do not hold."""
    payload: dict[str, object] = {}
    if event.target is not None:
        payload["target"] = event.target
    if event.detail is not None:
        payload["detail"] = event.detail
    if event.decision is not None:
        payload["decision"] = _encode_decision(event.decision)
    if event.view is not None:
        payload["view"] = event.view
    if event.change is not None:
        payload["assigned"] = dict(event.change.assigned)
        payload["views"] = dict(event.change.views)
    if event.verdict is not None:
        payload["verdict"] = {"old": event.verdict.old_id, "relation": event.verdict.relation.value}
    if event.replayed:
        payload["replayed"] = [
            {
                "event": entry.decision.id,
                "observation": entry.decision.observation_id,
                "decision": _encode_decision(entry.decision),
                "view": entry.view,
            }
            for entry in event.replayed
        ]
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def decode_event(
    sequence: int, id: str, user: str, kind: str, observation_id: str | None, recorded_at: str, payload: str
) -> Event:
    """Return the event of one row of the log, columns in the table's order."""
    data = json.loads(payload)
    stored, verdict = data.get("decision"), data.get("verdict")
    return Event(
        id=id,
        user=user,
        kind=EventKind(kind),
        recorded_at=datetime.fromisoformat(recorded_at),
        sequence=sequence,
        observation_id=observation_id,
        target=data.get("target"),
        decision=None if stored is None or observation_id is None else _decode_decision(id, observation_id, stored),
        view=data.get("view"),
        change=Change(data["assigned"], data["views"]) if "assigned" in data else None,
        detail=data.get("detail"),
        verdict=None if verdict is None else Verdict(verdict["old"], Relation(verdict["relation"])),
        replayed=tuple(
            Replayed(_decode_decision(entry["event"], entry["observation"], entry["decision"]), entry["view"])
            for entry in data.get("replayed", ())
        ),
    )


def _encode_decision(decision: Decision) -> dict[str, object]:
    return {
        "relation": decision.relation.value,
        "primary": decision.primary_id,
        "demoted": list(decision.demoted_ids),
        "matched": list(decision.matched_ids),
        "review": list(decision.review),
        "judgements": [
            {
                "candidate": judgement.candidate_id,
                "relation": judgement.relation.value,
                "raw": judgement.raw_relation.value,
                "probabilities": [judgement.probabilities[relation] for relation in RELATIONS],
                "model": judgement.model,
            }
            for judgement in decision.judgements
        ],
    }


def _decode_decision(event_id: str, observation_id: str, data: Mapping[str, Any]) -> Decision:
    return Decision(
        id=event_id,
        observation_id=observation_id,
        relation=Relation(data["relation"]),
        primary_id=data["primary"],
        demoted_ids=tuple(data["demoted"]),
        matched_ids=tuple(data["matched"]),
        review=tuple(data["review"]),
        judgements=tuple(
            Judgement(
                candidate_id=entry["candidate"],
                relation=Relation(entry["relation"]),
                raw_relation=Relation(entry["raw"]),
                probabilities=dict(zip(RELATIONS, entry["probabilities"], strict=True)),
                model=entry["model"],
            )
            for entry in data["judgements"]
        ),
    )
