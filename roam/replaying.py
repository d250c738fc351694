"""What another manager, or other thresholds, would have made of one user's observations (DESIGN 4.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from roam.events import Event, EventKind, Replayed
from roam.judgement_rows import JudgementRow
from roam.records import Observation, View
from roam.relations import RELATIONS, Relation


@dataclass(frozen=True, slots=True)
class Moved:
    """One observation that would stand elsewhere: its Primary now and then (its own id: it is Primary itself)."""

    observation: Observation
    now: str | None
    then: str | None


@dataclass(frozen=True, slots=True)
class Replay:
    """The difference a replay would make; nothing is changed before `Memory.apply`.

    `relations_now` and `relations_then` count the decisions by relation; `views_then` is the state it would give.
    `version` is the user's last event when it was made, `decisions` and `judgements` are what applying it writes.
    """

    user: str
    version: int
    moved: tuple[Moved, ...]
    relations_now: Mapping[Relation, int]
    relations_then: Mapping[Relation, int]
    views_then: tuple[View, ...]
    forward_passes: int
    decisions: tuple[Replayed, ...] = field(repr=False)
    judgements: tuple[JudgementRow, ...] = field(repr=False, compare=False)


def redecided(log: Sequence[Event], rerun: Sequence[Event]) -> tuple[Replayed, ...]:
    """Return the decisions of a rerun under the names that the log knows them by."""
    names = {event.observation_id: event.id for event in log if event.kind is EventKind.DECISION}
    return tuple(
        Replayed(replace(event.decision, id=names[event.observation_id]), event.view)
        for event in rerun
        if event.decision is not None
    )


def count_relations(events: Iterable[Event]) -> dict[Relation, int]:
    """Return how many decisions of a log came out as each of the five relations."""
    counts = Counter(event.decision.relation for event in events if event.decision is not None)
    return {relation: counts[relation] for relation in RELATIONS}


def compare(observations: list[Observation], now: Mapping[str, str], then: Mapping[str, str]) -> tuple[Moved, ...]:
    """Return the observations whose Primary differs, in arrival order."""
    return tuple(
        Moved(observation, now.get(observation.id), then.get(observation.id))
        for observation in observations
        if now.get(observation.id) != then.get(observation.id)
    )
