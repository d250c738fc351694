"""Pairs a second beside sentence-transformers' CrossEncoder, on the same merged weights and pairs."""

from __future__ import annotations

import time
from typing import Any

from roam.onnx_model import session_threads
from scripts.bench_relation import PEER, loaders, rates, take_turns
from scripts.speed.plan import Plan, unlabelled

LARGE = 100
"""Pairs from which the torch path, about as fast as the peer, is left out: the run must stay short."""


def run(plan: Plan) -> dict[str, Any]:
    """Median pairs/s of each system by batch, and how often each says the same as torch; one pass a pair each."""
    import torch

    torch.set_num_threads(session_threads())
    sizes = plan.sizes
    most = unlabelled(plan.pairs, max(sizes.batches))
    systems, load = {}, {}
    for name, make in loaders(plan.adapter, plan.scratch, swaps=False).items():
        started = time.perf_counter()
        systems[name] = make()
        load[name] = round(time.perf_counter() - started, 2)
    found = {}
    for size in sizes.batches:
        chosen = {name: one for name, one in systems.items() if size <= LARGE or name != "torch"}
        repeats = sizes.repeats if size <= LARGE else sizes.large_repeats
        found[str(size)] = rates(take_turns(chosen, most[:size], repeats), size)
    same = most[:LARGE]
    said = {name: predict(same).argmax(axis=1) for name, predict in systems.items()}
    return {
        "peer": PEER,
        "batches": found,
        "load_seconds": load,
        "same_relation_as_torch": {name: round(float((one == said["torch"]).mean()), 4) for name, one in said.items()},
        "compared_on": len(same),
    }
