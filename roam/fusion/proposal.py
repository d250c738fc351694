"""A proposed view beside what it was made from, and the reasons for which one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from roam.fusion.chain import Chain, parse_chain
from roam.fusion.deterministic import RuleView
from roam.fusion.text import split_segments
from roam.records import FusionRequest


class GuardReason(StrEnum):
    """Why a proposal was not used."""

    FAILED = "the fuser failed"
    UNUSABLE = "no usable text"
    FORM = "not the form of a view"
    SCRIPT = "characters that no input has"
    LENGTH = "too long or repeats itself"
    CHAIN = "a chain of values was changed, or made without a change"
    CURRENT = "another value is current"
    DATE = "another date"
    COUNT = "a count was invented, changed or lost"
    NUMBER_INVENTED = "a number that no input has"
    NUMBER_LOST = "a number was lost"
    UNIT = "a number without its unit, or with another one"
    NAME_INVENTED = "a name that no input has"
    NAME_LOST = "a name was lost"
    WORDS_INVENTED = "words that no input has"
    WORDS_LOST = "what the surviving fact says was lost"
    SEGMENT_LOST = "an unrelated fact was lost or changed"
    POLARITY = "polarity was changed"
    NOT_ENTAILED = "the relation model says that the view does not entail an input"


@dataclass(frozen=True)
class Proposal:
    """A proposed view taken apart beside its request and the view that the rules would write."""

    request: FusionRequest
    rules: RuleView
    text: str

    @cached_property
    def segments(self) -> list[str]:
        return split_segments(self.text)

    @cached_property
    def fused(self) -> list[str]:
        """The segments that say what was fused, without those of the inputs that stand beside."""
        beside = list(self.rules.beside)
        left: list[str] = []
        for segment in self.segments:
            if segment in beside:
                beside.remove(segment)
            else:
                left.append(segment)
        return left

    @cached_property
    def chain(self) -> Chain | None:
        return parse_chain(self.fused[0]) if self.fused else None

    @cached_property
    def body(self) -> str:
        return "; ".join(self.fused)

    @cached_property
    def inputs(self) -> str:
        """All that the inputs say, also in the third person."""
        said = [item.text for item in self.request.inputs]
        return " ; ".join([*said, *(piece for pieces in self.rules.pieces for piece in pieces)])

    @property
    def survivor(self) -> str:
        """The fused segment of the specific (OSN, NSO), first (EQV) or last (CON) input."""
        return self.rules.mains[min(self.request.survivor, len(self.rules.mains) - 1)]

    @cached_property
    def input_chains(self) -> list[Chain]:
        return [chain for segment in self.rules.mains if (chain := parse_chain(segment))]
