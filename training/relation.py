"""Train a relation adapter: `python -m training.relation CONFIG [key=value ...]`.

The loop is transformers' Trainer over a PEFT model. A run folder holds the resolved config, checkpoints, metrics,
versions, data hashes, a learning curve and the adapter with its card; `--resume` goes on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.pairs import LabelledPair, file_sha256, read_pairs
from roam.errors import DataError, RoamError
from roam.relations import INDEX, RELATIONS
from training.config import RelationConfig, load_config
from training.models import choose_precision, load_classifier
from training.run_folder import open_run


@dataclass
class TrainedRun:
    """What training leaves: the folder, the metrics on dev, and the adapter's folder."""

    folder: Path
    adapter: Path
    metrics: dict[str, Any]


def read_split(path: str, role: str, limit: int | None, seed: int) -> list[LabelledPair]:
    """All pairs of a file, or a seeded `limit` of them; `DataError` when it is missing or a relation has no pair."""
    if not Path(path).is_file():
        raise DataError(f"{role} file {path!r} does not exist; run `python -m data.build` or set {role}=FILE")
    pairs = subset(read_pairs(path), limit, seed)
    absent = [relation.value for relation in RELATIONS if not any(pair.label is relation for pair in pairs)]
    if absent:
        drawn = f" among the {len(pairs)} drawn" if limit is not None else ""
        raise DataError(
            f"{path} has no pair labelled {', '.join(absent)}{drawn}; a five-way classifier needs all of them"
        )
    return pairs


def subset(pairs: Sequence[LabelledPair], limit: int | None, seed: int) -> list[LabelledPair]:
    if limit is None or limit >= len(pairs):
        return list(pairs)
    kept = sorted(random.Random(seed).sample(range(len(pairs)), limit))
    return [pairs[index] for index in kept]


def encode(pairs: Sequence[LabelledPair], tokenizer: Any, max_length: int) -> Any:
    """A datasets.Dataset of token ids, labels and lengths."""
    from datasets import Dataset

    encoded = tokenizer(
        [pair.old for pair in pairs], [pair.new for pair in pairs], truncation="longest_first", max_length=max_length
    )
    columns = dict(encoded)
    columns["labels"] = [INDEX[pair.label] for pair in pairs]
    columns["length"] = [len(ids) for ids in encoded["input_ids"]]
    return Dataset.from_dict(columns)


def macro_f1(logits: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    columns = list(range(len(RELATIONS)))
    return float(f1_score(labels, logits.argmax(-1), labels=columns, average="macro", zero_division=0))


def training_arguments(config: RelationConfig, folder: Path, steps: int, precision: str) -> Any:
    from transformers import TrainingArguments

    every = max(1, steps // max(1, round(config.evals_per_epoch * config.epochs)))
    return TrainingArguments(
        output_dir=str(folder / "checkpoints"),
        seed=config.seed, data_seed=config.seed,
        num_train_epochs=config.epochs, max_steps=config.max_steps,
        per_device_train_batch_size=config.batch_size, per_device_eval_batch_size=64,
        gradient_accumulation_steps=config.gradient_accumulation,
        learning_rate=config.learning_rate, weight_decay=config.weight_decay, lr_scheduler_type=config.schedule,
        warmup_steps=round(config.warmup * steps), label_smoothing_factor=config.label_smoothing, max_grad_norm=1.0,
        bf16=precision == "bf16", fp16=precision == "fp16", use_cpu=config.device == "cpu",
        train_sampling_strategy="group_by_length", length_column_name="length",
        eval_strategy="steps", eval_steps=every, save_strategy="steps", save_steps=every, save_total_limit=2,
        load_best_model_at_end=True, metric_for_best_model="macro_f1", greater_is_better=True,
        logging_steps=config.log_every, report_to=[], disable_tqdm=True, dataloader_num_workers=0,
        remove_unused_columns=True, dataloader_pin_memory=False, logging_nan_inf_filter=False,
    )  # fmt: skip


def total_steps(config: RelationConfig, pairs: int) -> int:
    if config.max_steps > 0:
        return config.max_steps
    batches = -(-pairs // config.batch_size)
    return max(1, int(-(-batches // config.gradient_accumulation) * config.epochs))


def train(config: RelationConfig, *, resume: bool = False) -> TrainedRun:
    """Train, keep the best checkpoint by dev macro-F1, calibrate on dev and save the adapter.

    Raises `DataError`, `BaseModelError` or `TrainingError` (NaN loss, one-class collapse).
    """
    # Here, so that a mistake in a recipe is answered before these are loaded.
    from transformers import DataCollatorWithPadding, Trainer, set_seed
    from transformers.utils import logging as hf_logging

    from training.progress import ProgressLine, RunGuard
    from training.saving import finish_run

    folder = Path(config.out)
    train_pairs = read_split(config.train, "train", config.max_train_pairs, config.seed)
    dev_pairs = read_split(config.dev, "dev", config.max_dev_pairs, config.seed)
    hashes = {Path(path).name: file_sha256(path) for path in (config.train, config.dev)}
    leaked = {pair.group for pair in train_pairs} & {pair.group for pair in dev_pairs}
    if leaked:
        raise DataError(f"{len(leaked)} groups are in train and dev (for example {sorted(leaked)[:3]}); split by group")
    set_seed(config.seed)
    model, tokenizer, base = load_classifier(config)
    precision, reason = choose_precision(config, model.config.model_type)
    print(
        f"{base.name}: {len(train_pairs)} train pairs, {len(dev_pairs)} dev pairs, {precision} ({reason})", flush=True
    )
    steps = total_steps(config, len(train_pairs))
    checkpoint = open_run(folder, config, hashes, resume=resume)
    hf_logging.set_verbosity_warning()
    progress = ProgressLine(folder, config.batch_size * config.gradient_accumulation)
    trainer = Trainer(
        model=model,
        args=training_arguments(config, folder, steps, precision),
        train_dataset=encode(train_pairs, tokenizer, config.max_length),
        eval_dataset=encode(subset(dev_pairs, config.eval_pairs, config.seed), tokenizer, config.max_length),
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda output: {"macro_f1": macro_f1(output.predictions, output.label_ids),
                                        "classes": len(set(output.predictions.argmax(-1).tolist()))},
        callbacks=[progress, RunGuard(config.collapse_after)],
    )  # fmt: skip
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ == "PrinterCallback":
            trainer.remove_callback(type(callback))
    trainer.train(resume_from_checkpoint=checkpoint)
    adapter, metrics = finish_run(
        folder=folder, config=config, model=trainer.model, tokenizer=tokenizer, base=base, dev_pairs=dev_pairs,
        data_hashes=hashes, history=progress.history,
    )  # fmt: skip
    return TrainedRun(folder, adapter, metrics)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training.relation",
        description="Train the five-way relation adapter on labelled pairs.",
        epilog="example: python -m training.relation configs/relation/minilm.yaml epochs=2 out=runs/mine",
    )
    parser.add_argument("config", help="YAML recipe, see configs/relation/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="values that replace the recipe's")
    parser.add_argument("--resume", action="store_true", help="go on from the run folder's last checkpoint")
    args = parser.parse_args(argv)
    try:
        run = train(load_config(RelationConfig, args.config, args.overrides), resume=args.resume)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"adapter": str(run.adapter), "dev": run.metrics}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
