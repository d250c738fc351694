"""Tiny deterministic stand-ins for models: scripted relations, a hashing embedder, fusers that work or fail."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from roam.records import FusionRequest, Pair
from roam.relations import INDEX, RELATIONS, SWAPPED, Relation

DIMENSION = 64
_WORD = re.compile(r"\w+|[^\w\s]")


def one_hot(relation: Relation, confidence: float = 0.96) -> NDArray[np.float32]:
    """Probabilities that give `confidence` to one relation and share the rest, shape (5,)."""
    row = np.full(len(RELATIONS), (1.0 - confidence) / (len(RELATIONS) - 1), dtype=np.float32)
    row[INDEX[relation]] = confidence
    return row


class ScriptedRelations:
    """A relation model that looks pairs up: `script` maps (old, new) to a relation or a (relation, confidence) pair.

    The swapped order answers with the swapped relation, every other pair is IND. `calls` keeps each batch.
    """

    thresholds: Mapping[Relation, float] = MappingProxyType({})

    def __init__(
        self,
        script: Mapping[tuple[str, str], Relation | str | tuple[Relation | str, float]] | None = None,
        *,
        rule: Callable[[str, str], Relation] | None = None,
        digest: str = "scripted",
    ) -> None:
        self.digest = digest
        self.calls: list[list[Pair]] = []
        self._rule = rule
        self._script: dict[tuple[str, str], tuple[Relation, float]] = {}
        for (old, new), value in (script or {}).items():
            relation, confidence = value if isinstance(value, tuple) else (value, 0.96)
            self._script[old, new] = (Relation(relation), confidence)
            self._script.setdefault((new, old), (SWAPPED[Relation(relation)], confidence))

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Probabilities of shape (len(pairs), 5)."""
        self.calls.append(list(pairs))
        return np.stack([self._row(pair) for pair in pairs])

    def _row(self, pair: Pair) -> NDArray[np.float32]:
        if self._rule is not None:
            return one_hot(self._rule(pair.old, pair.new))
        return one_hot(*self._script.get((pair.old, pair.new), (Relation.IND, 0.96)))


class HashEmbedder:
    """Bag of hashed words, L2-normalised; tokens are words and punctuation marks."""

    def __init__(self, dimension: int = DIMENSION) -> None:
        self.dimension = dimension
        self.digest = f"hash-{dimension}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of shape (len(texts), dimension)."""
        out = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            # A constant component keeps every two texts above a cosine of 0, so that nothing hides below the floor.
            out[row, 0] = 1.0
            for word in _WORD.findall(text.casefold()):
                out[row, 1 + hashlib.blake2b(word.encode(), digest_size=4).digest()[0] % (self.dimension - 1)] += 1.0
        out /= np.linalg.norm(out, axis=1, keepdims=True)
        return out

    def count_tokens(self, text: str) -> int:
        """Number of words and punctuation marks."""
        return len(_WORD.findall(text))

    def truncate(self, text: str, tokens: int) -> str:
        """The longest prefix with at most `tokens` tokens."""
        ends = [match.end() for match in _WORD.finditer(text)]
        return text if len(ends) <= tokens else text[: ends[tokens - 1]] if tokens > 0 else ""


class JoinFuser:
    """Joins the inputs in their order: a view shows exactly what went into it, and when."""

    name = "join"
    trusted = True  # its views are no prose that a guard could check

    def __init__(self) -> None:
        self.requests: list[FusionRequest] = []

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """`a | b` for redundant texts, `a -> b` for a change."""
        self.requests.extend(requests)
        joint = [" -> " if request.relation is Relation.CON else " | " for request in requests]
        return [
            sign.join(_distinct([item.text for item in request.inputs]))
            for sign, request in zip(joint, requests, strict=True)
        ]


def _distinct(texts: Sequence[str]) -> list[str]:
    seen: dict[str, str] = {}
    for text in texts:
        seen.setdefault(text.rstrip(" ."), text)
    return list(seen.values())


class BrokenFuser:
    """Returns what it is given, or raises it."""

    name = "broken"
    trusted = True

    def __init__(self, output: object) -> None:
        self.output = output

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """Return or raise `output`."""
        if isinstance(self.output, BaseException):
            raise self.output
        return self.output  # type: ignore[return-value]
