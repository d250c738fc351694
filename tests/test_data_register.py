"""First-person renderings: right where the rules reach, None elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from data.families import read_families
from data.register import first_person


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The user has a dog.", "I have a dog."),
        ("User rides a horse at weekends.", "I ride a horse at weekends."),
        ("Never eats pork.", "I never eat pork."),
        ("No longer plays chess.", "I no longer play chess."),
        ("The user does not drink.", "I do not drink."),
        ("The user isn't a smoker.", "I am not a smoker."),
        ("The user's sister is a nurse.", "My sister is a nurse."),
        ("Carries two phones.", "I carry two phones."),
        ("Watches the news.", "I watch the news."),
        ("The user can swim.", "I can swim."),
        ("Her sister is a nurse.", None),
        ("The user lives with her sister.", None),
        ("Owns a bike and rides it daily.", None),
        ("Between oolong and black tea, oolong wins.", None),
        ("There are two dogs at home.", None),
        ("Doro wat is the user's favourite.", None),
    ],
)
def test_first_person(text: str, expected: str | None) -> None:
    assert first_person(text) == expected


def test_renderings_of_the_families_start_like_speech() -> None:
    families = read_families(Path(__file__).parent.parent / "data" / "families.jsonl")
    rendered = [(text, first_person(text)) for family in families for text in family.texts()]
    spoken = [new for _, new in rendered if new]
    assert len(spoken) > 0.3 * len(rendered)
    assert all(new.startswith(("I ", "My ")) for new in spoken)
    assert not any(re.search(r"\busers?\b", new, re.IGNORECASE) for new in spoken)
