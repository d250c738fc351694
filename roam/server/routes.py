"""The endpoints: one a method of `Memory`, named as on the command line."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Query, Response, status

from roam import __version__
from roam.errors import InputError
from roam.events import Event, Explanation, Receipt, Record
from roam.intake import make_observation, make_observations
from roam.policy import count_relation
from roam.records import Decision, Observation, Pair, SearchResult
from roam.relations import RELATIONS
from roam.server import schemas
from roam.server.access import AnyKey, Caller, CallerOf, Operator, Shared
from roam.server.context import Context
from roam.server.problems import Problem
from roam.server.schemas import MAX_PAGE
from roam.validation import clean_text

_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "Not JSON, or a request from another site"},
    401: {"model": Problem, "description": "No valid API key"},
    403: {"model": Problem, "description": "Not this key's user"},
    404: {"model": Problem, "description": "No such id of this user"},
    413: {"model": Problem, "description": "The body is too large"},
    422: {"model": Problem, "description": "Bad input; nothing changed"},
    429: {"model": Problem, "description": "Too many requests"},
    503: {"model": Problem, "description": "Busy, stopping, or the store cannot be used"},
}
router = APIRouter(prefix="/v1", responses=_REFUSALS)

UserOf = Annotated[str, Query(min_length=1, max_length=200, description="Whose memory; matched exactly.")]
IdOf = Annotated[str, Query(min_length=1, max_length=200, description="An observation.")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Items a page.")]
Cursor = Annotated[str | None, Query(description="The `next` of the page before.")]


# Writing --------------------------------------------------------------------------------------------------------


@router.post("/memories", status_code=status.HTTP_201_CREATED, tags=["write"])
async def add(fact: schemas.NewFact, caller: CallerOf, shared: Shared) -> Decision:
    """Store one fact and return what the policy did with it."""
    observation = make_observation(fact.text, caller.user(fact.user), fact.observed_at, fact.source, fact.id)
    [decision] = await _write(caller, shared, [observation])
    return decision


@router.post("/memories/batch", status_code=status.HTTP_201_CREATED, tags=["write"])
async def add_many(facts: schemas.NewFacts, caller: CallerOf, shared: Shared) -> schemas.Decisions:
    """Store facts in this order, with few passes of the relation model."""
    for fact in facts.observations:
        caller.user(fact.user)
    observations = make_observations(fact.model_dump() for fact in facts.observations)
    return schemas.Decisions(decisions=await _write(caller, shared, observations))


async def _write(caller: Caller, shared: Context, observations: list[Observation]) -> list[Decision]:
    with shared.tracing.span("roam.write", facts=len(observations)):
        decisions = await caller.store.queue.add(observations)
    for relation, count in Counter(decision.relation for decision in decisions).items():
        shared.metrics.facts.labels(relation.value).inc(count)
    return decisions


@router.post("/retract", tags=["write"])
async def retract(target: schemas.Target, caller: CallerOf) -> Event:
    """Take a fact out and restore what it had superseded."""
    return await caller.store.writer.retract(target.id, user=caller.user(target.user), key=target.key)


@router.post("/undo", tags=["write"])
async def undo(target: schemas.EventTarget, caller: CallerOf) -> Event:
    """Take back a decision, a retraction or a verdict."""
    return await caller.store.writer.undo(target.event_id, user=caller.user(target.user), key=target.key)


@router.post("/redo", tags=["write"])
async def redo(target: schemas.EventTarget, caller: CallerOf) -> Event:
    """Have an event count again that was undone."""
    return await caller.store.writer.redo(target.event_id, user=caller.user(target.user), key=target.key)


@router.post("/erase", tags=["write"])
async def erase(target: schemas.Erasure, caller: CallerOf) -> Receipt:
    """Remove a fact for good, with every byte."""
    return await caller.store.writer.erase(target.id, user=caller.user(target.user))


@router.post("/erase-user", tags=["write"])
async def erase_user(target: schemas.UserErasure, caller: CallerOf) -> Receipt:
    """Remove all that is stored of a user for good."""
    user = caller.user(target.user)
    if target.confirm != user:
        raise InputError(f"confirm is not {user!r}: repeat the user to erase all that is stored of them")
    return await caller.store.writer.erase_user(user)


# Reading --------------------------------------------------------------------------------------------------------


@router.get("/memories", tags=["read"])
async def memories(user: UserOf, caller: CallerOf, limit: Limit = 100, cursor: Cursor = None) -> schemas.ViewPage:
    """List a user's current views."""
    page = await caller.store.reader.page_primaries(user=caller.user(user), limit=limit, cursor=cursor)
    return schemas.ViewPage(items=list(page.items), next=page.next)


@router.get("/memory", tags=["read"])
async def memory(user: UserOf, id: IdOf, caller: CallerOf) -> Record:
    """Return one fact with its role and its Primary."""
    return await caller.store.reader.get(id, user=caller.user(user))


@router.get("/evidence", tags=["read"])
async def evidence(
    user: UserOf, id: IdOf, caller: CallerOf, limit: Limit = 100, cursor: Cursor = None
) -> schemas.ObservationPage:
    """List the Evidence behind a Primary in arrival order."""
    page = await caller.store.reader.page_evidence(id, user=caller.user(user), limit=limit, cursor=cursor)
    return schemas.ObservationPage(items=list(page.items), next=page.next)


@router.post("/search", tags=["read"])
async def search(question: schemas.Query, caller: CallerOf) -> SearchResult:
    """Find what answers a question, within a budget of tokens."""
    return await caller.store.reader.search(
        question.query,
        user=caller.user(question.user),
        budget=question.budget,
        include_evidence=question.include_evidence,
        limit=question.limit,
    )


@router.get("/explain", tags=["read"])
async def explain(user: UserOf, id: IdOf, caller: CallerOf) -> Explanation:
    """Tell why a fact is where it is, with all probabilities."""
    return await caller.store.reader.explain(id, user=caller.user(user))


@router.get("/history", tags=["read"])
async def history(user: UserOf, caller: CallerOf, limit: Limit = 100, cursor: Cursor = None) -> schemas.EventPage:
    """List what happened to a user's memory, oldest first."""
    page = await caller.store.reader.page_history(user=caller.user(user), limit=limit, cursor=cursor)
    return schemas.EventPage(items=list(page.items), next=page.next)


@router.get("/as-of", tags=["read"])
async def as_of(
    user: UserOf,
    caller: CallerOf,
    time: Annotated[str, Query(description="ISO 8601 date or date-time.", examples=["2026-02-01"])],
    by: Literal["observed", "recorded"] = "observed",
) -> schemas.Views:
    """List a user's views as they were at a time."""
    return schemas.Views(items=await caller.store.reader.as_of(time, user=caller.user(user), by=by))


@router.get("/users", tags=["read"])
async def users(caller: CallerOf) -> schemas.Users:
    """List the users that this key may see."""
    stored = await caller.store.reader.users()
    return schemas.Users(users=[user for user in stored if caller.key.may_touch(user)])


# Reviewing and trying out ---------------------------------------------------------------------------------------


@router.get("/reviews", tags=["review"])
async def reviews(user: UserOf, caller: CallerOf) -> schemas.Doubts:
    """List the pairs that were too uncertain to act on."""
    return schemas.Doubts(items=await caller.store.reader.reviews(user=caller.user(user)))


@router.post("/reviews", tags=["review"])
async def decide(verdict: schemas.VerdictBody, caller: CallerOf) -> Event:
    """Say what the relation of a fact to an earlier one is; it counts over what the model said."""
    return await caller.store.writer.decide(
        verdict.new_id, verdict.old_id, verdict.relation, user=caller.user(verdict.user), key=verdict.key
    )


@router.post("/relations", tags=["review"])
async def relations(body: schemas.Pairs, key: AnyKey, shared: Shared) -> schemas.RelatedPairs:
    """Classify pairs of facts; nothing is stored. Requests that come together share passes of the model."""
    pairs = [Pair(clean_text(pair.old, "old"), clean_text(pair.new, "new")) for pair in body.pairs]
    with shared.waiting.admit(len(pairs)):
        rows = await anyio.to_thread.run_sync(shared.model.predict_proba, pairs)
    results = []
    for row in rows:
        probabilities = {relation: float(value) for relation, value in zip(RELATIONS, row, strict=True)}
        relation, argmax = count_relation(probabilities, shared.model.thresholds)
        results.append(schemas.Related(relation=relation, argmax=argmax, probabilities=probabilities))
    return schemas.RelatedPairs(model=shared.model.digest, results=results)


# Operating ------------------------------------------------------------------------------------------------------


@router.get("/health", tags=["operate"])
async def health(shared: Shared) -> schemas.Health:
    """Tell that the server answers; needs no key."""
    return schemas.Health(status="ok", version=__version__, keys=shared.keys is not None)


@router.get("/metrics", tags=["operate"], response_class=Response)
async def metrics(key: Operator, shared: Shared) -> Response:
    """Counters for Prometheus; an operator's key is needed where keys are."""
    from prometheus_client import generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_LATEST

    return Response(generate_latest(shared.metrics.registry), media_type=CONTENT_TYPE_LATEST)
