"""One SQLite connection: statements, transactions, snapshots, and errors a person can act on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from roam.errors import StoreError
from roam.schema import connect


class Database:
    """One open store file. Not for use by two threads at once: `Memory` holds a lock around it."""

    def __init__(self, path: str, *, embedder_digest: str, dimension: int, rebind: bool = False) -> None:
        self.path = path
        self.db = connect(path, embedder_digest=embedder_digest, dimension=dimension, rebind=rebind)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        try:
            self.db.close()
        except apsw.Error as error:
            raise StoreError(_explain(error, self.path)) from error

    def rows(self, sql: str, bindings: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; errors of SQLite become `StoreError`."""
        try:
            return self.db.execute(sql, tuple(bindings)).fetchall()
        except apsw.Error as error:
            raise StoreError(_explain(error, self.path)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One atomic write. It takes the write lock at once, so it never fails half way on another writer."""
        self.rows("BEGIN IMMEDIATE")
        try:
            yield
            self.rows("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Many transactions that reach the disk together: the file is synced once, at the end, not after each.

        A killed process still loses none of them; a power cut may lose those of an unfinished bulk, whole and from the
        end.
        """
        self.rows("PRAGMA synchronous=NORMAL")
        try:
            yield
        finally:
            self.rows("PRAGMA synchronous=FULL")
            with self.transaction():  # a commit in this mode syncs the journal, and with it all that came before
                self.rows("INSERT OR REPLACE INTO meta (key, value) VALUES ('synced', datetime('now'))")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of one state, whatever other processes write meanwhile; no lock is taken."""
        if self.db.in_transaction:
            yield
            return
        self.rows("BEGIN DEFERRED")
        try:
            yield
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        # SQLite itself has rolled back already after some errors (disk full, input/output).
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")


def _explain(error: apsw.Error, path: str) -> str:
    if isinstance(error, apsw.FullError):
        return f"no space left while writing {path!r}: free some and repeat; nothing of this write was kept"
    if isinstance(error, apsw.ReadOnlyError):
        return f"{path!r} cannot be written to: {error}. Correct its permissions and repeat"
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return f"{path!r} is damaged: {error}. Restore a backup"
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return f"{path!r} stayed locked by another process: {error}. End that process or repeat"
    return f"{path!r}: {error}"
