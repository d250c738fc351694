"""The guard: a fuser proposes, checks dispose, and where a proposal fails the rules write the view."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from roam.errors import RoamError
from roam.fusion.chain import parse_chain
from roam.fusion.checks import first_fault
from roam.fusion.deterministic import fuse_by_rules
from roam.fusion.proposal import GuardReason, Proposal
from roam.fusion.text import close, normalised, tidy
from roam.interfaces import Fuser, RelationModel
from roam.records import FusionRequest, Pair
from roam.relations import INDEX, Relation

MAX_VIEW: Final = 20_000
"""Characters of a view; a fuser that rambles past this is not trusted."""

ENTAILED: Final = 0.1
"""Least probability of EQV and OSN together for a view to count as entailing an input.

With the shipped relation adapter it refuses 4 % of the hand-written training targets that pass the rules (0.5: 8 %).
"""

FUSER_FAULTS: Final = (
    RoamError, RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError,
)  # fmt: skip
"""A fuser is a plug-in and may fail in any of these ways; a fault outside of them (memory, interrupt) must surface."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GuardedView:
    """A view, and why it is the rules' and not the fuser's (None: the fuser's proposal was accepted)."""

    text: str
    reason: GuardReason | None = None


class _Claim(NamedTuple):
    """What the relation model is asked: does a proposal, by its number, entail one of its inputs?"""

    number: int
    pair: Pair


class GuardedFuser:
    """Any fuser behind the checks of `roam.fusion.checks`; nothing that fails one leaves it.

    `reasons` counts the fallbacks by reason, `views` all views, `passes` and `pairs` what the relation model was asked.
    Log lines name the reason only: the texts are the user's.
    """

    def __init__(self, fuser: Fuser, relation_model: RelationModel | None = None) -> None:
        """With a relation model, views of EQV, OSN and NSO must entail each input by its judgement too.

        Chains are checked by rules alone: the model judges statements, and a history entails none of its past values.
        """
        self.fuser, self.relation_model = fuser, relation_model
        self.name = f"guarded {fuser.name}"
        self.reasons: Counter[GuardReason] = Counter()
        self.views = self.passes = self.pairs = 0

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """Return one view a request. Raises `InputError` for a request that fuses nothing."""
        return [view.text for view in self.judge(requests)]

    def judge(self, requests: Sequence[FusionRequest]) -> list[GuardedView]:
        """Return one view a request with the reason of a fallback: one call of the fuser, one pass of the model."""
        ruled = [fuse_by_rules(request) for request in requests]
        proposed = self._propose(requests)
        reasons: list[GuardReason | None] = [None] * len(requests)
        proposals: dict[int, Proposal] = {}
        for index, (request, rules, text) in enumerate(zip(requests, ruled, proposed, strict=True)):
            if isinstance(text, GuardReason):
                reasons[index] = text
                continue
            proposals[index] = Proposal(request, rules, close(tidy(text)))
            if proposals[index].text != rules.text:  # what the rules would write needs no check
                reasons[index] = first_fault(proposals[index])
        for index in self._not_entailed([(i, p) for i, p in proposals.items() if reasons[i] is None]):
            reasons[index] = GuardReason.NOT_ENTAILED
        self.views += len(requests)
        self.reasons.update(reason for reason in reasons if reason is not None)
        for reason in reasons:
            if reason is not None:
                _LOG.info("fallback to the rules' view: %s (%s)", reason.value, self.fuser.name)
        return [
            GuardedView(proposals[index].text if reason is None else rules.text, reason)
            for index, (rules, reason) in enumerate(zip(ruled, reasons, strict=True))
        ]

    def _propose(self, requests: Sequence[FusionRequest]) -> list[str | GuardReason]:
        """The fuser's texts; a batch that fails is asked for one by one, so that one request spoils no other's view."""
        if not requests:
            return []
        try:
            texts: object = self.fuser.fuse(requests)
        except FUSER_FAULTS as error:
            _LOG.warning("fuser %s raised %s", self.fuser.name, type(error).__name__)
            texts = None
            if len(requests) == 1:
                return [GuardReason.FAILED]
        if isinstance(texts, (list, tuple)) and len(texts) == len(requests):
            return [text if _is_usable(text) else GuardReason.UNUSABLE for text in texts]
        if len(requests) == 1:
            return [GuardReason.UNUSABLE]
        return [text for request in requests for text in self._propose([request])]

    def _not_entailed(self, accepted: Sequence[tuple[int, Proposal]]) -> set[int]:
        """Numbers of the proposals that the relation model says do not entail an input."""
        if self.relation_model is None:
            return set()
        claims = [claim for index, proposal in accepted for claim in _claims(index, proposal)]
        if not claims:
            return set()
        from roam.judging import check_probabilities

        pairs = list(dict.fromkeys(claim.pair for claim in claims))
        model = self.relation_model
        rows = check_probabilities(model.predict_proba(pairs), len(pairs), model.digest)
        self.passes, self.pairs = self.passes + 1, self.pairs + len(pairs)
        entailed = rows[:, [INDEX[Relation.EQV], INDEX[Relation.OSN]]].sum(axis=1) >= ENTAILED
        refused = {pair for pair, good in zip(pairs, entailed.tolist(), strict=True) if not good}
        return {claim.number for claim in claims if claim.pair in refused}


def _is_usable(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip()) and len(text) <= MAX_VIEW


def _claims(number: int, proposal: Proposal) -> list[_Claim]:
    """The statements that a view must entail: the fused segments of all inputs, chains aside.

    With the input as OLD and the view as NEW, EQV and OSN are the relations that say so.
    """
    if proposal.request.relation is Relation.CON or proposal.text == proposal.rules.text:
        return []
    view = close("; ".join(segment for segment in proposal.fused if parse_chain(segment) is None))
    said = [close(main) for main in proposal.rules.mains if parse_chain(main) is None]
    return [_Claim(number, Pair(main, view)) for main in said if normalised(main) != normalised(view)]
