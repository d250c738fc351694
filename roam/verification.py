"""Does the store still equal its log? Every invariant that can break, checked row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roam.events import EventKind
from roam.interfaces import Embedder
from roam.revision import Log, Reviser
from roam.state import State, open_reviews
from roam.storage import Store
from roam.vectors import VectorKind, embed

# Batched and single passes of an encoder differ by rounding only.
_COSINE_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Verification:
    """What `Memory.verify` found; `problems` is empty for a sound store, and `repaired` names users rebuilt."""

    users: int
    observations: int
    problems: tuple[str, ...]
    repaired: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def verify_user(store: Store, reviser: Reviser, user: str, embedder: Embedder) -> tuple[list[str], int]:
    """Return (problems of one user, number of observations)."""
    log = reviser.read(user)
    state = log.state()
    found = [
        *log_problems(log),
        *_roles(store, log, state),
        *_reviews(store, log),
        *_vectors(store, log, state, embedder),
    ]
    return [f"user {user!r}: {problem}" for problem in found], len(log.observations)


def verify_orphans(store: Store, *, repair: bool) -> list[str]:
    """Return the tables that hold rows of users of whom nothing was observed; `repair` deletes those rows."""
    problems = []
    for table in ("state", "vectors", "review", "judgements"):
        where = f"FROM {table} WHERE user NOT IN (SELECT user FROM observations)"
        count = store.rows(f"SELECT count(*) {where}")[0][0]
        if count:
            problems.append(f"table {table} has {count} rows of users of whom nothing is observed")
            if repair:
                with store.transaction(None):
                    store.rows(f"DELETE {where}")
    return problems


def log_problems(log: Log) -> Iterator[str]:
    """Yield what is wrong with a log by itself."""
    decided = Counter(event.observation_id for event in log.events if event.kind is EventKind.DECISION)
    for id in log.observations:
        if decided[id] != 1:
            yield f"observation {id!r} has {decided[id]} decisions in the log, not one"
    for missing in decided.keys() - log.observations.keys():
        yield f"a decision names observation {missing!r}, which is not stored"


def _roles(store: Store, log: Log, state: State) -> Iterator[str]:
    primary_of, views = store.primary_of(log.user), store.views(log.user)
    for id in log.observations:
        if primary_of.get(id) != state.primary_of.get(id):
            yield f"{id!r} is kept under {primary_of.get(id)!r}, the log says {state.primary_of.get(id)!r}"
    for id, text in state.views.items():
        if views.get(id) != text:
            yield f"the view of {id!r} differs from the log"
    for id in primary_of.keys() - log.observations.keys():
        yield f"{id!r} has a role but is not stored"
    for id, primary in primary_of.items():
        if primary_of.get(primary) != primary:
            yield f"{id!r} is Evidence of {primary!r}, which is not Primary"


def _reviews(store: Store, log: Log) -> Iterator[str]:
    expected = {(event.id, new, old) for (new, old), (event, _) in open_reviews(log.events).items()}
    rows = store.rows("SELECT event_id, new_id, old_id FROM review WHERE user = ?", (log.user,))
    for event_id, new, old in expected ^ set(rows):
        found = "missing" if (event_id, new, old) in expected else "left over"
        yield f"the doubtful pair of {new!r} and {old!r} is {found}"


def _vectors(store: Store, log: Log, state: State, embedder: Embedder) -> Iterator[str]:
    expected: dict[tuple[str, int], str] = {}
    for id, primary in state.primary_of.items():
        observation = log.observations[id]
        kind = VectorKind.ATOMIC if primary == id else VectorKind.EVIDENCE
        expected[kind.value, observation.sequence] = observation.text
        if primary == id:
            expected[VectorKind.VIEW.value, observation.sequence] = state.views[id]
    rows = store.rows("SELECT kind, sequence, embedding FROM vectors WHERE user = ?", (log.user,))
    stored = {(kind, sequence): store.db.from_sql(embedding) for kind, sequence, embedding in rows}
    for key in expected.keys() ^ stored.keys():
        yield f"vector {key} is {'missing' if key in expected else 'left over'}"
    shared = [key for key in expected if key in stored]
    fresh = embed(embedder, [expected[key] for key in shared])
    for key, vector in zip(shared, fresh, strict=True):
        if stored[key].shape != vector.shape or not np.allclose(stored[key], vector, atol=_COSINE_TOLERANCE):
            yield f"vector {key} does not belong to its text"
