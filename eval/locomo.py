"""LoCoMo dialogues as streams of dated observations with questions.

Two forms are read (JSON Lines or one JSON array), each record one dialogue:

- the released file: `sample_id, conversation{session_1_date_time, ...}, observation{session_1_observation{speaker:
  [[text, dialogue ids]]}}, qa[{question, answer, evidence[], category}]`;
- observations in rows: `conv, atoms[{id, session, time, text, dia[]}], questions[{question, answer, evidence[],
  category}]`.

A question is asked when every dialogue turn of its evidence has an observation; those observations are gold. The data
set is CC BY-NC 4.0: measure with it, do not train what you ship on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from eval.record_files import Record, iso_time, read_records, require_list, require_text, require_unique
from eval.store_run import Fact, Question, Stream

CATEGORIES: Mapping[int, str] = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_TURN = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)_observation")


class Atom(NamedTuple):
    """One observation, the session it comes from, and the dialogue turns it rests on."""

    fact: Fact
    session: int
    turns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Locomo:
    """One stream a dialogue, and how many questions have evidence that no observation covers."""

    streams: tuple[Stream, ...]
    uncovered: int


def read_locomo(path: str | Path) -> Locomo:
    """Read a LoCoMo file; `DataError` names the first bad dialogues and counts all of them."""
    parsed = read_records(path, _parse, "LoCoMo dialogues", "eval/locomo.py")
    return Locomo(tuple(stream for stream, _ in parsed), sum(uncovered for _, uncovered in parsed))


def _parse(row: Record) -> tuple[Stream, int]:
    if "observation" in row:
        name, atoms, rows = str(row["sample_id"]), list(_released(row)), require_list(row, "qa")
    elif "atoms" in row:
        name, atoms, rows = str(row["conv"]), [_atom(atom) for atom in row["atoms"]], require_list(row, "questions")
    else:
        raise ValueError("neither observation nor atoms: give the released file or rows of observations")
    if not atoms:
        raise ValueError(f"dialogue {name!r} has no observation")
    require_unique([atom.fact.id for atom in atoms], "atom id")
    atoms.sort(key=lambda atom: atom.session)
    by_turn: dict[str, list[str]] = {}
    for atom in atoms:
        for turn in sorted(atom.turns):
            by_turn.setdefault(turn, []).append(atom.fact.id)
    questions = [_question(f"{name}.q{number}", each, by_turn) for number, each in enumerate(rows)]
    asked = tuple(question for question in questions if question.gold)
    return Stream(name, tuple(atom.fact for atom in atoms), asked), len(questions) - len(asked)


def _atom(row: Record) -> Atom:
    fact = Fact(str(row["id"]), require_text(row, "text"), iso_time(row["time"]))
    return Atom(fact, int(row["session"]), _turns(row["dia"]))


def _released(row: Record) -> Iterator[Atom]:
    dates = row["conversation"]
    for key, speakers in row["observation"].items():
        session = _SESSION.fullmatch(key)
        if session is None:
            raise ValueError(f"observation {key!r}: expected session_1_observation and so on")
        number = int(session[1])
        time = iso_time(dates[f"session_{number}_date_time"])
        for speaker, entries in speakers.items():
            for place, (text, turns) in enumerate(entries):
                yield Atom(Fact(f"s{number}.{speaker}.{place}", str(text), time), number, _turns(turns))


def _turns(value: Any) -> frozenset[str]:
    """Dialogue ids of a text or a list of texts; some entries hold several in one text."""
    return frozenset(_TURN.findall(value if isinstance(value, str) else " ".join(map(str, value))))


def _question(identifier: str, row: Record, by_turn: Mapping[str, list[str]]) -> Question:
    category = row["category"]
    if category not in CATEGORIES:
        raise ValueError(f"category {category!r} of {identifier}: use 1 to 5")
    evidence = sorted(_turns(row.get("evidence") or []))
    covered = all(turn in by_turn for turn in evidence)
    gold = tuple(dict.fromkeys(id for turn in evidence for id in by_turn[turn])) if covered else ()
    answer = str(row.get("answer", row.get("adversarial_answer", "")))
    return Question(identifier, CATEGORIES[category], require_text(row, "question"), answer, gold)
