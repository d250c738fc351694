"""Creating and migrating a store's tables in PostgreSQL, with row-level security."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roam.errors import StoreError
from roam.schema import SCHEMA_VERSION, USER_TABLES, statements

Run = Callable[..., list[tuple[Any, ...]]]
"""Runs one statement, or several without bindings, and returns rows."""

# The setting is read once a statement, not once a row: that is what the sub-selects are for.
ISOLATION = """
    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
    ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
    CREATE POLICY named_users ON {table}
        USING (user = ANY ((SELECT string_to_array(current_setting('roam.users', true), E'\\x1f'))::text[]));
    CREATE POLICY everyone ON {table} TO CURRENT_USER
        USING ((SELECT current_setting('roam.everyone', true)) = 'on');
"""


# The server's statistics keep samples of columns, which no erasure would reach. Every query goes by a key.
UNSAMPLED = {
    "observations": ("user", "text", "source"),
    "events": ("user", "payload"),
    "judgements": ("user",),
    "state": ("user", "view"),
    "vectors": ("user", "embedding"),
    "review": ("user",),
}


def words(dimension: int) -> dict[str, str]:
    """Return what PostgreSQL calls the types of the tables."""
    return {
        "sequence": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "text": 'TEXT COLLATE "C"',
        "integer": "BIGINT",
        "real": "DOUBLE PRECISION",
        "blob": "BYTEA",
        "vector": f"vector({dimension:d})",
        "keyed": "",
    }


def stored_version(run: Run) -> int:
    """Return the number of the schema, 0 where there is no store yet."""
    if run("SELECT to_regclass('meta')")[0][0] is None:
        return 0
    found = run("SELECT value FROM meta WHERE key = 'schema'")
    return int(found[0][0]) if found else -1


def refuse_foreign(run: Run, path: str) -> None:
    """Refuse a schema that some other program made, or a newer roam, before anything is written to it."""
    version = stored_version(run)
    names = ", ".join(f"'{name}'" for name in USER_TABLES)
    taken = run(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
        f"AND relname IN ({names}) ORDER BY 1"
    )
    if version < 0 or (version == 0 and taken):
        raise StoreError(
            f"{path} has tables of another program ({', '.join(['meta'] if version < 0 else [row[0] for row in taken])}"
            " ...): name a schema for the store, ?options=-csearch_path%3Droam,public"
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema {version}, this version of roam knows up to {SCHEMA_VERSION}: upgrade roam; "
            "the store was not changed"
        )


def migrate(run: Run, path: str, dimension: int) -> None:
    """Bring the tables up to date, inside the transaction of the caller."""
    version = stored_version(run)
    if version == SCHEMA_VERSION:
        return
    if run("SELECT current_schema()")[0][0] is None:
        raise StoreError(f"{path}: no schema of the search path exists: create it, CREATE SCHEMA roam")
    if not run("SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        run("CREATE EXTENSION vector")
    for number in range(version + 1, SCHEMA_VERSION + 1):
        run(statements(number, words(dimension)))
        if number == 1:
            for table in USER_TABLES:
                run(ISOLATION.format(table=table))
                for column in UNSAMPLED[table]:
                    run(f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0")
    run(
        "INSERT INTO meta (key, value) VALUES ('schema', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (str(SCHEMA_VERSION),),
    )
