"""The loop that all benchmarks share: every item under every method once, kept on disk, with progress."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from tqdm import tqdm

from eval.answering import Answerer
from eval.diagnostics import Diagnosis, RetainedUnit
from eval.methods import Method
from eval.run_cache import RunCache
from eval.store_run import Settings
from roam.interfaces import Embedder

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Runner:
    """What a benchmark runs with."""

    embedder: Embedder
    cache: RunCache
    settings: Settings
    seed: int = 0
    answerer: Answerer | None = None

    def results(
        self, what: str, items: Sequence[T], method: Method, work: Callable[[T], Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return `work(item)` (JSON values) of every item, with `seconds`; finished ones come from the cache.

        `what` names the work: together with the item's content, the method's identity, the embedder and the settings it
        decides what is found again.
        """
        found = []
        for item in tqdm(items, desc=f"{method.name} {what}", unit="store", disable=None, leave=False):
            key = self.cache.key(
                what=what,
                item=hashlib.sha256(repr(item).encode()).hexdigest(),
                method=method.identity(),
                embedder=self.embedder.digest,
                settings=asdict(self.settings),
                answerer=None if self.answerer is None else self.answerer.digest,
            )
            result = self.cache.result(key)
            if result is None:
                started = time.perf_counter()
                result = dict(work(item))
                result["seconds"] = time.perf_counter() - started
                self.cache.keep(key, result)
            found.append(result)
        return found


def diagnosis_of(values: Mapping[str, Any]) -> Diagnosis:
    """The `Diagnosis` whose `asdict` went through JSON."""
    return Diagnosis(**{**values, "counts": {name: tuple(pair) for name, pair in values["counts"].items()}})


def mean_seconds(results: Sequence[Mapping[str, Any]]) -> float:
    """Mean wall time of one item; pairs that were judged in an earlier run cost no time."""
    return sum(float(result["seconds"]) for result in results) / max(1, len(results))


def marked(
    answerer: Answerer | None, units: Sequence[RetainedUnit], question: str, reference: str, asked_at: str | None
) -> bool | None:
    """Whether the answer from these views is right; None without an answerer, or where it could not be judged."""
    if answerer is None:
        return None
    return answerer.correct("\n".join(unit.text for unit in units), question, reference, asked_at)
