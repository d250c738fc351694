"""What requests to a model cost: calls, tokens, seconds, and how much of the input was a prefix seen before."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from os.path import commonprefix


@dataclass
class Usage:
    """Counts since a client was made.

    Attributes:
        calls: requests sent, failed ones included (as in the paper's Table 10).
        failed: requests that brought no answer: timeouts, rate limits, errors of the server.
        unusable: answers that were not what was asked for.
        given_up: questions that have no usable answer after all retries.
        replayed: answers taken from the response cache; they cost no call and no token.
        input_tokens: as the server counts them, prefixes included.
        cached_tokens: those of them that the server says it took from its prefix cache; servers that say nothing add 0.
        cache_reports: answers that came with such a figure.
        shared_tokens: input tokens in the longest prefix that an earlier request had too (`PrefixMeter`).
        unmetered: answers without token counts.
        seconds: time spent waiting, summed over requests.
    """

    calls: int = 0
    failed: int = 0
    unusable: int = 0
    given_up: int = 0
    replayed: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_reports: int = 0
    shared_tokens: float = 0.0
    output_tokens: int = 0
    unmetered: int = 0
    seconds: float = 0.0

    def copy(self) -> Usage:
        """The counts as they are now."""
        return Usage(**asdict(self))

    def since(self, earlier: Usage) -> Usage:
        """What came on top of `earlier`."""
        return Usage(**{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)})

    def as_dict(self) -> Mapping[str, float]:
        """The counts by name."""
        return asdict(self)


class PrefixMeter:
    """Finds how much of a prompt begins like one that was sent before.

    This is what an unbounded prefix cache would reuse. It is one convention for all managers, whatever their server
    reports. Prompts are kept sorted: the longest common prefix with all of them is that with one of the two neighbours.
    """

    def __init__(self) -> None:
        self._prompts: list[str] = []
        self._lock = threading.Lock()

    def share(self, prompt: str) -> float:
        """Share of `prompt` (0 to 1, in characters) that an earlier prompt began with; the prompt is then kept."""
        with self._lock:
            place = bisect.bisect_left(self._prompts, prompt)
            near = self._prompts[max(0, place - 1) : place + 1]
            longest = max((len(commonprefix([prompt, other])) for other in near), default=0)  # noqa: RUF071 - of characters
            if not (place < len(self._prompts) and self._prompts[place] == prompt):
                self._prompts.insert(place, prompt)
        return longest / max(1, len(prompt))
