"""Train a relation adapter: `python -m training.relation CONFIG [key=value ...]`.

The loop is transformers' Trainer over a PEFT model. A run folder holds the resolved config, checkpoints, metrics,
versions, data hashes, a learning curve and the adapter with its card; `--resume` goes on from the last checkpoint.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.held_out import refuse_test_rows
from data.pairs import LabelledPair, file_sha256, iter_pairs, read_pairs
from eval.provenance import check_output
from roam.arguments import ArgumentParser
from roam.errors import ConfigError, DataError, RoamError
from roam.relations import INDEX, RELATIONS
from training.config import RelationConfig, load_config
from training.models import choose_precision, load_classifier
from training.run_folder import open_run
from training.streaming import count_pairs, streamed


@dataclass
class TrainedRun:
    """What training leaves: the folder, the metrics on dev, and the adapter's folder."""

    folder: Path
    adapter: Path
    metrics: dict[str, Any]


def read_split(path: str, role: str, limit: int | None, seed: int) -> list[LabelledPair]:
    """All pairs of a file, or a seeded `limit` of them.

    Raises `DataError` when it is missing or a relation has no pair, `InputError` when it holds the test set.
    """
    if not Path(path).is_file():
        raise DataError(f"{role} file {path!r} does not exist; run `python -m data.build` or set {role}=FILE")
    found = read_pairs(path)
    refuse_test_rows(path, found)
    pairs = subset(found, limit, seed)
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


def encode(pairs: Sequence[LabelledPair], tokenizer: Any, max_length: int, *, soft: bool = False) -> Any:
    """A datasets.Dataset of token ids, labels and lengths, with `soft` of teachers' probabilities too."""
    from datasets import Dataset

    partial = any(pair.also for pair in pairs)
    return Dataset.from_dict(columns(pairs, tokenizer, max_length, soft=soft, partial=partial))


def columns(
    pairs: Sequence[LabelledPair], tokenizer: Any, max_length: int, *, soft: bool, partial: bool
) -> dict[str, list[Any]]:
    """Token ids, labels and lengths by name; with `soft` also probabilities, a label's own where a pair has none; with
    `partial` also `allowed`, 1 for the label and what it is not told apart from."""
    encoded = tokenizer(
        [pair.old for pair in pairs], [pair.new for pair in pairs], truncation="longest_first", max_length=max_length
    )
    found = dict(encoded)
    found["labels"] = [INDEX[pair.label] for pair in pairs]
    found["length"] = [len(ids) for ids in encoded["input_ids"]]
    if soft:
        sure = {label: [float(label is relation) for relation in RELATIONS] for label in RELATIONS}
        found["probs"] = [
            [pair.probs[relation] for relation in RELATIONS] if pair.probs else sure[pair.label] for pair in pairs
        ]
    if partial:
        found["allowed"] = [
            [float(relation is pair.label or relation in pair.also) for relation in RELATIONS] for pair in pairs
        ]
    return found


def encoded_rows(pairs: Sequence[LabelledPair], tokenizer: Any, config: RelationConfig) -> list[dict[str, Any]]:
    """The same, one mapping a pair, as a stream yields them."""
    check_open_labels(pairs, config)
    partial = not config.label_smoothing
    found = columns(pairs, tokenizer, config.max_length, soft=config.soft_labels > 0, partial=partial)
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def check_open_labels(pairs: Sequence[LabelledPair], config: RelationConfig) -> None:
    """`ConfigError` for a loss that would push the mass onto one relation where the label leaves others open."""
    for key in ("label_smoothing", "soft_labels"):
        if getattr(config, key) and any(pair.also for pair in pairs):
            raise ConfigError(f"{config.train} has pairs with `also`: set {key}=0, their labels are soft already")


def macro_f1(logits: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    columns = list(range(len(RELATIONS)))
    return float(f1_score(labels, logits.argmax(-1), labels=columns, average="macro", zero_division=0))


def total_steps(config: RelationConfig, pairs: int) -> int:
    if config.max_steps > 0:
        return config.max_steps
    batches = -(-pairs // config.batch_size)
    return max(1, int(-(-batches // config.gradient_accumulation) * config.epochs))


def train(config: RelationConfig, *, resume: bool = False) -> TrainedRun:
    """Train, keep the best checkpoint by dev macro-F1, calibrate on dev and save the adapter.

    Started by `accelerate launch`, the processes train together; the first one alone calibrates, saves and has metrics
    to return. Raises `DataError`, `InputError`, `BaseModelError` or `TrainingError` (NaN loss, one-class collapse).
    """
    # Here, so that a mistake in a recipe is answered before these are loaded.
    from transformers import set_seed
    from transformers.utils import logging as hf_logging

    from training.pair_trainer import check_sharing, name_layers, training_arguments, wants_fsdp
    from training.progress import ProgressLine
    from training.saving import finish_run

    check_sharing(config)
    folder = Path(config.out)
    check_output(folder, name="out")
    train_pairs = None
    if config.streaming:
        count = count_pairs(config.train)
        refuse_test_rows(config.train, iter_pairs(config.train))
    else:
        train_pairs = read_split(config.train, "train", config.max_train_pairs, config.seed)
        count = len(train_pairs)
    dev_pairs = read_split(config.dev, "dev", config.max_dev_pairs, config.seed)
    hashes = {Path(path).name: file_sha256(path) for path in (config.train, config.dev)}
    leaked = {pair.group for pair in train_pairs or ()} & {pair.group for pair in dev_pairs}
    if leaked:
        raise DataError(f"{len(leaked)} groups are in train and dev (for example {sorted(leaked)[:3]}); split by group")
    set_seed(config.seed)
    model, tokenizer, base = load_classifier(config)
    precision, reason = choose_precision(config, model.config.model_type)
    steps = total_steps(config, count)
    arguments = training_arguments(config, folder, steps, precision)
    first = arguments.process_index == 0
    if first:
        print(f"{base.name}: {count} train pairs, {len(dev_pairs)} dev pairs, {precision} ({reason}), "
              f"{arguments.world_size} process(es)", flush=True)  # fmt: skip
    with arguments.main_process_first(local=False, desc="run folder"):
        checkpoint = open_run(folder, config, hashes, resume=resume, write=first, sharded=wants_fsdp())
    hf_logging.set_verbosity_warning()
    progress = ProgressLine(folder, config.batch_size * config.gradient_accumulation)
    if wants_fsdp():
        name_layers(model)
    trainer = build_trainer(config, model, tokenizer, train_pairs, dev_pairs, arguments, progress)
    trainer.train(resume_from_checkpoint=checkpoint)
    adapter = folder / "adapter"
    metrics: dict[str, Any] = {}
    model = whole_model(trainer, config, adapter)
    if first:
        adapter, metrics = finish_run(
            folder=folder, config=config, model=model, tokenizer=tokenizer, base=base, dev_pairs=dev_pairs,
            data_hashes=hashes, history=progress.history,
        )  # fmt: skip
    trainer.accelerator.wait_for_everyone()
    return TrainedRun(folder, adapter, metrics)


def build_trainer(
    config: RelationConfig, model: Any, tokenizer: Any, train_pairs: Sequence[LabelledPair] | None,
    dev_pairs: Sequence[LabelledPair], arguments: Any, progress: Any,
) -> Any:  # fmt: skip
    """The Trainer of a recipe; `train_pairs` None streams them from the file."""
    from training.pair_trainer import PairCollator, PairTrainer
    from training.progress import RunGuard

    if train_pairs is None:
        dataset = streamed(
            config.train, lambda pairs: encoded_rows(pairs, tokenizer, config), buffer=config.stream_buffer,
            batch=config.batch_size, seed=config.seed, held_out=frozenset(pair.group for pair in dev_pairs),
        )  # fmt: skip
    else:
        check_open_labels(train_pairs, config)
        dataset = encode(train_pairs, tokenizer, config.max_length, soft=config.soft_labels > 0)
    trainer = PairTrainer(
        config, model=model, args=arguments, train_dataset=dataset,
        eval_dataset=encode(subset(dev_pairs, config.eval_pairs, config.seed), tokenizer, config.max_length),
        data_collator=PairCollator(tokenizer, config.pad_multiple),
        compute_metrics=lambda output: {"macro_f1": macro_f1(output.predictions, output.label_ids),
                                        "classes": len(set(output.predictions.argmax(-1).tolist()))},
        callbacks=[progress, RunGuard(config.collapse_after)],
    )  # fmt: skip
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ == "PrinterCallback":
            trainer.remove_callback(type(callback))
    return trainer


def whole_model(trainer: Any, config: RelationConfig, adapter: Path) -> Any:
    """The trained model in one piece. Under FSDP its parts are gathered into `adapter` and loaded anew."""
    if not trainer.is_fsdp_enabled:
        return trainer.model
    trainer.save_model(str(adapter))
    if trainer.args.process_index != 0:
        return None
    return load_classifier(config, saved=adapter)[0].to(trainer.args.device)


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m training.relation",
        description="Train the five-way relation adapter on labelled pairs.",
        epilog="examples: python -m training.relation configs/relation/minilm.yaml epochs=2 out=runs/mine; "
        "accelerate launch --config_file configs/accelerate/ddp.yaml -m training.relation RECIPE",
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
    if run.metrics:  # of several processes the first one has them
        print(json.dumps({"adapter": str(run.adapter), "dev": run.metrics}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
