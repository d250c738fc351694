"""The words of the system as plain immutable records (paper equations 2, 5 and 6; DESIGN section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from roam.relations import Relation


class Role(StrEnum):
    """Whether a record is eligible for retrieval (PRIMARY) or kept for provenance only (EVIDENCE)."""

    PRIMARY = "primary"
    EVIDENCE = "evidence"


class Pair(NamedTuple):
    """An ordered pair of facts as the relation model sees it."""

    old: str
    new: str


class TimedText(NamedTuple):
    """A text to fuse and when it was observed (ISO 8601 date or date-time, None when unknown)."""

    text: str
    time: str | None


@dataclass(frozen=True, slots=True)
class Observation:
    """One atomic, self-contained fact; never changed once stored.

    `observed_at` is None when the caller gave no time. `sequence` is the arrival order within the store and is what
    ties and missing times fall back to.
    """

    text: str
    user: str
    observed_at: datetime | None = None
    source: str | None = None
    id: str = ""
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the relation model said about (new observation, stored candidate).

    `probabilities` maps each relation to its calibrated probability; `relation` is what counted after thresholds;
    `raw_relation` is the argmax before them; `model` is the digest of the model, or "exact" for an exact duplicate.
    """

    candidate_id: str
    relation: Relation
    raw_relation: Relation
    probabilities: Mapping[Relation, float]
    model: str

    @property
    def in_doubt(self) -> bool:
        """Whether a person should look at the pair.

        Its likeliest relation stayed below its threshold, or the model said nothing about it: equal probabilities, as
        where an LLM gave no usable answer.
        """
        values = set(self.probabilities.values())
        return self.relation is not self.raw_relation or (len(values) == 1 and len(self.probabilities) > 1)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy did with one observation (Algorithm 1)."""

    id: str
    observation_id: str
    relation: Relation
    primary_id: str
    demoted_ids: tuple[str, ...] = ()
    matched_ids: tuple[str, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    review: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """A Primary as it is retrieved for answering: its text and all that it stands for."""

    id: str
    text: str
    atomic_text: str
    members: tuple[str, ...]
    observed_at: datetime | None = None
    member_times: tuple[datetime | None, ...] = ()
    user: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result. `tokens` is its length in the budget's tokens; `text` may be cut at the budget."""

    id: str
    text: str
    score: float
    members: tuple[str, ...]
    observed_at: datetime | None
    role: Role = Role.PRIMARY
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits in rank order, and `context`: their texts joined by newlines, at most `budget` tokens."""

    query: str
    context: str
    hits: tuple[Hit, ...]
    budget: int
    tokens: int


@dataclass(frozen=True, slots=True)
class FusionRequest:
    """Inputs of one view in time order, and the relation that joined them (paper equation 9)."""

    inputs: tuple[TimedText, ...]
    relation: Relation
    survivor: int = 0  # index of the surviving Primary among `inputs`
    extra: Mapping[str, object] = field(default_factory=dict)
