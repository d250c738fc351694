"""Changes that are not relations: retract, undo, redo, review and replay, each in one transaction (DESIGN 4.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from roam.errors import InputError
from roam.events import Change, Event, EventKind, Reindexed, Replayed, Verdict, new_event_id, now
from roam.interfaces import Embedder
from roam.judgement_rows import JudgementRow
from roam.records import Observation
from roam.refold import Refolder
from roam.relations import Relation
from roam.replaying import Replay
from roam.state import State, difference, effective_undos, fold, open_reviews, overrides, rebase
from roam.storage import Store
from roam.validation import clean_id
from roam.vectors import VectorKind, drop_vectors, embed, get_vector, put_vector
from roam.views import ViewBuilder

_TRIES = 4
_UNDOABLE = (EventKind.DECISION, EventKind.RETRACT, EventKind.UNDO, EventKind.REVIEW, EventKind.REPLAY)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Log:
    """One user's log as read at one version."""

    user: str
    version: int
    events: list[Event]
    observations: Mapping[str, Observation]

    def state(self) -> State:
        """Return the fold of the whole log."""
        return fold(self.events, self.observations)


class Reviser:
    """Plans a change on a snapshot of one user's log and writes it if nobody wrote in between."""

    def __init__(
        self, store: Store, embedder: Embedder, views: ViewBuilder, thresholds: Mapping[Relation, float]
    ) -> None:
        self.store, self.embedder, self.views, self.thresholds = store, embedder, views, dict(thresholds)

    def read(self, user: str) -> Log:
        """Return the user's log."""
        version = self.store.version(user)
        observations = {entry.id: entry for entry in self.store.observations(user)}
        return Log(user, version, self.store.events(user), observations)

    def refolder(self, log: Log) -> Refolder:
        """Return the engine that runs this log again."""

        def known(observation: Observation, model: str | None, before: int) -> Mapping[str, NDArray[np.float32]]:
            return self.store.cached_probabilities(log.user, observation.text, model, before)

        return Refolder(log.observations, known, self.views, self.thresholds)

    def retract(self, observation: Observation, key: str | None = None) -> Event:
        """Take an observation out of the state; what it had superseded comes back."""

        def check(log: Log) -> None:
            if observation.id in overrides(log.events).retracted:
                raise InputError(f"{observation.id!r} is retracted already: undo that event to bring it back")

        return self._revise(make_event(observation.user, EventKind.RETRACT, key, observation_id=observation.id), check)

    def undo(self, target: Event, key: str | None = None) -> Event:
        """Take back what one event did: a decision counts as IND, any other as not made."""
        if target.kind not in _UNDOABLE:
            raise InputError(
                f"event {target.id!r} is of kind {target.kind}: only {', '.join(_UNDOABLE)} events can be undone"
            )

        def check(log: Log) -> None:
            if target.id in effective_undos(log.events):
                raise InputError(f"event {target.id!r} is undone already: redo it to have it count again")
            current = next((event for event in rebase(log.events).events if event.id == target.id), target)
            if current.decision is not None and current.decision.relation is Relation.IND:
                raise InputError(
                    f"decision {target.id!r} is IND: it changed no other fact; retract the observation instead"
                )

        undo = make_event(target.user, EventKind.UNDO, key, observation_id=target.observation_id, target=target.id)
        return self._revise(undo, check)

    def redo(self, target: Event, key: str | None = None) -> Event:
        """Have an event count again that was undone: its undo is undone."""
        log = self.read(target.user)
        known = None if key is None else self.store.find_event(key)
        undo_id = effective_undos(log.events).get(target.id) if known is None else known.target
        undo = next((event for event in log.events if event.id == undo_id and event.target == target.id), None)
        if undo is None:
            raise InputError(f"event {target.id!r} is not undone at present: there is nothing to redo")
        return self.undo(undo, key)

    def review(self, new: Observation, old: Observation, relation: Relation, key: str | None = None) -> Event:
        """Have a person's relation of `new` to `old` count over what the model said."""
        if new.user != old.user or old.sequence >= new.sequence:
            raise InputError(
                f"{old.id!r} is no earlier observation of the same user than {new.id!r}: give the pair as new, old"
            )
        verdict = Verdict(old.id, relation)
        event = make_event(new.user, EventKind.REVIEW, key, observation_id=new.id, verdict=verdict)
        return self._revise(event, lambda log: None)

    def apply(self, replay: Replay, key: str | None = None) -> Event:
        """Write what a replay found, if nothing was recorded of the user since."""

        def check(log: Log) -> None:
            if log.version != replay.version:
                raise InputError(f"the memory of user {replay.user!r} has changed since this replay: replay again")

        event = make_event(replay.user, EventKind.REPLAY, key, replayed=replay.decisions)
        return self._revise(event, check, replay.judgements)

    def _revise(self, event: Event, check: Callable[[Log], None], learnt: Iterable[JudgementRow] = ()) -> Event:
        """Write one event and the change it makes; `check` may refuse it, and what was `learnt` for it is kept.

        An event that is there already is returned: asking twice with one key does it once.
        """
        user = event.user

        def attempt() -> tuple[int, Callable[[], Event]]:
            log = self.read(user)
            known = self.store.find_event(event.id)
            if known is not None:
                if not _same(known, event):
                    raise InputError(f"key {event.id!r} is taken by another event: leave it out or choose another")
                return log.version, lambda: known
            check(log)
            # Numbered as it will be: what a replay judged counts as known to the decisions that it made.
            extended = [*log.events, replace(event, sequence=log.version + 1)]
            after = self.refolder(log).run(extended)
            change = difference(log.state(), after)
            vectors = self.vectors_for(change, log.observations)

            def write() -> Event:
                final = replace(event, recorded_at=now(), change=change)
                for row in learnt:
                    self.store.save_judgement(user, replace(row, known_after=log.version))
                sequence = self.store.append_event(final)
                self.write_change(user, change, after, log.observations, vectors)
                self.store.set_reviews(user, open_reviews(extended).values())
                return replace(final, sequence=sequence)

            return log.version, write

        return self.commit(user, attempt)

    def rebuild(self, user: str) -> None:
        """Write the tables of one user anew from the log, vectors included."""

        def attempt() -> tuple[int, Callable[[], None]]:
            log = self.read(user)
            write = self.plan_rebuild(log)
            return log.version, lambda: write(log.observations)

        self.commit(user, attempt)

    def reindex(self) -> Reindexed:
        """Embed all that is stored with this embedder, in one transaction, and bind the store to it."""
        observations = 0
        with self.store.transaction(None):
            users = self.store.users()
            self.store.clear_vectors()
            self.store.db.bind_embedder(self.embedder.digest, self.embedder.dimension)
            for user in users:
                log = self.read(user)
                self.plan_rebuild(log)(log.observations)
                observations += len(log.observations)
        return Reindexed(self.embedder.digest, len(users), observations)

    def plan_rebuild(self, log: Log) -> Callable[[Mapping[str, Observation]], None]:
        """Embed all texts of a log; return what writes its state, given the observations as they are stored."""
        after = log.state()
        view_vectors = dict(zip(after.views, embed(self.embedder, list(after.views.values())), strict=True))
        texts = [entry.text for entry in log.observations.values()]
        atomic = dict(zip(log.observations, embed(self.embedder, texts), strict=True))

        def write(stored: Mapping[str, Observation]) -> None:
            self.store.clear_state(log.user)
            everything = Change(assigned=dict(after.primary_of), views=dict(after.views))
            self.write_change(log.user, everything, after, stored, (atomic, view_vectors))
            self.store.set_reviews(log.user, open_reviews(log.events).values())

        return write

    def vectors_for(
        self, change: Change, observations: Mapping[str, Observation]
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, NDArray[np.float32]]]:
        """Return (atomic vectors, view vectors) that a change needs; embeds only what is not stored."""
        atomic: dict[str, NDArray[np.float32]] = {}
        for id, primary in change.assigned.items():
            if primary is not None:
                stored = self._stored_vector(observations[id])
                atomic[id] = embed(self.embedder, [observations[id].text])[0] if stored is None else stored
        texts = list(change.views.values())
        return atomic, dict(zip(change.views, embed(self.embedder, texts), strict=True))

    def _stored_vector(self, observation: Observation) -> NDArray[np.float32] | None:
        for kind in (VectorKind.ATOMIC, VectorKind.EVIDENCE):
            vector = get_vector(self.store, observation.user, kind, observation.sequence)
            if vector is not None:
                return vector
        return None

    def write_change(
        self,
        user: str,
        change: Change,
        after: State,
        observations: Mapping[str, Observation],
        vectors: tuple[Mapping[str, NDArray[np.float32]], Mapping[str, NDArray[np.float32]]],
    ) -> None:
        """Bring the tables from the state before a change to the state after it."""
        atomic, view_vectors = vectors
        for id, primary in change.assigned.items():
            observation = observations[id]
            self.store.remove(id)
            drop_vectors(self.store, user, observation.sequence)
            if primary is None:
                continue
            self.store.place(observation, primary, after.views.get(id))
            kind = VectorKind.ATOMIC if primary == id else VectorKind.EVIDENCE
            put_vector(self.store, user, kind, observation.sequence, atomic[id])
        for id, text in change.views.items():
            self.store.set_view(id, text)
            put_vector(self.store, user, VectorKind.VIEW, observations[id].sequence, view_vectors[id])

    def commit(self, user: str, attempt: Callable[[], tuple[int, Callable[[], _T]]]) -> _T:
        """Plan on a snapshot and write if nobody wrote of this user in between; at last plan under the lock."""
        for _ in range(_TRIES):
            with self.store.snapshot():
                version, write = attempt()
            with self.store.transaction(user):
                if self.store.version(user) == version:
                    return write()
        with self.store.transaction(user):
            _, write = attempt()
            return write()


def make_event(
    user: str,
    kind: EventKind,
    key: str | None = None,
    *,
    observation_id: str | None = None,
    target: str | None = None,
    detail: str | None = None,
    verdict: Verdict | None = None,
    replayed: tuple[Replayed, ...] = (),
) -> Event:
    return Event(
        id=new_event_id() if key is None else clean_id(key),
        user=user,
        kind=kind,
        recorded_at=now(),
        observation_id=observation_id,
        target=target,
        detail=detail,
        verdict=verdict,
        replayed=replayed,
    )


def _same(one: Event, other: Event) -> bool:
    """Whether two events ask for the same, whatever it changed."""

    def asked(event: Event) -> tuple[object, ...]:
        return event.user, event.kind, event.observation_id, event.target, event.verdict, event.replayed

    return asked(one) == asked(other)
