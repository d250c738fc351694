"""The memory store as programs use it (DESIGN section 8)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from roam.batching import Lookahead
from roam.consolidation import NO_FORESIGHT, Consolidator, Foresight
from roam.database import open_database
from roam.errors import InputError, StoreError
from roam.intake import Parts, make_observation, make_observations, resolve_parts
from roam.interfaces import Embedder, Fuser
from roam.judging import Judge, Stats
from roam.listing import Listing
from roam.policy import check_thresholds
from roam.records import Decision, Observation, SearchResult
from roam.relations import Relation
from roam.replaying import Replay, compare, count_relations, redecided
from roam.retrieval import default_floor, search_views
from roam.reviewing import Reviewing
from roam.revision import Reviser
from roam.state import overrides, rebase
from roam.storage import Store
from roam.timeline import Timeline
from roam.validation import check_count, clean_text, clean_user
from roam.vectors import embed
from roam.views import ViewBuilder

DEFAULT_K = 10  # candidates an observation, as in the paper's experiments


class Memory(Timeline, Reviewing, Listing):
    """A store of atomic facts of many users, organised by relations instead of LLM calls.

    Every observation is kept for good; it is either Primary (found by `search`) or Evidence of one Primary. One
    `Memory` may be shared by threads, and one file by several processes.

        with Memory.open("memory.db") as memory:
            memory.add("The user moved to Berlin.", user="maya", observed_at="2026-03-01")
            print(memory.search("Where does she live?", user="maya", budget=256).context)
    """

    def __init__(
        self,
        path: str,
        parts: Parts,
        *,
        k: int,
        floor: float,
        thresholds: Mapping[Relation, float] | None = None,
        reindex: bool = False,
    ) -> None:
        """Prefer `Memory.open`, which finds the parts by name and checks the settings."""
        self.stats = Stats()
        self._k, self._floor = k, floor
        self._lock = threading.RLock()
        digest, dimension = parts.embedder.digest, parts.embedder.dimension
        self._store = Store(open_database(path, embedder_digest=digest, dimension=dimension, rebind=reindex))
        self._embedder = parts.embedder
        self._judge = Judge(self._store, parts.relation_model, self.stats)
        self._views = ViewBuilder(parts.fuser, self.stats, parts.relation_model)
        given = check_thresholds(parts.relation_model.thresholds if thresholds is None else thresholds)
        self._reviser = Reviser(self._store, parts.embedder, self._views, given)
        self._consolidator = Consolidator(
            self._store,
            parts.embedder,
            self._judge,
            self._views,
            self.stats,
            k=k,
            floor=floor,
            thresholds=given,
        )
        self._closed = False
        self.reindexed = self._reviser.reindex() if reindex else None
        """What `reindex` at opening did."""

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        manager: object = "pretrained",
        embedder: Embedder | None = None,
        fusion: str | Path | Fuser = "auto",
        k: int = DEFAULT_K,
        floor: float | None = None,
        thresholds: Mapping[str, float] | None = None,
        reindex: bool = False,
    ) -> Self:
        """Open or create the store at `path`: a file, ":memory:" for one that is not kept, or a postgresql:// address.

        Args:
            manager: "pretrained", an adapter folder, a manager (relation_model and fuser), or a relation model.
            embedder: the sentence encoder; None loads the default one. A store keeps to its first embedder.
            fusion: "auto" for the better of the next two (`roam.managers.AUTO_FUSION`); "deterministic" for the rules,
                "pretrained" for the fuser adapter of a package that ships one, "manager" for the manager's own fuser,
                "off" for atomic texts as views (the paper's "w/o Fusion"), an adapter folder or a fuser. A model is
                loaded at the first fusion. What it proposes is checked, by this store's relation model too
                (`roam.fusion.guard`).
            k: how many Primaries an observation is compared with.
            floor: least cosine (-1 to 1) between atomic texts for a pair to be compared at all; None takes the one
                measured for the embedder (`roam.retrieval.MEASURED_FLOORS`), 0 for others.
            thresholds: least probability for each relation to count; None takes the manager's (DESIGN 4.5).
            reindex: take `embedder` even if the store was made with another one: all texts are embedded anew in one
                transaction. Close the store in other processes before.

        Raises:
            InputError: a setting outside what is allowed.
            StoreError: a file that is no store, is damaged, of a newer schema, or of another embedder.
            AdapterError, BaseModelError: a manager or base weights that cannot be loaded.
        """
        check_count(k, "k")
        if floor is not None and (
            isinstance(floor, bool) or not isinstance(floor, (int, float)) or not -1.0 <= floor <= 1.0
        ):
            raise InputError(f"floor is {floor!r}: give a cosine between -1 and 1, or None")
        checked = None if thresholds is None else check_thresholds(thresholds)
        parts = resolve_parts(manager, fusion, embedder)
        least = default_floor(parts.embedder) if floor is None else float(floor)
        return cls(str(path), parts, k=k, floor=least, thresholds=checked, reindex=reindex)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except StoreError:
            if error is None:  # else what went wrong first is what must be seen
                raise

    def close(self) -> None:
        """Close the file. A second call does nothing; every other call raises `InputError` afterwards."""
        with self._lock:
            self._closed = True
            self._store.db.close()

    @property
    def thresholds(self) -> dict[Relation, float]:
        """Least probability for each relation to count; a relation without one counts as soon as it is likeliest."""
        return dict(self._consolidator.thresholds)

    def check_open(self) -> None:
        """Raise `InputError` once the memory is closed."""
        if self._closed:
            raise InputError("this memory is closed: open it again with Memory.open")

    @contextmanager
    def _writing(self, *users: str | None) -> Iterator[Store]:
        with self._lock:
            self.check_open()
            with self._store.scope([clean_user(user) for user in users if user is not None]):
                yield self._store

    @contextmanager
    def _reading(self, *users: str | None) -> Iterator[Store]:
        with self._writing(*users) as store, store.snapshot():
            yield store

    # Writing ----------------------------------------------------------------------------------------------------

    def add(
        self,
        text: str,
        *,
        user: str,
        observed_at: str | date | datetime | None = None,
        source: str | None = None,
        id: str | None = None,
    ) -> Decision:
        """Store one atomic fact and return what the policy did with it (Algorithm 1).

        With candidates this costs one batched pass of the relation model, without any none. Adding an id again with the
        same content returns its first decision, so a rerun after a crash is exact.

        Args:
            text: a self-contained sentence, at most 2,000 characters.
            observed_at: when it was observed (ISO 8601, date or datetime; UTC when no offset is given).
            source: where it came from, for example a message id.
        """
        observation = make_observation(text, user, observed_at, source, id)
        with self._writing(observation.user):
            vector = embed(self._embedder, [observation.text])[0]
            return self._consolidate(observation, vector)

    def add_many(self, observations: Iterable[Observation | Mapping[str, object]]) -> list[Decision]:
        """Store facts in the given order: the same final state as one by one, with far fewer model passes.

        Each is written in its own transaction, and all are on the disk when this returns; bad input anywhere is refused
        before the first is stored.
        """
        batch = make_observations(observations)
        decisions: list[Decision] = []
        with self._reading():
            for observation in batch:
                self._consolidator.known(observation)  # refuses an id that is taken before anything is stored
        with self._writing(*{observation.user for observation in batch}) as store:
            for start in range(0, len(batch), Lookahead.WINDOW):
                window = batch[start : start + Lookahead.WINDOW]
                vectors = embed(self._embedder, [observation.text for observation in window])
                lookahead = Lookahead(
                    store,
                    self._judge,
                    window,
                    vectors,
                    k=self._k,
                    floor=self._floor,
                    foresee=self._consolidator.foresee,
                )
                with store.db.bulk():
                    for position, observation in enumerate(window):
                        lookahead.advance(position)
                        decisions.append(self._consolidate(observation, vectors[position], lookahead))
                self._views.forget()
        return decisions

    def _consolidate(
        self, observation: Observation, vector: NDArray[np.float32], lookahead: Foresight = NO_FORESIGHT
    ) -> Decision:
        try:
            return self._consolidator.add(observation, vector, lookahead)
        except BaseException:
            self._judge.forget()  # what was judged for a write that failed may not belong to any stored text
            self._views.forget()
            raise

    # Reading ----------------------------------------------------------------------------------------------------

    def search(
        self, query: str, *, user: str, budget: int = 256, include_evidence: bool = False, limit: int | None = None
    ) -> SearchResult:
        """Return the user's views most similar to `query`, packed into at most `budget` tokens of the embedder.

        Only Primary views are searched; with `include_evidence` atomic texts of Evidence compete too, and each hit
        names its role. `limit` bounds the number of hits. A user without any fact gets an empty result.
        """
        text, owner = clean_text(query, "query"), clean_user(user)
        check_count(budget, "budget")
        if limit is not None:
            check_count(limit, "limit")
        with self._reading(owner) as store:
            return search_views(
                store,
                self._embedder,
                text,
                user=owner,
                budget=budget,
                include_evidence=include_evidence,
                limit=limit,
            )

    # Trying out -------------------------------------------------------------------------------------------------

    def replay(
        self, *, user: str, manager: object | None = None, thresholds: Mapping[str, float] | None = None
    ) -> Replay:
        """Return what another manager or other thresholds would have made of a user's facts. Nothing is changed.

        The observations that are not retracted run once more through a store in memory, with this one's embedder,
        fuser, k and floor. Other thresholds alone cost no model pass for pairs that were judged already. What people
        decided (verdicts on pairs, undone decisions) stands. `apply` makes the outcome the state.
        """
        owner = clean_user(user)
        model = self._judge.model if manager is None else resolve_parts(manager, "off", self._embedder).relation_model
        parts = Parts(model, self._views.fuser, self._embedder)
        if thresholds is None:
            limits = dict(self._consolidator.thresholds if manager is None else model.thresholds)
        else:
            limits = check_thresholds(thresholds)
        with (
            self._reading(owner) as store,
            Memory(":memory:", parts, k=self._k, floor=self._floor, thresholds=limits) as twin,
        ):
            log, now = self._reviser.read(owner), store.primary_of(owner)
            observations = [entry for entry in log.observations.values() if entry.id in now]
            for row in store.judgement_rows(owner):
                twin._store.save_judgement(owner, row)
            twin._consolidator.given = overrides(log.events)
            twin.add_many(observations)
            decisions = redecided(log.events, twin._store.events(owner))
            return Replay(
                user=owner,
                version=log.version,
                moved=compare(observations, now, twin._store.primary_of(owner)),
                relations_now=count_relations(rebase(log.events).events),
                relations_then=count_relations(twin._store.events(owner)),
                views_then=tuple(twin.primaries(user=owner)),
                forward_passes=twin.stats.forward_passes,
                decisions=decisions,
                judgements=tuple(twin._store.judgement_rows(owner)),
            )
