"""The state as a fold over the log: who is Primary, who is Evidence of whom, and what each view says.

Nothing here reads a file or runs a model. The tables of the store hold the same state for fast access;
`Memory.verify` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from roam.errors import StoreError
from roam.events import Change, Event, EventKind
from roam.policy import Stamp
from roam.records import Judgement, Observation, View
from roam.relations import Relation


@dataclass
class State:
    """Roles and views of one user's observations.

    `primary_of` maps each observation in the state to its Primary (a Primary to itself); `views` holds the text of each
    Primary; `members` the observations that each Primary stands for, itself included.
    """

    primary_of: dict[str, str] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)

    def apply(self, event: Event, observations: Mapping[str, Observation]) -> None:
        """Take one event into account."""
        if event.kind is EventKind.DECISION:
            self._decide(event, observations)
        elif event.change is not None:
            self._change(event.change)

    def copy(self) -> State:
        """Return an independent copy."""
        return State(dict(self.primary_of), dict(self.views), {key: list(ids) for key, ids in self.members.items()})

    def is_primary(self, id: str) -> bool:
        """Whether an observation is in the state and Primary."""
        return id in self.views

    def stamp(self, id: str, observations: Mapping[str, Observation]) -> Stamp:
        """Return a Primary as the policy sees it, with the last time its state was affirmed."""
        own = observations[id]
        times = (observations[member].observed_at for member in self.members[id])
        return Stamp(id, own.sequence, own.observed_at, max((time for time in times if time is not None), default=None))

    def as_views(self, observations: Mapping[str, Observation]) -> list[View]:
        """Return the views in arrival order of their Primaries."""
        return [
            make_view([observations[member] for member in self.members[id]], id, self.views[id])
            for id in sorted(self.views, key=lambda id: observations[id].sequence)
        ]

    def _decide(self, event: Event, observations: Mapping[str, Observation]) -> None:
        decision = event.decision
        if decision is None:
            raise StoreError(f"event {event.id} of the log has no decision: the log is damaged, restore a backup")
        new, survivor = decision.observation_id, decision.primary_id
        if survivor == new:
            self.members[new] = [new]
            self.primary_of[new] = new
        for demoted in decision.demoted_ids:
            moved = [new] if demoted == new else self.members.pop(demoted)
            self.views.pop(demoted, None)
            self.members[survivor].extend(moved)
            self.primary_of.update(dict.fromkeys(moved, survivor))
        self.views[survivor] = observations[new].text if event.view is None else event.view

    def _change(self, change: Change) -> None:
        for id, primary in change.assigned.items():
            if primary is None:
                self.primary_of.pop(id, None)
            else:
                self.primary_of[id] = primary
        self.members = {}
        for id, primary in self.primary_of.items():
            self.members.setdefault(primary, []).append(id)
        self.views = {id: text for id, text in {**self.views, **change.views}.items() if id in self.members}


def make_view(members: list[Observation], id: str, text: str) -> View:
    """Return the view record of the Primary `id`, its members in arrival order."""
    ordered = sorted(members, key=lambda member: member.sequence)
    own = next(member for member in ordered if member.id == id)
    return View(
        id=id,
        text=text,
        atomic_text=own.text,
        members=tuple(member.id for member in ordered),
        observed_at=own.observed_at,
        member_times=tuple(member.observed_at for member in ordered),
        user=own.user,
    )


def fold(events: Iterable[Event], observations: Mapping[str, Observation]) -> State:
    """Return the state after these events of one user, in the log's order."""
    state = State()
    for event in events:
        state.apply(event, observations)
    return state


def difference(before: State, after: State) -> Change:
    """Return the change that turns one state into the other."""
    ids = dict.fromkeys([*before.primary_of, *after.primary_of])
    return Change(
        assigned={id: after.primary_of.get(id) for id in ids if before.primary_of.get(id) != after.primary_of.get(id)},
        views={id: text for id, text in after.views.items() if before.views.get(id) != text},
    )


@dataclass(frozen=True, slots=True)
class Overrides:
    """What people decided over the policy.

    `retracted` observations are out; the decisions on `independent` ones are undone (they count as IND); `verdicts`
    holds, for a new observation, the relation that a person gave it to each of some older ones.
    """

    retracted: frozenset[str] = frozenset()
    independent: frozenset[str] = frozenset()
    verdicts: Mapping[str, Mapping[str, Relation]] = field(default_factory=dict)

    def counted(self, new_id: str, judgements: Iterable[Judgement]) -> dict[str, Relation]:
        """Return the relation of a new observation to each older one: a person's where there is one, else as judged."""
        return {entry.candidate_id: entry.relation for entry in judgements} | dict(self.verdicts.get(new_id, {}))


def overrides(events: Iterable[Event]) -> Overrides:
    """Return what people decided and did not take back; of two verdicts on one pair the later one counts."""
    log = list(events)
    undone = effective_undos(log)
    verdicts: dict[str, dict[str, Relation]] = {}
    for event in verdict_events(log):
        if event.verdict is not None and event.observation_id is not None:
            verdicts.setdefault(event.observation_id, {})[event.verdict.old_id] = event.verdict.relation
    return Overrides(
        retracted=frozenset(
            event.observation_id
            for event in log
            if event.kind is EventKind.RETRACT and event.observation_id is not None and event.id not in undone
        ),
        independent=frozenset(
            event.observation_id
            for event in log
            if event.kind is EventKind.DECISION and event.observation_id is not None and event.id in undone
        ),
        verdicts=verdicts,
    )


def effective_undos(events: Iterable[Event]) -> dict[str, str]:
    """Return {id of each event that is undone at present: id of the undo in effect}."""
    undone: dict[str, str] = {}
    for event in reversed(list(events)):
        if event.kind is EventKind.UNDO and event.target is not None and event.id not in undone:
            undone[event.target] = event.id
    return undone


def verdict_events(events: Iterable[Event]) -> list[Event]:
    """Return the review events that are not undone, in the log's order."""
    log = list(events)
    undone = effective_undos(log)
    return [event for event in log if event.kind is EventKind.REVIEW and event.id not in undone]


@dataclass(frozen=True, slots=True)
class Rebased:
    """A log as the last replay in effect decided it; `absent` observations were out of the state then."""

    events: list[Event]
    absent: frozenset[str] = frozenset()


def rebase(events: Iterable[Event]) -> Rebased:
    """Return the log with the decisions of the last replay in effect in place of those made before it.

    Each takes the replay's place in the log's order, so that what the replay's manager said counts as known to it. What
    else happened before is dropped: retractions and the like are in the `Overrides`. An observation that was retracted
    then keeps the decision of the last replay that knew it, or its own.
    """
    log = list(events)
    undone = effective_undos(log)
    rebased: list[Event] = []
    absent: set[str] = set()
    for event in log:
        if event.kind is EventKind.REPLAY and event.id not in undone:
            decisions = [earlier for earlier in rebased if earlier.kind is EventKind.DECISION]
            redone = {entry.decision.id: entry for entry in event.replayed}
            absent = {str(earlier.observation_id) for earlier in decisions if earlier.id not in redone}
            rebased = [
                replace(
                    earlier, sequence=event.sequence, decision=redone[earlier.id].decision, view=redone[earlier.id].view
                )
                if earlier.id in redone
                else earlier
                for earlier in decisions
            ]
        rebased.append(event)
    return Rebased(rebased, frozenset(absent))


def open_reviews(events: Iterable[Event]) -> dict[tuple[str, str], tuple[Event, Judgement]]:
    """Return {(new id, old id): (event, judgement)} of the doubtful pairs that no person has decided, oldest first."""
    log = list(events)
    decided = overrides(log).verdicts
    pairs: dict[tuple[str, str], tuple[Event, Judgement]] = {}
    for event in rebase(log).events:
        decision = event.decision
        for entry in () if decision is None else decision.judgements:
            if entry.in_doubt and decision is not None:
                pair = (decision.observation_id, entry.candidate_id)
                if pair[1] not in decided.get(pair[0], {}):
                    pairs[pair] = (event, entry)
    return pairs
