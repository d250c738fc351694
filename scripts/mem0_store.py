"""A mem0 store for `scripts/bench_store.py --mem0`: facts as they are (infer off), the same vectors, Qdrant on disk.

mem0 brings much with it, so it is no dependency of the project: pip install mem0ai.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

USER = "user"


class Embeds(Protocol):
    """What is needed of an embedder."""

    dimension: int

    def embed(self, texts: Sequence[str]) -> Any:
        """Vectors of shape (len(texts), dimension)."""
        ...


class _Embedding:
    """The embedder as mem0 calls it."""

    config = None

    def __init__(self, embedder: Embeds) -> None:
        self._embedder = embedder

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        vector: list[float] = self._embedder.embed([text])[0].tolist()
        return vector

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        return [self.embed(text) for text in texts]


class Mem0Store:
    """mem0 with nothing but its store at work: no LLM is called."""

    def __init__(self, folder: Path, embedder: Embeds) -> None:
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder), OPENAI_API_KEY="not used")
        from mem0 import Memory

        store = {"path": str(folder / "qdrant"), "embedding_model_dims": embedder.dimension, "on_disk": True}
        self._memory = Memory.from_config({
            "vector_store": {"provider": "qdrant", "config": {**store, "collection_name": "bench"}},
            "embedder": {"provider": "openai", "config": {}},
            "llm": {"provider": "openai", "config": {}},
            "history_db_path": str(folder / "history.db"),
        })  # fmt: skip
        self._memory.embedding_model = _Embedding(embedder)

    def add(self, text: str) -> None:
        """Store one fact."""
        self._memory.add([{"role": "user", "content": text}], user_id=USER, infer=False)

    def search(self, query: str) -> None:
        """Find the ten nearest."""
        self._memory.search(query, filters={"user_id": USER}, top_k=10)
