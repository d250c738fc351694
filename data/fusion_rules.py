"""Fusion examples by rule from the fact families, with targets by the convention (data/FUSION.md).

What a family's slots imply (data/LABELS.md) decides the targets: a specific fact entails the general ones, so it is the
whole view of OSN and NSO; equivalent facts are stated once, as the first input says it; a chain that is restated
stays as it is. Histories are told by the rules of `roam.fusion`, and only where those can name the attribute. What the
guard would refuse as a target is left out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Final

from data.families import Family
from data.fusion import FusionExample
from roam.fusion import Chain, GuardReason, parse_chain
from roam.fusion.checks import first_fault
from roam.fusion.counts import stated_count
from roam.fusion.deterministic import fuse_by_rules
from roam.fusion.extension import attribute_of
from roam.fusion.grammar import is_past, is_present, is_verb, read, third_person
from roam.fusion.lexicon import PAST_BASE
from roam.fusion.proposal import Proposal
from roam.fusion.rules import RULES
from roam.fusion.text import close, names, normalised, stem, strip_period, words
from roam.records import FusionRequest, TimedText
from roam.relations import Relation

FIRST_DAY: Final = date(2019, 1, 1)
LAST_DAY: Final = date(2025, 12, 31)
LONGEST_GAP: Final = 400  # days between two inputs
SAME_OCCASION: Final = 2  # days; closer dates are no separate occasions (data/FUSION.md, EQV)
MOST_WORDS: Final = (4, 12)
"""Longest attribute and longest value of a history, in words: the longest that the hand-written ones have."""

_SENTENCE: Final = re.compile(
    r"\buser\b|^(?:it|there|this|that|what|when|if|unless|by|in|on|at|for|with|as|of|his|her|their)\b|[;:] ",
    re.IGNORECASE,
)
_CLAUSE: Final = re.compile(r"\b(?:is|are|was|were|has|goes|(?:is|are|was|were|has|does)n't)\b")
_PRONOUN_HEAD: Final = re.compile(r"^(?:He|She|It|They)'s\b|^(?:His|Her|Its|Their)\b")
_FIRST_PERSON: Final = re.compile(r"\b(?:I|I'\w+|me|my|My|mine|myself|we|our)\b")


@dataclass(frozen=True, slots=True)
class Shares:
    """How often an example has what makes it harder, 0 to 1."""

    tail: float = 0.2  # an unrelated fact at the end of an input
    undated: float = 0.12  # an input without a time
    third: float = 0.25  # a third input
    late: float = 0.15  # the specific fact, or a further value, is older than what is known


@dataclass(frozen=True, slots=True)
class Draft:
    """An example in the making. `target` None: what the rules write; `used` are the family texts that stand in it."""

    relation: Relation
    inputs: tuple[TimedText, ...]
    survivor: int
    target: str | None
    used: tuple[str, ...]
    tags: tuple[str, ...] = ()
    tails: tuple[str, ...] = field(default=())

    def request(self) -> FusionRequest:
        return FusionRequest(self.inputs, self.relation, self.survivor)


class Calendar:
    """Seeded dates in time order."""

    def __init__(self, rng: random.Random, undated: float) -> None:
        self._rng, self._undated = rng, undated

    def days(self, count: int, longest: int = LONGEST_GAP) -> list[str]:
        """`count` dates, each at most `longest` days after the one before; all differ from gap 1 on."""
        span = (LAST_DAY - FIRST_DAY).days - count * longest
        day = FIRST_DAY + timedelta(days=self._rng.randrange(span))
        out = []
        for _ in range(count):
            out.append(day.isoformat())
            day += timedelta(days=self._rng.randint(min(1, longest), longest))
        return out

    def times(self, count: int, longest: int = LONGEST_GAP) -> list[str | None]:
        """Dates of which some are unknown."""
        return [None if self._rng.random() < self._undated else day for day in self.days(count, longest)]


Maker = Callable[[Family, random.Random, Shares], Draft | None]


def timed(texts: Sequence[str], times: Sequence[str | None]) -> tuple[TimedText, ...]:
    return tuple(TimedText(text, time) for text, time in zip(texts, times, strict=True))


def restated(family: Family, rng: random.Random, shares: Shares) -> Draft | None:
    """EQV: the first wording. What may be an event is dated close together, so that it is no separate occasion."""
    same = [family.base, *family.eqv]
    if len(same) < 2:
        return None
    texts = rng.sample(same, 3 if len(same) > 2 and rng.random() < shares.third else 2)
    calendar = Calendar(rng, shares.undated)
    inputs = timed(texts, calendar.times(len(texts)))
    counted = stated_count(fuse_by_rules(FusionRequest(inputs, Relation.EQV)).fused[0]) is not None
    if counted or not all(is_present(read(third_person(text))) for text in texts):
        inputs = timed(texts, calendar.times(len(texts), SAME_OCCASION // (len(texts) - 1)))
    return Draft(Relation.EQV, inputs, 0, third_person(texts[0]), tuple(texts), ("rule", "stable"))


def _general_and_specific(family: Family, rng: random.Random, third: float) -> tuple[list[str], str] | None:
    """Facts from general to specific, each of them entailed by the last one, and that last one."""
    same = [family.base, *family.eqv]
    middle = rng.choice(same)
    if family.spec and (not family.gen or rng.random() < 0.7):
        specific, generals = rng.choice(family.spec), [middle]
        if family.gen and rng.random() < third:
            generals.insert(0, rng.choice(family.gen))
        elif family.gen and rng.random() < 0.4:
            generals = [rng.choice(family.gen)]
        return generals, specific
    return ([rng.choice(family.gen)], middle) if family.gen else None


def specified(family: Family, rng: random.Random, shares: Shares) -> Draft | None:
    """OSN: the specific fact is the view; a late one is dated before the general ones."""
    return _subsumed(Relation.OSN, family, rng, shares)


def generalised(family: Family, rng: random.Random, shares: Shares) -> Draft | None:
    """NSO: the specific fact stays the view; a general one that arrives late is dated before it."""
    return _subsumed(Relation.NSO, family, rng, shares)


def _subsumed(relation: Relation, family: Family, rng: random.Random, shares: Shares) -> Draft | None:
    found = _general_and_specific(family, rng, shares.third)
    if found is None:
        return None
    generals, specific = found
    late = rng.random() < shares.late
    # A late fact is dated before what it was added to: OSN adds the specific one, NSO the general ones.
    specific_first = late if relation is Relation.OSN else not late
    texts = [specific, *generals] if specific_first else [*generals, specific]
    inputs = timed(texts, Calendar(rng, 0 if late else shares.undated).times(len(texts)))
    tags = ("rule", "plain", "out_of_order") if late else ("rule", "plain")
    place = 0 if specific_first else len(texts) - 1
    return Draft(relation, inputs, place, third_person(specific), tuple(texts), tags)


def is_natural(chain: Chain, texts: Sequence[str]) -> bool:
    """Whether a chain reads as a person would write it: one short attribute in the words of the texts, like values.

    Attributes that the rules know by name take noun phrases; under others all values are predicates or all are nouns.
    """
    attribute = attribute_of(chain.head)
    statements = [read(third_person(text)) for text in texts]
    known = attribute in {rule.name for rule in RULES}
    if _PRONOUN_HEAD.search(chain.head) or len(words(attribute)) > MOST_WORDS[0] or re.search(r"[,:]| and ", attribute):
        return False
    if any(len(words(value)) > MOST_WORDS[1] or _SENTENCE.search(value) for value in chain.values):
        return False
    told = {is_verb(value) or is_past(value) for value in chain.values}
    if len(told) > 1:
        return False
    if told == {False}:
        if any(_CLAUSE.search(value) for value in chain.values):
            return False
        said = {stem(word) for text in texts for word in words(text)} | {"number"}
        return known or all(stem(word) in said for word in words(attribute))
    if attribute.endswith(" habit"):
        verbs = {stem(word) for statement in statements for word in statement.predicate.split() if is_verb(word)}
        gerunds = [word for word in words(attribute) if word.endswith("ing")]
        return all(stem(word) in verbs and word.removesuffix("ing") not in PAST_BASE for word in gerunds)
    shared = {statement.noun for statement in statements}
    return not known and (attribute.startswith("view on ") or shared == {attribute})


def _history(texts: Sequence[str], days: Sequence[str | None]) -> str | None:
    """The chain that updates one after the other build, None where the rules can't name its attribute."""
    view, time = texts[0], days[0]
    for text, day in zip(texts[1:], days[1:], strict=True):
        inputs = (TimedText(view, time), TimedText(text, day))
        view, time = fuse_by_rules(FusionRequest(inputs, Relation.CON, 1)).text, day
        chain = parse_chain(view)
        if chain is None or len(chain.values) < 2 or not is_natural(chain, texts):
            return None
    return view


def _alternating(family: Family, rng: random.Random, count: int, end_on_base: bool) -> list[str] | None:
    """`count` facts of which each conflicts with the one before: the base's in turn with what excludes it."""
    same = [family.base, *family.eqv]
    if len(family.con) < (count + 1) // 2 or len(same) < (count + 1) // 2:
        return None
    bases, others = rng.sample(same, len(same)), rng.sample(family.con, len(family.con))
    turns = [(position % 2 == 0) == end_on_base for position in range(count)]
    return [bases.pop() if turn else others.pop() for turn in turns][::-1]


def changed(family: Family, rng: random.Random, shares: Shares) -> Draft | None:
    """CON of plain facts: the first chain."""
    count = 3 if rng.random() < shares.third / 2 else 2
    texts = _alternating(family, rng, count, rng.random() < 0.4)
    if texts is None:
        return None
    inputs = timed(texts, Calendar(rng, shares.undated).times(count))
    view = fuse_by_rules(FusionRequest(inputs, Relation.CON, count - 1)).text
    chain = parse_chain(view)
    if chain is None or len(chain.values) < count or not is_natural(chain, texts):
        return None
    return Draft(Relation.CON, inputs, count - 1, None, tuple(texts), ("rule", "chain"))


def changed_again(family: Family, rng: random.Random, shares: Shares) -> Draft | None:
    """CON of a chain that earlier updates built: one more value at its end, or a late one before the current."""
    texts = _alternating(family, rng, 3 if rng.random() < 0.7 else 4, rng.random() < 0.4)
    if texts is None:
        return None
    late = rng.random() < shares.late
    days = Calendar(rng, 0).days(len(texts))
    known, news = ([*texts[:-2], texts[-1]], texts[-2]) if late else (texts[:-1], texts[-1])
    known_days = [*days[:-2], days[-1]] if late else days[:-1]
    if len(known) < 2 or (late and len(known) < 3):
        return None
    chain = _history(known, known_days)
    if chain is None or _history([*known, news], [*known_days, days[-1]]) is None:
        return None
    fresh = TimedText(news, days[-2] if late else days[-1])
    stored = TimedText(chain, known_days[-1])
    inputs = (fresh, stored) if late else (stored, fresh)
    tags = ("rule", "chain_ext", "late") if late else ("rule", "chain_ext")
    return Draft(Relation.CON, inputs, 1, None, tuple(texts), tags)


def restated_chain(family: Family, rng: random.Random, shares: Shares) -> Draft | None:
    """EQV, NSO and OSN of a chain's current value: the chain stays verbatim, OSN adds the specific fact beside it."""
    texts = _alternating(family, rng, 2, end_on_base=True)
    relation = rng.choice((Relation.EQV, Relation.NSO, Relation.OSN))
    pool = {Relation.EQV: family.eqv, Relation.NSO: family.gen, Relation.OSN: family.spec}[relation]
    news = [text for text in pool if texts and text not in texts]
    if texts is None or not news:
        return None
    days = Calendar(rng, 0).days(3)
    chain, fresh = _history(texts, days[:2]), rng.choice(news)
    if chain is None:
        return None
    target = f"{chain}; {strip_period(third_person(fresh))}" if relation is Relation.OSN else chain
    inputs = timed([chain, fresh], [days[1], days[2]])
    survivor = int(relation is Relation.OSN)
    return Draft(relation, inputs, survivor, target, (*texts, fresh), ("rule", "with_chain"))


MAKERS: Final[tuple[tuple[Maker, float], ...]] = (
    (restated, 0.5), (specified, 0.6), (generalised, 0.4), (changed, 1.0), (changed_again, 1.0), (restated_chain, 1.0),
)  # fmt: skip
"""Kinds of examples, and the share of families that each is tried on; histories fail more often than not."""


def with_tail(draft: Draft, tail: str, rng: random.Random) -> Draft:
    """A draft of which one input says something unrelated at its end."""
    at = rng.randrange(len(draft.inputs))
    item = draft.inputs[at]
    joint = "; " if rng.random() < 0.6 or parse_chain(strip_period(item.text)) else ". "
    text = f"{strip_period(item.text)}{joint}{strip_period(tail)}."
    inputs = (*draft.inputs[:at], item._replace(text=text), *draft.inputs[at + 1 :])
    target = None if draft.target is None else f"{strip_period(draft.target)}; {strip_period(tail)}"
    used, tags = (*draft.used, tail), (*draft.tags, "unrelated")
    return replace(draft, inputs=inputs, target=target, used=used, tags=tags, tails=(strip_period(tail),))


def can_trail(text: str) -> bool:
    """Whether a fact stands verbatim wherever it is: a sentence in the third person."""
    return text[0].isupper() and not _FIRST_PERSON.search(text) and ";" not in text and third_person(text) == text


def finish(draft: Draft, identity: str) -> FusionExample | GuardReason:
    """The example of a draft, or why the guard would refuse its target."""
    rules = fuse_by_rules(draft.request())
    target = close(rules.text if draft.target is None else draft.target)
    reason = first_fault(Proposal(draft.request(), rules, target))
    if reason is not None:
        return reason
    if _FIRST_PERSON.search(re.sub(r'"[^"]*"', "", target)) or not target.isascii():
        return GuardReason.FORM
    chain = next((chain for part in target.split("; ") if (chain := parse_chain(part))), None)
    keep, never = _tests(draft, target, chain)
    return FusionExample(
        identity, draft.relation, draft.inputs, target, tuple(keep), tuple(never), tuple(dict.fromkeys(draft.tags))
    )


def _tests(draft: Draft, target: str, chain: Chain | None) -> tuple[list[str], list[str]]:
    """must_keep and must_not."""
    said = " ; ".join(item.text for item in draft.inputs)
    keep = list(draft.tails)
    if chain is None:
        hard = names(target) | {word for word in words(target) if any(char.isdigit() for char in word)}
        keep += sorted(word for word in hard if word in said and word not in ("The", "User"))
        never = ["->", "(current", "twice", "three times"]
    else:
        keep += [value for value in chain.values if value in said]
        keep.append(f"(current, as of {chain.date})" if chain.date else "(current)")
        never = [f"{value} (current" for value in chain.values[:-1]]
    return keep, [text for text in never if text not in target]


def derive(
    families: Sequence[Family], tails: Callable[[Family, random.Random], str | None], rng: random.Random, shares: Shares
) -> Iterator[Draft]:
    """Drafts of all families in their order. `tails` gives a fact that can't bear on a family, or None."""
    for family in families:
        for make, share in MAKERS:
            if rng.random() >= share:
                continue
            draft = make(family, rng, shares)
            if draft is None or len({normalised(item.text) for item in draft.inputs}) < len(draft.inputs):
                continue
            if rng.random() < shares.tail and (tail := tails(family, rng)):
                draft = with_tail(draft, tail, rng)
            yield draft
