"""Episodes of the controlled benchmark: a question, and the memories a store gets before it is asked.

File format (JSONL, one episode a line): `question_id, question_type, question, answer, memories[{id, text, time, role,
ctype}]`, and `question_date` where it is known. `role` is gold (needed for the answer), background or confounder;
`ctype` is "I" (similar to the question, answers nothing) or "II" (an obsolete value) for confounders and null otherwise
(paper, appendix F.1).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from eval.record_files import Record, iso_time, read_records, require_list, require_text, require_unique


class MemoryRole(StrEnum):
    """What a memory is to the question of its episode."""

    GOLD = "gold"
    BACKGROUND = "background"
    CONFOUNDER = "confounder"


@dataclass(frozen=True, slots=True)
class EpisodeMemory:
    """One atomic memory; `time` is ISO 8601, `type` is the confounder type ("I", "II") or None."""

    id: str
    text: str
    time: str
    role: MemoryRole
    type: str | None


@dataclass(frozen=True, slots=True)
class Episode:
    """One question with its memories in time order (file order where times are equal)."""

    id: str
    question_type: str
    question: str
    answer: str
    memories: tuple[EpisodeMemory, ...]
    asked_at: str | None = None
    """When the question is asked, ISO 8601; None when the file does not say."""
    pool_type: str | None = None
    """The type of the whole pool of confounders, kept where some of them are left out."""

    @property
    def type(self) -> str:
        """ "II" when obsolete values compete with the gold memory, otherwise "I"."""
        if self.pool_type is not None:
            return self.pool_type
        return "II" if any(memory.type == "II" for memory in self.memories) else "I"

    def ids(self, role: MemoryRole) -> frozenset[str]:
        """Ids of the memories in `role`."""
        return frozenset(memory.id for memory in self.memories if memory.role is role)

    def with_confounders(self, count: int) -> Episode:
        """The same episode with `count` of its confounders; a smaller count keeps part of what a larger one keeps.

        The order is a hash of the ids: neither the place in the file nor the time of a confounder decides, every
        method gets the same ones, and nobody chose them (appendix F.1: one fixed pool).
        """
        kept = sorted(self.ids(MemoryRole.CONFOUNDER), key=self._rank)[:count]
        memories = tuple(m for m in self.memories if m.role is not MemoryRole.CONFOUNDER or m.id in kept)
        return replace(self, memories=memories, pool_type=self.type)

    def _rank(self, identifier: str) -> str:
        return hashlib.sha256(f"{self.id}\n{identifier}".encode()).hexdigest()


def read_episodes(path: str | Path) -> list[Episode]:
    """Read an episode file; `DataError` names the first bad lines and counts all of them."""
    return read_records(path, parse_episode, "episodes", "eval/episodes.py")


def parse_episode(record: Record) -> Episode:
    """Return the episode of one JSON object; KeyError, TypeError or ValueError says what is wrong."""
    memories = [
        EpisodeMemory(str(m["id"]), require_text(m, "text"), iso_time(m["time"]), MemoryRole(m["role"]), m.get("ctype"))
        for m in require_list(record, "memories")
    ]
    require_unique([memory.id for memory in memories], "memory id")
    if not any(memory.role is MemoryRole.GOLD for memory in memories):
        raise ValueError("no gold memory in the episode")
    memories.sort(key=lambda memory: memory.time)
    return Episode(
        id=str(record["question_id"]),
        question_type=str(record.get("question_type", "")),
        question=require_text(record, "question"),
        answer=str(record.get("answer", "")),
        memories=tuple(memories),
        asked_at=iso_time(record["question_date"]) if record.get("question_date") else None,
    )
