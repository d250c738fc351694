"""Relation models for evaluation: baselines without a classifier, ablations, and one that remembers on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from roam.errors import DataError
from roam.interfaces import Embedder, RelationModel
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


class NewestWinsModel:
    """Calls two texts a conflict when their cosine reaches `similarity`, so that the newest replaces what is like it.

    This is the plain deduplication that many memory stores run: no classifier, whatever looks alike is overwritten.
    """

    thresholds: Mapping[Relation, float] = {}

    def __init__(self, embedder: Embedder, similarity: float) -> None:
        self.embedder, self.similarity = embedder, similarity
        self.digest = f"newest-wins-{similarity:g}-{embedder.digest}"

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Return probability 1 for CON or for IND, shape (len(pairs), 5)."""
        out = np.zeros((len(pairs), len(RELATIONS)), dtype=np.float32)
        if pairs:
            old = self.embedder.embed([pair.old for pair in pairs])
            new = self.embedder.embed([pair.new for pair in pairs])
            alike = (old * new).sum(axis=1) >= self.similarity
            out[alike, INDEX[Relation.CON]] = 1.0
            out[~alike, INDEX[Relation.IND]] = 1.0
        return out


class RelationSubset:
    """A relation model of which only some relations act; pairs that it gives another one count as independent.

    The paper's ablations (section 3.4.1) keep the predictions and leave relations out of the policy, so a dropped
    relation must not turn into the second most probable one: its probability goes to IND.
    """

    def __init__(self, model: RelationModel, kept: Sequence[Relation]) -> None:
        self.model = model
        self._dropped = [INDEX[r] for r in RELATIONS if r is not Relation.IND and r not in kept]
        self.digest = f"{model.digest}:{'+'.join(kept)}"
        self.thresholds = model.thresholds

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Return probabilities, shape (len(pairs), 5)."""
        out = np.array(self.model.predict_proba(pairs), dtype=np.float32, copy=True)
        independent = INDEX[Relation.IND]
        best = out.argmax(axis=1)
        for column in self._dropped:
            rows = best == column
            out[rows, independent], out[rows, column] = out[rows, column], out[rows, independent]
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
            self._database = sqlite3.connect(path, timeout=60)  # another run may be writing
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
