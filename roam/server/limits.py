"""How many requests a caller may make: a bucket of tokens for each key."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from roam.server.problems import TooManyError

MOST_BUCKETS = 10_000  # callers that are remembered; the one not seen for longest is forgotten, its bucket being full


class RateLimit:
    """`burst` requests at once, `rate` a second on average, for each caller by name."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and when

    def take(self, caller: str) -> None:
        """Count one request; `TooManyError` when there is no token left."""
        now = self._clock()
        left, since = self._buckets.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        granted = left >= 1.0
        self._buckets[caller] = (left - 1.0 if granted else left, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        if not granted:
            raise TooManyError((1.0 - left) / self._rate)
