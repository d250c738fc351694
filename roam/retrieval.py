"""Vector search inside the store, and packing of hits into a token budget (paper equations 1 and 3).

Each Primary has two vectors: one of its atomic text, which management compares new observations with, and one of its
view, which answering searches. Evidence keeps its atomic vector apart, so that neither search sees it. Distances are
computed by sqlite-vec within SQLite, hence always over the same snapshot as the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roam.errors import StoreError
from roam.interfaces import Embedder
from roam.records import Hit, Observation, Role, SearchResult
from roam.storage import Store

# Least cosine at which two atomic texts are compared, by the embedder's name. On the dev pairs of the authored families
# 0.2 keeps 99.5 % of conflicts and all but 0.3 % of the other related pairs, and drops 87 % of random pairs.
MEASURED_FLOORS: dict[str, float] = {"sentence-transformers/all-MiniLM-L6-v2": 0.2}


def default_floor(embedder: Embedder) -> float:
    """Return the measured retrieval floor of an embedder, 0 for one that was not measured."""
    return MEASURED_FLOORS.get(embedder.digest.partition("@")[0], 0.0)


class VectorKind(StrEnum):
    """Which search a vector belongs to."""

    ATOMIC = "atomic"  # atomic text of a Primary: management
    VIEW = "view"  # view of a Primary: answering
    EVIDENCE = "evidence"  # atomic text of Evidence: only when asked for


def embed(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return checked vectors, shape (len(texts), dimension); an encoder that returns anything else is refused."""
    if not texts:
        return np.zeros((0, embedder.dimension), dtype=np.float32)
    vectors = np.asarray(embedder.embed(texts), dtype=np.float32)
    if vectors.shape != (len(texts), embedder.dimension) or not np.isfinite(vectors).all():
        raise StoreError(
            f"embedder {embedder.digest} returned shape {vectors.shape} for {len(texts)} texts of dimension "
            f"{embedder.dimension}, or values that are not finite: use an embedder that keeps its contract"
        )
    return vectors


def put_vector(store: Store, user: str, kind: VectorKind, sequence: int, vector: NDArray[np.float32]) -> None:
    """Store or replace the vector of one record."""
    store.rows(
        "INSERT OR REPLACE INTO vectors (user, kind, sequence, embedding) VALUES (?, ?, ?, ?)",
        (user, kind.value, sequence, vector.astype("<f4").tobytes()),
    )


def get_vector(store: Store, user: str, kind: VectorKind, sequence: int) -> NDArray[np.float32] | None:
    """Return one stored vector, or None."""
    found = store.rows(
        "SELECT embedding FROM vectors WHERE user = ? AND kind = ? AND sequence = ?", (user, kind.value, sequence)
    )
    return np.frombuffer(found[0][0], dtype="<f4") if found else None


def drop_vectors(store: Store, user: str, sequence: int, kinds: Iterable[VectorKind] = tuple(VectorKind)) -> None:
    """Delete the vectors of one record."""
    for kind in kinds:
        store.rows("DELETE FROM vectors WHERE user = ? AND kind = ? AND sequence = ?", (user, kind.value, sequence))


def move_to_evidence(store: Store, user: str, sequence: int) -> None:
    """Take a demoted Primary out of both searches, keeping its atomic vector."""
    drop_vectors(store, user, sequence, (VectorKind.VIEW, VectorKind.EVIDENCE))
    store.rows(
        "UPDATE vectors SET kind = ? WHERE user = ? AND kind = ? AND sequence = ?",
        (VectorKind.EVIDENCE.value, user, VectorKind.ATOMIC.value, sequence),
    )


def nearest(
    store: Store, user: str, kind: VectorKind, vector: NDArray[np.float32], limit: int, floor: float = -1.0
) -> list[tuple[int, float]]:
    """Return (sequence, cosine) of the `limit` nearest records with cosine >= `floor`, best first, ties by arrival."""
    found = store.rows(
        "SELECT sequence, 1.0 - vec_distance_cosine(embedding, ?) AS cosine FROM vectors WHERE user = ? AND kind = ? "
        "ORDER BY cosine DESC, sequence LIMIT ?",
        (vector.astype("<f4").tobytes(), user, kind.value, limit),
    )
    # A zero vector (a text the encoder knows nothing of) has no cosine: SQLite returns NULL and it matches nothing.
    return [(int(sequence), float(cosine)) for sequence, cosine in found if cosine is not None and cosine >= floor]


def search_views(
    store: Store, embedder: Embedder, query: str, *, user: str, budget: int, include_evidence: bool, limit: int | None
) -> SearchResult:
    """Rank one user's views (and Evidence on request) for a query and pack them into `budget` tokens.

    The context is the hits' texts joined by newlines and cut hard at the budget, as in the paper's appendix: the last
    hit may be shortened. A hit that contributes no token is not returned.
    """
    vector = embed(embedder, [query])[0]
    most = budget if limit is None else min(limit, budget)  # every hit costs at least one token
    kinds = [VectorKind.VIEW, *([VectorKind.EVIDENCE] if include_evidence else [])]
    ranked = sorted(
        ((score, sequence, kind) for kind in kinds for sequence, score in nearest(store, user, kind, vector, most)),
        key=lambda entry: (-entry[0], entry[1]),
    )
    packer = _Packer(embedder, budget)
    for score, sequence, kind in ranked[:most]:
        if not packer.add(_hit(store, user, sequence, kind, score)):
            break
    packer.trim()
    context = packer.context()
    return SearchResult(query, context, tuple(packer.hits), budget, embedder.count_tokens(context))


class _Packer:
    """Fills a token budget with hits in rank order; the last one may be cut."""

    def __init__(self, embedder: Embedder, budget: int) -> None:
        self._embedder, self._budget, self._used = embedder, budget, 0
        self._separator = embedder.count_tokens("\n")
        self.hits: list[Hit] = []

    def context(self) -> str:
        return "\n".join(hit.text for hit in self.hits)

    def add(self, hit: Hit) -> bool:
        """Take a hit, cut if need be; False when the budget is full."""
        left = self._budget - self._used - (self._separator if self.hits else 0)
        tokens = self._embedder.count_tokens(hit.text)
        if tokens <= left:
            self._append(hit, hit.text, tokens)
            return True
        text = self._embedder.truncate(hit.text, left) if left > 0 else ""
        if text:
            self._append(hit, text, self._embedder.count_tokens(text))
        return False

    def trim(self) -> None:
        """Cut from the end what is too much: a tokenizer may count a joined text as more than its parts."""
        while self.hits and self._embedder.count_tokens(self.context()) > self._budget:
            last = self.hits.pop()
            text = self._embedder.truncate(last.text, last.tokens - 1)
            if text:
                self.hits.append(replace(last, text=text, tokens=self._embedder.count_tokens(text)))

    def _append(self, hit: Hit, text: str, tokens: int) -> None:
        self._used += tokens + (self._separator if self.hits else 0)
        self.hits.append(replace(hit, text=text, tokens=tokens))


def _hit(store: Store, user: str, sequence: int, kind: VectorKind, score: float) -> Hit:
    found = store.rows("SELECT id FROM observations WHERE sequence = ?", (sequence,))
    observation: Observation = store.observation(found[0][0], user)
    if kind is VectorKind.EVIDENCE:
        return Hit(observation.id, observation.text, score, (observation.id,), observation.observed_at, Role.EVIDENCE)
    placed = store.find_state(observation.id)
    if placed is None or placed[1] is None:
        raise StoreError(f"{observation.id!r} has a view vector but no view: run verify()")
    members = tuple(member.id for member in store.members(user, observation.id))
    return Hit(observation.id, placed[1], score, members, observation.observed_at, Role.PRIMARY)
