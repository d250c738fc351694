"""Subjects, first person and tense of short English statements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from roam.fusion.lexicon import (
    ADVERBS,
    COORDINATED,
    MODALS,
    NAMES_LIKE_VERBS,
    NOT_VERBS,
    OWNED_VERBS,
    PAST,
    PAST_BASE,
    SAME_IN_PAST,
    THIRD,
    UNCHANGING,
)

_SUBJECT = re.compile(r"^(?P<subject>(?:[Tt]he )?[Uu]ser|I)\b(?!')\s+(?P<rest>.+)$")
_FIRST_CONTRACTION = re.compile(r"^I['’](?P<verb>m|ve|d|ll)\s+(?P<rest>.+)$")
_OWNED = re.compile(r"^(?P<owner>(?:[Tt]he )?[Uu]ser['’]s|[Mm]y|His|Her|Their)\s+(?P<rest>.+)$")
_NAME_OWNED = re.compile(r"^(?P<owner>[A-Z][\w-]+['’]s?)\s+(?P<rest>(?:[a-z0-9]|[A-Z]\w*[A-Z0-9]).*)$")
_NAME = re.compile(r"^(?P<subject>[A-Z][\w-]*[a-z](?: (?:[A-Z][\w-]*|(?:de|van|von|al|bin)))*)\s+(?P<rest>[a-z].*)$")


@dataclass(frozen=True, slots=True)
class Statement:
    """A plain statement: `subject` as written ("" when there is none), the predicate, and whose fact it is.

    `owner` is the head prefix of a chain about it ("The user's", "User's", "Maya's"); `noun` is the possessed thing
    when the subject is one ("dog" in "User's dog eats Purina"), else "".
    """

    text: str
    subject: str
    owner: str
    noun: str
    predicate: str


def third_person(text: str) -> str:
    """Turn a first-person statement into one about "The user"; every other text is returned as it is."""
    contraction = _FIRST_CONTRACTION.match(text)
    if contraction:
        verb = {"m": "is", "ve": "has", "d": "would", "ll": "will"}[contraction["verb"]]
        return f"The user {verb} {_first_to_they(contraction['rest'])}"
    if re.match(r"^I\s", text):
        return f"The user {_first_to_they(_conjugate(text[2:].strip()))}"
    if re.match(r"^My\s", text):
        return f"The user's {_first_to_they(text[3:].strip())}"
    if _STARTS_LOWER_FIRST.search(text):
        return _first_to_they(text)
    return text


_STARTS_LOWER_FIRST = re.compile(r"\b(?:my|I)\b")
_FIRST_WORDS: Final = (
    (r"\bI['’]m\b", "they're"), (r"\bI['’]ve\b", "they've"), (r"\bI['’]d\b", "they'd"), (r"\bI['’]ll\b", "they'll"),
    (r"\bI am\b", "they are"), (r"\bI was\b", "they were"), (r"\bI(?=[ ,])(?! of\b)", "they"),
    (r"\bmyself\b", "themselves"),
    (r"\bmine\b", "theirs"), (r"\bmy\b", "their"), (r"\bme\b", "them"),
)  # fmt: skip


def _first_to_they(text: str) -> str:
    pieces = text.split('"')  # quoted words are somebody's own and stay
    for index in range(0, len(pieces), 2):
        for pattern, replacement in _FIRST_WORDS:
            pieces[index] = re.sub(pattern, replacement, pieces[index])
    return '"'.join(pieces)


def _conjugate(predicate: str) -> str:
    tokens = predicate.split(" ")
    for index, token in enumerate(tokens):
        if token.lower() in ADVERBS:
            continue
        tokens[index] = _third(token)
        break
    for index in range(1, len(tokens) - 1):
        if tokens[index] in ("and", "but") and tokens[index + 1] in COORDINATED:
            tokens[index + 1] = _third(tokens[index + 1])
    return " ".join(tokens)


def _third(verb: str) -> str:
    if verb in THIRD:
        return THIRD[verb]
    known_past = verb in PAST_BASE and verb not in SAME_IN_PAST
    if verb in MODALS or known_past or (verb.endswith("ed") and verb not in ("need", "feed")):
        return verb
    if verb.endswith(("s", "sh", "ch", "x", "z")) or (verb.endswith("o") and len(verb) > 2):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def read(text: str) -> Statement:
    """Split a statement (any person, no closing period) into subject and predicate."""
    text = third_person(text)
    if match := _OWNED.match(text):
        owner = "The user's" if match["owner"] in ("His", "Her", "Their") else _capital(match["owner"])
        noun, predicate = _split_owned(match["rest"])
        return Statement(text, f"{match['owner']} {noun}".strip(), owner, noun, predicate)
    if match := _SUBJECT.match(text):
        return Statement(text, match["subject"], f"{_capital(match['subject'])}'s", "", match["rest"])
    mentioned = _MENTIONED.search(text)  # somebody else's name, or a clause around the user
    if not mentioned and (match := _NAME_OWNED.match(text)):
        noun, predicate = _split_owned(match["rest"])
        if predicate:
            return Statement(text, f"{match['owner']} {noun}", match["owner"], noun, predicate)
    if not mentioned and (match := _NAME.match(text)) and is_verb(match["rest"]) and _is_name(match["subject"]):
        name = match["subject"]
        return Statement(text, name, name + "'s", "", match["rest"])
    owner = "User's" if mentioned and mentioned[0] == "User" else "The user's"
    return Statement(text, "", owner, "", "" if mentioned else text)


_MENTIONED = re.compile(r"\b(?:[Tt]he user|User)\b")


def _split_owned(rest: str) -> tuple[str, str]:
    """("dog", "eats Purina") of "dog eats Purina": the possessed thing ends where the first verb starts."""
    tokens = rest.split(" ")
    for known in (True, False):  # "painted" may be an adjective: known verb forms first
        for index, token in enumerate(tokens[1:], 1):
            word = token.rstrip(",")
            sure = (
                word in PAST or word in UNCHANGING or word in OWNED_VERBS or (word == "now" and index < len(tokens) - 1)
            )
            if sure if known else word.endswith("ed"):
                return " ".join(tokens[:index]), " ".join(tokens[index:])
    return rest, ""


def is_verb(text: str) -> bool:
    """Whether a text starts with a third-person verb, adverbs aside."""
    for word in text.split(" "):
        lower = word.lower()
        if word != lower:
            return False
        if lower in ADVERBS:
            continue
        known = lower in PAST or lower in UNCHANGING or lower in PAST_BASE
        return known or (lower.endswith(("s", "ed")) and not lower.endswith(("ss", "'s", "us")) and len(lower) > 3)
    return False


def _is_name(subject: str) -> bool:
    """Whether a capitalised opening is a name: "Ines lives", and not the verb of a subjectless "Likes oats"."""
    return subject.split(" ", 1)[0] in NAMES_LIKE_VERBS or not is_verb(subject.lower())


def is_past(text: str) -> bool:
    """Whether a text starts with a verb in the past tense, adverbs aside."""
    for word in text.split(" "):
        if word in ADVERBS:
            continue
        return word in UNCHANGING or word in PAST_BASE or (word.endswith("ed") and " " in text)
    return False


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def lower_first(text: str) -> str:
    """Lower the first letter unless the first word is a name, an acronym or "I"."""
    first = text.split(" ", 1)[0]
    return text if first[1:] != first[1:].lower() or first == "I" else text[:1].lower() + text[1:]


def past(predicate: str) -> str:
    """Put the main verb of a third-person predicate into the past tense; unknown forms stay as they are."""
    tokens = predicate.split(" ")
    for index, token in enumerate(tokens):
        lower = token.lower()
        if lower in ADVERBS or lower.endswith("ly"):
            continue
        tokens[index] = _past_form(lower, token)
        break
    return " ".join(tokens)


def _past_form(lower: str, token: str) -> str:
    if lower in PAST:
        return PAST[lower]
    if lower in UNCHANGING or lower in NOT_VERBS or not re.fullmatch(r"[a-z]{3,}(?<!s)s", lower):
        return token
    if lower.endswith("ies"):
        return lower[:-3] + "ied"
    if lower.endswith(("shes", "ches", "xes", "sses", "zes")):
        return lower[:-2] + "ed"
    base = lower[:-1]
    if base.endswith("e"):
        return base + "d"
    doubles = re.fullmatch(r"[^aeiou]*[aeiou][bdgmnprt]", base)
    return base + (base[-1] if doubles else "") + "ed"


_FRONT = re.compile(
    r"^(?P<front>(?:In|From|Until|At|On|During|Since|For"
    r"|As for)\b[^,]+?),? (?P<subject>the user(?:'s)?|User(?:'s)?)\s(?P<rest>.+)$"
)


def front_to_end(text: str) -> str:
    """Move a phrase before the subject to the end: "In 2020 the user was at Nokia", "The user was at Nokia in 2020"."""
    match = _FRONT.match(text)
    if match is None:
        return text
    return f"{_capital(match['subject'])} {match['rest']} {lower_first(match['front'])}"


_STATE_IN_PAST = re.compile(
    r"^(?:(?:was|were) (?:working|living|studying|based|an?|at|in|on)|had an?|lived|worked|studied"
    r"|owned|drove|taught|attended"
    r"|used to|played|stayed|rented|served|went to)\b"
)
_TEXT_DATE = re.compile(
    r"\b(?:in|until|till|from|before|between|during|up to|back in|through)\b.*\b(?:(?:19|20)\d\d|grade"
    r"|childhood|\w+ school)\b"
    r"|\bused to\b|\bas a (?:child|kid|teenager|student)\b|\buntil\b|\byears ago\b"
)


def is_settled_past(statement: Statement) -> bool:
    """Whether a statement tells a state that was over by its own words ("lived in Exeter in 2019")."""
    predicate = lower_first(statement.predicate)
    return bool(_STATE_IN_PAST.match(predicate) and _TEXT_DATE.search(predicate))


def is_present(statement: Statement) -> bool:
    """Whether the main verb is in the present (or perfect): what the statement tells still holds."""
    for word in statement.predicate.lower().split(" "):
        if word not in ADVERBS:
            return word in PAST or word in ("am", "are") or bool(re.fullmatch(r"[a-z]{3,}(?<!s)s", word))
    return False


def tell(statement: Statement, current: bool = True) -> str:
    """The full statement as a value: the owner's predicate, or the possession with "their" and its predicate.

    A value that is not `current` goes into the past tense.
    """
    if not statement.predicate or statement.predicate.startswith("and "):
        return lower_first(statement.text)
    predicate = lower_first(statement.predicate)
    predicate = predicate if current else past(predicate)
    if not statement.noun:
        return predicate
    possessor = "their" if statement.owner.lower() in ("the user's", "user's") else statement.owner
    return f"{possessor} {statement.noun} {predicate}"


def with_subject(text: str, model: Statement) -> str:
    """`text` with the subject form of `model` where both are about the user: "The user", "User" or none."""
    statement = read(text)
    generic = ("the user", "user", "")
    if statement.noun or model.noun:
        owners = ("the user's", "user's")
        if statement.noun and statement.owner.lower() in owners and model.owner.lower() in owners and model.subject:
            return f"{model.owner} {statement.noun} {statement.predicate}".strip()
        return text
    if (
        statement.subject.lower() not in generic
        or model.subject.lower() not in generic
        or not is_verb(lower_first(statement.predicate))
    ):
        return text
    return f"{model.subject} {lower_first(statement.predicate)}" if model.subject else _capital(statement.predicate)
