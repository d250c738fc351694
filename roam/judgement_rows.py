"""Rows of what a relation model said about pairs of texts, and of the pairs that a person should decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roam.events import Event
from roam.records import Judgement
from roam.relations import RELATIONS, Relation
from roam.validation import text_hash


def iso(moment: datetime | None) -> str | None:
    """Return the fixed-width form in which times are kept, so that they sort as text."""
    return None if moment is None else moment.isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class JudgementRow:
    """What a model said about two texts, named by their hashes; `probabilities` has shape (5,).

    `known_after` is the user's last event when it was stored.
    """

    model: str
    new_hash: str
    old_hash: str
    probabilities: NDArray[np.float32]
    known_after: int = 0


class JudgementRows:
    """The part of `Store` for judgements and review items."""

    def rows(self, sql: str, bindings: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        raise NotImplementedError

    def version(self, user: str) -> int:
        """Return the number of the user's last event."""
        raise NotImplementedError

    # Judgements -------------------------------------------------------------------------------------------------

    def cached_probabilities(
        self, user: str, new: str, model: str | None = None, before: int | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Return {hash of the old text: probabilities, shape (5,)} for one new text.

        Any model counts unless one is named; with `before`, only what was known before that event of the log.
        """
        sql = "SELECT old_hash, probabilities FROM judgements WHERE user = ? AND new_hash = ?"
        bindings: tuple[object, ...] = (user, text_hash(new))
        if model is not None:
            sql, bindings = f"{sql} AND model = ?", (*bindings, model)
        if before is not None:
            sql, bindings = f"{sql} AND known_after < ?", (*bindings, before)
        return {old: np.frombuffer(blob, dtype="<f4") for old, blob in self.rows(sql, bindings)}

    def save_probabilities(
        self, user: str, model: str, entries: Iterable[tuple[str, str, NDArray[np.float32]]]
    ) -> None:
        """Keep (hash of the new text, hash of the old text, probabilities); what is already there stays."""
        known_after = self.version(user)
        for new_hash, old_hash, probabilities in entries:
            self.save_judgement(user, JudgementRow(model, new_hash, old_hash, probabilities, known_after))

    def save_judgement(self, user: str, row: JudgementRow) -> None:
        """Keep one row of the judgement cache; what is already there stays."""
        self.rows(
            "INSERT INTO judgements (user, new_hash, old_hash, model, probabilities, known_after) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (user, row.new_hash, row.old_hash, row.model, row.probabilities.astype("<f4").tobytes(), row.known_after),
        )

    def judgement_rows(self, user: str) -> list[JudgementRow]:
        """Return all that is known about one user's pairs, in an order that depends on the content alone."""
        columns = "model, new_hash, old_hash, probabilities, known_after"
        sql = f"SELECT {columns} FROM judgements WHERE user = ? ORDER BY new_hash, old_hash, model"
        return [
            JudgementRow(model, new, old, np.frombuffer(blob, dtype="<f4"), known_after)
            for model, new, old, blob, known_after in self.rows(sql, (user,))
        ]

    # Review -----------------------------------------------------------------------------------------------------

    def add_review(self, event: Event, judgement: Judgement) -> None:
        """Keep a pair whose best relation stayed below its threshold, for a person to decide."""
        self.rows(
            "INSERT INTO review (event_id, user, new_id, old_id, relation, probability, recorded_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id, old_id) DO UPDATE SET "
            "relation = excluded.relation, probability = excluded.probability, recorded_at = excluded.recorded_at",
            (event.id, event.user, event.observation_id, *_doubt(judgement), iso(event.recorded_at)),
        )

    def set_reviews(self, user: str, pairs: Iterable[tuple[Event, Judgement]]) -> None:
        """Replace the user's doubtful pairs by these."""
        self.rows("DELETE FROM review WHERE user = ?", (user,))
        for event, judgement in pairs:
            self.add_review(event, judgement)

    def reviews(self, user: str) -> list[tuple[str, str, str, Relation, float]]:
        """Return (event id, new id, old id, relation, probability) of the user's doubtful pairs, oldest first."""
        columns = "r.event_id, r.new_id, r.old_id, r.relation, r.probability"
        sql = f"SELECT {columns} FROM review r JOIN observations o ON o.id = r.new_id WHERE r.user = ? "
        return [
            (e, n, o, Relation(r), p) for e, n, o, r, p in self.rows(f"{sql}ORDER BY o.sequence, r.old_id", (user,))
        ]


def _doubt(judgement: Judgement) -> tuple[str, str, float]:
    """The columns of a doubtful pair that its judgement holds."""
    raw = judgement.raw_relation
    return judgement.candidate_id, raw.value, judgement.probabilities[raw]


def as_mapping(probabilities: NDArray[np.float32]) -> Mapping[Relation, float]:
    """Return a probability row keyed by relation."""
    # Six digits, as in the log, so that a decision read back equals the one that was returned.
    return {relation: round(float(value), 6) for relation, value in zip(RELATIONS, probabilities, strict=True)}
