"""Read views: what a Primary says after records were merged into it (paper equation 9), and what if a fuser fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from roam.fusion.guard import FUSER_FAULTS, MAX_VIEW, GuardedFuser
from roam.interfaces import Fuser, RelationModel
from roam.judging import Stats, billed
from roam.policy import Stamp, in_time_order
from roam.records import FusionRequest, TimedText
from roam.relations import Relation
from roam.validation import time_text


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
    """Builds views with a fuser; with none, a view is the survivor's atomic text (the paper's "w/o Fusion").

    Every fuser is guarded (`roam.fusion.guard`), except one whose attribute `trusted` is true, as the rules' is.
    """

    def __init__(self, fuser: Fuser | None, stats: Stats, relation_model: RelationModel | None = None) -> None:
        self.fuser = fuser
        self._stats = stats
        self._foreseen: dict[tuple[object, ...], FusedView] = {}
        self._guard: GuardedFuser | None = None
        if fuser is not None and not getattr(fuser, "trusted", False):
            self._guard = fuser if isinstance(fuser, GuardedFuser) else GuardedFuser(fuser, relation_model)

    def build(
        self,
        relation: Relation,
        parts: Sequence[Part],
        survivor_id: str,
        survivor_text: str,
        lookahead: Callable[[], Iterable[FusionRequest]] = tuple,
    ) -> FusedView:
        """Fuse the views of the survivor and of all that is demoted with it, in time order.

        `lookahead` names further requests to fuse in the same call, if a call is needed at all.
        """
        if self.fuser is None:
            return FusedView(survivor_text)
        request = fusion_request(relation, parts, survivor_id)
        self._stats.fusion_calls += 1
        if self._guard is None:
            view = self._trusted(request, self.fuser)
        else:
            view = self._guarded(request, self._guard, lookahead)
        if view.fallback is not None:
            self._stats.fusion_fallbacks += 1
            counts = self._stats.fallback_reasons
            counts[view.fallback] = counts.get(view.fallback, 0) + 1
        return view

    def forget(self) -> None:
        """Drop the views that were foreseen and never needed."""
        self._foreseen.clear()

    def _guarded(
        self, request: FusionRequest, guard: GuardedFuser, lookahead: Callable[[], Iterable[FusionRequest]]
    ) -> FusedView:
        if _key(request) not in self._foreseen:
            wanted = {_key(entry): entry for entry in (request, *lookahead())}
            fresh = {key: entry for key, entry in wanted.items() if key not in self._foreseen}
            passes, pairs = guard.passes, guard.pairs
            with billed(self._stats, guard.fuser, guard.relation_model):
                judged = guard.judge(list(fresh.values()))
            for key, view in zip(fresh, judged, strict=True):
                reason = None if view.reason is None else f"fuser {guard.fuser.name}: {view.reason.value}"
                self._foreseen[key] = FusedView(view.text, reason)
            self._stats.fuser_batches += 1
            self._stats.forward_passes += guard.passes - passes
            self._stats.pairs += guard.pairs - pairs
        return self._foreseen.pop(_key(request))

    def _trusted(self, request: FusionRequest, fuser: Fuser) -> FusedView:
        try:
            texts = fuser.fuse([request])
        except FUSER_FAULTS as error:
            return FusedView(plain_view(request), f"fuser {fuser.name} raised {type(error).__name__}")
        text = texts[0] if isinstance(texts, (list, tuple)) and len(texts) == 1 else None
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_VIEW:
            return FusedView(plain_view(request), f"fuser {fuser.name} returned no usable text")
        return FusedView(" ".join(text.split()))


def _key(request: FusionRequest) -> tuple[object, ...]:
    return (request.inputs, request.relation, request.survivor)


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
