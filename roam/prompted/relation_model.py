"""Relations by prompt: the manager that the distilled classifier replaces (paper equation 4, one call a candidate)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roam.llm.client import LLMClient, Unanswered
from roam.llm.usage import Usage
from roam.prompted.relation_prompt import PROMPT_DIGEST, relation_question
from roam.records import Pair
from roam.relations import INDEX, RELATIONS, Relation

THRESHOLD: Final = 0.5
"""A label that was given has probability 1, so every value between 0.2 and 1 does the same."""


class PromptedRelationModel:
    """A relation model that asks an LLM about each pair, and is sure of whatever it says.

    A pair without a usable answer gets equal probabilities for all relations: nothing was said about it. It counts as
    independent, so its fact is stored, and it is kept for review (`roam.records.Judgement.in_doubt`).
    """

    thresholds: Mapping[Relation, float] = MappingProxyType(
        {relation: THRESHOLD for relation in RELATIONS if relation is not Relation.IND}
    )

    def __init__(self, client: LLMClient) -> None:
        self.client = client
        self.digest = f"prompted:{client.settings.model}@{PROMPT_DIGEST}"

    @property
    def usage(self) -> Usage:
        """What the client has cost so far; a store adds it to its `stats`."""
        return self.client.usage

    def label(self, pairs: Sequence[Pair]) -> list[Relation | Unanswered]:
        """The relation of each ordered pair, one call a pair. Raises `LLMError` when nobody answers at all."""
        return self.client.ask_many([relation_question(Pair(*pair)) for pair in pairs])

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Probabilities of shape (len(pairs), 5): 1 for the label that was given, equal where there was none."""
        out = np.full((len(pairs), len(RELATIONS)), 1 / len(RELATIONS), dtype=np.float32)
        for row, label in zip(out, self.label(pairs), strict=True):
            if not isinstance(label, Unanswered):
                row[:] = 0.0
                row[INDEX[label]] = 1.0
        return out
