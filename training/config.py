"""Strict recipes: a YAML file holds only what differs from the defaults; unknown or ill-typed keys are errors."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from roam.errors import ConfigError

Config = TypeVar("Config")

RANGES: Mapping[str, Callable[[float], bool]] = {
    "a number above 0": lambda value: 0 < value < math.inf,
    "0 or more": lambda value: 0 <= value < math.inf,
    "1 or more": lambda value: 1 <= value < math.inf,
    "8 or more": lambda value: 8 <= value < math.inf,
    "a share of at least 0 and below 1": lambda value: 0 <= value < 1,
}


def check_ranges(config: object, names: Mapping[str, str]) -> None:
    """Raise `ConfigError` for a number outside its range; `names` holds the keys of each of `RANGES`. None is fine."""
    for wanted, keys in names.items():
        for key in keys.split():
            value = getattr(config, key)
            if value is not None and not RANGES[wanted](value):
                raise ConfigError(f"{key} is {value}; give {wanted}")


def check_run(config: Any) -> None:
    """Raise `ConfigError` for a seed that numpy refuses, a limit of no steps, and targets that are no pattern."""
    if not 0 <= config.seed < 2**32:
        raise ConfigError(f"seed is {config.seed}; give 0 to {2**32 - 1}")
    if config.max_steps < 1 and config.max_steps != -1:
        raise ConfigError(f"max_steps is {config.max_steps}; give 1 or more, or -1 for no limit")
    try:
        re.compile(config.lora_targets)
    except re.error as error:
        raise ConfigError(f"lora_targets is {config.lora_targets!r}, no regular expression: {error}") from None


@dataclass(frozen=True)
class RelationConfig:
    """Recipe of a relation adapter. Rates are per step, shares are of an epoch, lengths are in tokens."""

    base: str = "all-MiniLM-L6-v2"  # hub id, short name or folder
    quantisation: Literal["none", "nf4"] = "none"  # nf4: QLoRA, the base's linear layers in 4 bits (bitsandbytes)
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    train: str = "data/derived/train.jsonl"
    dev: str = "data/derived/dev.jsonl"
    out: str = "runs/relation"
    seed: int = 0
    epochs: float = 1.0
    max_steps: int = -1  # stops earlier than `epochs` when positive
    max_train_pairs: int | None = None  # a seeded subset
    max_dev_pairs: int | None = None  # a seeded subset: what calibration and the metrics on the card are measured on
    streaming: bool = False  # read train while training: for files that memory can't hold
    stream_buffer: int = 16384  # pairs that a stream shuffles and sorts by length at a time
    batch_size: int = 32  # pairs a pass, of all processes together
    gradient_accumulation: int = 1
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    warmup: float = 0.06  # share of all steps
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    label_smoothing: float = 0.0
    soft_labels: float = 0.0  # share of the loss that is against the pairs' `probs`, where they have some
    adapt: Literal["lora", "head"] = "lora"  # head: a linear probe, the base stays frozen
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    lora_targets: str = "auto"  # a regular expression over module names; auto knows the common encoders
    lora_first_layer: int = 0  # layers below stay frozen and cost no backward pass
    head_modules: tuple[str, ...] = ("auto",)  # newly initialised modules that are trained and saved whole
    dropout: float | None = None  # None leaves the base's own rates
    max_length: int = 128
    batching: Literal["groups", "buckets"] = "groups"  # buckets: the same batches whatever the number of processes
    pad_multiple: int = 1  # pad batches to multiples of it: few shapes, so compiled kernels are reused
    gradient_checkpointing: bool = False  # less memory, about a third more time
    tf32: bool = False  # fp32 products in TF32, on NVIDIA GPUs from Ampere on
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    workers: int = 0  # processes that prepare batches, a training process
    device: Literal["auto", "cpu"] = "auto"
    evals_per_epoch: int = 1
    keep: Literal["best", "last"] = "best"  # which checkpoint becomes the adapter: best by dev macro-F1, or the last
    eval_pairs: int | None = None  # a seeded subset of dev for the evaluations between; the last one is on all of it
    log_every: int = 25  # steps
    collapse_after: int = 100  # steps from which an evaluation that finds one predicted class stops the run
    initial_adapter: str | None = None  # go on from this adapter; it brings what lora_* and head_modules would choose
    swap_margin: float = 0.9  # pairs with a smaller margin are judged in both orders and averaged; 0 never, 1 always
    false_merge_cost: float = 4.0  # cost of a false EQV/OSN/NSO/CON against 1 for a missed one

    def __post_init__(self) -> None:
        check_run(self)
        check_ranges(self, {
            "a number above 0": "epochs learning_rate",
            "0 or more": "workers weight_decay lora_first_layer collapse_after swap_margin false_merge_cost",
            "1 or more": "max_train_pairs max_dev_pairs batch_size gradient_accumulation lora_rank lora_alpha "
                         "evals_per_epoch eval_pairs log_every stream_buffer pad_multiple",
            "8 or more": "max_length",  # two texts and what stands around them
            "a share of at least 0 and below 1": "warmup label_smoothing lora_dropout dropout",
        })  # fmt: skip
        if not 0 <= self.soft_labels <= 1:
            raise ConfigError(f"soft_labels is {self.soft_labels}; give a share from 0 to 1")
        if self.soft_labels and self.label_smoothing:
            raise ConfigError("label_smoothing and soft_labels both soften the labels; set one of them to 0")
        if self.streaming and self.max_train_pairs is not None:
            raise ConfigError("a stream is not drawn from: leave max_train_pairs out, or set streaming=false")
        if self.streaming and self.workers:
            raise ConfigError(
                "a stream is read by the training process, each further reader would repeat it: set workers=0"
            )
        if self.adapt == "head" and self.initial_adapter:
            raise ConfigError("adapt=head starts from the frozen base: leave initial_adapter out")


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key may stand once only: of two, the last would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"key {twice[0]!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def load_config(schema: type[Config], path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML recipe and `key=value` overrides into `schema`.

    Raises `ConfigError` naming the key, the nearest valid one, or the type that is needed.
    """
    try:
        raw = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_StrictLoader)
    except FileNotFoundError:
        raise ConfigError(f"no config file {str(path)!r}; see configs/ for the recipes") from None
    except OSError as error:
        raise ConfigError(f"config file {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{yaml_fault(error)}") from None
    values = dict(_mapping(raw if raw is not None else {}, str(path)))
    for override in overrides:
        key, sep, text = override.partition("=")
        if not sep:
            raise ConfigError(f"override {override!r} is not key=value; example: epochs=2")
        try:
            values[key] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"override {override!r}{yaml_fault(error)}") from None
    return from_mapping(schema, values, where=str(path))


def yaml_fault(error: yaml.YAMLError) -> str:
    """Where and what an error is, in one line, to follow a file's name: ", line 3, column 5: ..."."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark, said = error.problem_mark, " ".join(filter(None, (error.context, error.problem)))
        return f", line {mark.line + 1}, column {mark.column + 1}: {said}"
    return f" is not YAML: {' '.join(str(error).split())}"


def _mapping(raw: object, where: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} holds a {type(raw).__name__}, not key: value lines")
    return raw


def from_mapping(schema: type[Config], values: Mapping[str, Any], *, where: str = "config") -> Config:
    """Build `schema` from plain values, checking names and types."""
    hints = typing.get_type_hints(schema)
    names = [field.name for field in dataclasses.fields(schema)]  # type: ignore[arg-type]
    checked = {}
    for key, value in values.items():
        if key not in names:
            nearest = difflib.get_close_matches(str(key), names, n=1, cutoff=0.7)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; keys are {', '.join(names)}"
            raise ConfigError(f"{where}: unknown key {key!r}{hint}")
        checked[key] = _coerce(value, hints[key], f"{where}: {key}")
    return schema(**checked)


def _coerce(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = [argument for argument in arguments if argument is not type(None)]
        return _coerce(value, inner, where)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where} is {value!r}; use one of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(_coerce(item, arguments[0], where) for item in items)
    if hint is float and not isinstance(value, bool):
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, str) and _is_number(value):  # YAML 1.1 reads 5e-4 as a string
            return float(value)
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where} is {value!r} ({type(value).__name__}); it must be {hint.__name__}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def to_yaml(config: Any) -> str:
    """All values of a config, as YAML that `load_config` reads back."""
    values = {key: list(v) if isinstance(v, tuple) else v for key, v in dataclasses.asdict(config).items()}
    return yaml.safe_dump(values, sort_keys=False)
