"""The guard: what it accepts, why it refuses, and that nothing it refuses gets out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from data.fusion import FusionExample, read_fusion
from eval.fusion_report import request_of, score_view
from roam.errors import RoamError
from roam.fusion import DeterministicFuser, GuardedFuser, GuardReason
from roam.records import FusionRequest, Pair, TimedText
from roam.relations import INDEX, RELATIONS, Relation

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = 7  # every seventh hand-written training example: the rates below are as good as on all of them

HOME = (("The user lives in Ghent.", "2024-01-01"), ("The user lives in Lyon.", "2025-02-02"))
CHAIN = (
    ("The user's employer: Nokia -> Ericsson (current, as of 2022-05-01)", "2022-05-01"),
    ("The user works for Siemens since May 2024.", "2024-06-01"),
)
DOG = (("The user has a dog.", "2024-01-01"), ("The user has a 12-kg pug, Rex, and no cat.", "2024-03-01"))
TAIL = (("The user has a dog; The user's van needs new tyres.", "2024-01-01"), ("The user has a pug.", "2024-03-01"))
BLOOD = (("The user gave blood.", "2024-01-01"), ("The user donated blood.", "2024-01-02"))
DOSE = (("The user takes 10 mg of lisinopril a day.", "2024-01-01"), ("Takes 10 mg of lisinopril daily.", "2024-01-09"))


def request(relation: str, texts: Sequence[tuple[str, str | None]], survivor: int = -1) -> FusionRequest:
    inputs = tuple(TimedText(*item) for item in texts)
    return FusionRequest(inputs, Relation[relation], survivor % len(inputs))


class Scripted:
    """Proposes what it is told."""

    name = "scripted"

    def __init__(self, views: Sequence[object] | Callable[[Sequence[FusionRequest]], object]) -> None:
        self.views = views
        self.calls: list[int] = []

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        self.calls.append(len(requests))
        return self.views(requests) if callable(self.views) else self.views  # type: ignore[return-value]


def reason_for(wanted: FusionRequest, view: object) -> GuardReason | None:
    return GuardedFuser(Scripted([view])).judge([wanted])[0].reason


ACCEPTED = [
    ("CON", HOME, -1, "The user's home city: Ghent -> Lyon (current, as of 2025-02-02)"),
    ("CON", HOME, -1, "The user's place of residence: Ghent -> Lyon (current, as of 2025-02-02)"),
    ("CON", CHAIN, -1, "The user's employer: Nokia -> Ericsson -> Siemens since May 2024 (current, as of 2024-06-01)"),
    ("OSN", DOG, -1, "The user has a 12-kg pug, Rex, and no cat."),
    ("OSN", TAIL, -1, "The user has a pug; The user's van needs new tyres."),
    ("EQV", BLOOD, 0, "The user donated blood."),
    ("EQV", DOSE, 0, "Takes 10 mg of lisinopril daily."),
]


@pytest.mark.parametrize(("relation", "texts", "survivor", "view"), ACCEPTED)
def test_a_faithful_proposal_is_taken_as_it_is(
    relation: str, texts: Sequence[tuple[str, str]], survivor: int, view: str
) -> None:
    guard = GuardedFuser(Scripted([view]))
    assert guard.fuse([request(relation, texts, survivor)]) == [view]
    assert not guard.reasons


REFUSED = [
    ("FORM", "CON", HOME, "My home city: Ghent -> Lyon (current, as of 2025-02-02)"),
    ("FORM", "OSN", DOG, "The user has a 12-kg pug, Rex, and no cat; The user has a dog."),
    ("FORM", "OSN", DOG, "The user has a 12-kg pug, Rex, and no cat, and the."),
    ("FORM", "OSN", DOG, "View: The user has a 12-kg pug, Rex, and no cat."),
    ("SCRIPT", "OSN", DOG, "The user has a 12-kg pug, Rex, and no cat \u5496\u5561."),
    ("LENGTH", "OSN", DOG, "The user has a 12-kg pug, Rex, and no cat." + " The user has a pug." * 20),
    ("CHAIN", "CON", HOME, "The user lives in Lyon."),
    ("CHAIN", "OSN", DOG, "The user's pet: dog -> 12-kg pug, Rex, and no cat (current, as of 2024-03-01)"),
    ("CHAIN", "CON", CHAIN, "The user's employer: Ericsson -> Siemens since May 2024 (current, as of 2024-06-01)"),
    ("CHAIN", "CON", CHAIN, "The user's work: Nokia -> Ericsson -> Siemens since May 2024 (current, as of 2024-06-01)"),
    ("CURRENT", "CON", HOME, "The user's home city: Lyon -> Ghent (current, as of 2025-02-02)"),
    ("CURRENT", "CON", CHAIN, "The user's employer: Nokia -> Siemens -> Ericsson (current, as of 2024-06-01)"),
    ("DATE", "CON", HOME, "The user's home city: Ghent -> Lyon (current, as of 2024-01-01)"),
    ("DATE", "CON", HOME, "The user's home city: Ghent -> Lyon (current)"),
    ("COUNT", "EQV", BLOOD, "The user gave blood twice."),
    ("NUMBER_INVENTED", "OSN", DOG, "The user has a 14-kg pug, Rex, and no cat."),
    ("NUMBER_LOST", "OSN", DOG, "The user has a pug, Rex, and no cat."),
    ("UNIT", "EQV", DOSE, "The user takes 10 g of lisinopril a day."),
    ("NAME_INVENTED", "OSN", DOG, "The user has a 12-kg pug, Rex, and no cat with Zoltan."),
    ("NAME_LOST", "OSN", DOG, "The user has a 12-kg pug and no cat."),
    ("WORDS_INVENTED", "OSN", DOG, "The user has a 12-kg pug, Rex, and no cat because of allergies since childhood."),
    ("WORDS_LOST", "OSN", DOG, "The user has a 12-kg pug, Rex."),
    ("SEGMENT_LOST", "OSN", TAIL, "The user has a pug."),
    ("SEGMENT_LOST", "OSN", TAIL, "The user has a pug; The user's van needs tyres."),
    ("POLARITY", "OSN", DOG, "The user has a 12-kg pug, Rex, and cat."),
    ("POLARITY", "OSN", DOG, "The user has not a 12-kg pug, Rex, and no cat."),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "relation", "texts", "view"), REFUSED)
def test_an_unfaithful_proposal_gives_way_to_the_rules_with_its_reason(
    reason: str, relation: str, texts: Sequence[tuple[str, str]], view: str
) -> None:
    wanted = request(relation, texts, 0 if relation == "EQV" else -1)
    guard = GuardedFuser(Scripted([view]))
    (found,) = guard.judge([wanted])
    # A view that lost a word with its negation may be refused for either.
    allowed = {"POLARITY", "WORDS_LOST"} if reason == "WORDS_LOST" else {reason}
    assert found.reason is not None
    assert found.reason.name in allowed
    assert [found.text] == DeterministicFuser().fuse([wanted])
    assert guard.reasons == {found.reason: 1}


@pytest.mark.parametrize("output", [None, "text", [], ["a", "b"], [""], ["  "], [None], [7], ["x" * 30_000]])
def test_rubbish_gives_way_to_the_rules(output: object) -> None:
    wanted = request("CON", HOME)
    guard = GuardedFuser(Scripted(lambda _: output))
    assert guard.fuse([wanted]) == DeterministicFuser().fuse([wanted])
    assert guard.reasons == {GuardReason.UNUSABLE: 1}


@pytest.mark.parametrize("error", [RuntimeError("memory"), RoamError("no"), ConnectionError("gone"), KeyError(1)])
def test_a_fuser_that_raises_gives_way_to_the_rules(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Sequence[FusionRequest]) -> object:
        raise error

    wanted = request("CON", HOME)
    guard = GuardedFuser(Scripted(fail))
    with caplog.at_level(logging.INFO, "roam.fusion.guard"):
        assert guard.fuse([wanted]) == DeterministicFuser().fuse([wanted])
    assert guard.reasons == {GuardReason.FAILED: 1}
    assert GuardReason.FAILED.value in caplog.text
    assert "Ghent" not in caplog.text  # the texts are the user's


def test_an_interrupt_is_no_fault_of_the_fuser() -> None:
    def stop(_: Sequence[FusionRequest]) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GuardedFuser(Scripted(stop)).fuse([request("CON", HOME)])


def test_one_request_that_fails_spoils_no_other() -> None:
    good = "The user's residence: Ghent -> Lyon (current, as of 2025-02-02)"

    def fuse(requests: Sequence[FusionRequest]) -> object:
        if any(entry.relation is Relation.EQV for entry in requests):
            raise ValueError("cannot fuse EQV")
        return [good] * len(requests)

    fuser = Scripted(fuse)
    guard = GuardedFuser(fuser)
    views = guard.judge([request("CON", HOME), request("EQV", DOSE, 0), request("CON", HOME)])
    assert [view.reason for view in views] == [None, GuardReason.FAILED, None]
    assert views[0].text == good
    assert fuser.calls == [3, 1, 1, 1]


class Entailment:
    """A relation model that knows one claim: whether the view says what the input says."""

    digest = "entailment"

    def __init__(self, refused: str) -> None:
        self.thresholds = dict.fromkeys(RELATIONS, 0.0)
        self.refused = refused
        self.calls: list[Sequence[Pair]] = []

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        self.calls.append(pairs)
        rows = np.zeros((len(pairs), len(RELATIONS)), dtype=np.float32)
        for row, pair in zip(rows, pairs, strict=True):
            row[INDEX[Relation.NSO if self.refused in pair.new else Relation.OSN]] = 1.0
        return rows


def test_the_relation_model_is_asked_once_for_all_views_and_in_the_right_direction() -> None:
    views = ["The user donated blood.", "Takes 10 mg of lisinopril daily."]
    model = Entailment(refused="lisinopril")
    guard = GuardedFuser(Scripted(views), model)
    found = guard.judge([request("EQV", BLOOD, 0), request("EQV", DOSE, 0)])
    assert [view.reason for view in found] == [None, GuardReason.NOT_ENTAILED]
    (pairs,) = model.calls
    assert set(pairs) == {Pair(BLOOD[0][0], views[0]), Pair(DOSE[0][0], views[1])}
    assert (guard.passes, guard.pairs) == (1, 2)


def test_the_relation_model_is_not_asked_about_chains_or_refused_views() -> None:
    model = Entailment(refused="")
    guard = GuardedFuser(Scripted(["The user's residence: Ghent -> Lyon (current, as of 2025-02-02)", "No."]), model)
    guard.fuse([request("CON", HOME), request("OSN", DOG)])
    assert model.calls == []


# On the hand-written training examples ------------------------------------------------------------------------------


@cache
def hand_written() -> tuple[FusionExample, ...]:
    return tuple(read_fusion(ROOT / "data" / "fusion_train.jsonl")[::SAMPLE])


def test_nearly_all_hand_written_targets_are_accepted() -> None:
    examples = hand_written()
    guard = GuardedFuser(Scripted([example.target for example in examples]))
    guard.judge([request_of(example) for example in examples])
    assert guard.reasons.total() <= 0.08 * len(examples)


@pytest.mark.parametrize("kind", ["newest", "side by side", "another number", "lost string", "twice", "reversed"])
def test_damaged_targets_hardly_ever_pass(kind: str) -> None:
    damaged = [(example, view) for example in hand_written() if (view := damage(example, kind))]
    bad = [(e, v) for e, v in damaged if (s := score_view(e, v)).lost or s.violated]
    assert len(bad) >= 5
    guard = GuardedFuser(Scripted([view for _, view in bad]))
    views = guard.judge([request_of(example) for example, _ in bad])
    passed = [view.text for view in views if view.reason is None]
    assert len(passed) <= 0.1 * len(bad), passed


def damage(example: FusionExample, kind: str) -> str | None:
    target = example.target
    match kind:
        case "newest":
            return example.inputs[-1].text
        case "side by side":
            return "; ".join(item.text.rstrip(".") for item in example.inputs) + "."
        case "another number":
            return target.replace("2", "7") if "2" in target else None
        case "lost string":
            return target.replace(example.must_keep[0], "", 1) if example.must_keep else None
        case "twice":
            return None if " -> " in target else f"{target.rstrip('.')} twice."
    head, _, rest = target.partition(": ")
    values, _, marker = rest.partition(" (current")
    turned = " -> ".join(reversed(values.split(" -> ")))
    return f"{head}: {turned} (current{marker}" if " -> " in values else None


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=120), st.sampled_from(range(20)))
def test_whatever_is_proposed_a_view_keeps_what_the_rules_keep(text: str, index: int) -> None:
    example = hand_written()[index]
    wanted = request_of(example)
    (view,) = GuardedFuser(Scripted([text])).judge([wanted])
    ruled = DeterministicFuser().fuse([wanted])[0]
    assert view.reason is not None or text.strip()
    assert view.text == ruled if view.reason else view.text
    assert "\n" not in view.text
    assert all(part in view.text for part in example.must_keep if part in ruled and any(c.isdigit() for c in part))
