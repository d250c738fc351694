"""A fast model before an accurate one: what each margin costs in macro-F1 and saves in time (`roam.cascade`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.metrics import columns, decide, macro_f1
from roam.cascade import margins
from roam.managers import load_manager
from roam.records import Pair
from scripts.speed.plan import Plan, labelled

MARGINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1)


@dataclass(frozen=True)
class Judged:
    """A model's probabilities of all pairs, and its seconds a pair."""

    rows: NDArray[np.float32]
    seconds: float


def judged(predict: Callable[[list[Pair]], NDArray[np.float32]], pairs: list[Pair]) -> Judged:
    """Judge all pairs in one call, after a few that are not timed."""
    predict(pairs[:4])
    started = time.perf_counter()
    rows = predict(pairs)
    return Judged(rows, (time.perf_counter() - started) / len(pairs))


def run(plan: Plan) -> dict[str, Any]:
    """By pair of models, a line a margin; time: the fast model on all pairs, the accurate one on its share."""
    rows = labelled(plan.pairs, plan.sizes.cascade_pairs)
    pairs, gold = [Pair(row.old, row.new) for row in rows], columns([row.label for row in rows])

    def of(adapter: Any, backend: str) -> Judged:
        return judged(load_manager(adapter, backend=backend).relation_model.predict_proba, pairs)

    whole, exact = of(plan.adapter, "onnx-int8"), of(plan.adapter, "onnx")
    found: dict[str, Any] = {"pairs": len(pairs), "int8 before fp32": lines(whole, exact, gold)}
    if plan.fast is not None:
        small = of(plan.fast, "onnx-int8")
        found["fast before accurate, int8"] = lines(small, whole, gold)
        found["fast int8 before accurate fp32"] = lines(small, exact, gold)
    return found


def lines(fast: Judged, accurate: Judged, gold: NDArray[np.int64]) -> list[dict[str, float]]:
    """Figures of each margin; 0 is the fast model alone, above 1 both models on every pair."""
    out = []
    reference = decide(accurate.rows)
    for margin in MARGINS:
        unsure = margins(fast.rows) < margin
        said = decide(np.where(unsure[:, None], accurate.rows, fast.rows))
        out.append({
            "margin": margin,
            "asked_again": round(float(unsure.mean()), 4),
            "macro_f1": round(macro_f1(gold, said), 4),
            "agreement_with_accurate": round(float((said == reference).mean()), 4),
            "pairs_per_second": round(1 / (fast.seconds + accurate.seconds * float(unsure.mean())), 2),
        })  # fmt: skip
    return out
