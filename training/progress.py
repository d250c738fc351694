"""What a person sees while a run goes on, and what stops a run that has gone wrong."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from roam.errors import TrainingError


class ProgressLine(TrainerCallback):
    """One line a log step: step, loss, pairs/s, time left. Keeps the history for the learning curve."""

    def __init__(self, folder: Path, pairs_per_step: int) -> None:
        self.file = folder / "history.jsonl"
        self.pairs_per_step = pairs_per_step
        self.history: list[dict[str, Any]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.first, self.started, self.paused = state.global_step, time.monotonic(), 0.0
        if state.global_step and self.file.is_file():  # resumed: keep what came before
            rows = [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines()]
            self.history = [row for row in rows if row["step"] <= state.global_step]
        if state.is_world_process_zero:
            self.file.write_text("".join(json.dumps(row) + "\n" for row in self.history), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if not logs or "train_runtime" in logs or not state.is_world_process_zero:
            return
        row = {"step": state.global_step, "epoch": round(state.epoch or 0.0, 4), **logs}
        self.history.append(row)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if "eval_macro_f1" in logs:
            print(f"  dev macro-F1 {100 * logs['eval_macro_f1']:.1f}  loss {logs['eval_loss']:.3f}", flush=True)
        elif "loss" in logs:
            done = state.global_step - self.first
            seconds = time.monotonic() - self.started
            rate = done * self.pairs_per_step / seconds
            left = (state.max_steps - state.global_step) * seconds / max(1, done)
            print(f"step {state.global_step}/{state.max_steps}  loss {logs['loss']:.3f}  {rate:.1f} pairs/s  "
                  f"{left / 60:.1f} min left", flush=True)  # fmt: skip


class RunGuard(TrainerCallback):
    """Stops on a loss that is not a number and on a model that predicts one class only.

    Before the warm-up has moved the head, one class is the rule; from `collapse_after` steps on it is a collapse.
    """

    def __init__(self, collapse_after: int) -> None:
        self.collapse_after = collapse_after

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        for key in ("loss", "grad_norm", "eval_loss"):
            value = (logs or {}).get(key)
            if value is not None and not math.isfinite(float(value)):
                raise TrainingError(
                    f"{key} is {value} at step {state.global_step}: lower learning_rate or use precision=fp32"
                )

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any) -> None:
        if metrics.get("eval_classes") == 1 and state.global_step >= self.collapse_after:
            raise TrainingError(
                f"the model predicts one class only at step {state.global_step}: lower learning_rate, or check that "
                "train and dev hold all five relations"
            )
