"""EQV of a repeatable event: how often it happened (data/FUSION.md). A wrong count is worse than none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from roam.fusion.grammar import Statement, lower_first
from roam.fusion.lexicon import EVERYDAY_VERBS, OCCASIONS, RARE_EVENTS
from roam.fusion.text import stem, words

SEPARATE_DAYS: Final = 3
"""Dates at least this many days apart are separate occasions (data/FUSION.md)."""

COUNT: Final = re.compile(
    r"(?:\bat least |\babout |\baround |\bmore than )?"
    r"(?<!not )(?<!at )\b(?P<count>once(?=$|,| in\b| on\b| at\b| with\b| to\b| because\b)|twice|thrice"
    r"|(?:(?:two|three|four|five|six|seven|eight|nine|ten|\d+) times))\b"
    r"(?! (?:an?|per|each|every|more|as|the|weekly|daily)\b)(?P<tail> (?:now|by now|so far|already))?",
    re.IGNORECASE,
)
_HEDGED: Final = re.compile(r"^(?:at least|about|around|more than) ", re.IGNORECASE)
AGAIN: Final = re.compile(r",? \b(?:again|once more|a second time|one more time)\b(?! (?:an?|per)\b)", re.IGNORECASE)
_AGAIN_CUE: Final = re.compile(
    r"\b(?:again|another|once more|a second time|for the second time|one more time)\b", re.IGNORECASE
)
_PINNED: Final = re.compile(
    r"\b(?:(?:19|20)\d\d|\d{1,2}(?:st|nd|rd|th)? (?:January|February|March|April|May|June|July|August|September|October"
    r"|November|December)|(?:January|February|March|April|June|July|August|September|October|November"
    r"|December)(?: \d{1,2})?"
    r"|last (?:week|month|year|summer|winter|spring|autumn|night|\w+day)|yesterday|today"
    r"|this (?:morning|week|month|year)"
    r"|wedding|funeral|birthday|christening|final|graduation|first ever|for the first time)\b"
)
_CLAUSE_END: Final = re.compile(
    r",? (?:because|so that|although|while|when|whenever|after which|since)\b|, (?:which|who|where|too)\b"
)
_AUXILIARY: Final = re.compile(
    r"^(?:(?:has|have|had) (?:been|gone|done|had|\w+ed|taken|eaten|given|run|seen|won|lost|made|met"
    r"|read|bought|played|tried)|had to \w+"
    r"|could not|couldn't|did not|didn't|was|got|failed|missed)\b"
)


@dataclass(frozen=True, slots=True)
class Counted:
    """How often the event of an EQV group happened; `stated` tells that some input gave a number itself."""

    number: int
    stated: bool


def stated_count(text: str) -> int | None:
    """The count that a text states ("twice", "4 times"), None for none, a frequency ("twice a week") or a bound."""
    match = COUNT.search(text)
    if match is None or _HEDGED.match(match[0]):
        return None
    word = match["count"].lower().split()[0]
    return {"once": 1, "thrice": 3}.get(word) or int(stem(word))


def count_events(statements: Sequence[Statement], dates: Sequence[str | None]) -> Counted | None:
    """The number of occasions that the statements tell of, or None where nothing may be counted."""
    stated = [stated_count(statement.text) for statement in statements]
    known = [count for count in stated if count is not None]
    plain = [statement for statement, count in zip(statements, stated, strict=True) if count is None]
    if not known and not _repeatable(plain):
        return None
    total: int | None = None
    last: date | None = None
    for statement, count, day in zip(statements, stated, (_day(value) for value in dates), strict=True):
        if count is not None:
            total = max(total or 0, count)
            last = day or last
        elif (
            day is not None
            and not _PINNED.search(statement.text)
            and (last is None or abs((day - last).days) >= SEPARATE_DAYS)
        ):
            total, last = (total or 0) + 1, day
    if total is None or (not known and total < 2):
        return None
    return Counted(total, bool(known))


def _day(value: str | None) -> date | None:
    try:
        return date.fromisoformat(value) if value else None
    except ValueError:
        return None


def _repeatable(statements: Sequence[Statement]) -> bool:
    """Whether the statements tell of an everyday event, or say themselves that it happened again."""
    if any(_PINNED.search(statement.text) for statement in statements):
        return False
    if any(_AGAIN_CUE.search(statement.predicate) for statement in statements[1:]):
        return all(_is_event(statement) for statement in statements)
    return (
        not any(map(_is_rare, statements))
        and any(_is_everyday(statement) for statement in statements)
        and all(map(_is_event, statements))
    )


_LONG: Final = re.compile(r"\b(?:over|for|in) (?:\w+) (?:days|weeks|months)\b")


def _is_rare(statement: Statement) -> bool:
    rare = any(word.lower() in RARE_EVENTS for word in words(statement.predicate))
    return rare or bool(_LONG.search(statement.predicate))


def _is_event(statement: Statement) -> bool:
    """Whether the main verb is in a past tense: a state in the present is no occasion."""
    first = lower_first(statement.predicate).split(" ", 1)[0].lower()
    if first in ("is", "are", "has", "have", "does", "can", "will", "used"):
        return bool(_AUXILIARY.match(lower_first(statement.predicate)))
    return not first.endswith("s") or first in ("was", "lost")


_WENT: Final = re.compile(
    r"^(?:has |had )?(?:went|gone|been|drove|driven|cycled|biked|was|took .+|brought .+) (?:to|for|at|on an?|\w+ing)\b"
)
_BROKE_DOWN: Final = re.compile(
    r"^(?:broke down|could not|couldn't|was unable to|was late|sent back|looked after|took care of|had to)\b"
)
_OBJECT_VERBS: Final = re.compile(
    r"^(?:has |had )?(?:bought|purchased|ordered|got|had|made|prepared|took|taken|gave|given|suffered"
    r"|did|done|drank|held|met|called|went on)\b"
)


def _is_everyday(statement: Statement) -> bool:
    predicate = lower_first(statement.predicate)
    if any(word.lower() in EVERYDAY_VERBS for word in words(predicate)[:3]):
        return True
    if _WENT.match(predicate) or _BROKE_DOWN.match(predicate):
        return True
    objects = (part for word in words(predicate)[1:] for part in (word.lower(), *word.lower().split("-")))
    return bool(_OBJECT_VERBS.match(predicate)) and any(word in OCCASIONS for word in objects)


def in_words(count: int) -> str:
    """once, twice, three times, 4 times, 5 times ..."""
    return {1: "once", 2: "twice", 3: "three times"}.get(count, f"{count} times")


def with_count(text: str, count: int) -> str:
    """`text` with its count set to `count`: in place of an old one, else closing the main clause."""
    text = AGAIN.sub("", text)
    text = re.sub(r"\banother (?=[aeiou])", "an ", text)
    text = re.sub(r"\banother\b", "a", text)
    match = COUNT.search(text)
    if match and not _HEDGED.match(match[0]):
        if stated_count(text) == count and not match["tail"]:
            return text
        return text[: match.start()] + in_words(count) + text[match.end() :]
    end = _CLAUSE_END.search(text)
    at = end.start() if end else len(text)
    return text[:at] + " " + in_words(count) + text[at:]


def without_count(text: str) -> str:
    """`text` without the count that it states."""
    return COUNT.sub("", text)
