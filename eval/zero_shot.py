"""A baseline without any training: rules on the cosine of a frozen sentence encoder and on the words.

It is what a memory store without a relation model can do: far texts are independent, near ones are the same fact, the
longer of two near texts is the more specific, and a changed number or polarity is a conflict. The limits are round
numbers set before any pair was looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from eval.metrics import IntArray, columns
from roam.interfaces import Embedder
from roam.records import Pair
from roam.relations import Relation

NEAR = 0.6  # cosine below which two facts are taken for independent
LONGER = 1.3  # ratio of word counts from which the longer text is taken for the more specific
NEGATION = re.compile(r"\b(?:not|no|never|none|without|stopped|quit|hates?|dislikes?|cannot|no longer|\w+n't)\b", re.I)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def zero_shot(pairs: Sequence[Pair], embedder: Embedder) -> IntArray:
    """Predicted columns of `RELATIONS`, shape (len(pairs),)."""
    texts = sorted({text for pair in pairs for text in pair})
    vectors = dict(zip(texts, embedder.embed(texts), strict=True))
    return columns([_relation(pair, float(vectors[pair.old] @ vectors[pair.new])) for pair in pairs])


def _relation(pair: Pair, cosine: float) -> Relation:
    if cosine < NEAR:
        return Relation.IND
    numbers = [set(NUMBER.findall(text)) for text in pair]
    negated = [bool(NEGATION.search(text)) for text in pair]
    if negated[0] != negated[1] or (all(numbers) and numbers[0] != numbers[1]):
        return Relation.CON
    old, new = (len(text.split()) for text in pair)
    if new >= LONGER * old:
        return Relation.OSN
    return Relation.NSO if old >= LONGER * new else Relation.EQV


def zero_shot_scores(pairs: Sequence[Pair], gold: IntArray, embedder: Embedder) -> dict[str, object]:
    """The baseline's row in a relation report."""
    from eval.relation_report import scores

    score = scores(gold, zero_shot(pairs, embedder))
    return {key: score[key] for key in ("macro_f1", "accuracy", "per_class", "merge_error_rate")}
