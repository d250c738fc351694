"""Value chains: `<The user's attribute>: v1 -> v2 (current, as of DATE)` (data/FUSION.md, CON)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from roam.fusion.lexicon import NEGATIONS, NO_REFINEMENT
from roam.fusion.text import close, content, content_set, split_segments, words

ARROW: Final = " -> "
MAX_VALUES: Final = 12
"""Values a chain shows at most; older ones are only counted, their texts stay in Evidence."""

MAX_CHARACTERS: Final = 1000
"""Length of the values that a chain shows at most, as far as its last two values allow."""

_MARKED = re.compile(r"^(?P<told>.+) \(current(?:, as of (?P<date>[^()]+))?\)$")
_HEAD = re.compile(r'^(?P<head>(?:[^":]|"[^"]*"|:(?! ))+): (?P<values>.+)$')
_EARLIER = re.compile(r"^\[(?P<count>\d+) earlier values? in evidence\]$")


@dataclass(frozen=True, slots=True)
class Chain:
    """A parsed chain. `date` is the as-of date of the last value, None when the marker is a bare `(current)`.

    `earlier` counts values that were left out in front because the chain had reached its bound.
    """

    head: str
    values: tuple[str, ...]
    date: str | None = None
    earlier: int = 0

    def render(self) -> str:
        """The chain as a segment, bounded to `MAX_VALUES` values; an arrow inside a value reads "to"."""
        bounded = bound(self)
        shown = [value.replace(ARROW, " to ") for value in bounded.values]
        if bounded.earlier:
            noun = "value" if bounded.earlier == 1 else "values"
            shown.insert(0, f"[{bounded.earlier} earlier {noun} in evidence]")
        marker = f"(current, as of {self.date})" if self.date else "(current)"
        return f"{self.head}: {ARROW.join(shown)} {marker}"


def parse_chain(segment: str) -> Chain | None:
    """Return the chain that `segment` is, or None when it is a plain statement."""
    marked = _MARKED.match(segment)
    split = _HEAD.match(marked["told"]) if marked else None
    if marked is None or split is None or ARROW in split["head"]:
        return None
    values = tuple(value.strip() for value in split["values"].split(ARROW))
    if any(not value or value.startswith("->") or value.endswith("->") for value in values):
        return None
    earlier = 0
    if counted := _EARLIER.match(values[0]):
        earlier, values = int(counted["count"]), values[1:]
    return Chain(split["head"], values, marked["date"], earlier) if values else None


def can_head(attribute: str) -> bool:
    """Whether a text can stand before the colon of a chain and be read back."""
    match = _HEAD.match(f"{attribute}: v")
    return match is not None and match["head"] == attribute and ARROW not in attribute


def bound(chain: Chain, limit: int = MAX_VALUES) -> Chain:
    """Keep the newest values, `limit` at most and `MAX_CHARACTERS` long (the last two always), and count the others."""
    surplus = max(0, len(chain.values) - limit)
    length = sum(len(value) + len(ARROW) for value in chain.values[surplus:])
    while length > MAX_CHARACTERS and surplus < len(chain.values) - 2:
        length -= len(chain.values[surplus]) + len(ARROW)
        surplus += 1
    if not surplus:
        return chain
    return replace(chain, values=chain.values[surplus:], earlier=chain.earlier + surplus)


def shorten(view: str, fits: Callable[[str], bool]) -> str:
    """Leave out the oldest values of a view's chains, one by one, until `fits`; a current value always stays.

    A view without chains comes back as it is, and the shortest form does when none fits.
    """
    segments = split_segments(view)
    chains = [parse_chain(segment) for segment in segments]
    longest = max((len(chain.values) for chain in chains if chain), default=0)
    text = view
    for limit in range(longest - 1, 0, -1):
        pairs = zip(segments, chains, strict=True)
        text = close("; ".join(bound(chain, limit).render() if chain else segment for segment, chain in pairs))
        if fits(text):
            break
    return text


def same_value(left: str, right: str) -> bool:
    """Whether two values say the same, articles, case and inflection aside."""
    return content(left) == content(right) and _fallback_key(left) == _fallback_key(right)


def _fallback_key(value: str) -> str:
    # Values made of stop words only ("it", "none of them") have no content words to compare.
    return "" if content(value) else value.casefold()


def refines(specific: str, general: str) -> bool:
    """Whether `specific` is `general` with details added ("DHL as a shift lead", "DHL"): the same value, better told.

    Numbers alone ("two", "two and a half"), joined items ("Mondays and Thursdays") and changed polarity never refine.
    """
    inner, outer = content_set(general), content_set(specific)
    if not inner or not inner < outer or not any(word.isalpha() for word in inner):
        return False
    added = {word.lower() for word in words(specific)} - {word.lower() for word in words(general)}
    return not added & (NO_REFINEMENT | NEGATIONS) and not any(word.endswith("n't") for word in added)


def collapse(values: Sequence[str]) -> list[str]:
    """Merge neighbouring values that are equal or refine each other into the more specific wording."""
    kept: list[str] = []
    for value in values:
        if kept and (same_value(kept[-1], value) or refines(kept[-1], value)):
            continue
        if kept and refines(value, kept[-1]):
            kept[-1] = value
            continue
        kept.append(value)
    return kept


def join_chains(first: Chain, second: Chain) -> Chain:
    """Join two chains of one attribute in time order; a shared run of values is written once."""
    size = 0
    for length in range(min(len(first.values), len(second.values)), 0, -1):
        tail, start = first.values[-length:], second.values[:length]
        if all(same_value(a, b) for a, b in zip(tail, start, strict=True)):
            size = length
            break
    return replace(
        second, head=first.head, values=first.values + second.values[size:], earlier=first.earlier + second.earlier
    )
