"""What mem0 kept, as facts to add: its SQLite history, or a JSON export of its Qdrant points.

The history (`~/.mem0/history.db`) has every text a memory ever had, but not whose it was: the user has to be given. The
points of the vector store have the current texts, each with its user. A Qdrant folder itself is not opened, since its
local form holds pickles, which run code when they are read; export it with a scroll, as `scripts/tutorials/mem0.md`
shows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from roam.cli_input import SQLITE_HEADER, FactFile, collect_facts, read_content
from roam.errors import DataError
from roam.integrations.mem0_arguments import SCOPES

_SQL = "SELECT id, memory_id, new_memory, event, created_at, updated_at FROM history ORDER BY rowid"


def read_mem0(name: str, *, user: str | None = None) -> FactFile:
    """Read a history database or an export of points; the facts come in the order in which they were told.

    Args:
        user: whose facts; needed for a history, and for points that name nobody.

    Raises:
        DataError: a file that is neither, cannot be read, or holds nothing.
    """
    rows = history_rows(Path(name)) if _is_sqlite(name) else point_rows(read_content(name), name)
    read = collect_facts(rows, name, user=user)
    undated_last = datetime.max.replace(tzinfo=UTC)
    return replace(read, facts=tuple(sorted(read.facts, key=lambda fact: fact.observed_at or undated_last)))


def _is_sqlite(name: str) -> bool:
    try:
        with Path(name).open("rb") as file:
            return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER
    except OSError:
        return False  # reading it as text says what is wrong


def history_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, fact) for every text of the memories that were not deleted.

    A memory that was changed gives several facts: the store's own relations then tell what superseded what.
    """
    try:
        # immutable: not even a lock or a journal beside somebody else's file
        with sqlite3.connect(f"file:{path.as_posix()}?mode=ro&immutable=1", uri=True) as database:
            found = database.execute(_SQL).fetchall()
    except sqlite3.Error as error:
        raise DataError(f"{path} is no history of mem0 ({error}): give its history.db, or a JSON export") from error
    gone = {memory: number for number, (_, memory, _, event, *_) in enumerate(found) if event == "DELETE"}
    for number, (id, memory, text, event, created, updated) in enumerate(found):
        if event in ("ADD", "UPDATE") and number > gone.get(memory, -1):
            told = updated if event == "UPDATE" and updated else created
            yield number + 1, {"id": f"mem0-{id}", "text": text, "observed_at": told, "source": "mem0"}


def point_rows(content: str, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, fact) for every point of a JSONL file, a JSON array, or the answer of a scroll request."""
    for number, point in enumerate(_points(content, name), start=1):
        payload = point.get("payload") if isinstance(point, Mapping) else None
        if not isinstance(payload, Mapping):
            raise DataError(f"{name}, point {number}: no `payload`; export the points with their payload")
        yield (
            number,
            {
                "id": f"mem0-{point.get('id')}",
                "text": payload.get("data", payload.get("memory")),
                "user": _owner(payload),
                "observed_at": payload.get("updated_at") or payload.get("created_at"),
                "source": "mem0",
            },
        )


def _owner(payload: Mapping[str, Any]) -> str | None:
    """The same owner as `roam.integrations.mem0` gives: the user, else the agent, else the run."""
    for scope in SCOPES:
        if payload.get(scope):
            return str(payload[scope]) if scope == "user_id" else f"{scope}:{payload[scope]}"
    return None


def _points(content: str, name: str) -> list[Any]:
    try:
        document = json.loads(content)
    except ValueError:
        try:
            return [json.loads(line) for line in content.split("\n") if line.strip()]
        except ValueError as error:
            raise DataError(f"{name} is neither JSON nor JSONL ({error}): export the points as JSON") from error
    if isinstance(document, Mapping) and "payload" not in document:
        result = document.get("result", document)
        document = result.get("points") if isinstance(result, Mapping) else result
    if isinstance(document, Mapping):
        return [document]
    if not isinstance(document, list):
        raise DataError(f"{name} holds no list of points: give what Qdrant's scroll returned")
    return document
