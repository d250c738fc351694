"""Answers of a model kept on disk, so that a run can be repeated exactly and for nothing."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from roam.errors import DataError


class ReplyCache:
    """Replies by request in the SQLite file `path`; threads may share one, and so may processes.

    The key holds all that decides an answer: endpoint, model, messages, settings of the request. Usable or not, an
    answer is kept: a repeated run takes the same way through its retries.
    """

    def __init__(self, path: str | Path) -> None:
        """Open or create the file; `DataError` if it is not such a cache."""
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(path, timeout=60, check_same_thread=False)
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID"
            )
        except sqlite3.Error as error:
            raise DataError(f"{path}: cannot be used as a response cache ({error}); give a new file name") from error

    def __enter__(self) -> ReplyCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was kept is on the disk."""
        with self._lock:
            self._database.close()

    @staticmethod
    def key(request: Mapping[str, object]) -> str:
        """The key of a request (JSON values)."""
        return hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def get(self, key: str) -> str | None:
        """The text answered under `key`, or None."""
        with self._lock:
            row = self._database.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def keep(self, key: str, reply: str) -> None:
        """Keep an answer; it is on disk when this returns."""
        with self._lock, self._database:
            self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, reply))
