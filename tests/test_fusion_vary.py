"""Variants of fusion examples: dates move together, subjects change in all texts, and the convention still holds."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path

import pytest

from data.fusion import FusionExample, read_fusion
from data.fusion_vary import SHIFT, SUBJECTS, vary
from eval.fusion_report import score_view
from roam.fusion import parse_chain
from roam.records import TimedText
from roam.relations import Relation

FILE = Path(__file__).parent.parent / "data" / "fusion_train.jsonl"


@pytest.fixture(scope="module")
def written() -> list[FusionExample]:
    return read_fusion(FILE)


def test_targets_of_variants_keep_what_they_must_and_say_nothing_forbidden(written: list[FusionExample]) -> None:
    rng = random.Random(0)
    for example in written:
        varied = vary(example, rng, "v")
        score = score_view(varied, varied.target)
        assert (score.lost, score.violated) == ((), ()), example.id


def test_dates_move_together_and_the_chain_with_them(written: list[FusionExample]) -> None:
    rng = random.Random(1)
    moved = 0
    for example in written:
        varied = vary(example, rng, "v")
        pairs = zip(example.inputs, varied.inputs, strict=True)
        gaps = {
            (date.fromisoformat(new.time[:10]) - date.fromisoformat(old.time[:10])).days
            for old, new in pairs
            if old.time and new.time
        }
        assert len(gaps) <= 1
        assert all(abs(gap) <= SHIFT for gap in gaps)
        assert [item.time is None for item in varied.inputs] == [item.time is None for item in example.inputs]
        old, new = (parse_chain(text.split("; ")[0]) for text in (example.target, varied.target))
        if old and new and old.date and gaps:
            assert (date.fromisoformat(str(new.date)) - date.fromisoformat(old.date)).days in gaps
        moved += gaps != {0}
    assert moved > len(written) / 2


def test_a_subject_changes_in_every_text_or_in_none() -> None:
    inputs = (TimedText("The user likes tea.", "2024-01-02"), TimedText("Tea is what the user likes.", None))
    example = FusionExample("f", Relation.EQV, inputs[:1] * 2, "The user likes tea.", ("tea",), ("The user hates",))
    for seed in range(20):
        varied = vary(example, random.Random(seed), "v")
        subject = varied.target.removesuffix(" likes tea.")
        assert subject in SUBJECTS
        assert subject != "The user"
        assert [item.text for item in varied.inputs] == [varied.target] * 2
        assert varied.must_not == (f"{subject} hates",)
    mixed = FusionExample("f", Relation.EQV, inputs, "The user likes tea.")
    assert vary(mixed, random.Random(0), "v").target == mixed.target


def test_texts_with_dates_of_their_own_stay_at_their_time() -> None:
    inputs = (TimedText("User married in June.", "2024-06-20"), TimedText("User wed in June 2024.", "2024-07-01"))
    example = FusionExample("f", Relation.EQV, inputs, "User married in June 2024.")
    for seed in range(5):
        assert [item.time for item in vary(example, random.Random(seed), "v").inputs] == ["2024-06-20", "2024-07-01"]
