"""Answering a question from the store (paper equation 1): views by similarity, packed into a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roam.errors import StoreError
from roam.interfaces import Embedder
from roam.packing import Packer
from roam.records import Hit, Role, SearchResult
from roam.storage import Store
from roam.vectors import VectorKind, embed, nearest

# Least cosine at which two atomic texts are compared, by the embedder's name. On the dev pairs of the authored families
# 0.2 keeps 99.5 % of conflicts and all but 0.3 % of the other related pairs, and drops 87 % of random pairs.
MEASURED_FLOORS: dict[str, float] = {"sentence-transformers/all-MiniLM-L6-v2": 0.2}
_AT_ONCE = 32  # hits


def default_floor(embedder: Embedder) -> float:
    """Return the measured retrieval floor of an embedder, 0 for one that was not measured."""
    return MEASURED_FLOORS.get(embedder.digest.partition("@")[0], 0.0)


def search_views(
    store: Store, embedder: Embedder, query: str, *, user: str, budget: int, include_evidence: bool, limit: int | None
) -> SearchResult:
    """Rank one user's views (and Evidence on request) for a query and pack them into `budget` tokens.

    The context is the hits' texts joined by newlines and cut hard at the budget, as in the paper's appendix: the last
    hit may be shortened. A hit that contributes no token is not returned. Long views are told shorter
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
    for hit, atomic in _hits(store, user, ranked[:most]):
        if not packer.add(hit, atomic):
            break
    packer.finish()
    context = packer.context()
    return SearchResult(query, context, tuple(packer.hits), budget, embedder.count_tokens(context))


def _hits(store: Store, user: str, ranked: Sequence[tuple[float, int, VectorKind]]) -> Iterator[tuple[Hit, str]]:
    """Yield hits and their atomic texts; they are read some at a time, since a budget takes few of them."""
    for start in range(0, len(ranked), _AT_ONCE):
        part = ranked[start : start + _AT_ONCE]
        placed = store.placed(user, [sequence for _, sequence, _ in part])
        members = store.members_of(user, [entry[0].id for entry in placed.values() if entry[1] is not None])
        for score, sequence, kind in part:
            observation, view = placed[sequence]
            id, moment = observation.id, observation.observed_at
            if kind is VectorKind.EVIDENCE:
                yield Hit(id, observation.text, score, (id,), moment, Role.EVIDENCE), observation.text
                continue
            if view is None:
                raise StoreError(f"{id!r} has a view vector but no view: run verify()")
            stands_for = tuple(member.id for member in members[id])
            yield Hit(id, view, score, stands_for, moment, Role.PRIMARY), observation.text
