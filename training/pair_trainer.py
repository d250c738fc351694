"""transformers' Trainer for pairs: bucketed batches, soft labels, and the arguments that a recipe becomes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainingArguments

from roam.errors import ConfigError
from training.batches import BucketSampler
from training.config import RelationConfig
from training.models import LAYER


def world_size() -> int:
    """Number of training processes, as `accelerate launch` and torchrun set it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def wants_fsdp() -> bool:
    """Whether the accelerate config asks for FSDP."""
    return os.environ.get("ACCELERATE_USE_FSDP") == "true"


def name_layers(model: Any) -> None:
    """Tell accelerate what FSDP shares out piece by piece: the layers.

    By itself it takes the architecture's list of modules that no device may split, which DeBERTa has not, and in which
    ModernBERT names its embeddings: they would be shared out twice, an error in torch.
    """
    layers = {
        type(module).__name__
        for name, module in model.named_modules()
        if LAYER.search(f"{name}.") and name.rsplit(".", 1)[-1].isdigit()
    }
    os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = ",".join(sorted(layers))


def shards_weights(config: RelationConfig) -> bool:
    """Whether this machine can share weights out: accelerate has FSDP on GPUs only, and takes DDP elsewhere."""
    import torch

    return config.device == "auto" and torch.cuda.is_available()


def check_sharing(config: RelationConfig) -> None:
    """Raise `ConfigError` for a recipe that the processes, as they were started, can't train together."""
    processes = world_size()
    if config.batch_size % processes:
        raise ConfigError(f"batch_size is {config.batch_size}: {processes} processes can't share it; give a multiple")
    if not wants_fsdp():
        return
    if config.quantisation != "none":
        raise ConfigError("FSDP can't share out 4-bit weights: take configs/accelerate/ddp.yaml, or quantisation=none")
    if not shards_weights(config):
        raise ConfigError(
            "FSDP needs GPUs: without them accelerate runs DDP in its place, the whole model in every process; take "
            "configs/accelerate/cpu.yaml"
        )


def one_gpu(arguments: Any) -> Any:
    """The same arguments for a process that trains on one GPU: of several that it sees, transformers would make a
    `DataParallel` and multiply the batch by their number."""
    if arguments.n_gpu > 1:
        print(f"{arguments.n_gpu} GPUs are here, one of them is used: accelerate launch takes all (training/GPU.md)")
        arguments._n_gpu = 1
    return arguments


def has_tf32(config: RelationConfig) -> bool:
    """Whether the run is on an NVIDIA GPU of the Ampere generation (8.0) or later."""
    import torch

    return config.device == "auto" and torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8


def training_arguments(config: RelationConfig, folder: Path, steps: int, precision: str) -> TrainingArguments:
    """Arguments of the Trainer. `batch_size` is shared out among the processes, so a recipe means the same on any
    number of them; `check_sharing` tells whether it can be."""
    processes = world_size()
    every = max(1, steps // max(1, round(config.evals_per_epoch * config.epochs)))
    arguments = TrainingArguments(
        output_dir=str(folder / "checkpoints"),
        seed=config.seed, data_seed=config.seed,
        num_train_epochs=config.epochs, max_steps=steps if config.streaming else config.max_steps,
        per_device_train_batch_size=config.batch_size // processes, per_device_eval_batch_size=64,
        gradient_accumulation_steps=config.gradient_accumulation,
        learning_rate=config.learning_rate, weight_decay=config.weight_decay, lr_scheduler_type=config.schedule,
        warmup_steps=round(config.warmup * steps), label_smoothing_factor=config.label_smoothing, max_grad_norm=1.0,
        bf16=precision == "bf16", fp16=precision == "fp16", use_cpu=config.device == "cpu",
        tf32=True if config.tf32 and has_tf32(config) else None,
        gradient_checkpointing=config.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if config.gradient_checkpointing else None,
        ddp_find_unused_parameters=False if processes > 1 else None,
        ddp_backend="gloo" if processes > 1 and config.device == "cpu" else None,
        train_sampling_strategy="random" if config.streaming else "group_by_length", length_column_name="length",
        eval_strategy="steps", eval_steps=every, save_strategy="steps", save_steps=every, save_total_limit=2,
        load_best_model_at_end=config.keep == "best", metric_for_best_model="macro_f1", greater_is_better=True,
        logging_steps=config.log_every, report_to=[], disable_tqdm=True, dataloader_num_workers=config.workers,
        # Of a stream each process takes its part of each batch: handing batches out would need equal lengths.
        accelerator_config={"dispatch_batches": False} if config.streaming else None,
        remove_unused_columns=False, label_names=["labels"], dataloader_pin_memory=False, logging_nan_inf_filter=False,
    )  # fmt: skip
    return one_gpu(arguments)


class PairCollator:
    """Pads a batch on the right, as the runtime does; labels, `probs` and `allowed` go along, lengths stay behind."""

    def __init__(self, tokenizer: Any, multiple: int) -> None:
        from transformers import DataCollatorWithPadding

        self._pad = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple if multiple > 1 else None)
        self._inputs = {*tokenizer.model_input_names, "labels", "probs", "allowed"}

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = self._pad([{k: v for k, v in row.items() if k in self._inputs} for row in rows])
        return batch


def marginal_loss(logits: Any, allowed: Any) -> Any:
    """Mean of -log of the allowed relations' summed probability (learning with multiple labels, Jin and Ghahramani
    2002); `allowed` is of shape (batch, 5), 1 for these. Where one alone is allowed it is the cross-entropy."""
    return -(logits.float().log_softmax(-1) + allowed.log()).logsumexp(-1).mean()


class PairTrainer(Trainer):
    """Trainer whose batches and loss follow the recipe."""

    def __init__(self, config: RelationConfig, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._recipe = config
        # The loss of a batch is its mean, whatever the model could do with counts: both terms are scaled alike.
        self.model_accepts_loss_kwargs = False

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        rows = self.train_dataset if train_dataset is None else train_dataset
        if self._recipe.streaming or self._recipe.batching == "groups":
            return super()._get_train_sampler(train_dataset)
        return BucketSampler(rows["length"], self._recipe.batch_size, self._recipe.seed)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Cross-entropy against labels, mixed with that against teachers' probabilities (Hinton et al. 2015, T = 1).

        Pairs that no teacher judged have their label as probabilities, so both terms are of all pairs. Where labels
        leave others open (`allowed`), the loss of a pair is `marginal_loss`.
        """
        probs, allowed = inputs.pop("probs", None), inputs.pop("allowed", None)
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if allowed is not None:
            loss = marginal_loss(outputs.logits, allowed)
        if probs is not None:
            soft = -(probs * outputs.logits.float().log_softmax(-1)).sum(-1).mean()
            loss = (1 - self._recipe.soft_labels) * loss + self._recipe.soft_labels * soft
        return (loss, outputs) if return_outputs else loss
