"""Packing of hits into a token budget: a current value is never what the budget cuts off first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roam.fusion.chain import parse_chain, shorten
from roam.packing import Packer
from roam.records import Hit
from tests.stubs import HashEmbedder

EMBEDDER = HashEmbedder()
CHAIN = "The user's tea: " + " -> ".join(f"sort {n}" for n in range(1, 10)) + " (current, as of 2026-03-01)"
WORDS = st.sampled_from(["Maya", "tea", "sails", "in", "Oslo", "12", "(current)", "->", ";", "The user's tea:"])
VIEWS = st.lists(WORDS, min_size=1, max_size=30).map(" ".join) | st.just(CHAIN)


def pack(views: list[str], budget: int, atomic: str = "") -> list[str]:
    packer = Packer(EMBEDDER, budget)
    for number, view in enumerate(views):
        if not packer.add(Hit(f"f{number}", view, 0.5, (f"f{number}",), None), atomic or view):
            break
    packer.finish()
    assert EMBEDDER.count_tokens(packer.context()) <= budget
    return [hit.text for hit in packer.hits]


def test_a_long_chain_keeps_its_current_value_and_leaves_room() -> None:
    other = "Maya sails."
    texts = pack([CHAIN, *[other] * 20], 64)
    assert texts[0] == "The user's tea: [8 earlier values in evidence] -> sort 9 (current, as of 2026-03-01)"
    assert texts[1:3] == [other, other]


def test_a_chain_gets_back_what_the_others_leave() -> None:
    assert pack([CHAIN, "Maya sails."], 64) == [CHAIN, "Maya sails."]
    told = pack([CHAIN, *["Maya sails."] * 8], 64)[0]
    chain = parse_chain(told)
    assert chain is not None
    assert 1 < len(chain.values) < 9
    assert chain.values[-1] == "sort 9"
    assert len(chain.values) + chain.earlier == 9


def test_a_short_chain_is_not_made_longer_by_leaving_a_value_out() -> None:
    short = "The user's home city: Lyon -> Ghent (current, as of 2026-03-01)"
    assert pack([short, *["Maya sails."] * 30], 64)[0] == short


def test_the_first_view_shows_its_current_value_when_nothing_else_fits() -> None:
    assert pack([CHAIN], 28) == ["The user's tea: [8 earlier values in evidence] -> sort 9 (current, as of 2026-03-01)"]


def test_the_atomic_text_stands_for_a_view_that_stays_too_long() -> None:
    long = "Maya sails with her two sisters round the bay every summer weekend; she also rows on Mondays."
    assert pack([long] * 9, 32, "Maya sails.")[:3] == ["Maya sails."] * 3
    assert pack([long], 32, "Maya sails.") == [long]


def test_plain_views_are_only_cut_at_the_end_of_the_budget() -> None:
    long = "Maya sails with her two sisters round the bay every summer weekend if it stays dry."
    assert pack([long, "Maya sails."], 18) == [long, "Maya"]


def test_shortening_touches_chains_alone() -> None:
    view = f"{CHAIN}; she drinks it cold."
    short = shorten(view, lambda text: EMBEDDER.count_tokens(text) <= 30)
    assert short.startswith("The user's tea: [")
    assert short.endswith("sort 9 (current, as of 2026-03-01); she drinks it cold.")
    assert shorten("Maya sails. She is 12.", lambda _: False) == "Maya sails. She is 12."


@given(st.lists(VIEWS, max_size=6), st.integers(1, 90))
def test_the_budget_is_kept_and_no_view_lost_that_fits(views: list[str], budget: int) -> None:
    texts = pack(views, budget)
    assert all(texts)
    needed = sum(EMBEDDER.count_tokens(view) for view in views)
    if needed <= budget:
        assert texts == views
