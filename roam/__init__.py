"""ROAM distilled: long-term agent memory managed by a small relation classifier instead of LLM calls."""

from __future__ import annotations

import os
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

# Nothing is reported to anybody. Libraries that are imported later would: ONNX Runtime (1.29 and later) tells its
# maker of every session and keeps an id of the machine on disk, the Hub's client has TRL tell of every training run.
# Both read these once, when they are imported. Who sets them otherwise is obeyed.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def __getattr__(name: str) -> object:
    # Both pull in storage and vector search; importing them lazily keeps `import roam` fast.
    if name == "Memory":
        from roam.memory import Memory

        return Memory
    if name == "AsyncMemory":
        from roam.async_memory import AsyncMemory

        return AsyncMemory
    raise AttributeError(f"module 'roam' has no attribute {name!r}")
