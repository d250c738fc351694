"""`roam doctor`: whether an installation works, and for what does not, what to do."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roam.cli_render import to_json
from roam.database import POSTGRES_SCHEMES
from roam.errors import RoamError, StoreError

if TYPE_CHECKING:
    from roam.cli import ManagerLoader

# What each extra brings, by the name it is imported under.
CORE = ("numpy", "sqlite_vec", "apsw", "tqdm")
MODELS = (
    "torch", "transformers", "peft", "safetensors", "huggingface_hub", "tokenizers", "onnx", "onnxruntime",
)  # fmt: skip
OPTIONAL = {
    "serve": ("fastapi", "uvicorn", "prometheus_client"), "mcp": ("mcp",), "postgres": ("psycopg", "pgvector"),
    "llm": ("openai",), "otel": ("opentelemetry.sdk",),
}  # fmt: skip
CONNECT_SECONDS = 5
LEAST_FREE = 1_000_000_000  # bytes: weights, the ONNX model and a growing store


class Check(NamedTuple):
    """One line of the report; a check that is not `ok` makes the command end with 1, a note does not."""

    name: str
    ok: bool
    detail: str


def doctor(args: argparse.Namespace, load_manager: ManagerLoader) -> int:
    """Report what is installed and what is missing; with `--try` also judge a pair and store a fact for real."""
    import roam

    checks = [Check("roam", True, roam.__version__), Check("python", True, platform.python_version())]
    checks += [_package(name) for name in (*CORE, *MODELS)]
    checks += [_optional(extra, names) for extra, names in OPTIONAL.items()]
    checks += [_vectors(), *_adapters(args), *_bases(args.manager), _cache(), _store(args.db)]
    if args.attempt:
        checks.append(_attempt(load_manager))
    if args.json:
        print(to_json([{"check": check.name, "ok": check.ok, "detail": check.detail} for check in checks]))
    else:
        for check in checks:
            print(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<18} {check.detail}")
        faults = sum(not check.ok for check in checks)
        print(f"{faults} of {len(checks)} checks failed" if faults else "everything that was checked works")
    return 0 if all(check.ok for check in checks) else 1


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False


def _package(name: str) -> Check:
    if not _found(name):
        extra = "[models]" if name in MODELS else ""
        return Check(name, False, f"not installed: pip install 'roam-distilled{extra}'")
    return Check(name, True, importlib.metadata.version(name.replace("_", "-")))


def _optional(extra: str, names: tuple[str, ...]) -> Check:
    missing = [name for name in names if not _found(name)]
    detail = f"not installed; if you want it: pip install 'roam-distilled[{extra}]'" if missing else "installed"
    return Check(f"extra {extra}", True, detail)


def _vectors() -> Check:
    """Whether SQLite and its vector search work: the smallest store there is, in memory."""
    try:
        from roam.sqlite import connect

        database = connect(":memory:", embedder_digest="doctor", dimension=2)
    except RoamError as error:
        return Check("vector search", False, str(error))
    except ModuleNotFoundError as error:
        return Check("vector search", False, f"{error.name} is not installed: pip install roam-distilled")
    [(version, extension)] = database.execute("SELECT sqlite_version(), vec_version()").fetchall()
    database.close()
    return Check("vector search", True, f"SQLite {version}, sqlite-vec {extension}")


def _adapters(args: argparse.Namespace) -> list[Check]:
    from roam.managers import adapters_of

    try:
        found = adapters_of(args.manager, args.backend)
    except RoamError as error:
        return [Check("adapter", False, str(error))]
    if not found:
        return [Check("adapter", True, f"none: {args.manager} asks a server")]
    return [_adapter(*one) for one in found]


def _adapter(name: str, backend: str | None) -> Check:
    from roam.backends import plan_backend
    from roam.managers import adapter_folder

    try:
        plan = plan_backend(adapter_folder(name), backend)
    except RoamError as error:
        return Check("adapter", False, str(error))
    return Check("adapter", True, f"{name}: {plan.card.base}, model {plan.digest} on {plan.backend} ({plan.reason})")


def needed_bases(manager: str) -> list[str]:
    """Names of the base weights that a manager and the search need."""
    from roam.adapters import read_card
    from roam.embedders import DEFAULT_EMBEDDER
    from roam.managers import adapter_folder, adapters_of
    from roam.onnx_model import MANIFEST

    folders = [adapter_folder(name) for name, _ in adapters_of(manager)]
    # An exported model has its base's weights in it.
    bases = [read_card(folder).base for folder in folders if not (folder / MANIFEST).is_file()]
    return list(dict.fromkeys([*bases, DEFAULT_EMBEDDER]))


def _bases(manager: str) -> list[Check]:
    from roam.bases import resolve_base

    try:
        names = needed_bases(manager)
    except RoamError:  # the adapter's own check says what is wrong with it
        names = []
    checks: list[Check] = []
    for name in names:
        try:
            base = resolve_base(name, download=False)
        except RoamError as error:
            checks.append(Check("base weights", False, str(error)))
        except ModuleNotFoundError as error:
            checks.append(Check("base weights", False, f"{name}: {error.name} is not installed"))
        else:
            checks.append(Check("base weights", True, f"{base.name} at {base.path}"))
    return checks


def _cache() -> Check:
    """The folder that weights and ONNX models are put into: it may be missing, but must be writable and have room."""
    from roam.bases import cache_dir

    folder = cache_dir()
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Check("cache", False, f"{folder} cannot be written to: set ROAM_CACHE to a folder that can")
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE:
        return Check("cache", False, f"{free:,} bytes are free at {folder}: free some, or set ROAM_CACHE elsewhere")
    return Check("cache", True, f"{folder}, {free / 1e9:.1f} GB free")


def _store(path: str) -> Check:
    """The store's file or database, opened read-only: a doctor changes nothing."""
    if path == ":memory:":
        return Check("store", True, path)
    if path.startswith(POSTGRES_SCHEMES):
        return _store_database(path)
    if "://" in path:
        from roam.server.settings import without_password

        shown = without_password(path)
        return Check("store", False, f"{shown} is not supported: give a file or a postgresql:// address")
    file = Path(path)
    if not file.is_file():
        if not os.access(file.absolute().parent, os.W_OK | os.X_OK):
            return Check("store", False, f"{path} cannot be made there: choose another folder with --db or ROAM_DB")
        return Check("store", True, f"{path} (none yet)")
    try:
        return _store_file(file)
    except ModuleNotFoundError as error:
        return Check("store", False, f"{error.name} is not installed: pip install roam-distilled")


def _store_file(file: Path) -> Check:
    import apsw

    from roam.schema import SCHEMA_VERSION
    from roam.sqlite import APPLICATION_ID

    try:
        database = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        [(application,)] = database.execute("PRAGMA application_id").fetchall()
        [(version,)] = database.execute("PRAGMA user_version").fetchall()
        database.close()
    except apsw.Error as error:
        return Check("store", False, f"{file} cannot be read ({error}): restore a backup, or correct its permissions")
    if application != APPLICATION_ID:
        return Check("store", False, f"{file} is no store of roam: name another with --db or ROAM_DB")
    if version > SCHEMA_VERSION:  # type: ignore[operator]
        return Check("store", False, f"{file} has schema {version}, this version knows {SCHEMA_VERSION}: upgrade roam")
    open_to_all = "; everybody on this machine can read it: chmod 600 it" if file.stat().st_mode & 0o004 else ""
    return Check("store", True, f"{file}, {file.stat().st_size:,} bytes, schema {version}{open_to_all}")


def _store_database(url: str) -> Check:
    from roam.server.settings import without_password

    shown = without_password(url)
    try:
        import psycopg

        from roam.postgres_schema import refuse_foreign, stored_version
    except ModuleNotFoundError as error:
        return Check("store", False, f"{shown}: {error.name} is not installed: pip install 'roam-distilled[postgres]'")
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
            connection.read_only = True
            server = connection.info.parameter_status("server_version")
            extension = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
            refuse_foreign(lambda sql: connection.execute(sql).fetchall(), shown)
            version = stored_version(lambda sql: connection.execute(sql).fetchall())
    except StoreError as error:
        return Check("store", False, str(error))
    except psycopg.ProgrammingError as error:
        if error.sqlstate is None:  # of the address; what it says repeats parts of it, so of a password
            return Check("store", False, f"{shown} is no address that PostgreSQL takes: correct --db or ROAM_DB")
        return Check("store", False, f"{shown} has a table meta of another program: name a schema for the store")
    except psycopg.Error as error:
        told = str(error).strip().partition("\n")[0]
        return Check("store", False, f"{shown} is out of reach ({told}): start the server, or correct --db or ROAM_DB")
    if extension is None:
        remedy = "have an administrator run CREATE EXTENSION vector in this database (roam/FLEETS.md)"
        return Check("store", False, f"{shown}: PostgreSQL {server} without pgvector: {remedy}")
    found = "none yet" if version == 0 else f"schema {version}"
    return Check("store", True, f"{shown} ({found}), PostgreSQL {server}, pgvector {extension[0]}")


def _attempt(load_manager: ManagerLoader) -> Check:
    """Load the manager and the embedder, and run two facts through a store in memory."""
    import time

    try:
        from roam.memory import Memory

        started = time.perf_counter()
        with Memory.open(":memory:", manager=load_manager()) as memory:
            memory.add("Has a dog.", user="doctor")
            decision = memory.add("Has a beagle named Otto.", user="doctor")
            found = memory.search("Any pets?", user="doctor", budget=32)
    except RoamError as error:
        return Check("trial", False, str(error))
    except ModuleNotFoundError as error:
        return Check("trial", False, f"{error.name} is not installed: pip install 'roam-distilled[models]'")
    seconds = time.perf_counter() - started
    return Check(
        "trial", bool(found.hits), f"a second fact was {decision.relation}, found again, {seconds:.1f} s in all"
    )
