"""Answering a question from the store (paper equation 1): views by similarity, packed into a budget of tokens."""

from __future__ import annotations

from roam.errors import StoreError
from roam.interfaces import Embedder
from roam.packing import Packer
from roam.records import Hit, Observation, Role, SearchResult
from roam.storage import Store
from roam.vectors import VectorKind, embed, nearest

# Least cosine at which two atomic texts are compared, by the embedder's name. On the dev pairs of the authored families
# 0.2 keeps 99.5 % of conflicts and all but 0.3 % of the other related pairs, and drops 87 % of random pairs.
MEASURED_FLOORS: dict[str, float] = {"sentence-transformers/all-MiniLM-L6-v2": 0.2}


def default_floor(embedder: Embedder) -> float:
    """Return the measured retrieval floor of an embedder, 0 for one that was not measured."""
    return MEASURED_FLOORS.get(embedder.digest.partition("@")[0], 0.0)


def search_views(
    store: Store, embedder: Embedder, query: str, *, user: str, budget: int, include_evidence: bool, limit: int | None
) -> SearchResult:
    """Rank one user's views (and Evidence on request) for a query and pack them into `budget` tokens.

    The context is the hits' texts joined by newlines and cut hard at the budget, as in the paper's appendix: the last
    hit may be shortened. A hit that contributes no token is not returned. Long value chains give up their oldest values
    first (`roam.packing`).
    """
    vector = embed(embedder, [query])[0]
    most = budget if limit is None else min(limit, budget)  # every hit costs at least one token
    kinds = [VectorKind.VIEW, *([VectorKind.EVIDENCE] if include_evidence else [])]
    ranked = sorted(
        ((score, sequence, kind) for kind in kinds for sequence, score in nearest(store, user, kind, vector, most)),
        key=lambda entry: (-entry[0], entry[1]),
    )
    packer = Packer(embedder, budget)
    for score, sequence, kind in ranked[:most]:
        if not packer.add(_hit(store, user, sequence, kind, score)):
            break
    packer.finish()
    context = packer.context()
    return SearchResult(query, context, tuple(packer.hits), budget, embedder.count_tokens(context))


def _hit(store: Store, user: str, sequence: int, kind: VectorKind, score: float) -> Hit:
    found = store.rows("SELECT id FROM observations WHERE sequence = ?", (sequence,))
    observation: Observation = store.observation(found[0][0], user)
    if kind is VectorKind.EVIDENCE:
        return Hit(observation.id, observation.text, score, (observation.id,), observation.observed_at, Role.EVIDENCE)
    placed = store.find_state(observation.id)
    if placed is None or placed[1] is None:
        raise StoreError(f"{observation.id!r} has a view vector but no view: run verify()")
    members = tuple(member.id for member in store.members(user, observation.id))
    return Hit(observation.id, placed[1], score, members, observation.observed_at, Role.PRIMARY)
