"""`add_many` in few passes of the int8 graph, against one fact at a time through torch, and mem0 with infer off.

One by one, a thousand facts would take many minutes. So some of them, spread evenly over the stream, are added that way
to a store that holds all facts before them, and their mean stands for each of the others. What fills the store between
them repeats the judgements of the first run.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roam.embedders import load_embedder
from roam.interfaces import Embedder, RelationModel
from roam.managers import load_manager
from roam.memory import Memory
from roam.records import Decision, Pair
from roam.relation_model import TorchRelationModel
from roam.relations import Relation
from scripts.bench import facts
from scripts.speed.plan import Plan, spread

USER = "bench"


class Switch:
    """A relation model that remembers what `fast` said; while `plain` is set, that one is asked instead."""

    digest = "switch"

    def __init__(self, fast: RelationModel) -> None:
        self.thresholds: Mapping[Relation, float] = fast.thresholds
        self.fast = fast
        self.plain: RelationModel | None = None
        self._said: dict[Pair, NDArray[np.float32]] = {}

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Probabilities, shape (len(pairs), 5)."""
        if self.plain is not None:
            return self.plain.predict_proba(pairs)
        fresh = [pair for pair in dict.fromkeys(pairs) if pair not in self._said]
        if fresh:
            self._said.update(zip(fresh, self.fast.predict_proba(fresh), strict=True))
        return np.stack([self._said[pair] for pair in pairs])


def run(plan: Plan) -> dict[str, Any]:
    """Seconds and passes of the ways to add the same facts."""
    texts = facts(plan.sizes.observations)
    embedder = load_embedder()
    embedder.embed(texts[:1])
    switch = Switch(load_manager(plan.adapter, backend="onnx-int8").relation_model)
    with Memory.open(":memory:", manager=switch, embedder=embedder) as memory:
        started = time.perf_counter()
        decisions = memory.add_many(items(texts))
        batch = time.perf_counter() - started
        stats = memory.stats
        primaries = len(memory.primaries(user=USER))
    spent, same = one_by_one(texts, decisions, switch, embedder, plan)
    alone = sum(spent) / len(spent) * len(texts)
    return {
        "observations": len(texts),
        "add_many": {"seconds": round(batch, 2), "per_second": round(len(texts) / batch, 1), "primaries": primaries,
                     "forward_passes": stats.forward_passes, "pairs": stats.pairs,
                     "exact_matches": stats.exact_matches},
        "one_by_one_torch": {"timed_adds": len(spent), "seconds_an_add": spread(spent),
                             "seconds": round(alone, 2), "same_decision": round(same, 4)},
        "times": round(alone / batch, 2),
        "mem0_infer_off": mem0(texts, embedder, plan),
    }  # fmt: skip


def items(texts: Sequence[str], start: int = 0) -> list[dict[str, object]]:
    """Facts as `add_many` takes them; ids by place, so that two stores can be compared."""
    return [{"text": text, "user": USER, "id": f"fact-{start + place}"} for place, text in enumerate(texts)]


def one_by_one(
    texts: Sequence[str], decisions: Sequence[Decision], switch: Switch, embedder: Embedder, plan: Plan
) -> tuple[list[float], float]:
    """Seconds of single adds through torch, and the share of them that is decided as in the batch."""
    from tqdm import tqdm

    plain = TorchRelationModel.load(plan.adapter, device="cpu")
    step = max(1, len(texts) // plan.sizes.one_by_one)
    spent, same = [], 0
    with Memory.open(":memory:", manager=switch, embedder=embedder) as memory:
        for start in tqdm(range(0, len(texts), step), desc="one by one", disable=None):
            *before, last = items(texts[start : start + step], start)
            switch.plain = None
            memory.add_many(before)
            switch.plain = plain
            started = time.perf_counter()
            found = memory.add(**last)  # type: ignore[arg-type]
            spent.append(time.perf_counter() - started)
            there = decisions[start + len(before)]
            same += (found.relation, found.primary_id) == (there.relation, there.primary_id)
    return spent, same / len(spent)


MEM0 = """
import json, sys, tempfile, time
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[1])
from scripts.mem0_store import Mem0Store
texts = json.loads(sys.stdin.read())
kept = np.load(sys.argv[2])
class Known:
    dimension = int(kept.shape[1])
    places = {text: place for place, text in enumerate(texts)}
    def embed(self, wanted):
        return kept[[self.places[text] for text in wanted]]
with tempfile.TemporaryDirectory() as folder:
    store = Mem0Store(Path(folder), Known())
    started = time.perf_counter()
    for text in texts:
        store.add(text)
    print(json.dumps(time.perf_counter() - started))
"""


def mem0(texts: Sequence[str], embedder: Embedder, plan: Plan) -> dict[str, Any] | None:
    """Seconds of mem0's own `add` without its LLM, one fact a call, as it is made; None without --mem0-python.

    It runs in its own environment, on vectors that were made here: one text a pass, timed and added.
    """
    if plan.mem0_python is None:
        return None
    from scripts.bench import ROOT

    started = time.perf_counter()
    vectors = np.concatenate([embedder.embed([text]) for text in texts])
    embedding = time.perf_counter() - started
    np.save(plan.scratch / "vectors.npy", vectors)
    done = subprocess.run(
        [plan.mem0_python, "-c", MEM0, str(ROOT), str(plan.scratch / "vectors.npy")],
        input=json.dumps(list(texts)), capture_output=True, text=True, check=True,
    )  # fmt: skip
    storing = float(json.loads(done.stdout.splitlines()[-1]))
    total = storing + embedding
    return {"seconds": round(total, 2), "embedding_seconds": round(embedding, 2),
            "per_second": round(len(texts) / total, 1)}  # fmt: skip
