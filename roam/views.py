"""Read views: what a Primary says after records were merged into it (paper equation 9), and what if a fuser fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from roam.errors import RoamError
from roam.interfaces import Fuser
from roam.judging import Stats
from roam.policy import Stamp, in_time_order
from roam.records import FusionRequest, TimedText
from roam.relations import Relation
from roam.validation import time_text

MAX_VIEW = 20_000  # characters; a fuser that rambles past this is not trusted
# A fuser is a plug-in and may fail in any of these ways; a fault outside of them (memory, interrupt) must surface.
_FUSER_FAULTS = (RoamError, RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError)


class Part(NamedTuple):
    """One record that goes into a view: its stamp and its view so far."""

    stamp: Stamp
    view: str


@dataclass(frozen=True, slots=True)
class FusedView:
    """The new view text; `fallback` says why the fuser's output was not used, None when it was."""

    text: str
    fallback: str | None = None


class ViewBuilder:
    """Builds views with a fuser; with none, a view is the survivor's atomic text (the paper's "w/o Fusion")."""

    def __init__(self, fuser: Fuser | None, stats: Stats) -> None:
        self.fuser = fuser
        self._stats = stats

    def build(self, relation: Relation, parts: Sequence[Part], survivor_id: str, survivor_text: str) -> FusedView:
        """Fuse the views of the survivor and of all that is demoted with it, in time order."""
        if self.fuser is None:
            return FusedView(survivor_text)
        request = fusion_request(relation, parts, survivor_id)
        self._stats.fusion_calls += 1
        try:
            texts = self.fuser.fuse([request])
        except _FUSER_FAULTS as error:
            return self._fall_back(request, f"fuser {self.fuser.name} raised {type(error).__name__}")
        text = texts[0] if isinstance(texts, (list, tuple)) and len(texts) == 1 else None
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_VIEW:
            return self._fall_back(request, f"fuser {self.fuser.name} returned no usable text")
        return FusedView(" ".join(text.split()))

    def _fall_back(self, request: FusionRequest, reason: str) -> FusedView:
        self._stats.fusion_fallbacks += 1
        return FusedView(plain_view(request), reason)


def plain_view(request: FusionRequest) -> str:
    """Return a view without a fuser: the survivor's for redundant texts, all of them in time order for a change."""
    if request.relation is not Relation.CON:
        return request.inputs[request.survivor].text
    dated = (f"{item.text} ({item.time})" if item.time else item.text for item in request.inputs)
    return "; then: ".join(dated)


def fusion_request(relation: Relation, parts: Sequence[Part], survivor_id: str) -> FusionRequest:
    """Return the request for the fuser, its inputs by observation time as equation 9 sorts them.

    When that would not end a change with the current state (a restated state outlived a later-dated other one), the
    inputs stand in the order in which the states were last affirmed.
    """
    by_id = {part.stamp.id: part for part in parts}
    ordered = in_time_order([part.stamp for part in parts])
    use_affirmed = relation is Relation.CON and ordered[-1].id != survivor_id
    if use_affirmed:
        ordered = in_time_order([part.stamp for part in parts], affirmed=True)
    inputs = tuple(TimedText(by_id[stamp.id].view, time_text(_time(stamp, use_affirmed))) for stamp in ordered)
    return FusionRequest(inputs, relation, [stamp.id for stamp in ordered].index(survivor_id))


def _time(stamp: Stamp, affirmed: bool) -> datetime | None:
    return (stamp.affirmed_at or stamp.observed_at) if affirmed else stamp.observed_at
