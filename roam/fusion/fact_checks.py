"""The guard's checks of what a view says: counts, numbers, units, names, polarity, words (data/FUSION.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from roam.fusion.attributes import absorb_change
from roam.fusion.chain import parse_chain
from roam.fusion.counts import AGAIN, COUNT, stated_count
from roam.fusion.details import word_stems
from roam.fusion.grammar import read
from roam.fusion.lexicon import NEGATIONS, PAST, STOP_WORDS
from roam.fusion.proposal import GuardReason, Proposal
from roam.fusion.text import content_set, names, numbers, split_segments, stem, words
from roam.relations import Relation

FREE_WORDS: Final = 1
"""Content words of its own that a view may use in place of one of its inputs' (a verb that joins two details)."""


def check_counts(proposal: Proposal) -> GuardReason | None:
    """The count of the rules, or where they count nothing only one that an input states itself."""
    counted = _counts(proposal.body)
    wanted = _counts("; ".join(proposal.rules.fused))
    return None if counted == wanted or (not wanted and counted <= _counts(proposal.inputs)) else GuardReason.COUNT


def _counts(text: str) -> set[int]:
    found = (stated_count(match[0]) for match in COUNT.finditer(text))
    return {count for count in found if count is not None}


_MARKER: Final = re.compile(r" \(current(?:, as of [^()]*)?\)")


def _unmarked(text: str) -> str:
    return AGAIN.sub("", COUNT.sub("", _MARKER.sub("", text)))


_PRONOUN: Final = re.compile(r"\bones?\b", re.IGNORECASE)  # "swapped it for a new one" has no number in it


def _numbers(text: str) -> set[str]:
    """Numbers, also those inside compounds ("two-room", "300-square-metre")."""
    text = _PRONOUN.sub("", text)
    found = set(numbers(text))
    return found | {word for word in word_stems(text) if any(char.isdigit() for char in word)}


def check_numbers(proposal: Proposal) -> GuardReason | None:
    """Every number comes from the inputs, and none is lost that the rules keep (for OSN and NSO the specific's)."""
    own = _numbers(_unmarked(proposal.body))
    if own - _numbers(proposal.inputs):
        return GuardReason.NUMBER_INVENTED
    kept = _numbers(_unmarked("; ".join(proposal.rules.fused))) & _numbers(proposal.inputs)
    lost = (kept | _must(proposal, _numbers)) - own
    if proposal.request.relation in (Relation.OSN, Relation.NSO):
        lost |= set(_each_number(proposal.survivor) - _each_number(proposal.body))
    return GuardReason.NUMBER_LOST if lost else None


def _each_number(text: str) -> Counter[str]:
    found = (stem(word) for word in words(_PRONOUN.sub("", _unmarked(text))))
    return Counter(word for word in found if any(char.isdigit() for char in word))


def _must(proposal: Proposal, hard: Callable[[str], set[str]]) -> set[str]:
    if proposal.request.relation in (Relation.OSN, Relation.NSO):
        return hard(_unmarked(proposal.survivor))
    return set()


_MEASURED: Final = re.compile(r"(?<![\w.,:/-])(?P<n>\d+(?:[.,:/]\d+)*)(?![\d/:])(?:[ -]?(?P<unit>%|[a-z]+)\b)?")


def check_units(proposal: Proposal) -> GuardReason | None:
    """A number that always has a unit in the inputs has one of its units in the view, or the view says it elsewhere."""
    known = _units([piece for pieces in proposal.rules.pieces for piece in pieces])
    view = [_unmarked(segment) for segment in proposal.segments]
    elsewhere = proposal.chain.head if proposal.chain else "; ".join(view)
    said = {stem(word) for part in elsewhere.split("-") for word in words(part)}
    for number, units in _units(view).items():
        wanted = known.get(number, set())
        if units - wanted - {""} and "" not in wanted and not units & wanted:
            return GuardReason.UNIT
        if wanted and "" not in wanted and not wanted & (said | units):
            return GuardReason.UNIT
    return None


def _units(segments: Sequence[str]) -> dict[str, set[str]]:
    """The words behind each number, "" where there is none or one without content."""
    found: dict[str, set[str]] = {}
    for segment in segments:
        for match in _MEASURED.finditer(segment):
            unit = match["unit"] or ""
            found.setdefault(match["n"], set()).add("" if unit in STOP_WORDS else stem(unit))
    return found


def check_names(proposal: Proposal) -> GuardReason | None:
    """Every capitalised word comes from the inputs, and none is lost that the rules keep."""
    view = _MARKER.sub("", proposal.body)
    spoken = {stem(word) for word in words(proposal.inputs)}
    if any(stem(name) not in spoken for name in names(f"x {view}") if name not in ("The", "User")):
        return GuardReason.NAME_INVENTED
    kept = _names(" ; ".join(proposal.rules.fused)) & _names(proposal.inputs)
    return GuardReason.NAME_LOST if (kept | _must(proposal, _names)) - {stem(word) for word in words(view)} else None


def _names(text: str) -> set[str]:
    return {stem(name) for segment in split_segments(_MARKER.sub("", text)) for name in names(segment)}


# --- words and polarity ----------------------------------------------------------------------------------------------

_PRESENT: Final = {stem(past): stem(present) for present, past in PAST.items()}
_CONVENTION: Final = content_set("previously now view habit status number no longer time times twice once current")


def canonical(text: str) -> set[str]:
    """Stems of the content words, past tenses as the present."""
    return {_PRESENT.get(word, word) for word in word_stems(text)}


def check_words(proposal: Proposal) -> GuardReason | None:
    """Words come from the inputs (the head of a chain may name its attribute); the surviving fact keeps its own."""
    chain = proposal.chain
    told = " ; ".join(chain.values) if chain and proposal.request.relation is Relation.CON else proposal.body
    known = canonical(proposal.inputs) | canonical(proposal.rules.text) | _CONVENTION
    if len(canonical(_unmarked(told)) - known) > FREE_WORDS:
        return GuardReason.WORDS_INVENTED
    own = canonical(_unmarked(proposal.body))
    lost = _words_lost(proposal, own) or _left_gaps(proposal)
    return GuardReason.WORDS_LOST if lost else None


def _words_lost(proposal: Proposal, own: set[str]) -> bool:
    mains = [canonical(_unmarked(main)) for main in proposal.rules.mains]
    ruled = canonical(_unmarked("; ".join(proposal.rules.fused))) & canonical(proposal.inputs)
    relation = proposal.request.relation
    if relation is Relation.CON:
        # The rules tell a predicate where a noun phrase would do: what stands in front of it may go.
        return len(ruled - own) > 1 + FREE_WORDS or any(_lost_behind(main, own, ruled) for main in proposal.rules.mains)
    if relation is Relation.EQV:
        shared = frozenset.intersection(*map(frozenset, mains))
        return bool(shared - own) or min(len(main - own) for main in mains) > 0 or len(ruled - own) > FREE_WORDS
    return bool(canonical(_unmarked(proposal.survivor)) - own) or len(ruled - own) > FREE_WORDS


def _lost_behind(main: str, own: set[str], ruled: set[str]) -> bool:
    """Whether a word was lost that stands behind the first one kept, and that the rules keep."""
    if parse_chain(main):
        return False
    said = [next(iter(found)) for word in words(_unmarked(read(main).predicate)) if (found := canonical(word))]
    first = next((at for at, word in enumerate(said) if word in own), len(said))
    return any(word in ruled and word not in own for word in said[first:])


_GAP: Final = 3  # words


def _left_gaps(proposal: Proposal) -> bool:
    """Whether words were left out inside a run of an input's words ("due the 3rd" of "due on the 3rd").

    A value of a chain may leave out what the chain's head says.
    """
    chain = proposal.chain if proposal.request.relation is Relation.CON else None
    told, head = (chain.values, _sequence(chain.head)) if chain else (proposal.fused, [])
    runs = [_sequence(text) for text in proposal.inputs.split(" ; ")]
    joined = {pair for run in [*runs, *map(_sequence, proposal.rules.fused)] for pair in pairwise(run)}
    fresh = [pair for text in told for pair in pairwise(_sequence(text)) if pair not in joined]
    return any(set(gap) - set(head) for run in runs for pair in fresh for gap in _gaps(run, pair))


def _sequence(text: str) -> list[str]:
    return [word.lower() for word in words(absorb_change(_unmarked(text)))]


def _gaps(run: Sequence[str], pair: tuple[str, str]) -> Iterator[Sequence[str]]:
    """What stands in a run between two words that a view has side by side."""
    for at, word in enumerate(run):
        for end in range(at + 2, min(at + 2 + _GAP, len(run))):
            if (word, run[end]) == pair:
                yield run[at + 1 : end]


def negations(text: str) -> Counter[str]:
    """Negations of a text, all forms of "not" as one."""
    found: Counter[str] = Counter()
    for word in words(text):
        lower = word.lower().replace("’", "'")
        if lower in NEGATIONS or lower.endswith("n't"):
            found["not" if lower.endswith("n't") or lower == "cannot" else lower] += 1
    return found


def check_polarity(proposal: Proposal) -> GuardReason | None:
    """As many negations as the rules' view has, or as the surviving fact (EQV: any of the inputs) has."""
    own = negations(proposal.body).total()
    allowed = {negations("; ".join(proposal.rules.fused)).total()}
    if proposal.request.relation is Relation.EQV:
        allowed |= {negations(main).total() for main in proposal.rules.mains}
    elif proposal.request.relation is not Relation.CON:
        allowed.add(negations(proposal.survivor).total())
    return None if own in allowed else GuardReason.POLARITY
