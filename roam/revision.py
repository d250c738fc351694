"""Changes that are not relations: retract, undo and erase, each in one transaction (DESIGN 4.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import apsw
import numpy as np
from numpy.typing import NDArray

from roam.errors import InputError, StoreError
from roam.events import Change, Event, EventKind, Receipt, new_event_id, now
from roam.interfaces import Embedder
from roam.records import Observation
from roam.refold import Refolder
from roam.relations import Relation
from roam.retrieval import VectorKind, drop_vectors, embed, get_vector, put_vector
from roam.state import State, difference, effective_undos, fold, overrides
from roam.storage import Store
from roam.views import ViewBuilder

_TRIES = 4
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

    def retract(self, observation: Observation) -> Event:
        """Take an observation out of the state; what it had superseded comes back."""

        def plan(log: Log) -> Event:
            if observation.id in overrides(log.events).retracted:
                raise InputError(f"{observation.id!r} is retracted already: undo that event to bring it back")
            return _event(log.user, EventKind.RETRACT, observation.id, None)

        return self._revise(observation.user, plan)

    def undo(self, target: Event) -> Event:
        """Take back what one event did: a decision counts as IND, a retraction or an undo as not made."""
        if target.kind not in (EventKind.DECISION, EventKind.RETRACT, EventKind.UNDO):
            raise InputError(
                f"event {target.id!r} is of kind {target.kind}: only decision, retract and undo can be undone"
            )
        if target.decision is not None and target.decision.relation is Relation.IND:
            raise InputError(
                f"decision {target.id!r} is IND: it changed no other fact; retract the observation instead"
            )

        def plan(log: Log) -> Event:
            if target.id in effective_undos(log.events):
                raise InputError(f"event {target.id!r} is undone already: undo that undo to redo it")
            return _event(log.user, EventKind.UNDO, target.observation_id, target.id)

        return self._revise(target.user, plan)

    def _revise(self, user: str, plan: Callable[[Log], Event]) -> Event:
        def attempt() -> tuple[int, Callable[[], Event]]:
            log = self.read(user)
            event = plan(log)
            after = self.refolder(log).run(log.events, overrides([*log.events, event]))
            change = difference(log.state(), after)
            vectors = self.vectors_for(change, log.observations)
            final = Event(
                id=event.id,
                user=user,
                kind=event.kind,
                recorded_at=event.recorded_at,
                observation_id=event.observation_id,
                target=event.target,
                change=change,
            )

            def write() -> Event:
                self.store.append_event(final)
                self.write_change(user, change, after, log.observations, vectors)
                return final

            return log.version, write

        return self._commit(user, attempt)

    def erase(self, observation: Observation) -> Receipt:
        """Remove every trace of one observation; what depended on it is rebuilt from what is left."""
        user, erased = observation.user, observation.id

        def attempt() -> tuple[int, Callable[[], str]]:
            log = self.read(user)
            rewritten = self.refolder(log).rewrite(log.events, erased)
            left = {id: entry for id, entry in log.observations.items() if id != erased}
            after = fold(rewritten, left)
            change = difference(log.state(), after)
            vectors = self.vectors_for(change, left)

            def write() -> str:
                self.write_change(user, change, after, log.observations, vectors)
                self.store.replace_log(user, log.events, rewritten)
                self.store.delete_observation(observation)
                receipt = _event(user, EventKind.ERASE, None, None, "1 observation")
                self.store.append_event(receipt)
                return receipt.id

            return log.version, write

        event_id = self._commit(user, attempt)
        return Receipt(event_id, 1, self.scrub())

    def erase_user(self, user: str) -> Receipt:
        """Remove every row of one user; the receipt does not name the user."""
        with self.store.transaction():
            count = self.store.delete_user(user)
            receipt = _event("", EventKind.ERASE, None, None, f"{count} observations")
            self.store.append_event(receipt)
        return Receipt(receipt.id, count, self.scrub())

    def scrub(self) -> bool:
        """Rewrite the file and empty its journal, so that no freed page keeps old bytes; False while others read it."""
        try:
            self.store.rows("VACUUM")
            busy = self.store.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        except StoreError as error:
            if isinstance(error.__cause__, (apsw.BusyError, apsw.LockedError)):
                return False
            raise
        return not busy

    def rebuild(self, user: str) -> None:
        """Write the tables of one user anew from the log, vectors included."""

        def attempt() -> tuple[int, Callable[[], None]]:
            log = self.read(user)
            after = log.state()
            vectors = {id: embed(self.embedder, [text])[0] for id, text in after.views.items()}
            texts = [entry.text for entry in log.observations.values()]
            atomic = dict(zip(log.observations, embed(self.embedder, texts), strict=True))

            def write() -> None:
                self.store.clear_state(user)
                everything = Change(assigned=dict(after.primary_of), views=dict(after.views))
                self.write_change(user, everything, after, log.observations, (atomic, vectors))

            return log.version, write

        self._commit(user, attempt)

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

    def _commit(self, user: str, attempt: Callable[[], tuple[int, Callable[[], _T]]]) -> _T:
        for _ in range(_TRIES):
            with self.store.snapshot():
                version, write = attempt()
            with self.store.transaction():
                if self.store.version(user) == version:
                    return write()
        with self.store.transaction():
            _, write = attempt()
            return write()


def _event(
    user: str, kind: EventKind, observation_id: str | None, target: str | None, detail: str | None = None
) -> Event:
    return Event(
        id=new_event_id(),
        user=user,
        kind=kind,
        recorded_at=now(),
        observation_id=observation_id,
        target=target,
        detail=detail,
    )
