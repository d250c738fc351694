"""LongMemEval questions with their histories, from the released JSON or from a file of evidence turns.

Two forms are read (JSON Lines or one JSON array), each record one question with `question_id, question_type, question,
answer`:

- the released files (oracle, S, M): `haystack_dates[], haystack_session_ids[], haystack_sessions[[{role, content,
  has_answer?}]]`;
- evidence turns alone: `evidence_sessions[{session, date, has_answer_turns[{role, content}]}]`.

One turn is one fact, cut between sentences where it is longer than a store takes; turns that are marked `has_answer`
are gold. Turns are not atoms: what an extractor would make of them is not in these files. Abstention questions have no
evidence and are left out, as the paper's 470 questions leave them out, and so are questions without a marked turn. The
data set is released under the MIT licence (xiaowu0162/LongMemEval).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.record_files import Record, iso_time, read_records, require_list, require_text
from eval.store_run import Fact, Question, Stream
from roam.validation import MAX_TEXT

TYPES = ("temporal-reasoning", "multi-session", "knowledge-update", "single-session-user", "single-session-preference",
         "single-session-assistant")  # fmt: skip
"""Question types in the order of the paper's Table 6."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class LongMemEval:
    """Streams of one question each, and how many questions were left out for want of a marked turn."""

    streams: tuple[Stream, ...]
    left_out: int


def read_longmemeval(path: str | Path) -> LongMemEval:
    """Read a LongMemEval file; `DataError` names the first bad questions and counts all of them."""
    streams = read_records(path, _parse, "LongMemEval questions", "eval/longmemeval.py")
    kept = tuple(stream for stream in streams if stream.questions)
    return LongMemEval(kept, len(streams) - len(kept))


def _parse(row: Record) -> Stream:
    identifier = require_text(row, "question_id")
    kind = str(row["question_type"])
    if kind not in TYPES:
        raise ValueError(f"question_type {kind!r}: use one of {', '.join(TYPES)}")
    facts: list[Fact] = []
    gold: list[str] = []
    for session, date, turns in _sessions(row):
        for number, (turn, is_gold) in enumerate(turns):
            texts = pieces(require_text(turn, "content"), MAX_TEXT)
            ids = [f"{session}.t{number}" + (f".{part}" if len(texts) > 1 else "") for part in range(len(texts))]
            facts += [Fact(each, text, date) for each, text in zip(ids, texts, strict=True)]
            gold += ids if is_gold else []
    facts.sort(key=lambda fact: fact.time or "")
    asked = iso_time(row["question_date"]) if row.get("question_date") else None
    abstains = identifier.endswith("_abs") or bool(row.get("abstention"))
    question = Question(identifier, kind, require_text(row, "question"), str(row.get("answer", "")), tuple(gold), asked)
    return Stream(identifier, tuple(facts), () if abstains or not gold else (question,))


def _sessions(row: Record) -> Iterator[tuple[str, str | None, list[tuple[Any, bool]]]]:
    """(id, ISO date, [(turn, whether it is gold)]) of every session, in either form."""
    if "haystack_sessions" in row:
        sessions = require_list(row, "haystack_sessions")
        dates, names = require_list(row, "haystack_dates"), require_list(row, "haystack_session_ids")
        if not len(sessions) == len(dates) == len(names):
            raise ValueError(
                f"{len(sessions)} haystack_sessions, {len(dates)} dates and {len(names)} ids: give as many"
            )
        for number, (turns, date) in enumerate(zip(sessions, dates, strict=True)):
            marked = [(turn, bool(turn.get("has_answer"))) for turn in turns if str(turn.get("content", "")).strip()]
            yield f"s{number}", iso_time(date), marked
    elif "evidence_sessions" in row:
        for number, session in enumerate(require_list(row, "evidence_sessions")):
            turns = [(turn, True) for turn in require_list(session, "has_answer_turns")]
            yield f"s{number}", iso_time(session["date"]) if session.get("date") else None, turns
    else:
        raise ValueError("neither haystack_sessions nor evidence_sessions: give a released file or evidence turns")


def pieces(text: str, limit: int) -> Sequence[str]:
    """`text` with single spaces, cut between sentences (or words) into parts of at most `limit` characters."""
    parts: list[str] = []
    for sentence in _SENTENCE_END.split(" ".join(text.split())):
        words = [sentence] if len(sentence) <= limit else sentence.split(" ")
        for word in words:
            if parts and len(parts[-1]) + 1 + len(word) <= limit:
                parts[-1] += f" {word}"
            else:
                parts.append(word[:limit])
    return parts
