"""Recipe of a fuser adapter: one schema for encoder-decoder and decoder-only bases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roam.errors import ConfigError
from training.config import RelationConfig, check_ranges, check_run
from training.models import choose_precision


@dataclass(frozen=True)
class FuserConfig:
    """Rates are per step, shares are of an epoch or of the examples, lengths are in tokens."""

    base: str = "SmolLM2-135M-Instruct"  # hub id, short name or folder; its config tells which class it is
    train: str = "data/fusion_train.jsonl"  # split into train and dev by a hash of the id
    more_train: tuple[str, ...] = ()  # further files, all of them for training, such as data/derived/fusion_train.jsonl
    more_share: tuple[float, ...] = ()  # share of the training examples from each of these files; () takes all of each
    variants: int = 0  # seeded variants of each written training example: other dates, another subject
    dev_share: float = 0.1
    out: str = "runs/fuser"
    seed: int = 0
    epochs: float = 3.0
    max_steps: int = -1  # stops earlier than `epochs` when positive
    max_train_examples: int | None = None  # a seeded subset
    max_dev_examples: int | None = None  # a seeded subset; dev views are generated at the end
    batch_size: int = 8
    gradient_accumulation: int = 1
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    warmup: float = 0.06  # share of all steps
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    lora_targets: str = "all-linear"  # or a regular expression over module names
    lora_depth: float = 1.0  # share of the layers that get LoRA, from the top; nothing flows back below them
    initial_adapter: str | None = None  # go on from this adapter's weights
    max_length: int = 512  # input and view together; longer examples are an error, not cut
    pad_token: str | None = None  # an existing token, other than EOS; None finds or adds one
    gradient_checkpointing: bool = False
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    device: Literal["auto", "cpu"] = "auto"
    evals_per_epoch: int = 1
    log_every: int = 10  # steps

    def __post_init__(self) -> None:
        check_run(self)
        if not 0 < self.dev_share < 1:
            raise ConfigError(f"dev_share is {self.dev_share}; give a share between 0 and 1, such as 0.1")
        if self.more_share and (
            len(self.more_share) != len(self.more_train)
            or min(self.more_share) <= 0
            or sum(self.more_share) >= 1  # the written examples make up the rest
        ):
            raise ConfigError(
                f"more_share is {list(self.more_share)} for {len(self.more_train)} files in more_train; give each file "
                "a share above 0, all together below 1, such as more_share=[0.5]"
            )
        if not 0 < self.lora_depth <= 1:
            raise ConfigError(f"lora_depth is {self.lora_depth}; give a share above 0 and up to 1, such as 0.5")
        check_ranges(self, {
            "a number above 0": "epochs learning_rate",
            "0 or more": "weight_decay variants",
            "1 or more": "max_train_examples max_dev_examples batch_size gradient_accumulation lora_rank lora_alpha "
                         "max_length evals_per_epoch log_every",
            "a share of at least 0 and below 1": "warmup lora_dropout",
        })  # fmt: skip


def fuser_precision(config: FuserConfig, model_type: str) -> tuple[str, str]:
    """Return (precision, reason) by the rules for classifiers: T5 overflows in fp16 (issue 5651 of transformers)."""
    return choose_precision(RelationConfig(precision=config.precision, device=config.device), model_type)
