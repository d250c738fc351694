"""Chain heads whose values are predicates: views on something, habits, things had or given up (data/FUSION.md, CON)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from roam.fusion.attributes import absorb_change
from roam.fusion.grammar import Statement, lower_first, past
from roam.fusion.lexicon import COMPARED, DEGREES, FEMALE, FUNCTION_WORDS, MALE, PHRASE_ENDS, PLAIN_VERBS, PRONOUNS
from roam.fusion.text import content_set

_ATTITUDE: Final = re.compile(
    r"^(?:(?:really|absolutely|still|also|strongly|secretly|does not|doesn't|did not|didn't|no longer"
    r"|never|has|has come to"
    r"|does|quite) )*"
    r"(?:(?:love|like|hate|dislike|enjoy|adore|detest|loathe|despise|trust|distrust|support|oppose"
    r"|favour|favor|fear|mind"
    r"|admire|find|think|believe|consider|prefer)(?:e?s|e?d)?|found|thought|(?:cannot|can't|couldn't) (?:stand|bear)"
    r"|gets? on(?: well)? with|got on(?: well)? with|(?:is|was) (?:not |a little |very )?(?:afraid"
    r"|fond|scared|a fan|tired|sick"
    r"|wary|proud|critical) of|(?:is|was) (?:not )?(?:keen|sold) on|(?:is|was) (?:against|for|in favour of)"
    r"|(?:is|was) (?:not )?(?:bored|fascinated|annoyed) by|(?:is|was) (?:not )?(?:interested in|into)"
    r"|lost (?:all )?(?:interest in|respect for)|got into|warmed to)"
    r"(?: (?:that|working|living in|going to|using))? (?P<x>.+)$"
)
_FREQUENT: Final = re.compile(
    r"\b(?:every|daily|weekly|each|often|usually|regularly|on \w+days|an? (?:day|week|month|year)"
    r"|most \w+s|always|never"
    r"|no longer|stopped|quit|gave up|has given up|rarely|sometimes)\b"
)
_GIVEN_UP: Final = re.compile(
    r"^(?:has )?(?:stopped|quit|gave up|given up|no longer|never|started|has started|took up|has taken up) (?P<v>\w+)"
)
_LEADING: Final = re.compile(
    r"^(?:(?:always|usually|often|never|no|longer|sometimes|only|regularly|rarely|doesn't|does|not|didn't) )*"
)


def pronoun(noun: str) -> str:
    """ "it", "them", "her" or "him" for a noun phrase."""
    head = re.split(r" (?:for|of|in|on|at|with|from|to) ", noun)[0].split()[-1]
    if head in FEMALE or head in MALE:
        return "her" if head in FEMALE else "him"
    plural = head.islower() and head.endswith("s") and not head.endswith(("ss", "us", "is", "'s"))
    return "them" if plural or " and " in noun else "it"


def common_prefix(phrases: Sequence[str]) -> str:
    """The words that all phrases start with, without trailing function words."""
    kept: list[str] = []
    for group in zip(*(phrase.replace(",", " ,").split() for phrase in phrases), strict=False):
        if len({word.casefold() for word in group}) > 1:
            break
        kept.append(group[0])
    while kept and (kept[-1].lower() in FUNCTION_WORDS or kept[-1] == ","):
        kept.pop()
    return " ".join(kept).replace(" ,", ",")


def attitude(statements: Sequence[Statement]) -> tuple[str, list[str]] | None:
    """("view on X", predicates with a pronoun for X) when all statements judge the same X, else None."""
    if any(statement.noun for statement in statements):
        return None
    predicates = [absorb_change(lower_first(statement.predicate)) for statement in statements]
    matches = [_ATTITUDE.match(predicate) for predicate in predicates]
    if not all(matches):
        return None
    topic = common_prefix([match["x"] for match in matches if match])
    if not content_set(topic) or not all(_ends_there(match, topic) for match in matches if match):
        return None
    return f"view on {topic}", in_past([replace_topic(predicate, topic) for predicate in predicates])


_JUDGED: Final = re.compile(r"\b(?:find|finds|found|consider|considers|considered)$")
_STATED: Final = re.compile(r"\b(?:think|thinks|thought|believe|believes|believed)(?: that)?$")


def _ends_there(match: re.Match[str], topic: str) -> bool:
    """Whether the topic is all that the verb takes: "loves Rome", "finds Rome dull", but not "likes Rome buses"."""
    verb = match.string[: match.start("x")].strip()
    follows = match["x"][len(topic) :].lstrip()
    first = follows.split(" ", 1)[0]
    if _JUDGED.search(verb):
        return bool(follows)
    if _STATED.search(verb):
        return first in ("is", "are", "was", "were")
    return not follows or follows.startswith(",") or first in PHRASE_ENDS or first in DEGREES


def replace_topic(predicate: str, topic: str, pronouns: bool = True) -> str:
    """`predicate` with its first mention of `topic` as a pronoun, or left out."""
    other = pronoun(topic) if pronouns else ""
    pattern = re.compile(rf"(?<![\w-]){re.escape(topic)}(?![\w-])", re.IGNORECASE)
    replaced = pattern.sub(other, predicate, count=1)
    return " ".join(replaced.split()).replace(" ,", ",") or predicate


_ABLE: Final = re.compile(r"^(?:can|can't|cannot|could|couldn't|is able to|is unable to) (?P<v>[a-z]+)\b")


def ability(statements: Sequence[Statement]) -> tuple[str, list[str]] | None:
    """("ability to swim", predicates) when all statements say whether the same thing can be done, else None."""
    predicates = [absorb_change(lower_first(statement.predicate)) for statement in statements]
    matches = [_ABLE.match(predicate) for predicate in predicates]
    verbs = {match["v"] for match in matches if match}
    if any(statement.noun for statement in statements) or not all(matches) or len(verbs) != 1:
        return None
    return f"ability to {verbs.pop()}", in_past(predicates)


def habit(statements: Sequence[Statement]) -> tuple[str, list[str]] | None:
    """("running habit", predicates) when all statements tell how often the same thing is done, else None."""
    if any(statement.noun for statement in statements):
        return None
    predicates = [absorb_change(lower_first(statement.predicate)) for statement in statements]
    verbs = [_verb(predicate) for predicate in predicates]
    if len({_root(verb) for verb in verbs}) != 1 or not any(_FREQUENT.search(predicate) for predicate in predicates):
        return None
    name = gerund(verbs[0])
    particles = {match[1] for predicate in predicates if (match := _PARTICLE.search(predicate))}
    if len(particles) == 1 and all(_PARTICLE.search(predicate) for predicate in predicates):
        name = name and f"{name} {particles.pop()}"
    return (f"{name} habit", in_past(predicates)) if name else None


_PARTICLE: Final = re.compile(r"^(?:[a-z]+ )?[a-z]+ (out|up|off|in)\b")


def _verb(predicate: str) -> str:
    if match := _GIVEN_UP.match(predicate):
        return match["v"]
    return _LEADING.sub("", predicate).split(" ", 1)[0]


def _root(verb: str) -> str:
    verb = verb.lower()
    for ending in ("ing", "es", "s", "e"):
        if verb.endswith(ending) and len(verb) - len(ending) >= 3:
            verb = verb[: -len(ending)]
            break
    return verb[:-1] if len(verb) > 3 and verb[-1] == verb[-2] and verb[-1] not in "lsz" else verb


def gerund(verb: str) -> str:
    """The -ing form of a third-person verb, or "" for verbs that name no habit."""
    if verb in PLAIN_VERBS or f"{verb}s" in PLAIN_VERBS or not verb.isalpha():
        return ""
    if verb.endswith("ing"):
        return verb
    base = verb[:-2] if verb.endswith(("shes", "ches", "xes", "sses")) else verb.removesuffix("s")
    if verb.endswith("ies"):
        base = verb[:-3] + "y"
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    double = re.fullmatch(r"[^aeiou]*[aeiou][bdgmnprt]", base)
    return base + (base[-1] if double else "") + "ing"


_OBJECT: Final = re.compile(
    r"^(?:(?:has|have|no longer|never|still|only|always|also|just|recently|finally) )*[a-z']+(?: (?:up"
    r"|off|away|out|back|on))? "
    r"(?P<a>the|an?|no|his|her|their|any) (?P<np>[^,;:()]+)"
)


def shared_thing(statements: Sequence[Statement]) -> tuple[str, list[str]] | None:
    """(thing, predicates) when one thing is the object of all statements ("has a boat", "sold the boat"), else None."""
    if any(statement.noun for statement in statements):
        return None
    predicates = [absorb_change(lower_first(statement.predicate)) for statement in statements]
    things = [_objects(predicate) for predicate in predicates]
    shared = set.intersection(*things)
    if not shared:
        return None
    thing = max(sorted(shared), key=len)
    return thing, in_past([_refer(predicate, thing) for predicate in predicates])


def _objects(predicate: str) -> set[str]:
    """The noun phrase behind the main verb and its ends: "upright piano", "piano"; empty for other structures."""
    match = _OBJECT.match(predicate)
    if match is None:
        return set()
    tokens: list[str] = []
    end = ""
    for token in match["np"].split():
        if token in PHRASE_ENDS or token in PRONOUNS:
            end = token
            break
        tokens.append(token)
    if not 0 < len(tokens) <= 4 or COMPARED & set(tokens) or end in PRONOUNS or end in ("of", "is", "are", "was"):
        return set()
    ends = (" ".join(tokens[start:]) for start in range(len(tokens)))
    return {thing for thing in ends if content_set(thing) and not thing[0].isdigit()}


def _refer(predicate: str, thing: str) -> str:
    name = re.escape(thing)
    if re.search(rf"\bno {name}\b", predicate):
        return re.sub(rf"\bno {name}\b", "none", predicate, count=1)
    if re.search(rf"\ban? {name}\b(?! (?:an?|per|every)\b)", predicate):
        return re.sub(rf"\ban? {name}\b", "one", predicate, count=1)
    return re.sub(rf"\b(?:the|his|her|their) {name}\b", pronoun(thing), predicate, count=1)


def in_past(values: Sequence[str]) -> list[str]:
    """Superseded predicates in the past tense, the last one as it is."""
    return [past(value) for value in values[:-1]] + list(values[-1:])
