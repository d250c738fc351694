"""Which facts a rewritten text still represents (paper, appendix F.2)."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Final

from eval.stated import normalise

SAME_RATIO: Final = 0.65
"""Least SequenceMatcher ratio at which a rewritten text counts as the fact's."""


def represents(text: str, fact: str) -> bool:
    """Whether `text` is the fact, or a rewriting of it by the paper's rule: identity first, then the ratio.

    Case, spaces and the final full stop are left aside.
    """
    one, two = normalise(text).rstrip(" ."), normalise(fact).rstrip(" .")
    return one == two or SequenceMatcher(None, one, two, autojunk=False).ratio() >= SAME_RATIO


def represented(text: str, lineage: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of `lineage` (texts by id: what the text was ever made from) that `text` still represents."""
    return tuple(identifier for identifier, fact in lineage.items() if represents(text, fact))
