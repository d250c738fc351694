"""Which attribute a statement is about, and the value it gives (data/FUSION.md, CON)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from roam.fusion.grammar import Statement, lower_first
from roam.fusion.lexicon import ANIMALS, COUNTRIES, NOT_OCCUPATIONS, NUMBER_WORDS, OCCUPATIONS, PEOPLE
from roam.fusion.rules import RULES
from roam.fusion.text import content, content_set, words

_CHANGE_WORDS: Final = re.compile(
    r",? ?\b(?:now|again|these days|any more|anymore|nowadays|currently|at present|at the moment)\b(?! that\b),?"
    r"|, still\b",
    re.IGNORECASE,
)
_CONTRAST: Final = re.compile(
    r"(?:,? (?:instead of|rather than)|, (?:and )?not| and (?:has )?(?:dropped|given up|abandoned|left|quit))"
    r" (?P<old>[^,]+?)(?P<rest>,.*)?$"
)


_SCHOOL: Final = re.compile(
    r"^(?:goes to|attends|attended|went to|is at|was at|started at|has started at|is a pupil at"
    r"|is a student at|studies at"
    r"|now goes to) (?P<v>.+)$",
    re.IGNORECASE,
)
_SCHOOL_NAME: Final = re.compile(
    r"\b(?:School|Primary|Elementary|Middle|High|Secondary|Academy|Kindergarten|Nursery|College|University|Lyceum)\b"
)
_OCCUPATION: Final = re.compile(
    r"^(?:is|was|became|has become)(?: working as)? (?P<v>(?:an?|the) .+|head of .+)$", re.IGNORECASE
)
_RENAMED: Final = re.compile(
    r"^(?:has )?renamed (?:the|their|his|her) (?P<n>[a-z][\w ]*?) (?:to |as )?(?P<v>[A-Z]\S*)$"
)
_LESSONS: Final = re.compile(r"^(?:takes|has|is taking) (?P<n>[\w-]+) (?:lessons|classes) (?:from|with) (?P<v>.+)$")


def absorb_change(text: str) -> str:
    """Drop the words that only mark a change; the arrow of a chain says it."""
    text = re.sub(r"^(?:went|has gone|is|goes) back to being ", "is ", text)
    return " ".join(_CHANGE_WORDS.sub("", text).split()).strip(" ,")


def without_contrast(text: str, previous: Sequence[str]) -> str:
    """Drop "instead of v1" / "not v1" when v1 is what an earlier value already says."""
    match = _CONTRAST.search(text)
    old = content_set(match["old"]) if match else frozenset()
    if match and old and any(old <= content_set(value) for value in previous):
        return text[: match.start()] + (match["rest"] or "").removeprefix(",")
    return text


def noun_value(text: str) -> str:
    """A value as a noun phrase: no leading article or preposition ("the" stays), no change words."""
    text = absorb_change(text)
    return re.sub(r"^(?:(?:a|an|on|in|at) )+", "", text).strip() or text


def rule_values(statement: Statement) -> dict[str, str]:
    """Attribute name -> value, for every rule that can read the statement."""
    predicate = absorb_change(lower_first(statement.predicate))
    found: dict[str, str] = {}
    person = not statement.noun or statement.noun.split()[-1] in PEOPLE
    prefix = f"{statement.noun}'s " if statement.noun else ""
    for rule in RULES:
        match = rule.pattern.match(predicate) if person or not rule.people else None
        if match and prefix + rule.name not in found:
            found[prefix + rule.name] = noun_value(match["v"] + (match.groupdict().get("w") or ""))
    if match := _SCHOOL.match(predicate):
        child = statement.noun and person
        if child or _SCHOOL_NAME.search(match["v"]):
            found[f"{prefix}school"] = noun_value(match["v"])
    if (match := _LESSONS.match(predicate)) and not statement.noun:
        found[f"{match['n']} teacher"] = noun_value(match["v"])
    if match := _RENAMED.match(predicate):
        found[f"{match['n']}'s name"] = match["v"]
    if person and (match := _OCCUPATION.match(predicate)) and is_occupation(match["v"]):
        found.setdefault(f"{prefix}job", noun_value(re.sub(r"^the (?=owner|head)", "", match["v"])))
    return found


def is_occupation(phrase: str) -> bool:
    """Whether a noun phrase names a job ("a physics teacher at a high school")."""
    head = re.split(r",| (?:at|in|for|of|with|on|from|who|and)\b", phrase, maxsplit=1)[0].split()[-1]
    if head.lower() in OCCUPATIONS:
        return True
    if not head.islower() or head in NOT_OCCUPATIONS:
        return False
    return head in OCCUPATIONS or head.endswith(("er", "or", "ist", "ian", "eer", "man", "woman"))


def place_name(values: Sequence[str]) -> str:
    """ "home country" when all values are countries, else "home city"."""
    return "home country" if all(value.removeprefix("the ") in COUNTRIES for value in values) else "home city"


_COPULA: Final = re.compile(
    r"^(?:is|are|was|were)(?: (?:called|named|painted|set for|due(?: on)?|down to|up to|held|still))? (?P<v>.+)$"
)
_MOVED: Final = re.compile(
    r"^(?:has been|have been|was|were|has|is) (?:moved|raised|lowered|put off|postponed|changed|increased|reduced|cut"
    r"|brought forward|risen|dropped|gone up|gone down|grown|pushed back|rescheduled|switched"
    r"|set) (?:back )?(?:to|for|until) (?P<v>.+)$"
)
_FROM_TO: Final = re.compile(
    r"^(?:has |have |is |was |has been |was )?(?:moved|moving|switched|changed|went|gone|upgraded"
    r"|downgraded|raised|lowered|increased"
    r"|reduced|cut|transferred|relocated|grew|rose|fell|dropped|risen|fallen|grown|converted|down|up)(?: .*?)?"
    r" from (?P<a>.+?) (?:over )?to (?P<b>.+)$"
)
_FOR: Final = re.compile(
    r"^(?:has )?(?:swapped|traded|exchanged|left|gave up|ditched)(?: in)? (?P<a>.+?)(?: in)? for (?P<b>.+)$"
)
_REPLACED: Final = re.compile(r"^(?:has )?replaced (?P<a>.+?) (?:with|by) (?P<b>.+)$")
_BLAND: Final = re.compile(
    r"^(?:usually |mainly |mostly |only |always )?(?:uses|used|has|had|owns|owned|got|drives|drove"
    r"|rides|lives|lived|drinks|eats|reads|"
    r"plays|wears|takes|took|watches|pays|earns|speaks|keeps|bought|has bought|got|has got|switched"
    r"|has switched|changed|"
    r"has changed|moved|has moved|upgraded|has upgraded|is|was|will be|prefers|chose|has chosen"
    r"|settled|has settled|works|worked|"
    r"is having|goes|went|studies|studied|sold the \w+ and drives)"
    r"(?: (?:to|on|in|at|with|for|onto|as|by))? (?P<v>.+)$",
    re.IGNORECASE,
)
_STARTS_NOMINAL: Final = re.compile(
    r"^(?:(?:an?|the|no|his|her|their|only|two|three|four|five|six|seven|eight|nine|ten|eleven"
    r"|twelve) |[A-Z0-9\"]|-?\d)"
)


def old_and_new(statement: Statement) -> tuple[str, str] | None:
    """(old, new) of a statement that names both: "switched from Chrome to Firefox", "swapped A for B"."""
    predicate = absorb_change(lower_first(statement.predicate))
    for pattern in (_FROM_TO, _REPLACED, _FOR):
        if match := pattern.match(predicate):
            a, b = noun_value(match["a"]), noun_value(match["b"])
            return re.sub(r"^the ", "", a), b
    return None


def is_being(noun: str) -> bool:
    """Whether a possessed noun is a person or an animal."""
    head = re.split(r",| (?:from|in|at|of|with|named|called) ", noun)[0].split()
    return any(word in PEOPLE or word in ANIMALS for word in (head[-1].lower(), head[0].lower()))


def possessive(statement: Statement) -> tuple[str, str] | None:
    """(attribute, value) of "User's manager is Ms. Lindqvist", else None."""
    if not statement.noun or is_being(statement.noun):
        return None  # "User's dog is on raw food": the dog is no attribute, and its predicates are kept whole
    predicate = absorb_change(statement.predicate)
    match = _MOVED.match(predicate) or _COPULA.match(predicate)
    return (statement.noun, noun_value(match["v"])) if match else None


def gives_noun(statement: Statement) -> bool:
    """Whether "X's N is V" gives a thing or a name for V, and not a state ("is empty", "is in a cast")."""
    match = _COPULA.match(absorb_change(statement.predicate))
    return bool(match and _STARTS_NOMINAL.match(match["v"]))


def bland_value(statement: Statement, attribute: str) -> str | None:
    """The object of a verb that adds nothing to the attribute ("uses LastPass" for "password manager")."""
    predicate = absorb_change(lower_first(statement.predicate))
    match = _BLAND.match(predicate)
    if match is None or not _STARTS_NOMINAL.match(match["v"]):
        return None
    value = re.sub(rf" (?:as|for|in|of) (?:an? |the |their )?{re.escape(attribute)}\b", "", noun_value(match["v"]))
    return without_attribute(only_count(value, attribute), attribute) or None


_OF: Final = re.compile(r"(?<=[a-z]) of (?P<w>[a-z]+)(?= )")
_TAIL: Final = re.compile(r" (?:in|of|for|as|on) (?:the |their |an? )?(?P<w>[\w '-]+)$")


def without_attribute(value: str, attribute: str) -> str:
    """Drop a closing mention of the attribute: "985 euros in rent", "29.99 a month for the internet"."""
    if (inside := _OF.search(value)) and content_set(inside["w"]) <= content_set(attribute):
        value = value[: inside.start()] + value[inside.end() :]
    match = _TAIL.search(value)
    if match and content(match["w"]) and content_set(match["w"]) <= content_set(attribute):
        return value[: match.start()]
    return value


def changed_value(statement: Statement, attribute: str) -> str | None:
    """The new value in "brought the HbA1c down to 6.4%", "renamed the kitten Captain"."""
    predicate = absorb_change(lower_first(statement.predicate))
    name = re.escape(attribute)
    match = re.match(rf"^(?:has )?\w+ (?:the|their|his|her) {name}(?: \w+)? to (?P<v>.+)$", predicate)
    return noun_value(match["v"]) if match else None


def only_count(value: str, attribute: str) -> str:
    """ "9 hens" is "9" under the attribute "number of hens"."""
    parts = value.split(" ", 1)
    is_number = parts[0].lower() in NUMBER_WORDS or parts[0].isdigit()
    if is_number and len(parts) == 2 and content(parts[1]) == content(attribute.removeprefix("number of ")):
        return parts[0]
    return value


_COUNTED: Final = re.compile(
    r"^(?:has|have|had|owns|keeps) (?:only )?(?P<c>\d+|[a-z]+) (?P<n>[a-z][\w-]*)(?P<rest>,.*| .*)?$"
)


def counted(statement: Statement) -> tuple[str, str, str] | None:
    """(noun stem, count with details, noun) of "has two cats, Salt and Pepper", else None."""
    match = _COUNTED.match(absorb_change(lower_first(statement.predicate)))
    if match is None or statement.noun or not (match["c"].isdigit() or match["c"] in NUMBER_WORDS):
        return None
    stems = content(match["n"])
    rest = match["rest"] or ""
    return (stems[0], match["c"] + rest, match["n"]) if len(stems) == 1 and len(words(match["n"])) == 1 else None
