"""The log run again with something left out: how retract, undo, erase and as-of are answered without a model.

Each observation is decided anew in arrival order on the judgements that were stored. A candidate that was judged then
and is still Primary keeps its judgement. A record that is Primary only now, because what superseded it is left out, is
compared by what was known about the two texts when the observation came, and counts as IND where nothing was. So the
outcome depends on the log alone, not on when it is run; with nothing left out it equals the log, decisions and views.
What people decided (verdicts on pairs, undone decisions) counts over the judgements, and a replay that was applied
stands for the decisions before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from roam.consolidation import EXACT, exact_judgement, in_doubt
from roam.errors import StoreError
from roam.events import Event, EventKind, Replayed
from roam.judgement_rows import as_mapping
from roam.policy import Stamp, count_relation, update_roles
from roam.records import Decision, Judgement, Observation
from roam.relations import Relation
from roam.state import Overrides, State, difference, overrides, rebase
from roam.validation import duplicate_key, text_hash
from roam.views import Part, ViewBuilder

Known = Callable[[Observation, str | None, int], Mapping[str, NDArray[np.float32]]]
"""(new observation, model digest or None for any, sequence of its event) -> {hash of the old text: probabilities}."""

_NOTHING = Overrides()


class Refolder:
    """Runs one user's log again."""

    def __init__(
        self,
        observations: Mapping[str, Observation],
        known: Known,
        views: ViewBuilder,
        thresholds: Mapping[Relation, float],
    ) -> None:
        self._observations, self._known, self._views, self._thresholds = observations, known, views, thresholds

    def run(self, events: list[Event], without: Overrides | None = None) -> State:
        """Return the state that the log's observations give under what people decided (default: what the log says)."""
        given = overrides(events) if without is None else without
        rebased = rebase(events)
        recorded, state = State(), State()
        for event in rebased.events:
            if event.kind is EventKind.DECISION:
                if event.observation_id not in given.retracted:
                    state.apply(self._decide(event, recorded, state, given), self._observations)
                if event.observation_id in rebased.absent:
                    continue
            recorded.apply(event, self._observations)
        return state

    def rewrite(self, events: list[Event], erased: str, given: Overrides = _NOTHING) -> list[Event]:
        """Return the log as it would stand had one observation never been made: no trace of it is left in any event."""
        recorded, state = State(), State()
        kept: list[Event] = []
        for event in events:
            rewritten = self._rewrite_one(event, erased, kept, recorded, state, given)
            if rewritten is not None:
                kept.append(rewritten)
                state.apply(rewritten, self._observations)
            recorded.apply(event, self._observations)
        return kept

    def _rewrite_one(
        self, event: Event, erased: str, kept: list[Event], recorded: State, state: State, given: Overrides
    ) -> Event | None:
        if event.observation_id == erased or (event.verdict is not None and event.verdict.old_id == erased):
            return None
        if event.kind is EventKind.DECISION:
            redone = self._decide(event, recorded, state, given)
            return replace(redone, decision=_forget(redone.decision, erased))
        if event.kind is EventKind.UNDO and event.target not in {earlier.id for earlier in kept}:
            return None  # it undid something about the erased observation
        if event.change is None:
            return event
        if event.replayed:
            event = replace(event, replayed=self._rewrite_replay(event, erased, overrides(kept)))
        after = self.run([*kept, replace(event, change=None)])
        return replace(event, change=difference(state, after))

    def _rewrite_replay(self, event: Event, erased: str, given: Overrides) -> tuple[Replayed, ...]:
        decisions = [
            replace(
                event,
                id=entry.decision.id,
                kind=EventKind.DECISION,
                observation_id=entry.decision.observation_id,
                decision=entry.decision,
                view=entry.view,
                change=None,
                replayed=(),
            )
            for entry in event.replayed
        ]
        return tuple(Replayed(_decision(redone), redone.view) for redone in self.rewrite(decisions, erased, given))

    def _decide(self, event: Event, recorded: State, state: State, given: Overrides) -> Event:
        """Return the event of one observation as the policy decides it on `state`."""
        decision = _decision(event)
        observation = self._observations[decision.observation_id]
        if observation.id in given.independent:
            alone = replace(decision, relation=Relation.IND, primary_id=observation.id, demoted_ids=(), matched_ids=())
            return replace(event, decision=alone, view=None)
        judgements = self._judgements(event, observation, recorded, state)
        counted = given.counted(observation.id, judgements)
        stamps = {id: state.stamp(id, self._observations) for id in counted if state.is_primary(id)}
        new = State(members={observation.id: [observation.id]}).stamp(observation.id, self._observations)
        update = update_roles(new, [(stamp, counted[id]) for id, stamp in stamps.items()])
        redone = replace(
            decision,
            relation=update.relation,
            primary_id=update.primary_id,
            demoted_ids=update.demoted_ids,
            matched_ids=update.matched_ids,
            judgements=tuple(judgements),
            review=in_doubt(judgements),
        )
        if update.relation is Relation.IND:
            return replace(event, decision=redone, view=None)
        view = self._view(event, redone, {**stamps, new.id: new}, recorded, state)
        return replace(event, decision=redone, view=view)

    def _judgements(self, event: Event, observation: Observation, recorded: State, state: State) -> list[Judgement]:
        decision = _decision(event)
        kept = [entry for entry in decision.judgements if state.is_primary(entry.candidate_id)]
        if state.views.keys() == recorded.views.keys():
            return kept  # nobody came back: the fast path of an unchanged log
        lost_duplicate = not kept and any(entry.model == EXACT for entry in decision.judgements)
        named = {entry.candidate_id for entry in kept}
        returned = [
            self._observations[id]
            for id in state.views
            if id not in named and (lost_duplicate or not recorded.is_primary(id))
        ]
        key = duplicate_key(observation.text)
        judgements = kept + [exact_judgement(other) for other in returned if duplicate_key(other.text) == key]
        exact = [entry for entry in judgements if entry.model == EXACT]
        if exact:
            return exact
        return judgements + self._stored(event, observation, returned)

    def _stored(self, event: Event, observation: Observation, others: list[Observation]) -> list[Judgement]:
        model = next((entry.model for entry in _decision(event).judgements if entry.model != EXACT), None)
        known = self._known(observation, model, event.sequence) if others else {}
        judgements = []
        for other in others:
            row = known.get(text_hash(other.text))
            if row is not None:
                probabilities = as_mapping(row)
                relation, raw = count_relation(probabilities, self._thresholds)
                judgements.append(Judgement(other.id, relation, raw, probabilities, model or "stored"))
        return judgements

    def _view(self, event: Event, redone: Decision, stamps: Mapping[str, Stamp], recorded: State, state: State) -> str:
        """Return the view as recorded when the same views went into it, else fuse again."""
        inputs = (redone.primary_id, *redone.demoted_ids)
        texts = {id: state.views.get(id, self._observations[id].text) for id in inputs}
        before = event.decision
        same = before is not None and (before.relation, before.primary_id, before.demoted_ids) == (
            redone.relation,
            redone.primary_id,
            redone.demoted_ids,
        )
        if same and event.view is not None and all(recorded.views.get(id, texts[id]) == texts[id] for id in inputs):
            return event.view
        atomic = self._observations[redone.primary_id].text
        parts = [Part(stamps[id], texts[id]) for id in inputs]
        return self._views.build(redone.relation, parts, redone.primary_id, atomic).text


def _decision(event: Event) -> Decision:
    if event.decision is None:
        raise StoreError(f"event {event.id} of the log has no decision: the log is damaged, restore a backup")
    return event.decision


def _forget(decision: Decision | None, erased: str) -> Decision | None:
    if decision is None:
        return None
    judgements = tuple(entry for entry in decision.judgements if entry.candidate_id != erased)
    return replace(decision, judgements=judgements, review=in_doubt(judgements))
