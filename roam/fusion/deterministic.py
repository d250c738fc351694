"""The rule-based fuser (paper equation 9; the convention is data/FUSION.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from roam.errors import InputError
from roam.fusion.chain import parse_chain
from roam.fusion.conflict import Timed, date_of, fuse_conflict
from roam.fusion.equivalence import fuse_equivalent, fuse_specific, fuse_with_chain
from roam.fusion.grammar import third_person
from roam.fusion.text import close, content_set, normalised, overlap, split_segments, tidy
from roam.records import FusionRequest
from roam.relations import Relation

_MOST_COMBINATIONS: Final = 2000
_LATER_SEGMENT: Final = 0.15  # the fused fact stands first in every view, so a later segment must share clearly more
MAX_CHARACTERS: Final = 1500
"""A view of more than one segment is kept under this length: the oldest side statements are only counted then."""

_EARLIER: Final = re.compile(r"^\[(?P<count>\d+) earlier statements? in evidence\]$")


@dataclass(frozen=True, slots=True)
class _Parts:
    """One input taken apart: its segments in order and which of them is fused."""

    segments: tuple[str, ...]
    main: int
    date: str | None

    def timed(self) -> Timed:
        segment = self.segments[self.main]
        return Timed(segment, parse_chain(segment), self.date)


@dataclass(frozen=True, slots=True)
class RuleView:
    """A view as the rules write it, and what it was made of.

    `pieces` are the segments of each input, in the third person; `mains` the one of each that was fused, `fused` what
    became of them, `beside` the unrelated segments that the view keeps verbatim.
    """

    text: str
    pieces: tuple[tuple[str, ...], ...]
    mains: tuple[str, ...]
    fused: tuple[str, ...]
    beside: tuple[str, ...]


class DeterministicFuser:
    """Fuses by rules alone: no model, no network, same input, same view."""

    name = "deterministic"
    trusted = True  # its views follow the convention by construction: no guard compares them with themselves

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """Return one view a request: one line, never empty.

        Raises `InputError` for a request without any text, or with relation IND, which fuses nothing.
        """
        return [fuse_by_rules(request).text for request in requests]


def fuse_by_rules(request: FusionRequest) -> RuleView:
    """The view of one request. Raises `InputError` for a request without any text, or with relation IND."""
    relation = request.relation
    if relation is Relation.IND:
        raise InputError("relation IND fuses nothing: use one of EQV, OSN, NSO, CON, or keep the text as its own view")
    texts = [item for item in request.inputs if split_segments(item.text)]
    if not texts:
        raise InputError("a fusion request without any text: give at least one non-empty input")
    survivor = _survivor(request)
    pieces = [tuple(third_person(segment) for segment in split_segments(item.text)) for item in texts]
    mains = _mains(pieces)
    parts = [
        _Parts(segments, main, date_of(item.time)) for segments, main, item in zip(pieces, mains, texts, strict=True)
    ]
    main_texts = tuple(part.segments[part.main] for part in parts)
    # A single part: nothing to fuse, what is left of a view after a retraction.
    fused = _fused_segments(relation, parts, survivor) if len(parts) > 1 else list(main_texts)
    segments, others = _with_extras(fused, parts)
    beside = tuple(segment for segment in segments[1:] if segment in others)
    return RuleView(close(tidy("; ".join(segments))), tuple(pieces), main_texts, tuple(fused), beside)


def _survivor(request: FusionRequest) -> int:
    if not 0 <= request.survivor < len(request.inputs):
        raise InputError(f"survivor {request.survivor}: the request has inputs 0 to {len(request.inputs) - 1}")
    empty_before = sum(not split_segments(item.text) for item in request.inputs[: request.survivor])
    return max(0, request.survivor - empty_before)


def _mains(pieces: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """Which segment of each input is the fused one: those that share most words; ties go to the first segments."""
    if all(len(segments) == 1 for segments in pieces):
        return (0,) * len(pieces)
    size = 1
    for segments in pieces:
        size *= len(segments)
    if size > _MOST_COMBINATIONS:
        return (0,) * len(pieces)
    matter = [[content_set(_subject_matter(segment)) for segment in segments] for segments in pieces]
    best, best_score = (0,) * len(pieces), -float("inf")
    for choice in product(*(range(len(segments)) for segments in pieces)):
        chosen = [segments[index] for segments, index in zip(matter, choice, strict=True)]
        score = sum(overlap(a, b) for i, a in enumerate(chosen) for b in chosen[i + 1 :])
        score -= _LATER_SEGMENT * sum(choice)
        if score > best_score:
            best, best_score = choice, score
    return best


def _subject_matter(segment: str) -> str:
    """What a segment is about, without the marker of a chain, whose words and date say nothing about it."""
    chain = parse_chain(segment)
    return f"{chain.head}: {' '.join(chain.values)}" if chain else segment


def _fused_segments(relation: Relation, parts: Sequence[_Parts], survivor: int) -> list[str]:
    timed = [part.timed() for part in parts]
    if relation is not Relation.EQV and len({normalised(item.segment) for item in timed}) == 1:
        return [timed[0].segment]
    if relation is Relation.CON:
        return [fuse_conflict(timed)]
    chains = [item for item in timed if item.chain]
    if chains:
        return fuse_with_chain(relation, timed, survivor)
    if relation is Relation.EQV:
        return fuse_equivalent(timed)
    return fuse_specific(timed, survivor)


def _with_extras(fused: Sequence[str], parts: Sequence[_Parts]) -> tuple[list[str], list[str]]:
    """The segments of the view, the fused one first, and those of the inputs that were not fused."""
    others = [segment for part in parts for index, segment in enumerate(part.segments) if index != part.main]
    earlier = 0
    seen = {normalised(fused[0])}
    kept: list[str] = []
    for segment in [*fused[1:], *others]:
        if counted := _EARLIER.match(segment):
            earlier = max(earlier, int(counted["count"]))
        elif normalised(segment) not in seen:
            seen.add(normalised(segment))
            kept.append(segment)
    while kept and len("; ".join([fused[0], *kept])) > MAX_CHARACTERS:
        kept.pop(0)
        earlier += 1
    if earlier:
        kept.append(f"[{earlier} earlier {'statement' if earlier == 1 else 'statements'} in evidence]")
    return [fused[0], *kept], others
