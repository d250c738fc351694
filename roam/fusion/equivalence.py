"""EQV, OSN and NSO: one statement without redundancy, with the compatible details of all (paper section 2.2.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from roam.fusion.attributes import possessive, rule_values
from roam.fusion.conflict import Timed
from roam.fusion.counts import count_events, stated_count, with_count, without_count
from roam.fusion.details import Piece, covers, details, fold, fold_whole, insert, missing, only_loose
from roam.fusion.grammar import Statement, read, with_subject
from roam.fusion.text import content_set, names, normalised, numbers, strip_period
from roam.relations import Relation


def fuse_with_chain(relation: Relation, items: Sequence[Timed], survivor: int) -> list[str]:
    """A chain among the inputs stays verbatim in front; what it does not hold follows as its own segment.

    OSN adds the specific sentence; EQV and NSO leave the chain alone unless a number or name would be lost by EQV.
    """
    chains = [item.segment for item in items if item.chain]
    segments = list(dict.fromkeys(chains))
    plain = [item.segment for item in items if not item.chain]
    if relation is Relation.OSN and not items[survivor].chain:
        segments.append(items[survivor].segment)
    elif relation is Relation.EQV:
        segments.extend(text for text in plain if not covers("; ".join(segments), text))
    return segments


def fuse_specific(items: Sequence[Timed], survivor: int) -> list[str]:
    """OSN / NSO: the specific statement with the details that only the general ones have.

    A count of the general event is no detail of the specific one: it follows as a statement of its own.
    """
    base = items[survivor].segment
    subject = read(base)
    others = [item.segment for index, item in enumerate(items) if index != survivor]
    counted = [text for text in others if _own_count(text, base)]
    foldable = [text for text in others if text not in counted]
    for text in foldable:
        if said := _said_of_same(subject, read(text)):
            base = insert(base, Piece(", ", said))
        else:
            base = fold(base, [text], careful=True)
    return [base, *counted]


_SAID: Final = re.compile(r"^(?:is|are) (?P<said>(?:[a-z]+ed|paid|kept|held|made|built|sold) .+)$")


def _said_of_same(specific: Statement, general: Statement) -> str | None:
    """What "X's pension is paid monthly" says beside "X's pension is 1,486 euros"."""
    match = _SAID.match(general.predicate)
    if not general.noun or general.noun != specific.noun or match is None:
        return None
    return None if content_set(match["said"]) & content_set(specific.predicate) else match["said"]


def _own_count(general: str, specific: str) -> bool:
    count = stated_count(general)
    known = stated_count(specific)
    return count is not None and known is None and str(count) not in numbers(specific)


def fuse_equivalent(items: Sequence[Timed]) -> list[str]:
    """EQV without a chain: the count of a repeated event, else one statement, else both values where they differ."""
    statements = [read(item.segment) for item in items]
    differing = _different_values(statements)
    if differing and all(covers(differing, statement.text) for statement in statements):
        return [differing]
    counted = count_events(statements, [item.date for item in items])
    base, rest = _base([item.segment for item in items])
    if counted:
        base, rest = items[0].segment, [item.segment for item in items[1:]]
    merged, kept = base, []
    for text in rest:
        told = without_count(text) if counted else text
        # What cannot be folded and holds a number or a name of its own is kept beside, never dropped.
        folded = None if _amounts_differ(merged, told) else fold_whole(merged, told)
        if folded:
            merged = folded
        else:
            kept.append(text)
    if base != items[0].segment:
        merged = with_subject(merged, statements[0])
    if counted:
        merged = strip_period(with_count(merged, counted.number))
    return [merged, *kept]


def _base(segments: Sequence[str]) -> tuple[str, list[str]]:
    """The statement to build on: the one that holds every detail, the first on a tie; else the first of all."""
    best, fewest = 0, -1
    for index, segment in enumerate(segments):
        others = [text for position, text in enumerate(segments) if position != index]
        lacks = [missing(segment, text) for text in others]
        # One word may differ: two wordings of a fact rarely share their verb.
        if all(covers(segment, text) for text in others) and max(lacks) <= 1 and (fewest < 0 or sum(lacks) < fewest):
            best, fewest = index, sum(lacks)
    if best and covers(segments[0], segments[best]) and not details(segments[best], segments[0], careful=False):
        best = 0  # longer, but without a detail of its own
    if best and only_loose(segments[0], segments[best]):
        best = 0  # its details can be taken over as they are
    return segments[best], [text for position, text in enumerate(segments) if position != best]


def _different_values(statements: Sequence[Statement]) -> str | None:
    """Safety net: statements labelled equivalent that give different values of one attribute keep both."""
    first, last = statements[0], statements[-1]
    for attribute, old, new in _common_values(first, last):
        named = names(f"x {old}") and names(f"x {new}") and not content_set(old) & content_set(new)
        measured = numbers(old) and numbers(new) and numbers(old) != numbers(new)
        if (named or measured) and normalised(old) != normalised(new):
            return f"{first.owner} {attribute}: previously {old}; now {new}"
    return _different_amounts(first, last)


_AMOUNT: Final = re.compile(
    r"(?P<n>\d[\d.,]*)(?P<unit>(?: ?%| [a-z]+)(?: (?:a|per|each) (?:day|week|month|year|hour))?)"
)


_PRICE: Final = re.compile(r"(?P<unit>[$€£¥]) ?(?P<n>\d[\d.,]*)")


def _amounts_differ(left: str, right: str) -> bool:
    """Whether both state amounts of one unit and none is the same: two values, not one fact with two details."""
    first, second = _amounts(left), _amounts(right)
    return any(first[unit].isdisjoint(second[unit]) for unit in first.keys() & second.keys())


def _amounts(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for match in (*_PRICE.finditer(text), *_AMOUNT.finditer(text)):
        found.setdefault(match["unit"].strip(), set()).add(match["n"].rstrip(".,"))
    return found


_RANKED: Final = re.compile(
    r"\b(?P<n>second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|\d+(?:st|nd|rd"
    r"|th)) (?P<of>floor|grade|year|row|round|place)\b"
)


def _different_amounts(first: Statement, last: Statement) -> str | None:
    """Two amounts of one unit, one of them under the name of an attribute ("gym fee"), or two ranks ("fifth floor")."""
    ranks = _RANKED.findall(first.text) + _RANKED.findall(last.text)
    if len(ranks) == 2 and ranks[0][1] == ranks[1][1] and ranks[0][0] != ranks[1][0]:
        return f"{first.owner} {ranks[0][1]}: previously {ranks[0][0]}; now {ranks[1][0]}"
    named = possessive(last) or possessive(first)
    old, new = _AMOUNT.findall(first.predicate), _AMOUNT.findall(last.predicate)
    if named is None or len(old) != 1 or len(new) != 1 or old[0][1] != new[0][1] or old[0][0] == new[0][0]:
        return None
    plain = [statement.predicate for statement in (first, last) if not possessive(statement)]
    if any(names(f"x {text}") for text in plain):
        return None  # a name would be lost
    return f"{first.owner} {named[0]}: previously {''.join(old[0])}; now {''.join(new[0])}"


def _common_values(first: Statement, last: Statement) -> list[tuple[str, str, str]]:
    """(attribute, value of the first, value of the last) for every attribute that both give a value for."""
    left, right = rule_values(first), rule_values(last)
    for values, statement in ((left, first), (right, last)):
        if pair := possessive(statement):
            values[pair[0]] = pair[1]
    return [(name, left[name], right[name]) for name in left if name in right]
