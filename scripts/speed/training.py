"""Training pairs/s beside sentence-transformers' CrossEncoderTrainer and a plain Trainer; base, LoRA, data alike.

Each system trains in a process of its own (`python -m scripts.speed.train_one`), so that its largest memory is its own.
Time counts training steps only; between some of them dev is judged by one and the same function.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from scripts.bench import ROOT
from scripts.speed.plan import Plan, labelled

SYSTEMS = {
    "roam": "training.relation's trainer: batches of similar length, bf16 where the processor gains by it",
    "CrossEncoderTrainer": "sentence-transformers, defaults: fp32, batches as drawn",
    "CrossEncoderTrainer, bf16": "the same with bf16=True",
    "Trainer": "transformers' Trainer, defaults: fp32, batches as drawn",
}
OURS, PEER = "roam", "CrossEncoderTrainer"


def run(plan: Plan) -> dict[str, Any]:
    """Pairs/s, memory and the dev curve of each system, and the time to the macro-F1 that all of them reach."""
    labelled(plan.train, plan.sizes.train_pairs)
    labelled(plan.pairs, plan.sizes.dev_pairs)
    found: dict[str, Any] = {}
    for name in SYSTEMS:
        out = plan.scratch / "train.json"
        subprocess.run(
            [sys.executable, "-m", "scripts.speed.train_one", name, "--base", plan.base, "--train", plan.train,
             "--dev", plan.pairs, "--pairs", str(plan.sizes.train_pairs), "--dev-pairs", str(plan.sizes.dev_pairs),
             "--evaluations", str(plan.sizes.train_evaluations), "--out", out],
            check=True, cwd=ROOT, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        found[name] = json.loads(out.read_text(encoding="utf-8"))
    common = min(max(point["macro_f1"] for point in one["curve"]) for one in found.values())
    for one in found.values():
        one["seconds_to_common_f1"] = next(p["seconds"] for p in one["curve"] if p["macro_f1"] >= common)
    return {
        "base": plan.base, "pairs": plan.sizes.train_pairs, "dev_pairs": plan.sizes.dev_pairs,
        "common_macro_f1": common, "systems": found,
        "times_peer": {name: round(found[OURS]["pairs_per_second"] / found[name]["pairs_per_second"], 2)
                       for name in SYSTEMS if name != OURS},
    }  # fmt: skip
