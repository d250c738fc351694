"""View fusion: what a Primary says after an update (paper section 2.2.2; convention in data/FUSION.md)."""

from __future__ import annotations

from roam.fusion.chain import Chain, parse_chain
from roam.fusion.deterministic import DeterministicFuser
from roam.fusion.guard import GuardedFuser, GuardedView
from roam.fusion.proposal import GuardReason

__all__ = ["Chain", "DeterministicFuser", "GuardReason", "GuardedFuser", "GuardedView", "parse_chain"]
