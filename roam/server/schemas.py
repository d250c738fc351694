"""Bodies of requests and answers; what a record holds is documented in `roam.records` and `roam.events`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from roam.events import DoubtfulPair, Event
from roam.records import Decision, Observation, View
from roam.relations import Relation
from roam.validation import MAX_ID, MAX_TEXT

MAX_ITEMS = 256
"""Facts, or pairs, that one request may bring."""
MAX_PAGE = 1_000
MAX_BUDGET = 100_000

_AGAIN = "asking again with the same key changes nothing."

Text = Annotated[str, Field(min_length=1, description=f"One self-contained sentence, at most {MAX_TEXT:,} characters.")]
User = Annotated[str, Field(min_length=1, max_length=MAX_ID, description="Whose memory; matched exactly.")]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID, description="An observation.")]
Name = Annotated[str | None, Field(min_length=1, max_length=MAX_ID, description=f"Names the event: {_AGAIN}")]
RelationName = Literal["IND", "EQV", "OSN", "NSO", "CON"]


class Body(BaseModel):
    """A request's body: an unknown field is most likely a misspelt one, and 0 is no false; both are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewFact(Body):
    """One fact to store."""

    text: Text
    user: User
    observed_at: str | None = Field(
        None, description="ISO 8601 date or date-time at which it was told.", examples=["2026-03-01"]
    )
    source: str | None = Field(None, max_length=MAX_ID, description="Where it comes from, e.g. a message's id.")
    id: str | None = Field(
        None, max_length=MAX_ID, description="Id of your own: adding it again returns the first decision."
    )


class NewFacts(Body):
    """Facts to store in this order; all of them are checked before the first is stored."""

    observations: list[NewFact] = Field(min_length=1, max_length=MAX_ITEMS)


class Decisions(BaseModel):
    """What the policy did with each fact, in the order given."""

    decisions: list[Decision]


class Query(Body):
    """A question to one user's memory."""

    query: Text
    user: User
    budget: int = Field(256, ge=1, le=MAX_BUDGET, description="Tokens of context.")
    include_evidence: bool = Field(False, description="Also return superseded facts, marked as such.")
    limit: int | None = Field(None, ge=1, le=MAX_PAGE, description="Most hits.")


class PairBody(Body):
    """Two facts."""

    old: Text
    new: Text


class Pairs(Body):
    """Pairs to classify; nothing is stored."""

    pairs: list[PairBody] = Field(min_length=1, max_length=MAX_ITEMS)


class Related(BaseModel):
    """The relation of NEW to OLD: what counts after thresholds, the likeliest one, and all five probabilities."""

    relation: Relation
    argmax: Relation
    probabilities: dict[Relation, float]


class RelatedPairs(BaseModel):
    """One entry a pair, in the order given, and the model that said it."""

    model: str
    results: list[Related]


class Target(Body):
    """An observation of a user."""

    user: User
    id: Id
    key: Name = None


class EventTarget(Body):
    """An event of a user: a decision, a retraction, a verdict."""

    user: User
    event_id: Id
    key: Name = None


class VerdictBody(Body):
    """A person's word on a pair: the relation of the new fact to the old one."""

    user: User
    new_id: Id
    old_id: Id
    relation: RelationName
    key: Name = None


class Erasure(Body):
    """An observation to erase for good."""

    user: User
    id: Id


class UserErasure(Body):
    """A user to erase for good; `confirm` repeats the name."""

    user: User
    confirm: str = Field(description="The same user again.")


class ViewPage(BaseModel):
    """Some views; `next` is the cursor of the page after this one."""

    items: list[View]
    next: str | None


class ObservationPage(BaseModel):
    """Some observations; `next` is the cursor of the page after this one."""

    items: list[Observation]
    next: str | None


class EventPage(BaseModel):
    """Some events; `next` is the cursor of the page after this one."""

    items: list[Event]
    next: str | None


class Views(BaseModel):
    """Views as they were at a time."""

    items: list[View]


class Doubts(BaseModel):
    """Pairs that were too uncertain to act on."""

    items: list[DoubtfulPair]


class Users(BaseModel):
    """Users that the key may see and that have something stored."""

    users: list[str]


class Health(BaseModel):
    """The server answers; `keys` tells whether it asks for an API key."""

    status: Literal["ok"]
    version: str
    keys: bool
