"""Whether a text still states a fact, by a fixed lexical rule.

Coverage by members (paper equations 10-12) counts a fact as present when its view is retrieved, even if fusion or the
budget's cut dropped what the fact said. The rule here looks at the retained text: a fact is stated when its whole text
is in it, or when all its numbers, names and negations and at least `CONTENT_SHARE` of its other content words are.
"""

from __future__ import annotations

import re
import unicodedata

CONTENT_SHARE = 0.8

_WORD = re.compile(r"[^\W_]+(?:[.,:'/-][^\W_]+)*")

_FUNCTION_WORDS = """
a about after again all also am an and any are as at be because been before being both but by can could did do does
doing during each few for from had has have having he her hers him his how i if in into is it its itself just me more
most my of off on once only or other our out over own she should so some such than that the their theirs them then there
these they this those through to too under until up very was we were what when where which while who whom whose why will
with would you your yours user users said says mentioned told noted now currently
"""
# Words that carry no content of a personal fact: function words, and how facts are reported ("the user said that").
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())

_EXACT_WORDS = """
no not never nor none without two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million first
second third fourth fifth twice half
"""
# Numbers in words and negations: without one of them a fact says something else.
EXACT_WORDS = frozenset(_EXACT_WORDS.split())


def normalise(text: str) -> str:
    """Case-folded NFC text with single spaces and straight apostrophes."""
    return " ".join(unicodedata.normalize("NFC", text).replace("’", "'").casefold().split())


def _stem(word: str) -> str:
    """Drop a possessive or plural ending, so that "issues" states "issue"."""
    word = word.casefold().removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def terms(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return (exact, content) terms of `text`: numbers, names and negations, and its other content words.

    A name is a capitalised word inside a sentence. The first word of a sentence is capitalised anyway, so it counts as
    a content word unless it holds a digit.
    """
    text = unicodedata.normalize("NFC", text).replace("’", "'")
    exact: set[str] = set()
    content: set[str] = set()
    for match in _WORD.finditer(text):
        word = match.group()
        if word.casefold() in FUNCTION_WORDS:
            continue
        before = text[: match.start()].rstrip(" \"'“(")
        is_name = word[0].isupper() and bool(before) and before[-1] not in ".!?"
        is_exact = is_name or word.casefold() in EXACT_WORDS or any(character.isdigit() for character in word)
        (exact if is_exact else content).add(_stem(word))
    return frozenset(exact), frozenset(content)


def states(text: str, fact: str) -> bool:
    """Whether `text` states `fact` by the rule above. A fact without any content word must be there literally."""
    if normalise(fact).rstrip(".!") in normalise(text):
        return True
    exact, content = terms(fact)
    if not exact and not content:
        return False
    present = frozenset().union(*terms(text))
    kept = len(content & present)
    return exact <= present and kept >= CONTENT_SHARE * len(content)
