"""ROAM distilled: long-term agent memory managed by a small relation classifier instead of LLM calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roam.records import Decision, Hit, Judgement, Observation, Pair, Role, SearchResult, View
from roam.relations import PRIORITY, RELATIONS, Relation

if TYPE_CHECKING:
    from roam.async_memory import AsyncMemory
    from roam.memory import Memory

__all__ = [
    "PRIORITY", "RELATIONS", "AsyncMemory", "Decision", "Hit", "Judgement", "Memory", "Observation", "Pair", "Relation",
    "Role", "SearchResult", "View",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Both pull in storage and vector search; importing them lazily keeps `import roam` fast.
    if name == "Memory":
        from roam.memory import Memory

        return Memory
    if name == "AsyncMemory":
        from roam.async_memory import AsyncMemory

        return AsyncMemory
    raise AttributeError(f"module 'roam' has no attribute {name!r}")
