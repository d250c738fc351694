"""Seeded variants of fusion examples: the same case on other dates and about another subject.

A variant follows the convention (data/FUSION.md) wherever its original does: dates move together, so that their order
and distances stay, and one form of the subject gives way to another in inputs, target and tests alike. Nothing else
changes, so a variant teaches that dates and subjects are copied, and no new facts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from data.fusion import FusionExample

SHIFT: Final = 700
"""Days by which the dates of an example move at most, either way."""

SUBJECTS: Final = ("The user", "User", "Maya", "Tom", "Ines", "Kofi", "Yuki", "Omar", "Lena", "Ravi", "Chloe", "Piotr")

_AS_OF: Final = re.compile(r"(?<=\(current, as of )\d{4}-\d\d-\d\d(?=\))")
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TEXT_DATE: Final = re.compile(
    r"\b(?:19|20)\d\d\b|\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
)
_SUBJECT: Final = re.compile(r"\b(?:[Tt]he user|User)\b")


def vary(example: FusionExample, rng: random.Random, identity: str) -> FusionExample:
    """A variant under another id; equal to its original where neither dates nor subject can change."""
    return _with_subject(_shifted(example, rng), rng, identity)


_Change = Callable[[str], str]


def _map(example: FusionExample, change: _Change, when: _Change, identity: str) -> FusionExample:
    """The example with every text through `change` and every time through `when`."""
    target = change(example.target)
    return FusionExample(
        identity, example.relation,
        tuple(item._replace(text=change(item.text), time=item.time and when(item.time)) for item in example.inputs),
        target, tuple(map(change, example.must_keep)),
        # "25" may be a wrong sum in the original and the day of the moved date in a variant.
        tuple(text for text in map(change, example.must_not) if text not in target), example.tags,
    )  # fmt: skip


def _shifted(example: FusionExample, rng: random.Random) -> FusionExample:
    """All dates moved by the same number of days; unchanged where a text itself names a day, month or year."""
    days = timedelta(days=rng.randint(-SHIFT, SHIFT))
    texts = [example.target, *(item.text for item in example.inputs)]
    if any(_TEXT_DATE.search(_AS_OF.sub("", text)) for text in texts):
        return example

    def move(day: str) -> str:
        return (datetime.fromisoformat(day) + days).isoformat()[: len(day)]

    return _map(example, lambda text: _ISO.sub(lambda found: move(found[0]), text), move, example.id)


def _with_subject(example: FusionExample, rng: random.Random, identity: str) -> FusionExample:
    """Another subject instead of the user, where all texts name the user in one form."""
    texts = [example.target, *(item.text for item in example.inputs)]
    forms = {form[0] for text in texts for form in _SUBJECT.finditer(text)}
    new = rng.choice([name for name in SUBJECTS if name not in forms])
    everywhere = all(_SUBJECT.search(text) for text in texts)
    if (
        not everywhere
        or forms not in ({"The user"}, {"User"})
        or any(name in text for name in SUBJECTS[2:] for text in texts)
    ):
        return _map(example, str, str, identity)
    return _map(example, lambda text: _SUBJECT.sub(new, text), str, identity)
