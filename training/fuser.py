"""Train a fuser adapter: `python -m training.fuser CONFIG [key=value ...]`.

Decoder-only bases train with TRL's SFTTrainer on prompt/completion data, T5-class bases with Seq2SeqTrainer; both read
the rendering that the runtime uses (`roam.prompts`). A run folder holds the resolved config, checkpoints, metrics,
versions, a learning curve and the adapter with its card; `--resume` goes on from the last checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.fusion import FusionExample
from data.pairs import file_sha256
from eval.provenance import check_output
from roam.arguments import ArgumentParser
from roam.errors import RoamError, TrainingError
from training.config import load_config
from training.fuser_config import FuserConfig, fuser_precision
from training.fuser_data import check_fits, decoder_dataset, encoder_decoder_dataset, read_split
from training.fuser_model import load_trainable
from training.fuser_saving import finish_fuser
from training.progress import ProgressLine, RunGuard
from training.run_folder import open_run


@dataclass
class TrainedFuser:
    """What training leaves: the run folder, the adapter's folder and the metrics on dev."""

    folder: Path
    adapter: Path
    metrics: dict[str, Any]


class FuserProgress(ProgressLine):
    """The progress line, with the loss on dev."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        super().on_log(args, state, control, logs, **kwargs)
        if logs and "eval_loss" in logs:
            print(f"  dev loss {logs['eval_loss']:.3f}", flush=True)


def trainer_arguments(config: FuserConfig, folder: Path, examples: int, precision: str) -> dict[str, Any]:
    """Arguments that both trainers take."""
    per_epoch = max(1, -(-examples // (config.batch_size * config.gradient_accumulation)))
    steps = config.max_steps if config.max_steps > 0 else max(1, int(per_epoch * config.epochs))
    every = max(1, steps // max(1, round(config.evals_per_epoch * config.epochs)))
    return {
        "output_dir": str(folder / "checkpoints"),
        "seed": config.seed, "data_seed": config.seed,
        "num_train_epochs": config.epochs, "max_steps": config.max_steps,
        "per_device_train_batch_size": config.batch_size, "per_device_eval_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation,
        "learning_rate": config.learning_rate, "weight_decay": config.weight_decay,
        "lr_scheduler_type": config.schedule, "warmup_steps": round(config.warmup * steps), "max_grad_norm": 1.0,
        "gradient_checkpointing": config.gradient_checkpointing,
        "bf16": precision == "bf16", "fp16": precision == "fp16", "use_cpu": config.device == "cpu",
        "train_sampling_strategy": "group_by_length",
        "eval_strategy": "steps", "eval_steps": every, "save_strategy": "steps", "save_steps": every,
        "save_total_limit": 2, "load_best_model_at_end": True, "metric_for_best_model": "eval_loss",
        "greater_is_better": False, "logging_steps": config.log_every, "report_to": [], "disable_tqdm": True,
        "dataloader_num_workers": 0, "dataloader_pin_memory": False, "logging_nan_inf_filter": False,
    }  # fmt: skip


def build_trainer(
    config: FuserConfig, model: Any, tokenizer: Any, train: Sequence[FusionExample], dev: Sequence[FusionExample],
    precision: str, progress: ProgressLine,
) -> Any:  # fmt: skip
    """SFTTrainer for a decoder-only model, Seq2SeqTrainer for an encoder-decoder one."""
    from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

    from training.pair_trainer import one_gpu

    arguments = trainer_arguments(config, Path(config.out), len(train), precision)
    common = {"model": model, "processing_class": tokenizer, "callbacks": [progress, RunGuard(collapse_after=0)]}
    if model.config.is_encoder_decoder:
        trainer = Seq2SeqTrainer(
            args=one_gpu(Seq2SeqTrainingArguments(**arguments)),
            train_dataset=encoder_decoder_dataset(train, tokenizer),
            eval_dataset=encoder_decoder_dataset(dev, tokenizer),
            # Gives the decoder its inputs and masks padding, not EOS, in the labels.
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            **common,
        )
    else:
        from trl.trainer.sft_config import SFTConfig
        from trl.trainer.sft_trainer import SFTTrainer

        trainer = SFTTrainer(
            # No truncation: `check_fits` refused what is too long, and a cut would cut EOS.
            args=one_gpu(SFTConfig(**arguments, max_length=None, completion_only_loss=True, packing=False)),
            train_dataset=decoder_dataset(train),
            eval_dataset=decoder_dataset(dev),
            **common,
        )
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ == "PrinterCallback":  # the progress line says it better
            trainer.remove_callback(type(callback))
    return trainer


def train(config: FuserConfig, *, resume: bool = False) -> TrainedFuser:
    """Train, keep the checkpoint of least loss on dev, save the adapter, reload it and measure its views on dev.

    Raises `DataError`, `BaseModelError` or `TrainingError` (no usable padding token, NaN loss, several processes).
    """
    import datasets
    from transformers import set_seed
    from transformers.utils import logging as hf_logging

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise TrainingError("a fuser is trained by one process: start it without accelerate launch")
    folder = Path(config.out)
    check_output(folder, name="out")
    train_examples, dev_examples = read_split(config)
    set_seed(config.seed)
    model, tokenizer, base = load_trainable(config)
    check_fits([*train_examples, *dev_examples], tokenizer, config)
    precision, reason = fuser_precision(config, model.config.model_type)
    print(
        f"{base.name}: {len(train_examples)} train examples, {len(dev_examples)} dev examples, {precision} ({reason}), "
        f"padding {tokenizer.pad_token!r}, end {tokenizer.eos_token!r}",
        flush=True,
    )
    hashes = {Path(path).name: file_sha256(path) for path in (config.train, *config.more_train)}
    checkpoint = open_run(folder, config, hashes, resume=resume)
    hf_logging.set_verbosity_warning()
    datasets.disable_progress_bars()
    progress = FuserProgress(folder, config.batch_size * config.gradient_accumulation)
    trainer = build_trainer(config, model, tokenizer, train_examples, dev_examples, precision, progress)
    trainer.train(resume_from_checkpoint=checkpoint)
    adapter, metrics = finish_fuser(
        folder=folder, config=config, model=trainer.model, tokenizer=tokenizer, base=base, dev=dev_examples,
        data_hashes=hashes, history=progress.history,
    )  # fmt: skip
    return TrainedFuser(folder, adapter, metrics)


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m training.fuser",
        description="Train the fuser adapter, which turns several timed texts and their relation into one view.",
        epilog="example: python -m training.fuser configs/fuser/smollm2.yaml epochs=2 out=runs/my-fuser",
    )
    parser.add_argument("config", help="YAML recipe, see configs/fuser/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="values that replace the recipe's")
    parser.add_argument("--resume", action="store_true", help="go on from the run folder's last checkpoint")
    args = parser.parse_args(argv)
    try:
        run = train(load_config(FuserConfig, args.config, args.overrides), resume=args.resume)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"adapter": str(run.adapter), "dev": run.metrics}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
