"""What holds for every fused view, whatever the inputs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roam.fusion import Chain, DeterministicFuser, parse_chain
from roam.fusion.chain import MAX_VALUES
from roam.fusion.deterministic import MAX_CHARACTERS
from roam.fusion.text import content_set, names, numbers, split_segments
from roam.records import FusionRequest, TimedText
from roam.relations import Relation

settings.register_profile("fusion", deadline=None, max_examples=60)  # a busy machine is no failure
settings.load_profile("fusion")
FUSER = DeterministicFuser()
FUSED = [Relation.EQV, Relation.OSN, Relation.NSO, Relation.CON]

subjects = st.sampled_from(["The user", "User", "Maya", "I", ""])
verbs = st.sampled_from(
    [
        "lives in",
        "works at",
        "weighs",
        "has a cat named",
        "no longer visits",
        "paid",
        "likes",
        "is not",
        "bought",
        "ran",
    ]
)
objects = st.sampled_from(
    [
        "Oslo",
        "Bergen since 2019",
        "72 kg",
        "the Lidl warehouse",
        "Miso",
        "12-pound hams",
        "a 2019 VW Golf",
        "three hens",
    ]
)
tails = st.sampled_from(
    ["", " with Ana", " in May 2021", ", which cost 40 euros", " because of the rain", " twice", " now"]
)


@st.composite
def statements(draw: st.DrawFn) -> str:
    """A short statement in one of the subject forms."""
    subject, verb = draw(subjects), draw(verbs)
    text = f"{subject} {verb} {draw(objects)}{draw(tails)}".strip()
    return text[0].upper() + text[1:] + draw(st.sampled_from([".", ""]))


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """A chain short enough that one more value does not reach the bound."""
    head = draw(st.sampled_from(["The user's employer", "User's weight", "Maya's view on Oslo", "The user's status"]))
    value = st.sampled_from(
        ["Nokia", "72 kg", "loved it", "ran 5 km", "the VW Golf", "none", "-1.50", "two, Bo and Li"]
    )
    values = draw(st.lists(value, min_size=2, max_size=MAX_VALUES - 3))
    date = draw(st.one_of(st.none(), days))
    return Chain(head, tuple(values), date)


days = st.dates().map(lambda day: day.isoformat())
times = st.one_of(st.none(), days)
any_text = st.one_of(statements(), chains().map(Chain.render), st.text(min_size=1, max_size=60))


@st.composite
def requests(draw: st.DrawFn, texts: st.SearchStrategy[str] = any_text) -> FusionRequest:
    """A request with at least one text that is not blank."""
    count = draw(st.integers(2, 4))
    inputs = [TimedText(draw(texts), draw(times)) for _ in range(count)]
    inputs.append(TimedText("The user lives in Rome", draw(times)))
    return FusionRequest(tuple(inputs), draw(st.sampled_from(FUSED)), draw(st.integers(0, count)))


def fuse(request: FusionRequest) -> str:
    return FUSER.fuse([request])[0]


@given(requests())
def test_a_view_is_one_line_never_empty_and_always_the_same(request: FusionRequest) -> None:
    view = fuse(request)
    assert view.strip()
    assert len(view.splitlines()) == 1
    assert view == " ".join(view.split())
    assert fuse(request) == view


@given(requests(statements()))
def test_the_survivors_numbers_are_kept(request: FusionRequest) -> None:
    view = fuse(request)
    if request.relation is Relation.EQV:  # a count may have gone up
        assert _measures(request.inputs[request.survivor].text) <= numbers(view)
    else:
        assert numbers(request.inputs[request.survivor].text) <= numbers(view)


def _measures(text: str) -> frozenset[str]:
    return numbers(text.replace("twice", ""))


@given(requests(statements()))
def test_eqv_and_con_keep_the_numbers_and_names_of_all_inputs(request: FusionRequest) -> None:
    if request.relation not in (Relation.EQV, Relation.CON):
        return
    view = fuse(request)
    for item in request.inputs:
        assert _measures(item.text) <= numbers(view)
        assert all(name in view for name in names(item.text))


@given(requests(statements()))
def test_no_number_is_invented(request: FusionRequest) -> None:
    view = fuse(request)
    given_numbers = frozenset().union(*(numbers(f"{item.text} {item.time or ''}") for item in request.inputs))
    if request.relation is Relation.EQV:  # a count is made of the occasions, at most one an input and two stated
        given_numbers |= {str(count) for count in range(2, 2 + len(request.inputs) + 1)}
    assert numbers(view) <= given_numbers


@given(requests(statements()))
def test_only_a_conflict_makes_a_chain(request: FusionRequest) -> None:
    view = fuse(request)
    is_chain = [parse_chain(segment) is not None for segment in split_segments(view)]
    same = len({item.text.rstrip(".") for item in request.inputs}) == 1
    assert any(is_chain) == (request.relation is Relation.CON and not same)
    assert ("(current" in view) == any(is_chain)


@given(chains(), statements(), times, times)
def test_an_extended_chain_keeps_its_values_verbatim_and_in_order(
    chain: Chain, new: str, first: str | None, second: str | None
) -> None:
    request = FusionRequest((TimedText(chain.render(), first), TimedText(new, second)), Relation.CON, 1)
    told = [told for segment in split_segments(fuse(request)) if (told := parse_chain(segment))]
    assert told[0].head == chain.head
    values = list(told[0].values)
    # The last value may be told more exactly; a late arrival stands directly before it.
    assert values[: len(chain.values) - 1] == list(chain.values[:-1])
    rest = values[len(chain.values) - 1 :]
    assert any(content_set(chain.values[-1]) <= content_set(value) for value in rest)


@given(chains(), st.sampled_from([Relation.EQV, Relation.NSO]), statements(), times)
def test_eqv_and_nso_leave_a_chain_as_it_is(chain: Chain, relation: Relation, text: str, time: str | None) -> None:
    request = FusionRequest((TimedText(chain.render(), time), TimedText(text, time)), relation, 0)
    assert fuse(request).startswith(chain.render())


@given(any_text, st.sampled_from(FUSED), times)
def test_exact_duplicates_of_one_day_change_nothing(text: str, relation: Relation, time: str | None) -> None:
    if not split_segments(text):
        return
    once = fuse(FusionRequest((TimedText(text, time),), relation, 0))
    twice = fuse(FusionRequest((TimedText(text, time), TimedText(text, time)), relation, 0))
    assert once == twice


@settings(max_examples=6)
@given(st.lists(st.tuples(statements(), st.sampled_from(FUSED)), min_size=40, max_size=40))
def test_a_view_that_is_fused_again_and_again_stays_bounded(
    steps: list[tuple[str, Relation]],
) -> None:
    view = "The user lives in Rome."
    for number, (text, relation) in enumerate(steps):
        new = f"{text.rstrip('.')}, says note {number}."
        survivor = 1 if relation in (Relation.OSN, Relation.CON) else 0
        view = fuse(
            FusionRequest((TimedText(view, f"20{number + 10}-01-01"), TimedText(new, None)), relation, survivor)
        )
    assert len(view) <= MAX_CHARACTERS + 200


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The user saved 300 dollars on the heels.", "The user saved money on heels, 250 dollars."),
        ("The user's loan from Anglia Bank is $265,000.", "The user was given a loan of $315,000 by Anglia Bank."),
    ],
)
def test_two_amounts_of_one_unit_are_never_folded_into_one_statement(first: str, second: str) -> None:
    inputs = (TimedText(first, "2026-01-05"), TimedText(second, "2026-02-05"))
    (view,) = FUSER.fuse([FusionRequest(inputs, Relation.EQV)])
    told = [segment for segment in view.split(";") if any(digit in segment for digit in ("250", "300", "265", "315"))]
    assert len(told) == 2 or "previously" in view, view
