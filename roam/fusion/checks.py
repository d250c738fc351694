"""The checks of the guard: what a proposed view may not say or lose, by rules alone (data/FUSION.md).

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
from roam.fusion.counts import AGAIN, COUNT, stated_count
from roam.fusion.details import word_stems
from roam.fusion.lexicon import NEGATIONS, PAST, STOP_WORDS
from roam.fusion.proposal import GuardReason, Proposal
from roam.fusion.text import content_set, names, numbers, split_segments, stem, words
from roam.relations import Relation

SLACK: Final = 80
"""Characters that a view may be longer than its inputs: the head and the marker of a chain."""

FREE_WORDS: Final = 1
"""Content words of its own that a view may use in place of one of its inputs' (a verb that joins two details)."""

Check = Callable[[Proposal], GuardReason | None]


def first_fault(proposal: Proposal) -> GuardReason | None:
    """The reason against a proposal that the first failing check gives, None when all pass."""
    return next((reason for check in CHECKS if (reason := check(proposal))), None)


# --- form ----------------------------------------------------------------------------------------------------------

_FIRST_PERSON: Final = re.compile(r"\b(?:I|I'\w+|me|my|mine|myself)\b")
_PROMPT: Final = re.compile(r"\bView:|\bRelation: ?[A-Z]{3}\b|```")


def check_form(proposal: Proposal) -> GuardReason | None:
    """A text about the user: no first person, and nothing of a prompt that no input has."""
    unquoted = re.sub(r'"[^"]*"', "", proposal.text)
    if _FIRST_PERSON.search(unquoted) and not _FIRST_PERSON.search(proposal.rules.text):
        return GuardReason.FORM
    of_prompt = any(found not in proposal.inputs for found in _PROMPT.findall(proposal.text))
    return GuardReason.FORM if of_prompt else None


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


def check_chains(proposal: Proposal) -> GuardReason | None:
    """A chain only for a change; the values of an existing one verbatim and in order; other chains as they are."""
    ruled = parse_chain(proposal.rules.fused[0])
    if proposal.request.relation is Relation.CON and ruled is not None:
        return _check_history(proposal, ruled)
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
    return all(_nearest(values[end], ruled) in (ruled[end], None) for end in (0, -1))


def _nearest(value: str, among: Sequence[str]) -> str | None:
    """The value that shares most words with `value`; None when two share as many."""
    mine = canonical(value)
    shares = [len(mine & canonical(other)) / max(1, len(canonical(other))) for other in among]
    best = max(shares)
    found = {other for other, share in zip(among, shares, strict=True) if share == best}
    return found.pop() if len(found) == 1 else None


# --- numbers, counts, names ------------------------------------------------------------------------------------------


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
    return GuardReason.NUMBER_LOST if (kept | _must(proposal, _numbers)) - own else None


def _must(proposal: Proposal, hard: Callable[[str], set[str]]) -> set[str]:
    if proposal.request.relation in (Relation.OSN, Relation.NSO):
        return hard(_unmarked(proposal.survivor))
    return set()


_MEASURED: Final = re.compile(r"(?<![\w.,:/-])(?P<n>\d+(?:[.,:/]\d+)*)(?![\d/:])(?:[ -]?(?P<unit>%|[a-z]+)\b)?")


def check_units(proposal: Proposal) -> GuardReason | None:
    """A number that always has a unit in the inputs has one of its units in the view, or the view says it elsewhere."""
    known = _units([piece for pieces in proposal.rules.pieces for piece in pieces])
    view = [_unmarked(segment) for segment in proposal.segments]
    said = {stem(word) for segment in view for part in segment.split("-") for word in words(part)}
    said |= {unit for units in _units(view).values() for unit in units}
    for number, units in _units(view).items():
        wanted = known.get(number, set())
        if units - wanted - {""} and "" not in wanted and not units & wanted:
            return GuardReason.UNIT
        if wanted and "" not in wanted and not wanted & said:
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
    return GuardReason.WORDS_LOST if _words_lost(proposal, own) else None


def _words_lost(proposal: Proposal, own: set[str]) -> bool:
    mains = proposal.rules.mains
    relation = proposal.request.relation
    if relation is Relation.CON:
        kept = canonical(_unmarked(proposal.rules.fused[0])) & canonical(proposal.inputs)
        return len(kept - own) > 1 + FREE_WORDS  # the rules tell a predicate where a noun phrase would do
    if relation is Relation.EQV:
        return min(len(canonical(_unmarked(main)) - own) for main in mains) > FREE_WORDS
    return len(canonical(_unmarked(proposal.survivor)) - own) > FREE_WORDS


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


CHECKS: Final[tuple[Check, ...]] = (
    check_form, check_script, check_length, check_segments, check_chains, check_counts, check_numbers, check_units,
    check_names, check_polarity, check_words,
)  # fmt: skip
"""In the order in which a reason is looked for."""
