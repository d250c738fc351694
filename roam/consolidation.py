"""One observation through Algorithm 1: plan it on a snapshot, then write it in a single transaction.

Model passes (relation, fusion, embedding) happen while no lock is held. The plan names the version of the user's log
that it was made on; if another writer came first the plan is dropped and made anew, so that the stored state always
equals that of some serial order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roam.errors import InputError
from roam.events import Event, EventKind, new_event_id, now
from roam.interfaces import Embedder
from roam.judging import Judge, OwnedPair, Stats
from roam.policy import RoleUpdate, Stamp, count_relation, update_roles
from roam.records import Decision, Judgement, Observation
from roam.relations import RELATIONS, Relation
from roam.retrieval import VectorKind, embed, move_to_evidence, nearest, put_vector
from roam.state import Overrides
from roam.storage import Store, as_mapping
from roam.views import FusedView, Part, ViewBuilder

EXACT = "exact"
_LAST = 2**62  # arrival number of an observation that is not stored yet: after all others
_OPTIMISTIC_TRIES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one transaction will write for one observation."""

    observation: Observation
    version: int
    decision: Decision
    vector: NDArray[np.float32]
    view: FusedView | None  # None: the view is the atomic text (IND)
    view_vector: NDArray[np.float32] | None


class Consolidator:
    """Algorithm 1 on one store."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        judge: Judge,
        views: ViewBuilder,
        stats: Stats,
        *,
        k: int,
        floor: float,
        thresholds: Mapping[Relation, float],
        given: Overrides | None = None,
    ) -> None:
        """`given`: what people decided already about observations to come, for a replay."""
        self.given = Overrides() if given is None else given
        self.store, self.embedder, self.judge, self.views, self.stats = store, embedder, judge, views, stats
        self.k, self.floor, self.thresholds = k, floor, dict(thresholds)

    def add(
        self,
        observation: Observation,
        vector: NDArray[np.float32],
        lookahead: Callable[[], Iterable[OwnedPair]] = tuple,
    ) -> Decision:
        """Plan and commit one observation; `lookahead` names further pairs to classify if a pass is needed at all."""
        for _ in range(_OPTIMISTIC_TRIES):
            with self.store.snapshot():
                known = self.known(observation)
                if known is not None:
                    return known
                plan = self._plan(observation, vector, lookahead)
            with self.store.transaction():
                if self.store.version(observation.user) == plan.version:
                    self._write(plan)
                    return plan.decision
            self.stats.retries += 1
        # Writers of the same user keep coming in between: plan under the lock, which nobody can overtake.
        with self.store.transaction():
            known = self.known(observation)
            if known is not None:
                return known
            plan = self._plan(observation, vector, lookahead)
            self._write(plan)
        return plan.decision

    def known(self, observation: Observation) -> Decision | None:
        """Return the decision on an observation that is stored already with this id and content.

        Raises:
            InputError: the id belongs to another content or user.
        """
        stored = self.store.find_observation(observation.id)
        if stored is None:
            return None
        if replace(stored, sequence=0) != observation:
            raise InputError(
                f"id {observation.id!r} is taken by another observation: leave the id out or choose another"
            )
        return self.store.decision_event(observation.id).decision

    def stamp(self, observation: Observation) -> Stamp:
        """Return a Primary as the policy sees it, with the last time its state was affirmed."""
        times = [
            member.observed_at
            for member in self.store.members(observation.user, observation.id)
            if member.observed_at is not None
        ]
        return Stamp(observation.id, observation.sequence, observation.observed_at, max(times, default=None))

    def candidates(self, observation: Observation, vector: NDArray[np.float32]) -> list[Observation]:
        """Return the k nearest Primaries of the user by atomic text, above the floor (equation 3)."""
        found = nearest(self.store, observation.user, VectorKind.ATOMIC, vector, self.k, self.floor)
        return self.store.observations_at([sequence for sequence, _ in found])

    def _plan(
        self, observation: Observation, vector: NDArray[np.float32], lookahead: Callable[[], Iterable[OwnedPair]]
    ) -> Plan:
        version = self.store.version(observation.user)
        same = self.store.same_words(observation.user, observation.text)
        if same:
            candidates, judgements = same, [exact_judgement(candidate) for candidate in same]
        else:
            candidates = self.candidates(observation, vector)
            judgements = self._judge(observation, candidates, lookahead)
        new = Stamp(observation.id, _LAST, observation.observed_at, observation.observed_at)
        counted = self.given.counted(observation.id, judgements)
        related = {id: relation for id, relation in counted.items() if relation is not Relation.IND}
        stamps = {id: self.stamp(candidate) for id, candidate in self._primaries(related, candidates).items()}
        update = update_roles(new, [(stamp, related[id]) for id, stamp in stamps.items()])
        if observation.id in self.given.independent:
            update = RoleUpdate(Relation.IND, observation.id)
        decision = Decision(
            id=new_event_id(),
            observation_id=observation.id,
            relation=update.relation,
            primary_id=update.primary_id,
            demoted_ids=update.demoted_ids,
            matched_ids=update.matched_ids,
            judgements=tuple(judgements),
            review=in_doubt(judgements),
        )
        if update.relation is Relation.IND:
            return Plan(observation, version, decision, vector, None, None)
        view, old_view = self._fuse(observation, decision, {**stamps, observation.id: new})
        changed = view.text not in (old_view, observation.text)
        view_vector = embed(self.embedder, [view.text])[0] if changed else None
        if view.text == observation.text and view.text != old_view:
            view_vector = vector
        return Plan(observation, version, decision, vector, view, view_vector)

    def _primaries(self, ids: Iterable[str], candidates: list[Observation]) -> dict[str, Observation]:
        """Return the candidates among `ids`, and those others that are Primary: a person may name any earlier fact."""
        known = {candidate.id: candidate for candidate in candidates}
        others = self.store.views_of([id for id in ids if id not in known])
        return {id: known.get(id) or self.store.observation(id) for id in ids if id in known or id in others}

    def _judge(
        self, observation: Observation, candidates: list[Observation], lookahead: Callable[[], Iterable[OwnedPair]]
    ) -> list[Judgement]:
        user, olds = observation.user, [candidate.text for candidate in candidates]
        missing = self.judge.missing(user, observation.text, olds)
        if missing:
            self.judge.classify([*missing, *lookahead()])
        self.stats.cached_pairs += len(olds) - len(missing)
        judgements = []
        for candidate, row in zip(candidates, self.judge.probabilities(user, observation.text, olds), strict=True):
            probabilities = as_mapping(row)
            relation, raw = count_relation(probabilities, self.thresholds)
            judgements.append(Judgement(candidate.id, relation, raw, probabilities, self.judge.model.digest))
        return judgements

    def _fuse(
        self, observation: Observation, decision: Decision, stamps: Mapping[str, Stamp]
    ) -> tuple[FusedView, str | None]:
        """Return the survivor's new view, and the view it has now (None when it is the new record)."""
        views = self.store.views_of([id for id in (decision.primary_id, *decision.demoted_ids) if id != observation.id])
        texts = {**views, observation.id: observation.text}
        parts = [Part(stamps[id], texts[id]) for id in (decision.primary_id, *decision.demoted_ids)]
        if decision.primary_id == observation.id:
            atomic = observation.text
        else:
            atomic = self.store.observation(decision.primary_id).text
        return self.views.build(decision.relation, parts, decision.primary_id, atomic), views.get(decision.primary_id)

    def _write(self, plan: Plan) -> None:
        recorded_at = now()
        store, decision, user = self.store, plan.decision, plan.observation.user
        sequence = store.insert_observation(plan.observation, recorded_at)
        stored = replace(plan.observation, sequence=sequence)
        self.judge.flush(user)
        event = Event(
            id=decision.id,
            user=user,
            kind=EventKind.DECISION,
            recorded_at=recorded_at,
            observation_id=stored.id,
            decision=decision,
            view=None if plan.view is None else plan.view.text,
        )
        store.append_event(event)
        for judgement in decision.judgements:
            if judgement.candidate_id in decision.review:
                store.add_review(event, judgement)
        self._write_roles(plan, stored)
        if plan.view is not None and plan.view.fallback is not None:
            store.append_event(
                Event(
                    id=new_event_id(),
                    user=user,
                    kind=EventKind.FUSION_FALLBACK,
                    recorded_at=recorded_at,
                    observation_id=stored.id,
                    target=decision.id,
                    detail=plan.view.fallback,
                )
            )
        self.stats.adds += 1
        self.stats.exact_matches += any(judgement.model == EXACT for judgement in decision.judgements)

    def _write_roles(self, plan: Plan, stored: Observation) -> None:
        store, decision, user = self.store, plan.decision, stored.user
        survives = decision.primary_id == stored.id
        view_text = stored.text if plan.view is None else plan.view.text
        store.place(stored, decision.primary_id, view_text if survives else None)
        put_vector(store, user, VectorKind.ATOMIC if survives else VectorKind.EVIDENCE, stored.sequence, plan.vector)
        for demoted in decision.demoted_ids:
            if demoted != stored.id:
                store.demote(user, demoted, decision.primary_id)
                move_to_evidence(store, user, store.observation(demoted).sequence)
        if survives:
            vector = plan.vector if plan.view_vector is None else plan.view_vector
            put_vector(store, user, VectorKind.VIEW, stored.sequence, vector)
            return
        store.set_view(decision.primary_id, view_text)
        if plan.view_vector is not None:
            survivor = store.observation(decision.primary_id)
            put_vector(store, user, VectorKind.VIEW, survivor.sequence, plan.view_vector)


def in_doubt(judgements: Iterable[Judgement]) -> tuple[str, ...]:
    """Return the candidates whose likeliest relation stayed below its threshold, for a person to decide."""
    return tuple(entry.candidate_id for entry in judgements if entry.relation is not entry.raw_relation)


def exact_judgement(candidate: Observation) -> Judgement:
    """The judgement on a text that is stored already: equivalent, without a model (DESIGN 4.6)."""
    certain = {relation: 1.0 if relation is Relation.EQV else 0.0 for relation in RELATIONS}
    return Judgement(candidate.id, Relation.EQV, Relation.EQV, certain, EXACT)
