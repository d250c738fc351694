"""CON: the temporal history of an attribute as one value chain (paper section 2.2.2; data/FUSION.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from roam.fusion.attributes import (
    absorb_change,
    bland_value,
    changed_value,
    counted,
    gives_noun,
    old_and_new,
    place_name,
    possessive,
    rule_values,
    without_contrast,
)
from roam.fusion.chain import Chain, can_head, collapse, join_chains, refines, same_value
from roam.fusion.details import covers
from roam.fusion.extension import value_for
from roam.fusion.grammar import Statement, front_to_end, is_present, is_settled_past, read, tell
from roam.fusion.heads import ability, attitude, habit, shared_thing
from roam.fusion.text import content_set

_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Timed:
    """The fused segment of one input: a chain or a statement, and the date of its input."""

    segment: str
    chain: Chain | None
    date: str | None


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a new chain and the input that it comes from."""

    text: str
    source: int


def date_of(time: str | None) -> str | None:
    """The day of an ISO time, or the time as given when it has another form; None stays None."""
    if not time or not time.strip():
        return None
    match = _DATE.match(time)
    return match[0] if match else re.sub(r"[()\s]+", " ", time).strip() or None


def fuse_conflict(items: Sequence[Timed]) -> str:
    """Return the chain segment that tells the history of `items`, which are in time order.

    A reading that would lose a number or a name of a statement is given up for the statement in full.
    """
    tell_history = _extend if any(item.chain for item in items) else _start
    told = tell_history(items, False).render()
    if all(item.chain or covers(told, item.segment) for item in items):
        return told
    return tell_history(items, True).render()


# --- a history without a chain so far ---------------------------------------------------------------------------


def _start(items: Sequence[Timed], in_full: bool) -> Chain:
    statements = [read(front_to_end(item.segment)) for item in items]
    owner = statements[-1].owner
    settled = [is_settled_past(statement) for statement in statements]
    present = any(is_present(statement) for statement in statements)
    if any(settled) and present:  # the texts' own dates decide over the order of arrival
        order = sorted(range(len(items)), key=lambda index: not settled[index])
        items = [items[index] for index in order]
        statements = [statements[index] for index in order]
    attribute, values = _values(statements)
    if in_full or not can_head(f"{owner} {attribute}"):
        attribute, values = "status", _told(statements)
    kept = collapse([value.text for value in values])
    if len(kept) == 1:  # nothing but refinements: a conflict was judged, so both wordings stay visible
        kept = [value.text for value in values]
    first = len(values) - 1
    while first and len(collapse([value.text for value in values[first - 1 :]])) == 1 and len(kept) < len(values):
        first -= 1
    return Chain(f"{owner} {attribute}", tuple(kept), items[values[first].source].date)


def _values(statements: Sequence[Statement]) -> tuple[str, list[_Value]]:
    for reader in (_by_name, _by_rule, _by_count):
        if found := reader(statements):
            return found
    for head in (attitude, ability, habit):
        if told := head(statements):
            return told[0], _plain(_drop_contrast(told[1]))
    noun = statements[-1].noun
    if noun and all(statement.noun == noun and statement.predicate for statement in statements):
        return noun, _told([replace(statement, noun="") for statement in statements])
    if found := _by_some(statements):
        return found
    if thing := shared_thing(statements):
        return thing[0], _plain(_drop_contrast(thing[1]))
    # The safe form when no attribute can be read: every statement in full under a head that promises nothing.
    return "status", _told(statements)


def _told(statements: Sequence[Statement]) -> list[_Value]:
    last = len(statements) - 1
    told = [absorb_change(tell(statement, index == last)) for index, statement in enumerate(statements)]
    return _plain(_drop_contrast(told))


def _plain(values: Sequence[str]) -> list[_Value]:
    return [_Value(value, index) for index, value in enumerate(values)]


def _drop_contrast(values: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for value in values:
        kept.append(without_contrast(value, kept))
    return kept


def _by_name(statements: Sequence[Statement]) -> tuple[str, list[_Value]] | None:
    """Some statement names the attribute ("User's manager is ..."); the others must give a value or restate one."""
    named = [(pair[0], statement) for statement in statements if (pair := possessive(statement))]
    if not named:
        return None
    attribute = named[-1][0]
    nominal = all(gives_noun(statement) for _, statement in named)
    found = [_values_for_name(statement, attribute, nominal) for statement in statements]
    known = [value for values in found for value in values]
    values: list[_Value] = []
    for index, (texts, statement) in enumerate(zip(found, statements, strict=True)):
        restated = [value for value in known if content_set(value) <= content_set(statement.predicate)]
        if not texts and not restated:
            return None
        for text in texts or restated[:1]:
            values.append(_Value(without_contrast(text, [value.text for value in values]), index))
    distinct = collapse([value.text for value in values])
    return (attribute, values) if len(distinct) > 1 else None  # a conflict has two values


def _values_for_name(statement: Statement, attribute: str, nominal: bool) -> list[str]:
    pair = possessive(statement)
    if pair and pair[0] == attribute:
        return [pair[1]]
    by_rule = rule_values(statement).get(attribute)
    if statement.noun and statement.noun != attribute:
        return [by_rule] if by_rule else []
    if changed := old_and_new(statement):
        return [value for value in changed if not content_set(value) <= content_set(attribute)]
    value = by_rule or changed_value(statement, attribute)
    if value is None and nominal:
        value = bland_value(statement, attribute)
    return [value] if value else []


_WORK: Final = re.compile(r"\b(?:work|job|retire|quit|left|fired|laid off|unemployed|career|business|promot|hired)")


def _by_some(statements: Sequence[Statement]) -> tuple[str, list[_Value]] | None:
    """Only some statements give a value for the one attribute in question; the others are told in full."""
    found = [dict(rule_values(statement)) for statement in statements]
    for values, statement in zip(found, statements, strict=True):
        if (pair := possessive(statement)) and not values:
            values[pair[0]] = pair[1]
    names = {name for values in found for name in values}
    if len(names) != 1:
        return None
    attribute = names.pop()
    others = [statement.predicate for statement, values in zip(statements, found, strict=True) if not values]
    if attribute == "job" and not all(_WORK.search(predicate) for predicate in others):
        return None  # "is a good cook" beside "could not cook" is no job
    told = _told(statements)
    last = len(statements) - 1
    texts: list[str] = []
    for index, (values, statement) in enumerate(zip(found, statements, strict=True)):
        if attribute in values and (attribute.endswith("status") or (statement.noun and gives_noun(statement))):
            texts.append(values[attribute])
        elif statement.noun == attribute:
            texts.append(absorb_change(tell(replace(statement, noun=""), index == last)))
        else:
            texts.append(told[index].text)
    return attribute, _plain(texts)


def _by_rule(statements: Sequence[Statement]) -> tuple[str, list[_Value]] | None:
    """All statements have values for the same attribute of the rules; a change that names both sides gives both."""
    read_values = [rule_values(statement) for statement in statements]
    changes = [old_and_new(statement) for statement in statements]
    names = [name for found in read_values for name in found]
    for name in dict.fromkeys(names):
        values: list[_Value] = []
        for index, (found, change) in enumerate(zip(read_values, changes, strict=True)):
            if change and (name not in found or " from " in statements[index].predicate):
                values.extend(_Value(text, index) for text in change)
            elif name in found:
                values.append(_Value(without_contrast(found[name], [value.text for value in values]), index))
            else:
                break
        else:
            base = (
                name.removesuffix("home city") + place_name([v.text for v in values]) if "home city" in name else name
            )
            return base, values
    return None


def _by_count(statements: Sequence[Statement]) -> tuple[str, list[_Value]] | None:
    """Different numbers of the same thing: "has two cats", "has one cat"."""
    found = [counted(statement) for statement in statements]
    known = [item for item in found if item]
    if len(known) != len(found) or len({item[0] for item in known}) != 1:
        return None
    values = [item[1] for item in known]
    plural = max((item[2] for item in known), key=len)
    bare = all(" " not in value and "," not in value for value in values)
    return (f"number of {plural}" if bare else plural), _plain(values)


# --- a history that has a chain ---------------------------------------------------------------------------------


def _extend(items: Sequence[Timed], in_full: bool) -> Chain:
    chain: Chain | None = None
    waiting: list[str] = []
    for item in items:
        if item.chain is not None:
            joined = join_chains(chain, item.chain) if chain else item.chain
            chain, waiting = _late(joined, waiting, in_full), []
        elif chain is None:
            waiting.append(item.segment)
        elif (item.date and chain.date and item.date < chain.date) or is_settled_past(_statement(item.segment)):
            chain = _late(chain, [item.segment], in_full)
        else:
            chain = _append(chain, item, in_full)
    if chain is None:
        raise AssertionError("called with at least one chain")
    return chain


def _statement(segment: str) -> Statement:
    return read(front_to_end(segment))


def _late(chain: Chain, segments: Sequence[str], in_full: bool) -> Chain:
    """Late arrivals go directly before the current value, which stays current."""
    values = list(chain.values)
    for segment in segments:
        for value in value_for(chain, _statement(segment), current=False, in_full=in_full):
            near = values[-2:]
            if any(same_value(value, known) or refines(known, value) for known in near):
                continue
            values.insert(len(values) - 1, value)
    return Chain(chain.head, tuple(values), chain.date, chain.earlier)


def _append(chain: Chain, item: Timed, in_full: bool) -> Chain:
    values = list(chain.values)
    date = chain.date
    for value in value_for(chain, _statement(item.segment), current=True, in_full=in_full):
        if same_value(values[-1], value) or refines(values[-1], value):
            continue
        if refines(value, values[-1]):
            values[-1] = value
            continue
        values.append(value)
        date = item.date
    return Chain(chain.head, tuple(values), date, chain.earlier)
