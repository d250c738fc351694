"""The value that a new statement adds to an existing chain, in the style of the chain (data/FUSION.md, CON)."""

from __future__ import annotations

import re
from dataclasses import replace

from roam.fusion.attributes import (
    absorb_change,
    bland_value,
    changed_value,
    noun_value,
    old_and_new,
    only_count,
    possessive,
    rule_values,
    without_attribute,
    without_contrast,
)
from roam.fusion.chain import Chain, same_value
from roam.fusion.grammar import Statement, is_past, is_verb, lower_first, tell
from roam.fusion.heads import replace_topic
from roam.fusion.lexicon import NUMBER_WORDS
from roam.fusion.text import content_set

_PLACES = frozenset(["home city", "home country", "home town", "home state", "city", "country", "residence", "home"])
_SAME_ATTRIBUTE = {"job title": "job", "main phone": "phone", "browser": "main browser", "favourite": "favorite"}


def attribute_of(head: str) -> str:
    """ "home city" of "The user's home city", "son's school" of "User's son's school"."""
    match = re.match(r"^(?:(?:the )?user['’]s|[\w-]+['’]s?) (?P<attribute>.+)$", head, re.IGNORECASE)
    return match["attribute"] if match else head


def value_for(chain: Chain, statement: Statement, *, current: bool, in_full: bool = False) -> list[str]:
    """The values that a statement adds, oldest first; its whole predicate when the attribute's rules do not fit.

    With `in_full` the whole predicate in any case. `current` tells whether the value becomes the current one;
    predicates of older ones go into the past tense.
    """
    attribute = attribute_of(chain.head)
    if in_full:
        return [tell(statement, current)]
    if statement.noun and attribute.startswith(f"{statement.noun}'s "):
        attribute = attribute.removeprefix(f"{statement.noun}'s ")
        statement = replace(statement, noun="")
    if told_in_predicates(chain, attribute):
        return [_predicate(chain, statement, attribute, current)]
    if change := old_and_new(statement):
        old, new = change
        known = any(same_value(old, value) or content_set(old) <= content_set(value) for value in chain.values)
        return [new] if known or content_set(old) <= content_set(attribute) else [old, new]
    value = _noun(chain, statement, attribute)
    if value is None:
        value = without_attribute(absorb_change(tell(statement, current)), attribute)
    return [without_contrast(value, chain.values)]


def told_in_predicates(chain: Chain, attribute: str) -> bool:
    """Whether the values of a chain are predicates ("ran 5 km", "no longer runs") and not noun phrases."""
    if attribute.startswith("view on ") or attribute.endswith(" habit") or attribute == "status":
        return True
    if attribute.endswith(" status"):
        return False
    return is_verb(chain.values[-1]) and all(is_past(value) for value in chain.values[:-1])


def _predicate(chain: Chain, statement: Statement, attribute: str, current: bool) -> str:
    if statement.noun == attribute:
        statement = replace(statement, noun="")
    value = without_contrast(absorb_change(tell(statement, current)), chain.values)
    topic = attribute.removeprefix("view on ")
    if topic != attribute:
        # A chain that says "disliked -> tolerates" goes on without a pronoun.
        pronouns = any(re.search(r"\b(?:it|them|her|him)\b", known) for known in chain.values)
        value = replace_topic(value, topic, pronouns)
    topic = attribute.removesuffix(" habit")
    if topic != attribute and topic[:1].isupper():
        value = re.sub(rf" (?:on|in|to|at) {re.escape(topic)}\b", "", value)
    return value


_BEST = re.compile(r"^(?:likes|loves|prefers) (?P<v>.+?) (?:best|most)(?: of all(?: \w+)?)?$")


def _noun(chain: Chain, statement: Statement, attribute: str) -> str | None:
    pair = possessive(statement)
    if pair and (pair[0] == attribute or content_set(pair[0]) & content_set(attribute)):
        return only_count(pair[1], attribute)
    found = rule_values(statement)
    name = attribute if attribute in found else _SAME_ATTRIBUTE.get(attribute, "")
    if name in found:
        return found[name]
    if attribute in _PLACES:
        places = [found[place] for place in ("home city", "home") if place in found]
        if places:
            return places[0]
    if attribute == "job" or attribute.startswith("job "):
        match = re.match(r"^(?:is|was|became|has become|works as|worked as) (?P<v>.+)$", statement.predicate)
        return noun_value(match["v"]) if match else None
    if attribute.endswith("status"):
        match = re.match(r"^(?:is|was|got|has been) (?P<v>.+)$", absorb_change(lower_first(statement.predicate)))
        return match["v"] if match else None
    if attribute.startswith(("favourite ", "favorite ")):
        match = _BEST.match(absorb_change(statement.predicate))
        if match:
            return noun_value(match["v"])
    value = changed_value(statement, attribute) or bland_value(statement, attribute)
    if value is None:
        return _quantity(chain, statement)
    return value


_QUANTITY = re.compile(r"(?P<q>-?\d[\d.,:/]*(?: ?%| ?[a-z]+)?(?:(?: a| per) (?:month|year|week|day))?)")


def _quantity(chain: Chain, statement: Statement) -> str | None:
    """The only quantity of a statement, when every value of the chain is one of the same unit."""
    found = _QUANTITY.findall(statement.predicate)
    if len(found) != 1:
        return None
    quantity = str(found[0]).strip()
    unit = re.sub(r"^[\d.,:/ -]+", "", quantity)
    known = {re.sub(r"^[\d.,:/ -]+", "", value) for value in chain.values if value[:1].isdigit() or value[:1] == "-"}
    if len(known) == 1 and unit in known and not _has_other_facts(statement.predicate, quantity):
        return quantity
    return None


def _has_other_facts(predicate: str, quantity: str) -> bool:
    # Names and further numbers would be lost if only the quantity was kept.
    rest = predicate.replace(quantity, " ", 1)
    return any(word[0].isupper() or word in NUMBER_WORDS for word in rest.split())
