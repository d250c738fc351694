"""What the requests of one application share."""

from __future__ import annotations

from dataclasses import dataclass

from roam.server.keys import KeyRing
from roam.server.limits import RateLimit, Waiting
from roam.server.metrics import Metrics
from roam.server.passes import SharedPasses
from roam.server.settings import Settings
from roam.server.stores import Stores
from roam.server.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Context:
    """Parts of a running application; `keys` is None on a server for this machine only."""

    settings: Settings
    model: SharedPasses
    stores: Stores
    keys: KeyRing | None
    rate: RateLimit
    waiting: Waiting
    metrics: Metrics
    tracing: Tracing
