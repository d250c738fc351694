"""One observation through Algorithm 1: plan it on a snapshot, then write it in a single transaction.

Model passes (relation, fusion, embedding) happen while no lock is held. The plan names the version of the user's log
that it was made on; if another writer came first the plan is dropped and made anew, so that the stored state always
equals that of some serial order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from roam.errors import InputError
from roam.events import Event, EventKind, new_event_id, now
from roam.interfaces import Embedder
from roam.judgement_rows import as_mapping
from roam.judging import Judge, OwnedPair, Stats
from roam.policy import RoleUpdate, Stamp, count_relation, update_roles
from roam.records import Decision, FusionRequest, Judgement, Observation
from roam.relations import RELATIONS, Relation
from roam.state import Overrides
from roam.storage import Store, taken
from roam.vectors import VectorKind, embed, move_to_evidence, nearest, put_vector
from roam.views import FusedView, Part, ViewBuilder, fusion_request

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


class Foresight(Protocol):
    """What else to classify and to fuse in a pass that is needed anyway; it never changes an outcome."""

    def pairs(self) -> Iterable[OwnedPair]:
        """Pairs that later observations are likely to need."""
        ...

    def fusions(self) -> Iterable[FusionRequest]:
        """Views that later observations are likely to need."""
        ...


class _NoForesight:
    def pairs(self) -> tuple[OwnedPair, ...]:
        return ()

    def fusions(self) -> tuple[FusionRequest, ...]:
        return ()


NO_FORESIGHT: Foresight = _NoForesight()


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
        lookahead: Foresight = NO_FORESIGHT,
    ) -> Decision:
        """Plan and commit one observation; `lookahead` names what else to classify and fuse in the same passes."""
        for _ in range(_OPTIMISTIC_TRIES):
            with self.store.snapshot():
                known = self.known(observation)
                if known is not None:
                    return known
                plan = self._plan(observation, vector, lookahead)
            with self.store.transaction(observation.user):
                if self.store.version(observation.user) == plan.version:
                    self._write(plan)
                    return plan.decision
            self.stats.retries += 1
        # Writers of the same user keep coming in between: plan under the lock, which nobody can overtake.
        with self.store.transaction(observation.user):
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
            raise InputError(taken(observation.id))
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

    def foresee(self, observation: Observation, vector: NDArray[np.float32]) -> FusionRequest | None:
        """Return the fusion that an observation needs if it comes next; None for none, or while pairs are unjudged."""
        if self.known(observation) is not None:
            return None
        candidates, exact = self._considered(observation, vector)
        if not exact and self.judge.missing(observation.user, observation.text, [old.text for old in candidates]):
            return None
        decision, stamps = self._decide(observation, candidates, exact)
        if decision.relation is Relation.IND:
            return None
        return fusion_request(decision.relation, self._parts(observation, decision, stamps)[0], decision.primary_id)

    def _plan(self, observation: Observation, vector: NDArray[np.float32], lookahead: Foresight) -> Plan:
        version = self.store.version(observation.user)
        candidates, exact = self._considered(observation, vector)
        if not exact:
            self._classify(observation, candidates, lookahead)
        decision, stamps = self._decide(observation, candidates, exact)
        if decision.relation is Relation.IND:
            return Plan(observation, version, decision, vector, None, None)
        view, old_view = self._fuse(observation, decision, stamps, lookahead)
        changed = view.text not in (old_view, observation.text)
        view_vector = embed(self.embedder, [view.text])[0] if changed else None
        if view.text == observation.text and view.text != old_view:
            view_vector = vector
        return Plan(observation, version, decision, vector, view, view_vector)

    def _considered(self, observation: Observation, vector: NDArray[np.float32]) -> tuple[list[Observation], bool]:
        """Return the Primaries of the same words and True, or else the candidates and False."""
        same = self.store.same_words(observation.user, observation.text)
        return (same, True) if same else (self.candidates(observation, vector), False)

    def _decide(
        self, observation: Observation, candidates: list[Observation], exact: bool
    ) -> tuple[Decision, dict[str, Stamp]]:
        """Return the policy's decision on the present state, and the stamps of what takes part in it."""
        if exact:
            judgements = [exact_judgement(candidate) for candidate in candidates]
        else:
            judgements = self._judgements(observation, candidates)
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
        return decision, {**stamps, observation.id: new}

    def _primaries(self, ids: Iterable[str], candidates: list[Observation]) -> dict[str, Observation]:
        """Return the candidates among `ids`, and those others that are Primary: a person may name any earlier fact."""
        known = {candidate.id: candidate for candidate in candidates}
        others = self.store.views_of([id for id in ids if id not in known])
        return {id: known.get(id) or self.store.observation(id) for id in ids if id in known or id in others}

    def _classify(self, observation: Observation, candidates: list[Observation], lookahead: Foresight) -> None:
        olds = [candidate.text for candidate in candidates]
        missing = self.judge.missing(observation.user, observation.text, olds)
        if missing:
            self.judge.classify([*missing, *lookahead.pairs()])
        self.stats.cached_pairs += len(olds) - len(missing)

    def _judgements(self, observation: Observation, candidates: list[Observation]) -> list[Judgement]:
        olds = [candidate.text for candidate in candidates]
        rows = self.judge.probabilities(observation.user, observation.text, olds)
        judgements = []
        for candidate, row in zip(candidates, rows, strict=True):
            probabilities = as_mapping(row)
            relation, raw = count_relation(probabilities, self.thresholds)
            judgements.append(Judgement(candidate.id, relation, raw, probabilities, self.judge.model.digest))
        return judgements

    def _fuse(
        self, observation: Observation, decision: Decision, stamps: Mapping[str, Stamp], lookahead: Foresight
    ) -> tuple[FusedView, str | None]:
        """Return the survivor's new view, and the view it has now (None when it is the new record)."""
        parts, views = self._parts(observation, decision, stamps)
        if decision.primary_id == observation.id:
            atomic = observation.text
        else:
            atomic = self.store.observation(decision.primary_id).text
        view = self.views.build(decision.relation, parts, decision.primary_id, atomic, lookahead.fusions)
        return view, views.get(decision.primary_id)

    def _parts(
        self, observation: Observation, decision: Decision, stamps: Mapping[str, Stamp]
    ) -> tuple[list[Part], Mapping[str, str]]:
        """Return what goes into the survivor's view, and the stored views among it."""
        ids = (decision.primary_id, *decision.demoted_ids)
        views = self.store.views_of([id for id in ids if id != observation.id])
        texts = {**views, observation.id: observation.text}
        return [Part(stamps[id], texts[id]) for id in ids], views

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
    """Return the candidates whose judgement is in doubt, for a person to decide."""
    return tuple(entry.candidate_id for entry in judgements if entry.in_doubt)


def exact_judgement(candidate: Observation) -> Judgement:
    """The judgement on a text that is stored already: equivalent, without a model (DESIGN 4.6)."""
    certain = {relation: 1.0 if relation is Relation.EQV else 0.0 for relation in RELATIONS}
    return Judgement(candidate.id, Relation.EQV, Relation.EQV, certain, EXACT)
