"""What another manager, or other thresholds, would have made of one user's observations (DESIGN 4.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

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
    """The difference a replay would make; nothing is changed by it.

    `relations_now` and `relations_then` count the decisions by relation; `views_then` is the state it would give.
    """

    moved: tuple[Moved, ...]
    relations_now: Mapping[Relation, int]
    relations_then: Mapping[Relation, int]
    views_then: tuple[View, ...]
    forward_passes: int


def count_relations(relations: list[Relation]) -> dict[Relation, int]:
    """Return how often each of the five relations occurs."""
    counts = Counter(relations)
    return {relation: counts[relation] for relation in RELATIONS}


def compare(observations: list[Observation], now: Mapping[str, str], then: Mapping[str, str]) -> tuple[Moved, ...]:
    """Return the observations whose Primary differs, in arrival order."""
    return tuple(
        Moved(observation, now.get(observation.id), then.get(observation.id))
        for observation in observations
        if now.get(observation.id) != then.get(observation.id)
    )
