"""What a benchmark run keeps on disk so that it can be stopped and taken up again: vectors and finished results.

Both live in one SQLite file, beside the judgements of `eval.store_model.CachedRelationModel`. A result is found again
only under the same code, models, settings and data: its key is a hash over all of them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import eval as eval_package
import roam
from roam.errors import DataError
from roam.interfaces import Embedder


@functools.cache
def code_digest() -> str:
    """Hash over the sources of `roam` and `eval`: a result of other code is not a result of this one."""
    digest = hashlib.sha256()
    for package in (roam, eval_package):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class RunCache:
    """Vectors and results in the SQLite file `path` (":memory:" for none on disk)."""

    def __init__(self, path: str | Path) -> None:
        """Open or create the file; `DataError` if it is not such a cache."""
        try:
            self._database = sqlite3.connect(path, timeout=60)
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS vectors (embedder TEXT, text TEXT, vector BLOB, "
                "PRIMARY KEY (embedder, text)) WITHOUT ROWID"
            )
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID"
            )
        except sqlite3.Error as error:
            raise DataError(f"{path}: cannot be used as a run cache ({error}); give a new file name") from error

    def __enter__(self) -> RunCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def key(self, **parts: object) -> str:
        """The key of a result that depends on `parts` (JSON values) and on the code."""
        text = json.dumps({"code": code_digest(), **parts}, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def result(self, key: str) -> dict[str, Any] | None:
        """The result kept under `key`, or None."""
        row = self._database.execute("SELECT value FROM results WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def keep(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep a result; it is on disk when this returns."""
        with self._database:
            self._database.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (key, json.dumps(value)))

    def vector(self, embedder: str, text: str) -> NDArray[np.float32] | None:
        """The vector of `text` by the encoder with this digest, or None."""
        query = "SELECT vector FROM vectors WHERE embedder = ? AND text = ?"
        row = self._database.execute(query, (embedder, text)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype="<f4")

    def keep_vectors(self, embedder: str, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keep vectors of shape (len(texts), dimension)."""
        rows = [(embedder, text, row.astype("<f4").tobytes()) for text, row in zip(texts, vectors, strict=True)]
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)


class CachedEmbedder:
    """An embedder whose vectors are kept in a `RunCache`; tokens are counted by the embedder itself."""

    def __init__(self, embedder: Embedder, cache: RunCache) -> None:
        self.embedder = embedder
        self._cache = cache
        self.digest, self.dimension = embedder.digest, embedder.dimension
        self.count_tokens = functools.lru_cache(maxsize=100_000)(embedder.count_tokens)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return L2-normalised vectors, shape (len(texts), dimension); only texts not seen before are encoded."""
        known = {text: self._cache.vector(self.digest, text) for text in dict.fromkeys(texts)}
        missing = [text for text, vector in known.items() if vector is None]
        if missing:
            fresh = np.asarray(self.embedder.embed(missing), dtype=np.float32)
            self._cache.keep_vectors(self.digest, missing, fresh)
            known.update(zip(missing, fresh, strict=True))
        out = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for position, text in enumerate(texts):
            out[position] = known[text]
        return out

    def truncate(self, text: str, tokens: int) -> str:
        """The longest prefix of `text` of at most `tokens` tokens."""
        return self.embedder.truncate(text, tokens)
