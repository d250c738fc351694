"""One training run of the speed benchmark, alone in its process: `python -m scripts.speed.train_one SYSTEM ...`."""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

from data.pairs import LabelledPair
from roam.onnx_model import session_threads
from roam.relations import INDEX
from scripts.speed.plan import labelled
from training.config import RelationConfig
from training.models import choose_precision, load_classifier
from training.relation import build_trainer, encode, macro_f1, total_steps

SHARED = {"batch_size": 32, "learning_rate": 3e-4, "warmup": 0.06, "dropout": 0.0}
"""Hyperparameters of all systems, as keys of a recipe."""


class Clock(TrainerCallback):
    """Seconds of training steps, and macro-F1 on dev at some of them; judging dev stops the clock."""

    def __init__(self, judge: Any, every: int, batch: int) -> None:
        self._judge, self._every, self._batch = judge, every, batch
        self.seconds = self._started = 0.0
        self.pairs = 0
        self.curve: list[dict[str, float]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.seconds += time.perf_counter() - self._started
        self.pairs = state.global_step * self._batch
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            self.curve.append({
                "pairs": self.pairs, "seconds": round(self.seconds, 2), "macro_f1": round(self._judge(), 4)
            })  # fmt: skip
        self._started = time.perf_counter()


def judge_of(model: Any, tokenizer: Any, pairs: list[LabelledPair], length: int) -> Any:
    """A function that says the model's macro-F1 on `pairs`, in fp32."""
    import numpy as np
    import torch

    order = sorted(range(len(pairs)), key=lambda index: len(pairs[index].old) + len(pairs[index].new))
    gold = np.array([INDEX[pairs[index].label] for index in order])

    def judge() -> float:
        model.eval()
        logits = []
        with torch.inference_mode():
            for start in range(0, len(order), 64):
                chunk = [pairs[index] for index in order[start : start + 64]]
                features = tokenizer([p.old for p in chunk], [p.new for p in chunk], truncation="longest_first",
                                     max_length=length, padding=True, return_tensors="pt")  # fmt: skip
                logits.append(model(**features).logits.float().numpy())
        model.train()
        return macro_f1(np.concatenate(logits), gold)

    return judge


def arguments_of(kind: Any, config: RelationConfig, folder: str, steps: int, *, bf16: bool) -> Any:
    """The peers' arguments: the recipe's numbers, everything else as the library has it."""
    return kind(
        output_dir=folder, num_train_epochs=1, per_device_train_batch_size=config.batch_size,
        learning_rate=config.learning_rate, weight_decay=config.weight_decay,
        warmup_steps=round(config.warmup * steps), seed=config.seed, bf16=bf16, use_cpu=True,
        save_strategy="no", report_to=[], disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip


def ours(config: RelationConfig, parts: Any, pairs: list[LabelledPair], dev: list[LabelledPair], folder: str) -> Any:
    """The project's trainer, its own evaluations and checkpoints switched off."""
    from training.pair_trainer import training_arguments

    model, tokenizer = parts
    precision, _ = choose_precision(config, model.config.model_type)
    arguments = training_arguments(config, Path(folder), total_steps(config, len(pairs)), precision)
    arguments.eval_strategy = arguments.save_strategy = "no"
    arguments.load_best_model_at_end = False
    return build_trainer(config, model, tokenizer, pairs, dev, arguments, TrainerCallback())


def plain(config: RelationConfig, parts: Any, pairs: list[LabelledPair], folder: str) -> Any:
    """transformers' Trainer as its guides use it."""
    from transformers import DataCollatorWithPadding

    model, tokenizer = parts
    rows = encode(pairs, tokenizer, config.max_length).remove_columns("length")
    arguments = arguments_of(TrainingArguments, config, folder, total_steps(config, len(pairs)), bf16=False)
    return Trainer(model=model, args=arguments, train_dataset=rows, data_collator=DataCollatorWithPadding(tokenizer))


def cross_encoder(
    config: RelationConfig, parts: Any, pairs: list[LabelledPair], folder: str, *, bf16: bool, base: Path
) -> Any:
    """CrossEncoderTrainer with the same LoRA model inside: its own add_adapter would leave the head untrained."""
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.losses import CrossEntropyLoss
    from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
    from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments

    encoder = CrossEncoder(str(base), num_labels=len(INDEX), max_length=config.max_length, device="cpu",
                           model_kwargs={"dtype": "float32"})  # fmt: skip
    encoder[0].model = parts[0]
    rows = Dataset.from_dict({"old": [p.old for p in pairs], "new": [p.new for p in pairs],
                              "label": [INDEX[p.label] for p in pairs]})  # fmt: skip
    arguments = arguments_of(
        CrossEncoderTrainingArguments, config, folder, total_steps(config, len(pairs)), bf16=bf16
    )  # fmt: skip
    return CrossEncoderTrainer(model=encoder, args=arguments, train_dataset=rows, loss=CrossEntropyLoss(encoder))


def main() -> None:
    """Train and write the figures."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", help="a name of scripts.speed.training.SYSTEMS")
    parser.add_argument("--base", required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    for name in ("--pairs", "--dev-pairs", "--evaluations"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(session_threads())
    config = RelationConfig(base=args.base, device="cpu", max_length=128, **SHARED)  # type: ignore[arg-type]
    set_seed(config.seed)
    pairs, dev = labelled(args.train, args.pairs), labelled(args.dev, args.dev_pairs)
    model, tokenizer, base = load_classifier(config)
    steps = total_steps(config, len(pairs))
    clock = Clock(judge_of(model, tokenizer, dev, config.max_length), max(1, steps // args.evaluations),
                  config.batch_size)  # fmt: skip
    before = peak_mb()
    with tempfile.TemporaryDirectory() as folder:
        parts = (model, tokenizer)
        if args.system == "roam":
            trainer = ours(config, parts, pairs, dev, folder)
        elif args.system == "Trainer":
            trainer = plain(config, parts, pairs, folder)
        else:
            bf16 = args.system.endswith("bf16")
            trainer = cross_encoder(config, parts, pairs, folder, bf16=bf16, base=base.path)
        trainer.add_callback(clock)
        trainer.train()
    report = {
        "pairs_per_second": round(min(clock.pairs, len(pairs)) / clock.seconds, 2), "seconds": round(clock.seconds, 2),
        "peak_mb": peak_mb(), "mb_before_training": before, "macro_f1": clock.curve[-1]["macro_f1"],
        "curve": clock.curve,
    }  # fmt: skip
    args.out.write_text(json.dumps(report), encoding="utf-8")


def peak_mb() -> int:
    """Largest memory of this process so far, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
