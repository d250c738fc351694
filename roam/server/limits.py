"""How much may be asked: requests of a caller, by a bucket of tokens for each, and pairs that wait for the model."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from roam.server.problems import BusyError, TooManyError

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


class Waiting:
    """Counts what waits for the relation model, so that a flood of pairs is refused and not hoarded."""

    def __init__(self, most: int) -> None:
        self._most, self.pairs = most, 0

    @contextmanager
    def admit(self, pairs: int) -> Iterator[None]:
        """Let pairs in until they are classified; `BusyError` when too many wait. A request alone always gets in."""
        if self.pairs and self.pairs + pairs > self._most:
            raise BusyError(self.pairs, "pairs wait to be classified")
        self.pairs += pairs
        try:
            yield
        finally:
            self.pairs -= pairs
