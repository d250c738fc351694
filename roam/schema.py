"""The SQLite file: its tables, its schema number, and the checks made when one is opened."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import apsw
import sqlite_vec

from roam.errors import InputError, StoreError

APPLICATION_ID = 0x524F414D  # "ROAM"; `file` and PRAGMA application_id tell our files from others
SCHEMA_VERSION = 2
BUSY_TIMEOUT_MS = 60_000
PAGE_SIZE = 16_384  # a 384-dimensional float32 vector (1,536 bytes) stays inside a page, so a scan reads in order

# Observations and events are the log. `state`, `vectors` and `review` are derived from it. `judgements` holds what the
# relation model said about a pair of texts, so that nothing is classified twice; it is kept per user, so that erasing
# one user never touches another's rows. `known_after` is the user's last event when a judgement was stored: a log that
# is run again uses for each observation what was known when it came, so the outcome does not depend on when it is run.
MIGRATIONS: dict[int, str] = {
    1: """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE observations (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        user TEXT NOT NULL,
        text TEXT NOT NULL,
        text_hash TEXT NOT NULL,
        duplicate_key TEXT NOT NULL,
        observed_at TEXT,
        source TEXT,
        recorded_at TEXT NOT NULL
    );
    CREATE INDEX observations_by_user ON observations (user, sequence);
    CREATE INDEX observations_by_duplicate ON observations (user, duplicate_key);
    CREATE TABLE events (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        user TEXT NOT NULL,
        kind TEXT NOT NULL,
        observation_id TEXT,
        recorded_at TEXT NOT NULL,
        payload TEXT NOT NULL
    );
    CREATE INDEX events_by_user ON events (user, sequence);
    CREATE INDEX events_by_observation ON events (observation_id);
    CREATE TABLE judgements (
        user TEXT NOT NULL,
        new_hash TEXT NOT NULL,
        old_hash TEXT NOT NULL,
        model TEXT NOT NULL,
        probabilities BLOB NOT NULL,
        known_after INTEGER NOT NULL,
        PRIMARY KEY (user, new_hash, old_hash, model)
    ) WITHOUT ROWID;
    CREATE INDEX judgements_by_old ON judgements (user, old_hash);
    CREATE TABLE state (
        sequence INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        user TEXT NOT NULL,
        primary_id TEXT NOT NULL,
        view TEXT
    );
    CREATE INDEX state_by_primary ON state (user, primary_id);
    CREATE TABLE vectors (
        user TEXT NOT NULL,
        kind TEXT NOT NULL,
        sequence INTEGER NOT NULL,
        embedding BLOB NOT NULL,
        PRIMARY KEY (user, kind, sequence)
    ) WITHOUT ROWID;
    CREATE TABLE review (
        event_id TEXT NOT NULL,
        user TEXT NOT NULL,
        new_id TEXT NOT NULL,
        old_id TEXT NOT NULL,
        relation TEXT NOT NULL,
        probability REAL NOT NULL,
        recorded_at TEXT NOT NULL,
        PRIMARY KEY (event_id, old_id)
    ) WITHOUT ROWID;
    CREATE INDEX review_by_user ON review (user, recorded_at);
    """,
    # The log may hold reviews and replays from here on, which an older version cannot read. A page of views is found
    # without reading other users' rows.
    2: "CREATE INDEX primaries_by_user ON state (user, sequence) WHERE view IS NOT NULL;",
}


def connect(path: str, *, embedder_digest: str, dimension: int, rebind: bool = False) -> apsw.Connection:
    """Open or create the store at `path` (":memory:" for one that is not kept) and bring its schema up to date.

    With `rebind` the store may belong to another embedder: the caller will index it anew.

    Raises:
        InputError: a path that cannot hold a file.
        StoreError: a file that is not a store, is corrupt, has a newer schema, or belongs to another embedder.
    """
    _check_path(path)
    try:
        db = apsw.Connection(path)
    except apsw.Error as error:
        raise StoreError(f"cannot open {path!r}: {error}. Give a path in a folder you can write to") from error
    try:
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        _refuse_foreign(db, path)
        db.enable_load_extension(True)
        db.load_extension(sqlite_vec.loadable_path())
        db.enable_load_extension(False)
        db.execute(f"PRAGMA page_size={PAGE_SIZE}")
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
        raise StoreError(_explain(error, path)) from error
    return db


def _explain(error: apsw.Error, path: str) -> str:
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
        raise InputError(f"store address {path!r} is not supported: give a file path or ':memory:'")
    file = Path(path)
    if not path.strip() or file.is_dir() or not file.parent.is_dir():
        raise InputError(
            f"store path {path!r} is not a file in an existing folder: create the folder or correct the path"
        )


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
            db.execute(MIGRATIONS[version])
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite itself has rolled back after some errors, such as a full disk
            db.execute("ROLLBACK")
        raise


def _bind_embedder(db: apsw.Connection, path: str, digest: str, dimension: int, *, rebind: bool) -> None:
    """Vectors of two embedders cannot be compared: the first one a store was opened with is the only one it takes."""
    stored = _meta(db)
    if not stored:
        db.execute(
            "INSERT OR IGNORE INTO meta (key, value) VALUES ('embedder', ?), ('dimension', ?)", (digest, str(dimension))
        )
        stored = _meta(db)
    if not rebind and (stored["embedder"] != digest or stored["dimension"] != str(dimension)):
        raise StoreError(
            f"{path!r} was indexed with embedder {stored['embedder']} ({stored['dimension']} dimensions), got {digest} "
            f"({dimension}): open it with that embedder, or reindex it (Memory.open(..., reindex=True)); nothing was "
            "changed"
        )


def _meta(db: apsw.Connection) -> dict[str, str]:
    return {str(key): str(value) for key, value in db.execute("SELECT key, value FROM meta").fetchall()}
