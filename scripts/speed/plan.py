"""What a run of the speed benchmark measures, and how large each part is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.held_out import refuse_test_rows
from data.pairs import LabelledPair, read_pairs
from roam.errors import InputError
from roam.records import Pair


@dataclass(frozen=True)
class Sizes:
    """How much is measured. The defaults take about 20 minutes on two idle cores."""

    repeats: int = 5
    batches: tuple[int, ...] = (10, 640)
    large_repeats: int = 3
    """Turns at batches of more than 100 pairs, where torch is left out."""
    observations: int = 1000
    one_by_one: int = 40
    train_pairs: int = 2000
    train_evaluations: int = 4
    dev_pairs: int = 300
    cascade_pairs: int = 400
    growth_batches: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 300)
    growth_tokens: tuple[int, ...] = (16, 32, 64, 128)
    growth_k: tuple[int, ...] = (1, 2, 5, 10, 20)
    growth_facts: int = 60
    store_sizes: tuple[int, ...] = (1_000, 5_000, 20_000)
    store_calls: int = 50
    episodes: int = 1
    limit_pairs: int = 100


TINY = Sizes(
    repeats=2, batches=(2, 6), large_repeats=1, observations=12, one_by_one=2, train_pairs=64, train_evaluations=2,
    dev_pairs=20, cascade_pairs=20, growth_batches=(1, 4), growth_tokens=(16, 32), growth_k=(1, 3), growth_facts=8,
    store_sizes=(100, 200), store_calls=3, limit_pairs=6,
)  # fmt: skip
"""Shows that every part runs; its figures mean nothing."""


@dataclass(frozen=True)
class Plan:
    """Inputs of a run."""

    adapter: Path
    pairs: Path
    """Labelled pairs that no adapter was trained on."""
    train: Path
    parity: Path
    sizes: Sizes
    scratch: Path
    """Folder for files that are thrown away."""
    base: str = "all-MiniLM-L6-v2"
    """What the training part trains on."""
    fast: Path | None = None
    """The cascade's fast adapter."""
    gguf: Path | None = None
    server_python: str | None = None
    mem0_python: str | None = None


def labelled(path: Path, count: int) -> list[LabelledPair]:
    """The first `count` pairs of a file that is no test set; raises `InputError` when it holds fewer."""
    if not path.is_file():
        raise InputError(f"{path} does not exist: `python -m data.build` makes it, or name one with --pairs or --train")
    found = read_pairs(path)
    refuse_test_rows(path, found)
    if len(found) < count:
        raise InputError(f"{path} holds {len(found)} pairs and {count} are needed: name a larger file")
    return found[:count]


def unlabelled(path: Path, count: int) -> list[Pair]:
    """The same without their labels."""
    return [Pair(pair.old, pair.new) for pair in labelled(path, count)]


def seconds(work: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls, after one that is not counted."""
    work()
    spent = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return spent


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    """Median, least and largest."""
    return {
        "median": round(statistics.median(values), digits),
        "least": round(min(values), digits),
        "largest": round(max(values), digits),
    }
