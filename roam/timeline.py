"""The part of `Memory` that reads and revises the log: why, when, and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from typing import Literal

from roam.access import Access
from roam.erasure import erase, erase_user
from roam.errors import InputError, NotFoundError, StoreError
from roam.events import Event, EventKind, Explanation, Receipt
from roam.records import Role, View
from roam.replaying import Replay
from roam.revision import Log
from roam.state import State, fold, make_view, overrides
from roam.storage import Store
from roam.validation import clean_user, parse_time
from roam.verification import Verification, verify_orphans, verify_user


class Timeline(Access):
    """Methods of `Memory` over the event log; see DESIGN 4.7 and 4.8."""

    def history(self, *, user: str) -> list[Event]:
        """Return all events of one user in the order in which they were recorded."""
        owner = clean_user(user)
        with self._reading(owner) as store:
            return store.events(owner)

    def explain(self, id: str, *, user: str | None = None) -> Explanation:
        """Return why an observation is where it is: the decision on it, its probabilities, and what touched it since.

        Raises:
            NotFoundError: an unknown id, or one of another user when `user` is given.
        """
        with self._reading(user) as store:
            observation = store.observation(id, user)
            log = self._reviser.read(observation.user)
            state, later, decision = State(), [], None
            for event in log.events:
                before = _place(state, id)
                state.apply(event, log.observations)
                if event.kind is EventKind.DECISION and event.observation_id == id:
                    decision = event.decision
                elif decision is not None and (_place(state, id) != before or _names(event, id, state)):
                    later.append(event)
            if decision is None:
                raise StoreError(f"observation {id!r} has no decision in the log: run verify()")
            primary_id = state.primary_of.get(id)
            return Explanation(
                observation=observation,
                role=None if primary_id is None else Role.PRIMARY if primary_id == id else Role.EVIDENCE,
                primary=None if primary_id is None else _view_of(state, log, primary_id),
                decision=decision,
                candidate_texts={
                    entry.candidate_id: log.observations[entry.candidate_id].text for entry in decision.judgements
                },
                later=tuple(later),
            )

    def as_of(
        self, time: str | date | datetime, *, user: str, by: Literal["observed", "recorded"] = "observed"
    ) -> list[View]:
        """Return one user's views as they were at a time.

        `by="observed"` (default) answers what held then by what is known now: it runs the log on the observations whose
        time is not later (undated ones count from when they were recorded), late arrivals and retractions included.
        `by="recorded"` answers what the store said then: the plain fold of the events recorded up to that time, for
        audits; after an erasure it shows the log without what was erased. A date means its first instant in UTC.
        """
        owner, moment = clean_user(user), parse_time(time, "time")
        if moment is None:
            raise InputError("time is None: give an ISO 8601 date or date-time")
        if by not in ("observed", "recorded"):
            raise InputError(f"by is {by!r}: use 'observed' or 'recorded'")
        with self._reading(owner) as store:
            log = self._reviser.read(owner)
            if by == "recorded":
                state = fold((event for event in log.events if event.recorded_at <= moment), log.observations)
                return state.as_views(log.observations)
            later = {
                entry.id
                for entry in log.observations.values()
                if (entry.observed_at or store.recorded_at(entry.id)) > moment
            }
            now = overrides(log.events)
            without = replace(now, retracted=now.retracted | later)
            return self._reviser.refolder(log).run(log.events, without).as_views(log.observations)

    def retract(self, id: str, *, user: str | None = None, key: str | None = None) -> Event:
        """Take an observation out of the state; what it had superseded or absorbed comes back. No model pass.

        The user's log is decided anew without it on the stored judgements; a pair that was never judged counts as IND.
        The observation stays in the log, and `undo` of the returned event brings it back. With a `key`, asking again
        returns the event of the first time: a rerun after a crash is exact. So it is for `undo` and `redo`.
        """
        with self._writing(user) as store:
            return self._reviser.retract(store.observation(id, user), key)

    def undo(self, event_id: str, *, user: str | None = None, key: str | None = None) -> Event:
        """Take back one event: a decision then counts as IND, a retraction, verdict, replay or undo as not made.

        Raises:
            NotFoundError: an unknown event, or one of another user when `user` is given.
            InputError: an event that cannot be undone, or is undone already, or a key that is taken.
        """
        with self._writing(user) as store:
            return self._reviser.undo(_event_of(store, event_id, user, "undo"), key)

    def redo(self, event_id: str, *, user: str | None = None, key: str | None = None) -> Event:
        """Have an event count again that `undo` took back; returns the undo of that undo.

        Raises:
            NotFoundError: an unknown event, or one of another user when `user` is given.
            InputError: an event that is not undone at present, or a key that is taken.
        """
        with self._writing(user) as store:
            return self._reviser.redo(_event_of(store, event_id, user, "redo"), key)

    def apply(self, replay: Replay, *, key: str | None = None) -> Event:
        """Make what `replay` found the state. One event of the log, which `undo` takes back.

        Facts added later are judged by the manager and thresholds that the store is open with.

        Raises:
            InputError: something was recorded of the user since the replay was made, or the key is taken.
        """
        with self._writing(replay.user):
            return self._reviser.apply(replay, key)

    def erase(self, id: str, *, user: str | None = None) -> Receipt:
        """Remove an observation for good: its text leaves rows, views, vectors, log, judgements and freed pages.

        What depended on it is rebuilt as if it had never been observed. A receipt without content stays in the log.
        Backups, exports and file system snapshots are outside of what this can reach.
        """
        with self._writing(user) as store:
            observation = store.observation(id, user)
            self._judge.forget()
            return erase(self._reviser, observation)

    def erase_user(self, user: str) -> Receipt:
        """Remove everything of one user; the receipt says how many observations. Other users' rows are not touched."""
        owner = clean_user(user)
        with self._writing(owner) as store:
            self._judge.forget()
            return erase_user(store, owner)

    def scrub(self) -> bool:
        """Overwrite what erased facts have left behind in the database's files; False when bytes may be left.

        A store in a file does this at every erasure; it is for a time when no other process reads. On a server, whose
        tables are locked meanwhile, it is for the operator, after erasures: False where the role or the server's
        settings do not allow it.
        """
        with self._writing() as store:
            return store.db.scrub(thorough=True)

    def verify(self, *, repair: bool = False) -> Verification:
        """Check every invariant: the file, state == fold of the log, roles, views and vectors against their texts.

        With `repair` the state of each user with a problem is rebuilt from the log, and rows of nobody are deleted.
        """
        with self._writing() as store:
            problems, repaired, count = [*store.db.faults(), *verify_orphans(store, repair=repair)], [], 0
            users = store.users()
            for user in users:
                with store.snapshot():
                    found, observations = verify_user(store, self._reviser, user, self._embedder)
                problems += found
                count += observations
                if found and repair:
                    self._reviser.rebuild(user)
                    repaired.append(user)
            return Verification(len(users), count, tuple(problems), tuple(repaired))


def _event_of(store: Store, id: str, user: str | None, verb: str) -> Event:
    event = store.find_event(id)
    observation = store.find_observation(id) if event is None else None
    if observation is not None and user in (None, observation.user):
        decision = store.decision_event(id).id
        raise NotFoundError(
            f"no event {id!r}: that is an observation; its decision is {decision}: roam {verb} {decision}"
        )
    if event is None or not event.user or (user is not None and event.user != user):
        raise NotFoundError(f"no event {id!r}" + ("" if user is None else f" of user {user!r}"))
    return event


def _place(state: State, id: str) -> tuple[str | None, str | None]:
    primary = state.primary_of.get(id)
    return primary, None if primary is None else state.views.get(primary)


def _names(event: Event, id: str, state: State) -> bool:
    """Whether an event is about an observation, or joined something to the view that it is part of."""
    if event.observation_id == id:
        return True
    decision = event.decision
    return decision is not None and decision.primary_id == state.primary_of.get(id) and bool(decision.demoted_ids)


def _view_of(state: State, log: Log, primary_id: str) -> View:
    members = [log.observations[member] for member in state.members[primary_id]]
    return make_view(members, primary_id, state.views[primary_id])
