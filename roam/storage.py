"""Rows of the store: observations, events and current state (judgements: `roam.judgement_rows`).

Every method works on one connection; writes happen inside `transaction()`. Nothing here decides anything. The SQL is
what both back ends read (`roam.database`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from roam.database import Database
from roam.errors import InputError, NotFoundError, StoreError
from roam.events import Event, decode_event, encode_payload
from roam.judgement_rows import JudgementRows, iso
from roam.records import Observation
from roam.schema import USER_TABLES
from roam.sign_index import SignIndex
from roam.validation import duplicate_key, text_hash

_OBSERVATION = "sequence, id, user, text, observed_at, source"
_JOINED = "o.sequence, o.id, o.user, o.text, o.observed_at, o.source"
_ALL = 2**62  # no limit


def _observation(row: Sequence[Any]) -> Observation:
    sequence, id, user, text, observed_at, source = row
    moment = None if observed_at is None else datetime.fromisoformat(observed_at)
    return Observation(text=text, user=user, observed_at=moment, source=source, id=id, sequence=sequence)


class Store(JudgementRows):
    """The rows of one open store."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.signs = SignIndex(self)

    def rows(self, sql: str, bindings: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """See `Database.rows`."""
        return self.db.rows(sql, bindings)

    def scope(self, users: Sequence[str]) -> AbstractContextManager[None]:
        """See `Database.scope`."""
        return self.db.scope(users)

    def transaction(self, user: str | None) -> AbstractContextManager[None]:
        """See `Database.transaction`."""
        return self.db.transaction(user)

    def snapshot(self) -> AbstractContextManager[None]:
        """See `Database.snapshot`."""
        return self.db.snapshot()

    # Observations -----------------------------------------------------------------------------------------------

    def insert_observation(self, observation: Observation, recorded_at: datetime) -> int:
        """Append one observation and return its sequence; `InputError` for an id that is taken, by whomever."""
        found = self.rows(
            "INSERT INTO observations (id, user, text, text_hash, duplicate_key, observed_at, source, recorded_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING sequence",
            (
                observation.id,
                observation.user,
                observation.text,
                text_hash(observation.text),
                duplicate_key(observation.text),
                iso(observation.observed_at),
                observation.source,
                iso(recorded_at),
            ),
        )
        if not found:
            raise InputError(taken(observation.id))
        return int(found[0][0])

    def find_observation(self, id: str) -> Observation | None:
        """Return the observation with this id, or None."""
        found = self.rows(f"SELECT {_OBSERVATION} FROM observations WHERE id = ?", (id,))
        return _observation(found[0]) if found else None

    def observation(self, id: str, user: str | None = None) -> Observation:
        """Return the observation with this id; `NotFoundError` when there is none or it belongs to another user."""
        found = self.find_observation(id)
        if found is None or (user is not None and found.user != user):
            raise NotFoundError(f"no observation {id!r}" + ("" if user is None else f" of user {user!r}"))
        return found

    def observations(self, user: str, *, after: int = 0, limit: int = _ALL) -> list[Observation]:
        """Return the observations of one user in arrival order, those after a sequence."""
        sql = f"SELECT {_OBSERVATION} FROM observations WHERE user = ? AND sequence > ? ORDER BY sequence LIMIT ?"
        return [_observation(row) for row in self.rows(sql, (user, after, limit))]

    def observations_at(self, sequences: Sequence[int]) -> list[Observation]:
        """Return the observations with these sequences, in the order asked for."""
        sql = f"SELECT {_OBSERVATION} FROM observations WHERE sequence {self.db.among}"
        found = self.rows(sql, (self.db.list_to_sql(sequences),))
        by_sequence = {row[0]: _observation(row) for row in found}
        return [by_sequence[sequence] for sequence in sequences]

    def recorded_at(self, id: str) -> datetime:
        """Return when an observation was recorded."""
        found = self.rows("SELECT recorded_at FROM observations WHERE id = ?", (id,))
        return datetime.fromisoformat(found[0][0])

    # Log --------------------------------------------------------------------------------------------------------

    def version(self, user: str) -> int:
        """Return the number of the user's last event: it changes with every write that concerns the user."""
        return int(self.rows("SELECT coalesce(max(sequence), 0) FROM events WHERE user = ?", (user,))[0][0])

    def append_event(self, event: Event) -> int:
        """Append one event to the log and return its sequence; `InputError` for an id that is taken, by whomever."""
        found = self.rows(
            "INSERT INTO events (id, user, kind, observation_id, recorded_at, payload) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING RETURNING sequence",
            (
                event.id,
                event.user,
                event.kind.value,
                event.observation_id,
                iso(event.recorded_at),
                encode_payload(event),
            ),
        )
        if not found:
            raise InputError(f"key {event.id!r} is taken by another event: leave it out or choose another")
        return int(found[0][0])

    def events(self, user: str, *, after: int = 0, limit: int = _ALL) -> list[Event]:
        """Return the user's log in order, what comes after a sequence."""
        return self._events("WHERE user = ? AND sequence > ? ORDER BY sequence LIMIT ?", (user, after, limit))

    def find_event(self, id: str) -> Event | None:
        """Return the event with this id, or None."""
        found = self._events("WHERE id = ?", (id,))
        return found[0] if found else None

    def decision_event(self, observation_id: str) -> Event:
        """Return the event that decided on an observation."""
        found = self._events("WHERE observation_id = ? AND kind = 'decision'", (observation_id,))
        if not found:
            raise StoreError(f"observation {observation_id!r} has no decision in the log: run verify()")
        return found[0]

    def _events(self, where: str, bindings: Sequence[object]) -> list[Event]:
        columns = "sequence, id, user, kind, observation_id, recorded_at, payload"
        return [decode_event(*row) for row in self.rows(f"SELECT {columns} FROM events {where}", bindings)]

    # State ------------------------------------------------------------------------------------------------------

    def primary_of(self, user: str) -> dict[str, str]:
        """Return the Primary that each observation in the state belongs to (a Primary belongs to itself)."""
        return dict(self.rows("SELECT id, primary_id FROM state WHERE user = ? ORDER BY sequence", (user,)))

    def views(self, user: str) -> dict[str, str]:
        """Return the view text of each Primary of one user, in arrival order."""
        return dict(
            self.rows("SELECT id, view FROM state WHERE user = ? AND view IS NOT NULL ORDER BY sequence", (user,))
        )

    def views_of(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the view texts of these Primaries."""
        sql = f"SELECT id, view FROM state WHERE id {self.db.among} AND view IS NOT NULL"
        return dict(self.rows(sql, (self.db.list_to_sql(ids),)))

    def find_state(self, id: str) -> tuple[str, str | None] | None:
        """Return (primary id, view text or None) of an observation, None when it is out of the state."""
        found = self.rows("SELECT primary_id, view FROM state WHERE id = ?", (id,))
        return (found[0][0], found[0][1]) if found else None

    def members(self, user: str, primary_id: str, *, after: int = 0, limit: int = _ALL) -> list[Observation]:
        """Return the observations that a Primary's view stands for, itself included, in arrival order."""
        sql = (
            f"SELECT {_JOINED} FROM state s JOIN observations o ON o.sequence = s.sequence "
            "WHERE s.user = ? AND s.primary_id = ? AND s.sequence > ? ORDER BY s.sequence LIMIT ?"
        )
        return [_observation(row) for row in self.rows(sql, (user, primary_id, after, limit))]

    def members_of(self, user: str, primary_ids: Sequence[str] | None = None) -> dict[str, list[Observation]]:
        """Return what each of these Primaries' views stands for, in arrival order; None: of all the user's."""
        sql = (
            f"SELECT s.primary_id, {_JOINED} FROM state s JOIN observations o ON o.sequence = s.sequence "
            "WHERE s.user = ?"
        )
        bindings: tuple[object, ...] = (user,)
        if primary_ids is not None:
            sql, bindings = f"{sql} AND s.primary_id {self.db.among}", (user, self.db.list_to_sql(primary_ids))
        found: dict[str, list[Observation]] = {}
        for row in self.rows(f"{sql} ORDER BY s.sequence", bindings):
            found.setdefault(row[0], []).append(_observation(row[1:]))
        return found

    def placed(self, user: str, sequences: Sequence[int]) -> dict[int, tuple[Observation, str | None]]:
        """Return the observations with these sequences, each with its view (None: it is no Primary)."""
        sql = (
            f"SELECT {_JOINED}, s.view FROM observations o LEFT JOIN state s ON s.sequence = o.sequence "
            f"WHERE o.user = ? AND o.sequence {self.db.among}"
        )
        rows = self.rows(sql, (user, self.db.list_to_sql(sequences)))
        return {int(row[0]): (_observation(row[:-1]), row[-1]) for row in rows}

    def primaries_after(self, user: str, after: int, limit: int) -> list[tuple[Observation, str]]:
        """Return (Primary, view text) of one user in arrival order, those after a sequence."""
        sql = (
            f"SELECT {_JOINED}, s.view FROM state s JOIN observations o ON o.sequence = s.sequence "
            "WHERE s.user = ? AND s.view IS NOT NULL AND s.sequence > ? ORDER BY s.sequence LIMIT ?"
        )
        return [(_observation(row[:-1]), row[-1]) for row in self.rows(sql, (user, after, limit))]

    def same_words(self, user: str, text: str) -> list[Observation]:
        """Return the Primaries of one user whose atomic text is the same up to normalisation."""
        sql = (
            f"SELECT {_JOINED} FROM observations o "
            "JOIN state s ON s.sequence = o.sequence WHERE o.user = ? AND o.duplicate_key = ? AND s.primary_id = s.id "
            "ORDER BY o.sequence"
        )
        return [_observation(row) for row in self.rows(sql, (user, duplicate_key(text)))]

    def place(self, observation: Observation, primary_id: str, view: str | None) -> None:
        """Put one observation into the state, replacing where it was; `view` is given for a Primary only."""
        self.rows(
            "INSERT INTO state (sequence, id, user, primary_id, view) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (sequence) DO UPDATE SET primary_id = excluded.primary_id, view = excluded.view",
            (observation.sequence, observation.id, observation.user, primary_id, view),
        )

    def demote(self, user: str, id: str, primary_id: str) -> None:
        """Make a Primary, and all that it stood for, Evidence of another."""
        self.rows(
            "UPDATE state SET primary_id = ?, view = NULL WHERE user = ? AND primary_id = ?", (primary_id, user, id)
        )

    def set_view(self, id: str, view: str) -> None:
        """Replace the view text of a Primary."""
        self.rows("UPDATE state SET view = ? WHERE id = ?", (view, id))

    def remove(self, id: str) -> None:
        """Take one observation out of the state."""
        self.rows("DELETE FROM state WHERE id = ?", (id,))

    # Erasure ----------------------------------------------------------------------------------------------------

    def replace_log(self, user: str, before: Sequence[Event], after: Sequence[Event]) -> None:
        """Replace one user's log by a rewritten one: events that are gone are deleted, others get their new payload."""
        kept = {event.id: event for event in after}
        for event in before:
            if event.id not in kept:
                self.rows("DELETE FROM events WHERE id = ?", (event.id,))
            elif kept[event.id] != event:
                self.rows("UPDATE events SET payload = ? WHERE id = ?", (encode_payload(kept[event.id]), event.id))

    def delete_observation(self, observation: Observation) -> None:
        """Delete one observation's own rows, and the judgements on its text unless the user said the same again."""
        user, key = observation.user, text_hash(observation.text)
        self.rows("DELETE FROM state WHERE id = ?", (observation.id,))
        self.rows("DELETE FROM observations WHERE id = ?", (observation.id,))
        if not self.rows("SELECT 1 FROM observations WHERE user = ? AND text_hash = ? LIMIT 1", (user, key)):
            self.rows("DELETE FROM judgements WHERE user = ? AND ? IN (new_hash, old_hash)", (user, key))
        if not self.rows("SELECT 1 FROM observations WHERE user = ? LIMIT 1", (user,)):
            self.rows("DELETE FROM judgements WHERE user = ?", (user,))

    def delete_user(self, user: str) -> int:
        """Delete every row of one user and return how many observations there were."""
        count = int(self.rows("SELECT count(*) FROM observations WHERE user = ?", (user,))[0][0])
        for table in USER_TABLES:
            self.rows(f"DELETE FROM {table} WHERE user = ?", (user,))
        self.signs.forget(user)
        return count

    def clear_state(self, user: str) -> None:
        """Delete what is derived from the log, to be written anew."""
        self.rows("DELETE FROM state WHERE user = ?", (user,))
        self.rows("DELETE FROM vectors WHERE user = ?", (user,))
        self.signs.forget(user)

    def clear_vectors(self) -> None:
        """Delete every user's vectors."""
        self.rows("DELETE FROM vectors")
        self.signs.forget()

    def users(self) -> list[str]:
        """Return every user with at least one observation or event."""
        sql = "SELECT user FROM observations UNION SELECT user FROM events WHERE user <> '' ORDER BY 1"
        return [row[0] for row in self.rows(sql)]


def taken(id: str) -> str:
    """Say that an observation's id is in use."""
    return f"id {id!r} is taken by another observation: leave the id out or choose another"
