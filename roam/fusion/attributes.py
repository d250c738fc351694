"""Which attribute a statement is about, and the value it gives (data/FUSION.md, CON)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from roam.fusion.grammar import Statement, lower_first

_CHANGE_WORDS: Final = re.compile(
    r"\b(?:now|again|these days|any more|anymore|nowadays|currently|recently)\b,?\s*", re.IGNORECASE
)
_CONTRAST: Final = re.compile(r",? (?:instead of|rather than|not) (?P<old>[^,]+)$")


@dataclass(frozen=True, slots=True)
class Rule:
    """Predicates that match `pattern` (group `v`: the value) are about the attribute `name`."""

    name: str
    pattern: re.Pattern[str]


def _rule(name: str, pattern: str) -> Rule:
    return Rule(name, re.compile(rf"^{pattern}$", re.IGNORECASE))


RULES: Final[tuple[Rule, ...]] = (
    _rule("weight", r"(?:weighs|is down to|is up to) (?P<v>[\d.,]+ ?(?:kg|kilos?|lbs?|pounds|stone)\b.*)"),
    _rule(
        "employer",
        r"(?:works|worked|is working|was working|has started|started|is employed|has a job) "
        r"(?:at|for|by|with) (?P<v>(?!home\b).+)",
    ),
    _rule(
        "home city",
        r"(?:lives|lived|is living|was living|has moved|moved|has settled|has lived|resides) "
        r"(?:back )?(?:in|to) (?P<v>.+)",
    ),
    _rule("car", r"(?:drives|drove) (?:a|an|the) (?P<v>.+)"),
    _rule("bank", r"banks with (?P<v>.+)"),
    _rule("rent", r"pays (?P<v>[\d.,]+ [a-z]+\b.*?)(?: in)? rent(?: a month)?"),
)  # fmt: skip


def absorb_change(text: str) -> str:
    """Drop the words that only mark a change; the arrow of a chain says it."""
    text = _CHANGE_WORDS.sub("", text)
    return " ".join(text.split()).rstrip(",")


def without_contrast(text: str, previous: Sequence[str]) -> str:
    """Drop "instead of v1" / "not v1" when v1 is a value that the chain already shows."""
    match = _CONTRAST.search(text)
    if match and any(match["old"].casefold() in value.casefold() for value in previous):
        return text[: match.start()]
    return text


def noun_value(text: str) -> str:
    """A value as a noun phrase: no leading article or preposition, no change words."""
    text = absorb_change(text)
    return re.sub(r"^(?:(?:a|an|on|in|at) )+", "", text).strip()


def rule_value(rule: Rule, statement: Statement) -> str | None:
    """The value a rule reads from a statement, or None."""
    if statement.noun:
        return None
    match = rule.pattern.match(absorb_change(lower_first(statement.predicate)))
    return noun_value(match["v"]) if match else None


_COPULA: Final = re.compile(
    r"^(?:now )?(?:is|are|was|were)(?: now)?(?: called| named| painted| set for| due| down to| up to)? (?P<v>.+)$"
)


def possessive(statement: Statement) -> tuple[str, str] | None:
    """(attribute, value) of "User's manager is Ms. Lindqvist", else None."""
    if not statement.noun:
        return None
    match = _COPULA.match(statement.predicate)
    return (statement.noun, noun_value(match["v"])) if match else None
