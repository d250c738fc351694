"""Speed of the store on this machine: `make bench` or `python scripts/bench.py --facts 500`.

Adds facts of the bundled families one by one and in one batch, then searches. Prints JSON, so that two machines, or two
versions, can be compared line by line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python scripts/bench.py` finds the repository's packages

from roam.errors import RoamError  # noqa: E402
from roam.memory import Memory  # noqa: E402

USER = "bench"


def facts(count: int) -> list[str]:
    """The first `count` distinct base facts of the families."""
    lines = (ROOT / "data" / "families.jsonl").read_text(encoding="utf-8").splitlines()
    texts = list(dict.fromkeys(json.loads(line)["base"] for line in lines))
    return texts[:count]


def timed(work: Callable[[str], object], items: Sequence[str], note: str) -> list[float]:
    """Milliseconds of `work` on each item, in the items' order."""
    from tqdm import tqdm

    spent = []
    for item in tqdm(items, desc=note, disable=None):
        started = time.perf_counter()
        work(item)
        spent.append((time.perf_counter() - started) * 1000)
    return spent


def summary(milliseconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and rate."""
    ordered = sorted(milliseconds)
    return {
        "median_ms": round(statistics.median(ordered), 2),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 2),
        "per_second": round(1000 * len(ordered) / sum(ordered), 1),
    }


def bench(adapter: str, count: int, searches: int) -> dict[str, Any]:
    """Figures of one adapter."""
    from roam.embedders import load_embedder
    from roam.managers import load_manager

    texts = facts(count)
    started = time.perf_counter()
    model, embedder = load_manager(adapter).relation_model, load_embedder()
    embedder.embed(texts[:1])
    load = time.perf_counter() - started
    with Memory.open(":memory:", manager=model, embedder=embedder) as memory:
        one_by_one = timed(lambda text: memory.add(text, user=USER), texts, "add")
        passes, pairs = memory.stats.forward_passes, memory.stats.pairs
        found = timed(lambda text: memory.search(text, user=USER, budget=256), texts[:searches], "search")
    with Memory.open(":memory:", manager=model, embedder=embedder) as memory:
        started = time.perf_counter()
        memory.add_many([{"text": text, "user": USER} for text in texts])
        batch = time.perf_counter() - started
        batch_passes = memory.stats.forward_passes
    threads = os.environ.get("OMP_NUM_THREADS")
    return {
        "adapter": adapter,
        "model": model.digest,
        "facts": len(texts),
        "load_seconds": round(load, 2),
        "add": summary(one_by_one) | {"forward_passes": passes, "pairs": pairs},
        "add_many": {"per_second": round(len(texts) / batch, 1), "forward_passes": batch_passes},
        "search": summary(found),
        "machine": {
            "system": platform.platform(),
            "cpus": os.cpu_count(),
            "threads": threads,
        },
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 2 on bad input, with one line on standard error."""
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: python scripts/bench.py --facts 200")
    parser.add_argument("--adapter", default="pretrained", help="'pretrained' or a folder (default: %(default)s)")
    parser.add_argument("--facts", type=int, default=300, help="facts to add (default: %(default)s)")
    parser.add_argument("--searches", type=int, default=100, help="searches to time (default: %(default)s)")
    args = parser.parse_args(argv)
    try:
        if args.facts < 1 or args.searches < 1:
            parser.error("--facts and --searches must be at least 1")
        print(json.dumps(bench(args.adapter, args.facts, args.searches), indent=2))
    except RoamError as error:
        print(f"bench: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
