"""Relation models for evaluation: one that remembers its judgements on disk, and the one that never merges."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from roam.errors import DataError
from roam.interfaces import RelationModel
from roam.records import Pair
from roam.relations import INDEX, RELATIONS, Relation


class AppendModel:
    """Calls every pair independent, which turns the store into the paper's append-all baseline."""

    digest = "append-all"
    thresholds: Mapping[Relation, float] = {}

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Return probability 1 for IND, shape (len(pairs), 5)."""
        out = np.zeros((len(pairs), len(RELATIONS)), dtype=np.float32)
        out[:, INDEX[Relation.IND]] = 1.0
        return out


class CachedRelationModel:
    """A relation model whose judgements are kept in a SQLite file across stores and runs.

    The relation of two texts depends on the texts alone (DESIGN section 5), so a judgement is found again by model
    digest, old text and new text; one file can serve several models. `hits` and `misses` count distinct pairs.
    """

    def __init__(
        self, model: RelationModel, path: str | Path, thresholds: Mapping[Relation, float] | None = None
    ) -> None:
        """Open or create the cache at `path` (":memory:" for none on disk); `DataError` if it is not such a file.

        `thresholds` replace the model's own; cached probabilities do not depend on them.
        """
        self.model = model
        self.digest = model.digest
        self.thresholds = model.thresholds if thresholds is None else thresholds
        self.hits = self.misses = 0
        try:
            self._database = sqlite3.connect(path)
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS judgements (model TEXT, old TEXT, new TEXT, probabilities BLOB,"
                " PRIMARY KEY (model, old, new)) WITHOUT ROWID"
            )
        except sqlite3.Error as error:
            raise DataError(f"{path}: cannot be used as a judgement cache ({error}); give a new file name") from error

    def __enter__(self) -> CachedRelationModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; judgements are already committed."""
        self._database.close()

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Return probabilities, shape (len(pairs), 5); only distinct pairs not seen before reach the model."""
        distinct = list(dict.fromkeys(Pair(*pair) for pair in pairs))
        known = {pair: row for pair in distinct if (row := self._lookup(pair)) is not None}
        missing = [pair for pair in distinct if pair not in known]
        self.hits += len(known)
        self.misses += len(missing)
        if missing:
            fresh = np.asarray(self.model.predict_proba(missing), dtype=np.float32)
            with self._database:
                self._database.executemany(
                    "INSERT OR REPLACE INTO judgements VALUES (?, ?, ?, ?)",
                    [(self.digest, *pair, row.tobytes()) for pair, row in zip(missing, fresh, strict=True)],
                )
            known.update(zip(missing, fresh, strict=True))
        if not pairs:
            return np.zeros((0, len(RELATIONS)), dtype=np.float32)
        return np.stack([known[Pair(*pair)] for pair in pairs])

    def _lookup(self, pair: Pair) -> NDArray[np.float32] | None:
        row = self._database.execute(
            "SELECT probabilities FROM judgements WHERE model = ? AND old = ? AND new = ?", (self.digest, *pair)
        ).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.float32)
