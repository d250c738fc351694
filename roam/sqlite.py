"""A store in one SQLite file: the default back end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import sqlite_vec
from numpy.typing import NDArray

from roam.database import Database, embedder_refusal
from roam.errors import InputError, StoreError
from roam.schema import SCHEMA_VERSION, statements

APPLICATION_ID = 0x524F414D  # "ROAM"; `file` and PRAGMA application_id tell our files from others
BUSY_TIMEOUT_MS = 60_000
CACHE_KB = 65_536  # pages held in memory at most: the vectors of a user with 20,000 Primaries
PAGE_SIZE = 16_384  # a 384-dimensional float32 vector (1,536 bytes) stays inside a page, so a scan reads in order
WORDS = {
    "sequence": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "text": "TEXT",
    "integer": "INTEGER",
    "real": "REAL",
    "blob": "BLOB",
    "vector": "BLOB",
    "keyed": "WITHOUT ROWID",
}


class SqliteDatabase(Database):
    """One connection to a store file. Writers wait for each other, readers for nobody (journal mode WAL)."""

    cosine = "coalesce(1.0 - vec_distance_cosine(embedding, ?), -2.0)"
    signs = "vec_quantize_binary(embedding)"
    among = "IN (SELECT value FROM json_each(?))"

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
    def transaction(self, user: str | None) -> Iterator[None]:
        """One atomic write, after and before all others of the file."""
        self.rows("BEGIN IMMEDIATE")
        try:
            yield
            self.rows("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Many transactions, and one sync of the file at the end."""
        self.rows("PRAGMA synchronous=NORMAL")
        try:
            yield
        finally:
            self.rows("PRAGMA synchronous=FULL")
            with self.transaction(None):  # a commit in this mode syncs the journal, and with it all that came before
                self._set_meta("synced", str(self.rows("SELECT datetime('now')")[0][0]))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of one state."""
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

    def bind_embedder(self, digest: str, dimension: int) -> None:
        """Say which embedder the vectors are of."""
        self._set_meta("embedder", digest)
        self._set_meta("dimension", str(dimension))

    def _set_meta(self, key: str, value: str) -> None:
        self.rows("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    def to_sql(self, vector: NDArray[np.float32]) -> bytes:
        """Return a vector as the bytes of its float32 values, little end first."""
        return vector.astype("<f4").tobytes()

    def list_to_sql(self, values: Sequence[int] | Sequence[str]) -> str:
        """Return a list as JSON."""
        return json.dumps(values)

    def from_sql(self, value: Any) -> NDArray[np.float32]:
        """Return the vector in a blob."""
        return np.frombuffer(value, dtype="<f4")

    def unpack_signs(self, values: Sequence[Any]) -> NDArray[np.uint8]:
        """Return what `vec_quantize_binary` made of n embeddings, one row each."""
        return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(len(values), -1)

    def faults(self) -> list[str]:
        """Return what SQLite's integrity check finds."""
        return [f"file: {row[0]}" for row in self.rows("PRAGMA integrity_check") if row[0] != "ok"]

    def scrub(self, *, thorough: bool) -> bool:
        """Rewrite the file and empty its journal, so that no freed page keeps old bytes; False while others read it."""
        try:
            self.rows("VACUUM")
            busy = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        except StoreError as error:
            if isinstance(error.__cause__, (apsw.BusyError, apsw.LockedError)):
                return False
            raise
        return not busy


def connect(path: str, *, embedder_digest: str, dimension: int, rebind: bool = False) -> apsw.Connection:
    """Open or create the file at `path` (":memory:" for one that is not kept) and bring its schema up to date."""
    _check_path(path)
    try:
        _make_private(path)
        db = apsw.Connection(path)
    except (apsw.Error, OSError) as error:
        told = getattr(error, "strerror", None) or error
        raise StoreError(f"cannot open {path!r}: {told}. Give a path in a folder you can write to") from error
    try:
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        _refuse_foreign(db, path)
        db.enable_load_extension(True)
        db.load_extension(sqlite_vec.loadable_path())
        db.enable_load_extension(False)
        db.execute(f"PRAGMA page_size={PAGE_SIZE}")
        db.execute(f"PRAGMA cache_size=-{CACHE_KB}")
        db.execute("PRAGMA temp_store=MEMORY")  # no text of ours in temporary files
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")  # an acknowledged write survives a power cut, not only a killed process
        db.execute("PRAGMA secure_delete=ON")  # erased text is overwritten, not only unlinked
        _migrate(db, path)
        _bind_embedder(db, path, embedder_digest, dimension, rebind=rebind)
    except (apsw.Error, StoreError) as error:
        with suppress(apsw.Error):  # a full disk may fail this too; what went wrong first is what must be seen
            db.close()
        if isinstance(error, StoreError):
            raise
        raise StoreError(_explain_opening(error, path)) from error
    return db


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


def _explain_opening(error: apsw.Error, path: str) -> str:
    if isinstance(error, (apsw.NotADBError, apsw.CorruptError)):
        return f"{path!r} is not a usable store: {error}. Restore a backup or give another path"
    if isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError)):
        return (
            f"{path!r} cannot be written to: {error}. Correct the permissions of the file and its folder, where the "
            "journal is kept"
        )
    if isinstance(error, apsw.FullError):
        return f"no space left while opening {path!r}: free some and repeat"
    return f"cannot open {path!r} as a store: {error}"


def _check_path(path: str) -> None:
    if path == ":memory:":
        return
    if "://" in path:
        raise InputError(
            f"store address {path!r} is not supported: give a file path, ':memory:' or a postgresql:// address"
        )
    file = Path(path)
    if not path.strip() or file.is_dir() or not file.parent.is_dir():
        raise InputError(
            f"store path {path!r} is not a file in an existing folder: create the folder or correct the path"
        )


def _make_private(path: str) -> None:
    """Create a new store's file for its owner alone; SQLite gives its journal the same permissions."""
    if path == ":memory:":
        return
    with suppress(FileExistsError):  # whoever shares a store with a group has said so on its file
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _value(db: apsw.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchall()[0][0])  # type: ignore[arg-type]


def _refuse_foreign(db: apsw.Connection, path: str) -> None:
    """Refuse a database that some other program made, before anything is written to it."""
    application = _value(db, "application_id")
    tables = db.execute("SELECT name FROM sqlite_master").fetchall()
    if application != APPLICATION_ID and tables:
        raise StoreError(f"{path!r} is a database of another program (application id {application}): give another path")
    version = _value(db, "user_version")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path!r} has schema {version}, this version of roam knows up to {SCHEMA_VERSION}: upgrade roam; "
            "the file was not changed"
        )


def _migrate(db: apsw.Connection, path: str) -> None:
    if _value(db, "user_version") == SCHEMA_VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have created or migrated the file while this one waited for the lock.
        _refuse_foreign(db, path)
        for version in range(_value(db, "user_version") + 1, SCHEMA_VERSION + 1):
            db.execute(statements(version, WORDS))
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite itself has rolled back after some errors, such as a full disk
            db.execute("ROLLBACK")
        raise


def _bind_embedder(db: apsw.Connection, path: str, digest: str, dimension: int, *, rebind: bool) -> None:
    """Vectors of two embedders cannot be compared: the first one a store was opened with is the only one it takes."""
    got = (digest, str(dimension))
    stored = _meta(db)
    if not stored:
        db.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('embedder', ?), ('dimension', ?)", got)
        stored = _meta(db)
    if not rebind and (stored["embedder"], stored["dimension"]) != got:
        raise StoreError(embedder_refusal(path, (stored["embedder"], stored["dimension"]), got))


def _meta(db: apsw.Connection) -> dict[str, str]:
    return {str(key): str(value) for key, value in db.execute("SELECT key, value FROM meta").fetchall()}
