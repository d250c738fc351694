"""Value chains: `<The user's attribute>: v1 -> v2 (current, as of DATE)` (data/FUSION.md, CON)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from roam.fusion.lexicon import NEGATIONS, NO_REFINEMENT
from roam.fusion.text import content, content_set, words

ARROW: Final = " -> "
MAX_VALUES: Final = 12
"""Values a chain shows at most; older ones are only counted, their texts stay in Evidence."""

_CHAIN = re.compile(r"^(?P<head>[^:]+?): (?P<values>.+?) \(current(?:, as of (?P<date>[^()]+))?\)$")
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
        """The chain as a segment, bounded to `MAX_VALUES` values."""
        bounded = bound(self)
        shown = list(bounded.values)
        if bounded.earlier:
            noun = "value" if bounded.earlier == 1 else "values"
            shown.insert(0, f"[{bounded.earlier} earlier {noun} in evidence]")
        marker = f"(current, as of {self.date})" if self.date else "(current)"
        return f"{self.head}: {ARROW.join(shown)} {marker}"


def parse_chain(segment: str) -> Chain | None:
    """Return the chain that `segment` is, or None when it is a plain statement."""
    match = _CHAIN.match(segment)
    if match is None or ARROW in match["head"]:
        return None
    values = tuple(value.strip() for value in match["values"].split(ARROW))
    if not all(values):
        return None
    earlier = 0
    if marker := _EARLIER.match(values[0]):
        earlier, values = int(marker["count"]), values[1:]
    return Chain(match["head"], values, match["date"], earlier) if values else None


def bound(chain: Chain, limit: int = MAX_VALUES) -> Chain:
    """Keep the newest `limit` values and count the others."""
    surplus = len(chain.values) - limit
    if surplus <= 0:
        return chain
    return replace(chain, values=chain.values[surplus:], earlier=chain.earlier + surplus)


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
