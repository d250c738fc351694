"""One stream of facts through a fresh store, and questions put to it: what every benchmark here measures on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eval.diagnostics import FinalState, RetainedUnit
from eval.methods import Method
from roam.interfaces import Embedder
from roam.records import Decision, Judgement, Observation
from roam.relations import Relation

USER = "user"


class Fact(NamedTuple):
    """One atomic fact of a stream; `time` is ISO 8601 or None."""

    id: str
    text: str
    time: str | None = None


class Question(NamedTuple):
    """One question put to a store, and the ids of the facts that answer it; `kind` is what results are grouped by."""

    id: str
    kind: str
    text: str
    answer: str
    gold: tuple[str, ...]
    asked_at: str | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """The facts of one store in arrival order, and the questions put to it at the end."""

    id: str
    facts: tuple[Fact, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """How stores are run: token budgets to search with, and how many candidates a fact is compared with."""

    budgets: tuple[int, ...] = (256,)
    k: int = 10


@dataclass(frozen=True, slots=True)
class StoreRun:
    """A filled store: its decisions in arrival order, who stands for whom, and the views retrieved.

    `primary_of` maps each fact to the one that is Primary for it (itself for a Primary). `retrieved[text, budget]`
    holds the views that the question `text` got within `budget` tokens, in rank order. A peer (`eval.peers`) makes no
    decisions; `displaced` says for it what `last_demoted` says for a store.
    """

    decisions: tuple[Decision, ...]
    primary_of: Mapping[str, str]
    retrieved: Mapping[tuple[str, int], tuple[RetainedUnit, ...]]
    displaced: frozenset[str] = frozenset()

    @property
    def last_demoted(self) -> frozenset[str]:
        """The facts that stopped being Primary when the last one came."""
        return frozenset(self.decisions[-1].demoted_ids) if self.decisions else self.displaced

    @property
    def last_relation(self) -> str:
        """The relation that decided on the last fact; peers name none."""
        return str(self.decisions[-1].relation) if self.decisions else "none"

    @property
    def demoted_by(self) -> dict[str, Relation]:
        """The relation that took each Evidence out of the Primary set first."""
        found: dict[str, Relation] = {}
        for decision in self.decisions:
            for identifier in decision.demoted_ids:
                found.setdefault(identifier, decision.relation)
        return found

    def state(self, question: str, budget: int) -> FinalState:
        """The state that `eval.diagnostics` measures for one question."""
        return FinalState(self.retrieved[question, budget], self.primary_of, self.demoted_by)

    def judgement(self, new: str, old: str) -> Judgement | None:
        """What was judged of the pair (old, new); None when they were never compared."""
        for decision in self.decisions:
            if decision.observation_id == new:
                return next((j for j in decision.judgements if j.candidate_id == old), None)
        return None


def run_store(
    facts: Sequence[Fact], questions: Sequence[str], method: Method, embedder: Embedder, settings: Settings
) -> StoreRun:
    """Feed `facts` in the given order to a fresh in-memory store and search every question at every budget."""
    if method.peer is not None:
        from eval.peers.store import run_peer

        return run_peer(facts, questions, method.peer, embedder, settings)
    from roam.memory import Memory
    from roam.validation import parse_time

    observations = [Observation(fact.text, USER, parse_time(fact.time), id=fact.id) for fact in facts]
    with Memory.open(
        ":memory:", manager=method.relation_model, embedder=embedder, fusion=method.fusion, k=settings.k
    ) as memory:
        if method.one_by_one:
            decisions = [decision for observation in observations for decision in memory.add_many([observation])]
        else:
            decisions = memory.add_many(observations)
        views = memory.primaries(user=USER)
        retrieved = {}
        for text in dict.fromkeys(questions):
            for budget in settings.budgets:
                hits = memory.search(text, user=USER, budget=budget).hits
                retrieved[text, budget] = tuple(RetainedUnit(h.text, h.tokens, frozenset(h.members)) for h in hits)
    return StoreRun(
        decisions=tuple(decisions),
        primary_of={member: view.id for view in views for member in view.members},
        retrieved=retrieved,
    )
