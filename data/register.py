"""Put a third-person or subjectless fact into the first person: the register of chat, rare in the families.

The rules are few and give up rather than guess: `first_person` returns None for a text it can't turn over safely.
"""

from __future__ import annotations

import itertools
import re

SUBJECT = re.compile(r"^(?:The user|User)(?P<possessive>'s)?\s+(?P<rest>.+)$", re.DOTALL)
# Words between subject and verb that do not change with the person.
ADVERBS = frozenset({
    "never", "always", "usually", "often", "rarely", "seldom", "sometimes", "also", "only", "still", "no", "longer",
    "hardly", "ever", "really", "currently", "now", "mostly", "recently", "generally", "regularly", "just", "strongly",
    "firmly", "genuinely", "almost",
})  # fmt: skip
IRREGULAR = {"has": "have", "is": "am", "does": "do", "goes": "go", "hasn't": "haven't", "isn't": "am not",
             "doesn't": "don't", "was": "was", "wasn't": "wasn't"}  # fmt: skip
# Modals and past forms are the same in every person.
INVARIANT = frozenset({
    "can", "cannot", "can't", "could", "couldn't", "will", "won't", "would", "wouldn't", "should", "shouldn't", "must",
    "may", "might", "did", "didn't", "had", "hadn't",
})  # fmt: skip
# A pronoun may stand for the user or for somebody else.
PRONOUNS = re.compile(r"\b(?:he|she|they|them|him|her|hers|his|their|theirs|himself|herself|themselves|users?)\b", re.I)
# After "user's", these show that it is short for "user is" or "user has".
CONTRACTED = frozenset({
    "a", "an", "the", "into", "in", "on", "at", "not", "never", "been", "got", "had", "no", "about", "afraid", "run",
    "out", "up", "very", "too",
})  # fmt: skip
NOT_VERBS = frozenset({"this", "his", "its", "mathematics", "politics"})


def first_person(text: str) -> str | None:
    """The fact as its subject would say it, or None when the rules don't reach.

    >>> first_person("The user has a dog.")
    'I have a dog.'
    >>> first_person("Never eats pork.")
    'I never eat pork.'
    >>> first_person("The user's sister is a nurse.")
    'My sister is a nurse.'
    """
    match = SUBJECT.match(text)
    rest = match["rest"] if match else text
    if PRONOUNS.search(rest):
        return None
    words = rest.split(" ")
    if match and match["possessive"]:
        return None if words[0] in CONTRACTED else f"My {rest}"
    at = 0
    while at < len(words) and words[at].lower() in ADVERBS:
        at += 1
    if at == len(words):
        return None
    verb = _verb(words[at] if match or at else words[at].lower())
    if verb is None or _second_verb(words[at + 1 :]):
        return None
    lead = [word.lower() if index == 0 and not match else word for index, word in enumerate(words[:at])]
    return " ".join(["I", *lead, verb, *words[at + 1 :]])


def _verb(word: str) -> str | None:
    """First-person form of a third-person verb; None for what does not look like one."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word in INVARIANT:
        return word
    if word in NOT_VERBS or not word.isalpha() or not word.islower() or len(word) < 4:
        return None
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zzes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else None


def _second_verb(words: list[str]) -> bool:
    """True when a later clause has a verb of the same subject ("and plays"), which would have to change as well."""
    joints = {"and", "but", "or", "then"}
    for first, second in itertools.pairwise(words):
        if first in joints and (
            second in IRREGULAR or second in ADVERBS or (second.isalpha() and second.endswith("s"))
        ):
            return True
    return False
