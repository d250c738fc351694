"""Episodes of the controlled benchmark: a question, and the memories a store gets before it is asked.

File format (JSONL, one episode a line): `question_id, question_type, question, answer, memories[{id, text, time, role,
ctype}]`. `role` is gold (needed for the answer), background or confounder; `ctype` is "I" (similar to the question,
answers nothing) or "II" (an obsolete value) for confounders and null otherwise (paper, appendix F.1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from roam.errors import DataError

SHOWN_PROBLEMS = 3


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

    @property
    def type(self) -> str:
        """ "II" when obsolete values compete with the gold memory, otherwise "I"."""
        return "II" if any(memory.type == "II" for memory in self.memories) else "I"

    def ids(self, role: MemoryRole) -> frozenset[str]:
        """Ids of the memories in `role`."""
        return frozenset(memory.id for memory in self.memories if memory.role is role)


def read_episodes(path: str | Path) -> list[Episode]:
    """Read an episode file; `DataError` names the first bad lines and counts all of them."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error}); give an episode JSONL file") from error
    episodes, problems = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            episodes.append(_parse(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            problems.append(f"{path}:{number}: {what}")
    if problems:
        shown = "; ".join(problems[:SHOWN_PROBLEMS])
        raise DataError(f"{len(problems)} bad lines, the first: {shown}; the format is described in eval/episodes.py")
    if not episodes:
        raise DataError(f"{path}: no episodes in it; write one JSON object a line (format: eval/episodes.py)")
    return episodes


def _parse(row: Mapping[str, Any]) -> Episode:
    memories = [
        EpisodeMemory(str(m["id"]), str(m["text"]), str(m["time"]), MemoryRole(m["role"]), m.get("ctype"))
        for m in row["memories"]
    ]
    if len({memory.id for memory in memories}) < len(memories):
        raise ValueError("a memory id is there twice in the episode")
    if not any(memory.role is MemoryRole.GOLD for memory in memories):
        raise ValueError("no gold memory in the episode")
    memories.sort(key=lambda memory: memory.time)
    return Episode(
        id=str(row["question_id"]),
        question_type=str(row.get("question_type", "")),
        question=str(row["question"]),
        answer=str(row.get("answer", "")),
        memories=tuple(memories),
    )
