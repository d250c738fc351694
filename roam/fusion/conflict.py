"""CON: the temporal history of an attribute as one value chain (paper section 2.2.2; data/FUSION.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from roam.fusion.attributes import RULES, absorb_change, noun_value, possessive, rule_value, without_contrast
from roam.fusion.chain import Chain, collapse, join_chains, refines, same_value
from roam.fusion.grammar import Statement, lower_first, past, read
from roam.fusion.text import content_set, overlap

_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Timed:
    """The fused segment of one input: a chain or a statement, and the date of its input."""

    segment: str
    chain: Chain | None
    date: str | None


def date_of(time: str | None) -> str | None:
    """The day of an ISO time, or the time as given when it has another form; None stays None."""
    if not time:
        return None
    match = _DATE.match(time)
    return match[0] if match else time.replace("(", "").replace(")", "")


def fuse_conflict(items: Sequence[Timed]) -> str:
    """Return the chain segment that tells the history of `items`, which are in time order."""
    if any(item.chain for item in items):
        return _extend(items).render()
    return _start(items).render()


# --- a history without a chain so far ---------------------------------------------------------------------------


def _start(items: Sequence[Timed]) -> Chain:
    statements = [read(item.segment) for item in items]
    owner = statements[-1].owner
    attribute, values = _values(statements)
    date = items[-1].date
    kept = collapse(values)
    if len(kept) > 1:
        first = _first_of_current(values)
        date = items[first].date
        values = kept
    return Chain(f"{owner} {attribute}", tuple(values), date)


def _first_of_current(values: Sequence[str]) -> int:
    index = len(values) - 1
    while index and len(collapse(values[index - 1 :])) == 1:
        index -= 1
    return index


def _values(statements: Sequence[Statement]) -> tuple[str, list[str]]:
    for rule in RULES:
        found = [rule_value(rule, statement) for statement in statements]
        if all(found):
            return rule.name, [value for value in found if value]
    pairs = [possessive(statement) for statement in statements]
    known = [pair for pair in pairs if pair]
    if known and len(known) == len(pairs) and len({name for name, _ in known}) == 1:
        values: list[str] = []
        for _, value in known:
            values.append(without_contrast(value, values))
        return known[0][0], values
    return _general(statements)


def _general(statements: Sequence[Statement]) -> tuple[str, list[str]]:
    """The safe form when no attribute can be read: both predicates in full, the older ones in the past tense."""
    noun = statements[-1].noun
    if noun and all(statement.noun == noun and statement.predicate for statement in statements):
        attribute = noun
        values = [absorb_change(statement.predicate) for statement in statements]
    else:
        attribute = "status"
        values = [_whole(statement) for statement in statements]
    return attribute, [past(value) for value in values[:-1]] + [values[-1]]


def _whole(statement: Statement) -> str:
    if statement.noun or not statement.predicate:
        return lower_first(statement.text)
    return absorb_change(lower_first(statement.predicate))


# --- a history that has a chain ---------------------------------------------------------------------------------


def _extend(items: Sequence[Timed]) -> Chain:
    chain: Chain | None = None
    waiting: list[str] = []
    for item in items:
        if item.chain is not None:
            joined = join_chains(chain, item.chain) if chain else item.chain
            chain, waiting = _late(joined, waiting), []
        elif chain is None or (item.date and chain.date and item.date < chain.date):
            waiting.append(item.segment)
            if chain is not None:
                chain, waiting = _late(chain, waiting), []
        else:
            chain = _append(chain, item)
    if chain is None:
        raise AssertionError("called with at least one chain")
    return chain


def _late(chain: Chain, segments: Sequence[str]) -> Chain:
    """Late arrivals go directly before the current value, which stays current."""
    values = list(chain.values)
    for segment in segments:
        value = value_for(chain, segment, current=False)
        if any(same_value(value, known) for known in values):
            continue
        values.insert(len(values) - 1, value)
    return Chain(chain.head, tuple(values), chain.date, chain.earlier)


def _append(chain: Chain, item: Timed) -> Chain:
    value = value_for(chain, item.segment, current=True)
    last = chain.values[-1]
    if same_value(last, value) or refines(last, value):
        return chain
    if refines(value, last):
        return Chain(chain.head, (*chain.values[:-1], value), chain.date, chain.earlier)
    return Chain(chain.head, (*chain.values, value), item.date, chain.earlier)


def value_for(chain: Chain, segment: str, current: bool) -> str:
    """The value that a statement adds to a chain; its whole predicate when the attribute's rules do not fit."""
    statement = read(segment)
    attribute = chain.head.rsplit("'s ", 1)[-1]
    for rule in RULES:
        if rule.name == attribute and (found := rule_value(rule, statement)):
            return found
    pair = possessive(statement)
    if pair and (pair[0] == attribute or overlap(pair[0], attribute) > 0):
        return without_contrast(pair[1], chain.values)
    value = _whole(statement)
    if statement.noun and content_set(statement.noun) & content_set(chain.head):
        value = absorb_change(statement.predicate) or noun_value(statement.text)
    return value if current else past(value)
