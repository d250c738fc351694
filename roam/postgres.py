"""A store in PostgreSQL with pgvector: for fleets of workers that share many users' memories (see FLEETS.md).

Everything that a statement depends on is set inside its transaction, so that a pooler may hand each transaction to
another server connection. Every row has a user, and row-level security shows a transaction the rows of the users it has
named and no others; only the tables' owner may name everybody.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roam.database import Database, embedder_refusal
from roam.errors import InputError, StoreError
from roam.postgres_schema import migrate, refuse_foreign
from roam.schema import USER_TABLES

try:
    import psycopg
    import psycopg.sql
    from pgvector import Vector
    from pgvector.psycopg import register_vector
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ModuleNotFoundError as error:
    raise InputError(
        f"a postgresql:// store needs {error.name}, which is not installed: pip install 'roam-distilled[postgres]'"
    ) from error

LOCK_TIMEOUT = "60s"
SEPARATOR = "\x1f"  # a control character, which no user's id may hold
_USER = re.compile(r'(?<!")\buser\b(?!")')


class PostgresDatabase(Database):
    """One connection to a store in the current schema of a database. Writers of one user wait for each other.

    A connection that was lost is opened anew at the next call; what was not acknowledged before was not kept.
    """

    # A zero vector has no cosine: NaN.
    cosine = "coalesce(nullif(1.0 - (embedding <=> ?), 'NaN'), -2.0)"
    signs = "binary_quantize(embedding)"
    among = "= ANY (?)"

    def __init__(self, url: str, *, embedder_digest: str, dimension: int, rebind: bool = False) -> None:
        self._url = url
        self.path = _without_password(url)
        self._users: tuple[str, ...] = ()
        self._in_bulk = False
        self._schema, self._connection = "", self._connect()
        try:
            with self._typed(), self._begun("", None):
                self._schema = str(self._run("SELECT current_schema()")[0][0])
                self._run("SELECT pg_advisory_xact_lock(?)", (self._key(),))
                refuse_foreign(self._run, self.path)
                migrate(self._run, self.path, dimension)
                self._check_embedder(embedder_digest, dimension, rebind=rebind)
            register_vector(self._connection)
        except BaseException:
            self._connection.close()
            raise

    # Connection -------------------------------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        with self._typed():
            connection = psycopg.connect(self._url, autocommit=True)
            privileged = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
            if (found := connection.execute(privileged).fetchone()) and found[0]:
                warnings.warn(
                    f"{self.path}: this role is not bound by row-level security; connect as an ordinary one",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return connection

    def _reconnect(self) -> None:
        self._connection = self._connect()
        with self._typed():
            register_vector(self._connection)

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        self._connection.close()

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Turn errors of the server into `StoreError`."""
        try:
            yield
        except psycopg.Error as error:
            raise StoreError(_explain(error, self.path)) from error

    # Statements -------------------------------------------------------------------------------------------------

    def rows(self, sql: str, bindings: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, in a transaction of its own where none is open."""
        if self._active:
            return self._run(sql, bindings)
        with self._begun("", self._users):
            return self._run(sql, bindings)

    def _run(self, sql: str, bindings: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._typed():
            cursor = self._connection.execute(_in_postgres(sql), tuple(bindings) or None)
            return cursor.fetchall() if cursor.description else []

    @property
    def _active(self) -> bool:
        return self._connection.info.transaction_status is not TransactionStatus.IDLE and not self._connection.closed

    @contextmanager
    def scope(self, users: Sequence[str]) -> Iterator[None]:
        """Say whose rows the statements inside are about; none named: everybody's."""
        before, self._users = self._users, tuple(users)
        try:
            yield
        finally:
            self._users = before

    @contextmanager
    def _begun(self, mode: str, users: Sequence[str] | None) -> Iterator[None]:
        """A transaction that sees the rows of `users` (none: everybody's)."""
        if self._connection.closed:
            self._reconnect()
        with self._typed():
            self._connection.execute(self._begin(mode, users or ()))
        try:
            yield
            with self._typed():
                self._connection.execute("COMMIT")
        except BaseException:
            if self._active:
                with self._typed():
                    self._connection.execute("ROLLBACK")
            raise

    def _begin(self, mode: str, users: Sequence[str]) -> psycopg.sql.Composed:
        """Return one round trip's worth of statements; receipts of erasures belong to user "", which all may see."""
        return psycopg.sql.SQL(
            "BEGIN {mode}; SET LOCAL lock_timeout = {timeout}; SET LOCAL synchronous_commit = {durable}; "
            "SELECT set_config('roam.users', {users}, true), set_config('roam.everyone', {everyone}, true)"
        ).format(
            mode=psycopg.sql.SQL(mode),
            timeout=psycopg.sql.Literal(LOCK_TIMEOUT),
            durable=psycopg.sql.SQL("off" if self._in_bulk else "on"),
            users=psycopg.sql.Literal(SEPARATOR.join([*users, ""])),
            everyone=psycopg.sql.Literal("off" if users else "on"),
        )

    @contextmanager
    def transaction(self, user: str | None) -> Iterator[None]:
        """One atomic write, after and before all others of this user (None: of the store)."""
        with self._begun("", None if user is None else (user,)):
            if user is None:
                self._run("SELECT pg_advisory_xact_lock(?)", (self._key(),))
            else:
                self._run(
                    "SELECT pg_advisory_xact_lock_shared(?), pg_advisory_xact_lock(?)", (self._key(), self._key(user))
                )
            yield

    def _key(self, user: str | None = None) -> int:
        """Return the number of an advisory lock: a store's, or a user's of it."""
        name = "\0".join(("roam", self._schema, *([] if user is None else [user])))
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of one state."""
        if self._active:
            yield
            return
        with self._begun("ISOLATION LEVEL REPEATABLE READ READ ONLY", self._users):
            yield

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Many transactions, and one wait for the disk at the end."""
        self._in_bulk = True
        try:
            yield
        finally:
            self._in_bulk = False
            with self._begun("", self._users):  # its commit waits for the log, and with it for all that came before
                self._run("SELECT pg_logical_emit_message(true, 'roam', 'sync')")

    # Vectors ----------------------------------------------------------------------------------------------------

    def _check_embedder(self, digest: str, dimension: int, *, rebind: bool) -> None:
        got = (digest, str(dimension))
        stored = dict(self._run("SELECT key, value FROM meta"))
        if "embedder" not in stored:
            self._set_meta(digest, dimension)
        elif not rebind and (stored["embedder"], stored["dimension"]) != got:
            raise StoreError(embedder_refusal(self.path, (stored["embedder"], stored["dimension"]), got))

    def _set_meta(self, digest: str, dimension: int) -> None:
        for key, value in (("embedder", digest), ("dimension", str(dimension))):
            self._run(
                "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, value),
            )

    def bind_embedder(self, digest: str, dimension: int) -> None:
        """Say which embedder the vectors are of, and of which size the column is."""
        self._set_meta(digest, dimension)
        self._run(f"ALTER TABLE vectors ALTER COLUMN embedding TYPE vector({dimension:d})")

    def to_sql(self, vector: NDArray[np.float32]) -> Vector:
        """Return a vector as pgvector takes it."""
        return Vector(vector)

    def list_to_sql(self, values: Sequence[int] | Sequence[str]) -> list[int] | list[str]:
        """Return a list as an array."""
        return list(values)  # type: ignore[return-value]

    def from_sql(self, value: Any) -> NDArray[np.float32]:
        """Return the vector of one row."""
        return np.asarray(value.to_numpy() if isinstance(value, Vector) else value, dtype=np.float32)

    def unpack_signs(self, values: Sequence[Any]) -> NDArray[np.uint8]:
        """Return what `binary_quantize` made of n embeddings, one row each."""
        bits = np.frombuffer("".join(map(str, values)).encode(), dtype=np.uint8).reshape(len(values), -1)
        return np.packbits(bits - ord("0"), axis=1, bitorder="little")

    # Care -------------------------------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """Return the tables whose rows are not isolated by user."""
        found = self.rows(
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname IN "
            "('observations', 'events', 'judgements', 'state', 'vectors', 'review') "
            "AND NOT (relrowsecurity AND relforcerowsecurity)"
        )
        return [f"table {name} has no row-level security: enable and force it" for (name,) in found]

    def scrub(self, *, thorough: bool) -> bool:
        """Rewrite the tables and drop the old log, if `thorough`; False where the role may not, or nothing was done.

        Each table is locked while it is rewritten. Only a server with `wal_recycle = off`, and without archive or
        replicas, keeps no old bytes afterwards (FLEETS.md).
        """
        if not thorough:
            return False
        for table in USER_TABLES:
            self._run(f"VACUUM FULL {table}")  # outside of any transaction
        try:
            self._run("SELECT pg_switch_wal()")
            self._run("CHECKPOINT")
        except StoreError as error:
            if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                return False
            raise
        return bool(self._run("SELECT current_setting('wal_recycle') = 'off'")[0][0])


@lru_cache(maxsize=512)
def _in_postgres(sql: str) -> str:
    """Return a statement with psycopg's placeholders, and column `user` quoted: unquoted it is the name of the role."""
    return _USER.sub('"user"', sql).replace("?", "%s")


def _without_password(url: str) -> str:
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise InputError(f"the store's address is no postgresql:// address: {error}") from None
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"postgresql://{host}/{parts.get('dbname') or ''}"


def _explain(error: psycopg.Error, path: str) -> str:
    told = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
    if isinstance(error, (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory)):
        return f"no space left on the server of {path}: free some and repeat; nothing of this write was kept"
    if isinstance(error, (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.InsufficientPrivilege)):
        return f"{path} cannot be written to by this role: {told}. Grant it what FLEETS.md lists, and repeat"
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return f"{path} stayed locked for {LOCK_TIMEOUT} by another worker: end it or repeat"
    if isinstance(error, psycopg.OperationalError):
        return f"{path} is out of reach: {told}. Check that the server runs, then repeat; nothing of this was kept"
    return f"{path}: {told}"
