"""How cost grows: pairs/s against batch, text length and k; adding and searching against the size of a store."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from roam.embedders import load_embedder
from roam.managers import load_manager
from roam.memory import Memory
from roam.records import Pair
from roam.relation_model import PairClassifier
from scripts.bench import facts
from scripts.bench_store import curve
from scripts.speed.plan import Plan, seconds, unlabelled

FULL = 32
"""Pairs a call where the length of the texts grows."""
MARK = 3  # [CLS] and two separators


def run(plan: Plan) -> dict[str, Any]:
    """Curves of the int8 graph, one pass a pair, and of the store on vectors that cost nothing to make."""
    sizes = plan.sizes
    model = load_manager(plan.adapter, backend="onnx-int8").relation_model
    assert isinstance(model, PairClassifier)
    pairs = unlabelled(plan.pairs, max(sizes.growth_batches))
    repeats = min(3, sizes.repeats)
    batch = [_rate(model, pairs[:size], repeats) | {"batch": size} for size in sizes.growth_batches]
    text = [_rate(model, of_length(model, pairs, count), repeats) | {"tokens": count} for count in sizes.growth_tokens]
    return {
        "pairs_against_batch": batch,
        "pairs_against_tokens": text,
        "adds_against_k": [adds(model, k, plan) for k in sizes.growth_k],
        "store": [
            {"size": row["size"], "adds_per_second": round(1000 / row["add_ms"]["p50"], 1),
             "searches_per_second": round(1000 / row["search_ms"]["p50"], 1)}
            for row in curve(":memory:", sizes.store_sizes, lambda number: "user", sizes.store_calls)
        ],
    }  # fmt: skip


def _rate(model: PairClassifier, pairs: Sequence[Pair], repeats: int) -> dict[str, Any]:
    spent = statistics.median(seconds(lambda: model._forward(pairs), repeats))
    return {"pairs_per_second": round(len(pairs) / spent, 2), "milliseconds": round(1000 * spent, 2)}


def of_length(model: PairClassifier, pairs: Sequence[Pair], tokens: int) -> list[Pair]:
    """Pairs of about `tokens` tokens: words of the texts, repeated or cut."""
    words = " ".join(pair.old for pair in pairs).split()
    low, high = 1, tokens
    while low < high:  # the most words a side that still fit
        middle = (low + high + 1) // 2
        text = " ".join((words * (1 + middle // len(words)))[:middle])
        fits = len(model.encoder.encode([Pair(text, text)])[0]) <= max(tokens, MARK + 2)
        low, high = (middle, high) if fits and middle < tokens else (low, middle - 1)
    many = words * (2 + (FULL + low) // len(words))
    return [Pair(" ".join(many[place : place + low]), " ".join(many[:low])) for place in range(FULL)]


def adds(model: PairClassifier, k: int, plan: Plan) -> dict[str, Any]:
    """Facts a second through the whole write path, one by one, with k candidates each."""
    texts = facts(plan.sizes.growth_facts)
    with Memory.open(":memory:", manager=model, embedder=load_embedder(), k=k) as memory:
        memory.add(texts[0], user="bench")
        started = time.perf_counter()
        for text in texts[1:]:
            memory.add(text, user="bench")
        spent = time.perf_counter() - started
        return {"k": k, "adds_per_second": round((len(texts) - 1) / spent, 2), "pairs": memory.stats.pairs}
