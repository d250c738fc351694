"""The checks of the guard, by rules alone (data/FUSION.md): here of form and chains, in `fact_checks` of what is said.

The rules decide what rules can decide: which segment is fused, the as-of date, how often an event happened, which value
is current. A proposal is free in its wording, with the words of its inputs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from roam.fusion.chain import ARROW, Chain, parse_chain, refines, same_value
from roam.fusion.fact_checks import (
    canonical,
    check_counts,
    check_names,
    check_numbers,
    check_polarity,
    check_units,
    check_words,
)
from roam.fusion.lexicon import UNFINISHED
from roam.fusion.proposal import GuardReason, Proposal
from roam.fusion.text import split_segments, words
from roam.relations import Relation

SLACK: Final = 80
"""Characters that a view may be longer than its inputs: the head and the marker of a chain."""

Check = Callable[[Proposal], GuardReason | None]


def first_fault(proposal: Proposal) -> GuardReason | None:
    """The reason against a proposal that the first failing check gives, None when all pass."""
    return next((reason for check in CHECKS if (reason := check(proposal))), None)


# --- form ----------------------------------------------------------------------------------------------------------

_FIRST_PERSON: Final = re.compile(r"\b(?:I|I'\w+|me|my|mine|myself)\b")
_PROMPT: Final = re.compile(r"\bView:|\bRelation: ?[A-Z]{3}\b|```")

_BROKEN: Final = re.compile(r",\s*[,.;)]| [,.;:](?=\s|$)|\( | \)")


def check_form(proposal: Proposal) -> GuardReason | None:
    """A text about the user: no first person, and nothing of a prompt that no input has."""
    unquoted = re.sub(r'"[^"]*"', "", proposal.text)
    if _FIRST_PERSON.search(unquoted) and not _FIRST_PERSON.search(proposal.rules.text):
        return GuardReason.FORM
    strange = [*_PROMPT.findall(proposal.text), *_BROKEN.findall(proposal.text)]
    if any(found not in proposal.inputs for found in strange) or _opens_differently(proposal):
        return GuardReason.FORM
    return GuardReason.FORM if _breaks_off(proposal) else None


def _opens_differently(proposal: Proposal) -> bool:
    """Whether the view begins with a subject that neither an input nor the rules' view begins with."""
    openings = [proposal.rules.fused[0], *proposal.rules.mains, *(item.text for item in proposal.request.inputs)]
    return not any(_opening(proposal.body) == _opening(text) for text in openings)


def _opening(text: str) -> str:
    first = next(iter(words(text)), "").lower().removesuffix("'s")
    return "user" if first in ("the", "user") and re.match(r"(?:the )?user\b", text, re.IGNORECASE) else first


def _breaks_off(proposal: Proposal) -> bool:
    """Whether a statement or value ends with a word that wants another ("with", "their"), as no input does."""
    texts = [piece for pieces in proposal.rules.pieces for piece in pieces]
    known = {_ending(part) for text in [*texts, *proposal.rules.fused] for part in _parts(text)}
    ends = {_ending(part) for segment in proposal.fused for part in _parts(segment)}
    return any(end and end[-1] in UNFINISHED for end in ends - known)


def _parts(segment: str) -> Sequence[str]:
    chain = parse_chain(segment)
    return chain.values if chain else (segment,)


def _ending(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in words(text)[-2:])


def check_script(proposal: Proposal) -> GuardReason | None:
    """No character outside of printable ASCII that the inputs do not have."""
    strange = {char for char in proposal.text if not (char.isascii() and char.isprintable())}
    return GuardReason.SCRIPT if strange - set(proposal.inputs) else None


_RUN: Final = 4  # words


def check_length(proposal: Proposal) -> GuardReason | None:
    """At most as long as the inputs or the rules' view, and no run of words more often than in both."""
    allowed = max(sum(len(item.text) for item in proposal.request.inputs), len(proposal.rules.text)) + SLACK
    if len(proposal.text) > allowed or len(set(proposal.segments)) < len(proposal.segments):
        return GuardReason.LENGTH
    said, told, own = (_runs(text) for text in (proposal.inputs, proposal.rules.text, proposal.text))
    repeated = any(count > max(1, told[run]) and count > said[run] // 2 for run, count in own.items())
    return GuardReason.LENGTH if repeated else None


def _runs(text: str) -> Counter[tuple[str, ...]]:
    found = [word.lower() for word in words(text)]
    return Counter(tuple(found[at : at + _RUN]) for at in range(len(found) - _RUN + 1))


# --- chains --------------------------------------------------------------------------------------------------------


def check_segments(proposal: Proposal) -> GuardReason | None:
    """Every unrelated piece of the inputs stands verbatim, as a segment of its own."""
    return GuardReason.SEGMENT_LOST if Counter(proposal.rules.beside) - Counter(proposal.segments) else None


_BOTH: Final = re.compile(r": previously .+; now ")


def check_chains(proposal: Proposal) -> GuardReason | None:
    """A chain only for a change; the values of an existing one verbatim and in order; other chains as they are."""
    ruled = parse_chain(proposal.rules.fused[0])
    if proposal.request.relation is Relation.CON and ruled is not None:
        return _check_history(proposal, ruled)
    both = _BOTH.search(proposal.body) is not None
    if len(proposal.fused) > max(1 + both, len(split_segments("; ".join(proposal.rules.fused)))):
        return GuardReason.FORM  # statements side by side are not fused
    if _BOTH.search(proposal.rules.fused[0]) and not both:
        return GuardReason.CURRENT
    chains = [segment for segment in proposal.rules.fused if parse_chain(segment)]
    if any(segment not in proposal.fused for segment in chains):
        return GuardReason.CHAIN
    others = "; ".join(segment for segment in proposal.fused if segment not in chains)
    return GuardReason.CHAIN if ARROW in others or "(current" in others else None


def _check_history(proposal: Proposal, ruled: Chain) -> GuardReason | None:
    chain = proposal.chain
    if chain is None or any(parse_chain(segment) for segment in proposal.fused[1:]):
        return GuardReason.CHAIN
    old = proposal.input_chains
    if any(chain.head != known.head for known in old[:1]) or chain.earlier != ruled.earlier:
        return GuardReason.CHAIN
    values = list(chain.values)
    if not ruled.earlier and any(not _keeps_values(known, values) for known in old):
        return GuardReason.CHAIN
    if ruled.earlier and old and values[:-1] != list(ruled.values[:-1]):
        return GuardReason.CHAIN
    if any(same_value(a, b) for a, b in pairwise(values)) or len(values) < len(ruled.values):
        return GuardReason.CHAIN
    if chain.date != ruled.date:
        return GuardReason.DATE
    stays = any(known.values[-1] == ruled.values[-1] for known in old)
    if old and stays != any(known.values[-1] == values[-1] for known in old):
        return GuardReason.CURRENT
    return None if _same_ends(values, ruled.values) else GuardReason.CURRENT


def _keeps_values(known: Chain, values: Sequence[str]) -> bool:
    """Whether the values of a chain stand verbatim and in order; its last may be told in more detail."""
    at = 0
    for position, value in enumerate(known.values):
        last = position == len(known.values) - 1
        while at < len(values) and values[at] != value and not (last and refines(values[at], value)):
            at += 1
        if at == len(values):
            return False
        at += 1
    return True


def _same_ends(values: Sequence[str], ruled: Sequence[str]) -> bool:
    """Whether the first and the current value are those of the rules' chain, told as it may be."""
    if len(values) < 2 or len(ruled) < 2:
        return len(values) == len(ruled)
    first, last = (_first_word(ruled[end]) for end in (0, -1))
    if first != last and _first_word(values[-1]) == first:
        return False  # "loves -> hated -> loved"
    return all(_nearest(values[end], ruled) in (ruled[end], None) for end in (0, -1))


def _first_word(value: str) -> str:
    """The first word, as written: a tense tells which value is over."""
    return next(iter(words(value)), "").lower()


def _nearest(value: str, among: Sequence[str]) -> str | None:
    """The value that shares most words with `value`; None when two share as many."""
    mine = canonical(value)
    shares = [len(mine & canonical(other)) / max(1, len(canonical(other))) for other in among]
    best = max(shares)
    found = {other for other, share in zip(among, shares, strict=True) if share == best}
    return found.pop() if len(found) == 1 else None


CHECKS: Final[tuple[Check, ...]] = (
    check_form, check_script, check_length, check_segments, check_chains, check_counts, check_numbers, check_units,
    check_names, check_polarity, check_words,
)  # fmt: skip
"""In the order in which a reason is looked for."""
