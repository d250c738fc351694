"""What a store asks of the database that holds it: statements, transactions, vectors, and bytes that are really gone.

Everything else (`roam.storage`, `roam.vectors`) is SQL that both back ends read: `?` for a binding, `user` for the
column, `ON CONFLICT`, `RETURNING`. A back end is a subclass of `Database`; `open_database` chooses it by the store's
address.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

POSTGRES_SCHEMES = ("postgresql://", "postgres://")


class Database(ABC):
    """One open store. Not for use by two threads at once: `Memory` holds a lock around it."""

    cosine: ClassVar[str]
    """SQL of the cosine (-1 to 1) between column `embedding` and one bound vector; -2 where there is none."""
    signs: ClassVar[str]
    """SQL of the sign bits of column `embedding`, as `unpack_signs` reads them."""
    among: ClassVar[str]
    """SQL of "is one of", for one bound list."""
    path: str
    """The store's address, for messages; it holds no password."""

    @abstractmethod
    def rows(self, sql: str, bindings: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; errors of the database become `StoreError`."""

    @contextmanager
    def scope(self, users: Sequence[str]) -> Iterator[None]:
        """Say whose rows the statements inside are about; none named: everybody's."""
        yield

    @abstractmethod
    def transaction(self, user: str | None) -> AbstractContextManager[None]:
        """One atomic write of one user's rows (None: anybody's), after all earlier ones of that user, before all later.

        It takes its lock at once, so it never fails half way on another writer.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Several reads of one state, whatever others write meanwhile; no lock is taken. May stand inside another."""

    @abstractmethod
    def bulk(self) -> AbstractContextManager[None]:
        """Many transactions that reach the disk together: it is waited for once, at the end, not after each.

        A killed process still loses none of them; a power cut may lose those of an unfinished bulk, whole and from the
        end.
        """

    @abstractmethod
    def bind_embedder(self, digest: str, dimension: int) -> None:
        """Say which embedder the vectors are of; inside a transaction, with no vector stored when the size changes."""

    @abstractmethod
    def to_sql(self, vector: NDArray[np.float32]) -> object:
        """Return a vector, shape (dimension,), as it is bound to a statement."""

    @abstractmethod
    def list_to_sql(self, values: Sequence[int] | Sequence[str]) -> object:
        """Return a list as it is bound to a statement."""

    @abstractmethod
    def from_sql(self, value: Any) -> NDArray[np.float32]:
        """Return a stored embedding, shape (dimension,)."""

    @abstractmethod
    def unpack_signs(self, values: Sequence[Any]) -> NDArray[np.uint8]:
        """Return sign bits of n embeddings packed to bytes, the first the least, shape (n, ceil(dimension / 8))."""

    @abstractmethod
    def faults(self) -> list[str]:
        """Return what the database itself finds wrong with the store."""

    @abstractmethod
    def scrub(self, *, thorough: bool) -> bool:
        """Overwrite what deleted rows have left behind in the files; False when bytes may be left.

        `thorough` allows what would hold up other workers for the time of a copy of the store.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection; a second call does nothing."""


def open_database(path: str, *, embedder_digest: str, dimension: int, rebind: bool = False) -> Database:
    """Open or create the store at a file path, ":memory:" or a postgresql:// address.

    With `rebind` the store may belong to another embedder: the caller will index it anew.

    Raises:
        InputError: an address that cannot be one of a store.
        StoreError: no store, a damaged one, one of a newer schema or of another embedder, or one out of reach.
    """
    if path.startswith(POSTGRES_SCHEMES):
        from roam.postgres import PostgresDatabase

        return PostgresDatabase(path, embedder_digest=embedder_digest, dimension=dimension, rebind=rebind)
    from roam.sqlite import SqliteDatabase

    return SqliteDatabase(path, embedder_digest=embedder_digest, dimension=dimension, rebind=rebind)


def embedder_refusal(path: str, stored: tuple[str, str], got: tuple[str, str]) -> str:
    """Say that a store belongs to another embedder, both given as (digest, dimension)."""
    return (
        f"{path!r} was indexed with embedder {stored[0]} ({stored[1]} dimensions), got {got[0]} ({got[1]}): open it "
        "with that embedder, or reindex it (`roam reindex`, or Memory.open(..., reindex=True)); nothing was changed"
    )
