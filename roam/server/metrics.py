"""Prometheus metrics of one server. No user, key or text is ever a label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from roam.judging import Stats

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_COSTS = (
    "adds",
    "forward_passes",
    "pairs",
    "cached_pairs",
    "exact_matches",
    "fusion_fallbacks",
    "llm_calls",
    "retries",
)


class Metrics:
    """Counters of requests, writes and passes in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "roam_http_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "roam_http_request_seconds", "Time to answer.", ["method", "route"], buckets=_SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.facts = Counter("roam_facts", "Facts stored, by relation.", ["relation"], registry=self.registry)
        self.batch = Histogram("roam_write_batch_facts", "Facts a write.", buckets=_SIZES, registry=self.registry)
        self.pass_pairs = Histogram(
            "roam_pass_pairs", "Pairs a pass of the relation model.", buckets=_SIZES, registry=self.registry
        )
        self.pass_calls = Histogram(
            "roam_pass_calls", "Calls that shared a pass.", buckets=_SIZES[:7], registry=self.registry
        )

    def observe_pass(self, pairs: int, calls: int) -> None:
        """Count one pass of the relation model."""
        self.pass_pairs.observe(pairs)
        self.pass_calls.observe(calls)

    def watch(self, stats: Callable[[], Iterable[Stats]], waiting: Callable[[], int]) -> None:
        """Have the stores' own counts, and the facts that wait, read at every scrape."""
        self.registry.register(_Costs(stats))
        gauge = Gauge("roam_write_waiting_facts", "Facts that wait to be written.", registry=self.registry)
        gauge.set_function(waiting)


class _Costs(Collector):
    """What the open stores have counted since they were opened."""

    def __init__(self, stats: Callable[[], Iterable[Stats]]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        found = list(self._stats())
        for name in _COSTS:
            family = CounterMetricFamily(f"roam_store_{name}", f"Write path: {name.replace('_', ' ')}.")
            family.add_metric([], sum(getattr(entry, name) for entry in found))
            yield family
