"""What a peer is made of, and one stream of facts through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from eval.diagnostics import RetainedUnit
from eval.store_model import AppendModel
from eval.store_run import USER, Fact, Settings, StoreRun
from roam.interfaces import Embedder
from roam.records import Observation


@dataclass(frozen=True, slots=True)
class Unit:
    """One retrievable text of a peer.

    `members` are the facts that it represents now; `anchor` is the fact that wrote it last, which is what takes the
    place of a Primary in the diagnostics.
    """

    text: str
    anchor: str
    members: tuple[str, ...]


class PeerStore(Protocol):
    """A peer's memory of one user."""

    def add(self, fact: Fact) -> None:
        """Take in one fact; nothing of it may get lost because a model answered rubbish."""
        ...

    def units(self) -> list[Unit]:
        """The texts that can be retrieved now."""
        ...


class Peer(Protocol):
    """A way to manage memory that brings its own store."""

    @property
    def digest(self) -> str:
        """Names all that decides its results: wording, model, settings."""
        ...

    def open(self, embedder: Embedder, k: int) -> PeerStore:
        """An empty store; `k` is how many stored texts a fact is shown beside."""
        ...


def run_peer(
    facts: Sequence[Fact], questions: Sequence[str], peer: Peer, embedder: Embedder, settings: Settings
) -> StoreRun:
    """Feed `facts` one by one and search every question at every budget, with the retrieval that all methods share."""
    store = peer.open(embedder, settings.k)
    before: dict[str, str] = {}
    for number, fact in enumerate(facts, start=1):
        if number == len(facts):
            before = primary_of(store.units())
        store.add(fact)
    units = store.units()
    after = primary_of(units)
    displaced = frozenset(id for id, primary in before.items() if primary == id and after.get(id) != id)
    return StoreRun((), after, _retrieve(units, questions, embedder, settings), displaced)


def primary_of(units: Sequence[Unit]) -> dict[str, str]:
    """The anchor that stands for each represented fact; a fact of two texts goes with the one it wrote itself."""
    found: dict[str, str] = {}
    for unit in sorted(units, key=lambda unit: unit.anchor not in unit.members):
        for member in unit.members:
            if member == unit.anchor or member not in found:
                found[member] = unit.anchor
    return found


def _retrieve(
    units: Sequence[Unit], questions: Sequence[str], embedder: Embedder, settings: Settings
) -> dict[tuple[str, int], tuple[RetainedUnit, ...]]:
    """Search an append-all store of the texts, so that ranking, packing and cutting are the same for all methods."""
    from roam.memory import Memory

    with Memory.open(":memory:", manager=AppendModel(), embedder=embedder, fusion="off", k=settings.k) as memory:
        memory.add_many([Observation(unit.text, USER, id=f"unit-{place}") for place, unit in enumerate(units)])
        members = {
            view.id: frozenset(m for id in view.members for m in units[int(id.removeprefix("unit-"))].members)
            for view in memory.primaries(user=USER)
        }
        return {
            (text, budget): tuple(
                RetainedUnit(hit.text, hit.tokens, members[hit.id])
                for hit in memory.search(text, user=USER, budget=budget).hits
            )
            for text in dict.fromkeys(questions)
            for budget in settings.budgets
        }
