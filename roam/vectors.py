"""Vectors inside the store (paper equations 1 and 3).

Each Primary has two vectors: one of its atomic text, which management compares new observations with, and one of its
view, which answering searches. Evidence keeps its atomic vector apart, so that neither search sees it. Distances are
computed by the database (sqlite-vec, pgvector), hence always over the same snapshot as the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roam.errors import StoreError
from roam.interfaces import Embedder
from roam.storage import Store


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
        "INSERT INTO vectors (user, kind, sequence, embedding) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (user, kind, sequence) DO UPDATE SET embedding = excluded.embedding",
        (user, kind.value, sequence, store.db.to_sql(vector)),
    )


def get_vector(store: Store, user: str, kind: VectorKind, sequence: int) -> NDArray[np.float32] | None:
    """Return one stored vector, or None."""
    found = store.rows(
        "SELECT embedding FROM vectors WHERE user = ? AND kind = ? AND sequence = ?", (user, kind.value, sequence)
    )
    return store.db.from_sql(found[0][0]) if found else None


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
    """Return (sequence, cosine) of the `limit` nearest records with cosine >= `floor`, best first, ties by arrival.

    Every vector of the user is compared, up to `roam.sign_index.EXACT_UP_TO` Primaries; beyond that those that share
    the most signs with `vector` are.
    """
    sql = f"SELECT sequence, {store.db.cosine} AS cosine FROM vectors WHERE user = ? AND kind = ?"
    bindings: list[object] = [store.db.to_sql(vector), user, kind.value]
    candidates = None if kind is VectorKind.EVIDENCE else store.signs.candidates(user, kind.value, vector, limit)
    if candidates is not None:
        sql += f" AND sequence {store.db.among}"
        bindings.append(store.db.list_to_sql(candidates))
    found = store.rows(f"{sql} ORDER BY cosine DESC, sequence LIMIT ?", (*bindings, limit))
    # A zero vector (a text the encoder knows nothing of) has no cosine: it comes as -2 and matches nothing.
    return [(int(sequence), float(cosine)) for sequence, cosine in found if cosine >= max(floor, -1.0)]
