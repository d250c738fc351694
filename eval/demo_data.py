"""The bundled stream of dated facts, its questions, and how far a store agrees with the notes beside the facts.

Stream (JSONL): `id, user, text, observed_at, source, expect`, in order of arrival. `expect` is what a careful reader
says of the fact: "IND", or a relation to one earlier fact of the same user ("CON:d031"). Questions (JSONL): `user,
question, must_contain[], must_not_contain_as_current[]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from roam.errors import DataError, RoamError
from roam.records import Decision, Observation
from roam.relations import Relation, parse_relation
from roam.validation import parse_time


@dataclass(frozen=True, slots=True)
class StreamFact:
    """One fact of the stream; `expected` is the relation that the note names, to the fact `reference` (IND: None)."""

    observation: Observation
    expected: Relation
    reference: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the strings its context must hold, and those no current state may hold."""

    user: str
    text: str
    must_contain: tuple[str, ...]
    not_current: tuple[str, ...]


class Outcome(StrEnum):
    """What the store made of a fact, against its note."""

    RIGHT = "right"
    OTHER_RELATION = "right group, other relation"
    OTHER_GROUP = "joined another group"
    MISSED = "left apart"


def read_stream(path: str | Path) -> list[StreamFact]:
    """Read a stream; `DataError` for a bad line, a repeated id or a note that names no earlier fact of its user."""
    facts: list[StreamFact] = []
    users: dict[str, str] = {}
    for where, row in _rows(path):
        try:
            name, _, reference = str(row["expect"]).partition(":")
            relation = parse_relation(name)
            observed_at = parse_time(row["observed_at"])
            observation = Observation(row["text"], row["user"], observed_at, row["source"], row["id"])
        except (KeyError, RoamError) as error:
            raise DataError(f"{where}: {_reason(error)}; the format is described in eval/demo_data.py") from error
        known = users.get(reference) == observation.user
        if observation.id in users or known is (relation is Relation.IND):
            raise DataError(
                f"{where}: id {observation.id!r} is taken or its note {row['expect']!r} names no earlier fact"
            )
        users[observation.id] = observation.user
        facts.append(StreamFact(observation, relation, reference or None))
    return facts


def read_questions(path: str | Path) -> list[Question]:
    """Read the questions; `DataError` for a bad line."""
    questions = []
    for where, row in _rows(path):
        try:
            lists = (tuple(row["must_contain"]), tuple(row["must_not_contain_as_current"]))
            questions.append(Question(row["user"], row["question"], *lists))
        except (KeyError, TypeError) as error:
            raise DataError(f"{where}: {_reason(error)}; the format is described in eval/demo_data.py") from error
    return questions


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) and not isinstance(error, RoamError) else str(error)


def _rows(path: str | Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error}); give a JSONL file") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: {type(row).__name__} where an object is expected")
        yield f"{path}:{number}", row


def outcomes(facts: Sequence[StreamFact], decisions: Sequence[Decision]) -> list[Outcome]:
    """What became of each fact, judged at the time of its decision.

    Groups are followed by folding the decisions: a fact noted as related to `reference` is in the right group when the
    Primary that stood for `reference` at that time is among the matched ones.
    """
    owner: dict[str, str] = {}
    found = []
    for fact, decision in zip(facts, decisions, strict=True):
        found.append(_outcome(fact, decision, owner))
        owner[decision.observation_id] = decision.primary_id
        moved = {*decision.demoted_ids}
        owner.update({id: decision.primary_id for id, primary in owner.items() if primary in moved})
    return found


def _outcome(fact: StreamFact, decision: Decision, owner: Mapping[str, str]) -> Outcome:
    if fact.reference is None:
        return Outcome.RIGHT if decision.relation is Relation.IND else Outcome.OTHER_GROUP
    if decision.relation is Relation.IND:
        return Outcome.MISSED
    if owner[fact.reference] not in decision.matched_ids:
        return Outcome.OTHER_GROUP
    return Outcome.RIGHT if decision.relation is fact.expected else Outcome.OTHER_RELATION


def superseded(facts: Sequence[StreamFact]) -> set[str]:
    """Ids of facts that, by the notes, are no longer true at the end.

    These are the older side of every conflict, and whatever is noted as equivalent to one of them or entails it. What
    an outdated fact only entailed may still hold, so it is left out.
    """
    by_id = {fact.observation.id: fact.observation for fact in facts}
    old: set[str] = set()
    for fact in facts:
        if fact.expected is Relation.CON and fact.reference is not None:
            mine, other = fact.observation, by_id[fact.reference]
            late = bool(mine.observed_at and other.observed_at and mine.observed_at < other.observed_at)
            old.add(mine.id if late else other.id)
    entails = set()  # (stronger or equal, weaker or equal)
    for fact in facts:
        if fact.reference is not None and fact.expected in (Relation.EQV, Relation.OSN):
            entails.add((fact.observation.id, fact.reference))
        if fact.reference is not None and fact.expected in (Relation.EQV, Relation.NSO):
            entails.add((fact.reference, fact.observation.id))
    while more := {strong for strong, weak in entails if weak in old} - old:
        old |= more
    return old
