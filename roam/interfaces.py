"""What a manager is made of. Any object with these methods plugs into `roam.Memory`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from roam.records import FusionRequest, Pair
from roam.relations import Relation


@runtime_checkable
class RelationModel(Protocol):
    """Five-way relation classifier."""

    digest: str
    """Identifies the weights and calibration; kept with every judgement."""

    thresholds: Mapping[Relation, float]
    """Least probability at which each non-IND relation counts; below it the pair counts as IND (DESIGN 4.5)."""

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Return calibrated probabilities, shape (len(pairs), 5), columns in `RELATIONS` order, rows summing to 1."""
        ...


@runtime_checkable
class Fuser(Protocol):
    """Turns timed texts into one read view.

    A store guards every fuser (`roam.fusion.guard`), except one whose attribute `trusted` is true.
    """

    name: str

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """Return one view text a request."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Sentence encoder for retrieval; also owns the tokens in which budgets are counted."""

    @property
    def digest(self) -> str:
        """Identifies the encoder; a store refuses another one until it is reindexed."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return L2-normalised vectors, shape (len(texts), dimension)."""
        ...

    def count_tokens(self, text: str) -> int:
        """Length of `text` in tokens, without special tokens."""
        ...

    def truncate(self, text: str, tokens: int) -> str:
        """The longest prefix of `text` of at most `tokens` tokens."""
        ...
