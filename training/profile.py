"""Throughput of a recipe on this machine: `python -m training.profile CONFIG [key=value ...] --out FILE`.

Times training steps and forward passes of the recipe's own batches (bucketed by length, padded to its multiple), after
warm-up steps that are not counted, and says how busy the device was: pairs/s, tokens/s, padding, largest memory, the
number of different batch shapes (each may mean a kernel compiled anew), and MFU where the device's peak is known or
given with --peak-tflops. The report names the hardware and the versions, since the figures mean nothing without them.
"""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from eval.provenance import check_output, versions, write_json
from roam.arguments import ArgumentParser
from roam.errors import InputError, RoamError
from training.batches import bucketed
from training.config import RelationConfig, load_config
from training.models import LAYER, choose_precision, load_classifier
from training.relation import encode, read_split

PEAK_TFLOPS = {"A100": 312.0, "H100": 989.0, "H200": 989.0, "L4": 121.0, "L40S": 362.0, "4090": 165.0}
"""Dense bf16 matrix throughput by the makers' data sheets (SXM versions); the longest name that fits counts."""


@dataclass(frozen=True)
class Measured:
    """Sums over the timed steps; `seconds` with the device's queue empty at both ends."""

    seconds: float
    pairs: int
    tokens: int
    padded: int


class Sizes(NamedTuple):
    """Weights by what they cost. Rows of embedding tables are looked up, not multiplied, so `multiplied` leaves them
    out; `passed` are those that gradients are passed through."""

    total: int
    trained: int
    multiplied: int
    passed: int


def sizes_of(model: Any, config: RelationConfig) -> Sizes:
    """Sizes of a recipe's model, 4-bit weights counted as what their codes stand for."""
    import torch

    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    total = trained = multiplied = passed = 0
    for name, parameter in model.named_parameters():
        if ".original_module." in name:  # PEFT keeps the untrained head beside the trained one
            continue
        state = getattr(parameter, "quant_state", None)  # of bitsandbytes: two codes a byte
        size = parameter.numel() if state is None else math.prod(state.shape)
        learns = bool(parameter.requires_grad)
        layer = LAYER.search(name)
        reached = config.adapt == "lora" and (layer is None or int(layer[1]) >= config.lora_first_layer)
        total, trained = total + size, trained + size * learns
        if id(parameter) not in tables:
            multiplied, passed = multiplied + size, passed + size * (learns or reached)
    return Sizes(total, trained, multiplied, passed)


def flops_per_token(sizes: Sizes, *, training: bool) -> float:
    """Floating-point operations a token: 2 a multiplied weight forward, 2 for the gradient of activations where it is
    passed, 2 a trained weight for its own (Kaplan et al. 2020, without attention's quadratic part, which short pairs
    hardly feel, and without what checkpointing computes twice)."""
    return 2.0 * sizes.multiplied + (2.0 * sizes.passed + 2.0 * sizes.trained if training else 0.0)


def peak_of(device_name: str, given: float | None) -> float | None:
    """Peak TFLOP/s in bf16: what was given, else what the table knows of the device; None when nobody knows."""
    fitting = [name for name in PEAK_TFLOPS if name in device_name]
    return given if given is not None else PEAK_TFLOPS[max(fitting, key=len)] if fitting else None


def batches(rows: Any, config: RelationConfig, collate: Any, epochs: int) -> Iterator[dict[str, Any]]:
    """The recipe's batches, epoch after epoch."""
    for epoch in range(epochs):
        order = bucketed(rows["length"], config.batch_size, config.seed, epoch)
        for start in range(0, len(order) - config.batch_size + 1, config.batch_size):
            yield collate([rows[index] for index in order[start : start + config.batch_size]])


class Stopwatch:
    """Steps of one kind on a device, the first `warm_up` of them uncounted."""

    def __init__(self, device: Any, warm_up: int) -> None:
        self.device, self.warm_up, self.seen = device, warm_up, 0
        self.pairs = self.tokens = self.padded = 0
        self.started = 0.0

    def wait(self) -> None:
        """Until the device has done what it was given."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def count(self, batch: dict[str, Any]) -> None:
        """One step on `batch` was started."""
        self.seen += 1
        if self.seen == self.warm_up:
            self.wait()
            self.started = time.perf_counter()
        elif self.seen > self.warm_up:
            mask = batch["attention_mask"]
            self.pairs += mask.shape[0]
            self.padded += mask.numel()
            self.tokens += int(mask.sum())

    def stop(self) -> Measured:
        """What was counted."""
        self.wait()
        return Measured(time.perf_counter() - self.started, self.pairs, self.tokens, self.padded)


def measure(config: RelationConfig, steps: int, warm_up: int, peak_tflops: float | None) -> dict[str, Any]:
    """The report of a recipe. Raises `DataError`, `BaseModelError`, `TrainingError` or `InputError`."""
    import torch

    from training.pair_trainer import PairCollator, has_tf32

    pairs = read_split(config.train, "train", config.max_train_pairs, config.seed)
    if len(pairs) < config.batch_size:
        raise InputError(f"{config.train} has {len(pairs)} pairs, a batch {config.batch_size}: lower batch_size")
    device = torch.device("cuda" if torch.cuda.is_available() and config.device == "auto" else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = config.tf32 and has_tf32(config)
    model, tokenizer, base = load_classifier(config)
    model.to(device)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    precision, _ = choose_precision(config, model.config.model_type)
    collate = PairCollator(tokenizer, config.pad_multiple)
    rows = encode(pairs, tokenizer, config.max_length)
    epochs = -(-(steps + warm_up) // (len(pairs) // config.batch_size))
    shapes: set[tuple[int, ...]] = set()
    found = {}
    for name, training in (("train", True), ("infer", False)):
        watch = Stopwatch(device, warm_up)
        step = stepper(model, config, device, precision, training=training)
        for number, batch in enumerate(batches(rows, config, collate, epochs)):
            if number == steps + warm_up:
                break
            shapes.add(tuple(batch["input_ids"].shape))
            step({key: value.to(device) for key, value in batch.items()})
            watch.count(batch)
        found[name] = watch.stop()
    sizes = sizes_of(model, config)
    peak = peak_of(torch.cuda.get_device_name() if device.type == "cuda" else "", peak_tflops)
    return {
        "base": base.name, "precision": precision, "batch_size": config.batch_size, "steps": steps,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else f"processor ({platform.machine()})",
        "threads": torch.get_num_threads(), "parameters": sizes.total, "trained_parameters": sizes.trained,
        "multiplied_parameters": sizes.multiplied,
        "shapes": len(shapes),
        "largest_memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if device.type == "cuda" else None,
        **{name: figures(one, sizes, peak, training=name == "train") for name, one in found.items()},
        "peak_tflops": peak, "versions": versions(),
    }  # fmt: skip


def stepper(model: Any, config: RelationConfig, device: Any, precision: str, *, training: bool) -> Any:
    """A function that does one training step, or one forward pass, on a batch."""
    import contextlib

    import torch

    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    cast = torch.autocast(device.type, kinds[precision]) if precision in kinds else contextlib.nullcontext()
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=config.learning_rate, weight_decay=config.weight_decay)

    def train(batch: dict[str, Any]) -> None:
        with cast:
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def infer(batch: dict[str, Any]) -> None:
        with torch.inference_mode(), cast:
            model(**batch)

    model.train(training)
    return train if training else infer


def figures(one: Measured, sizes: Sizes, peak: float | None, *, training: bool) -> dict[str, Any]:
    """Rates of one kind of step; MFU is of real tokens: padding is no use."""
    tflops = flops_per_token(sizes, training=training) * one.tokens / one.seconds / 1e12
    return {
        "pairs_per_second": round(one.pairs / one.seconds, 1),
        "tokens_per_second": round(one.tokens / one.seconds),
        "padding_share": round(1 - one.tokens / one.padded, 4),
        "tflops": round(tflops, 3),
        "mfu": None if peak is None else round(tflops / peak, 4),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the report; 2 on bad input."""
    parser = ArgumentParser(
        prog="python -m training.profile",
        description="Measure a recipe's throughput on this machine: pairs/s, tokens/s, padding, memory, MFU.",
        epilog="example: python -m training.profile configs/relation/gpu/modernbert-base.yaml --out profile.json",
    )
    parser.add_argument("config", help="YAML recipe, see configs/relation/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="values that replace the recipe's")
    parser.add_argument("--steps", type=int, default=50, help="timed steps of each kind (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=10, help="steps before them (default: %(default)s)")
    parser.add_argument("--peak-tflops", type=float, help="the device's peak in bf16, for MFU")
    parser.add_argument("--out", type=Path, help="file for the report (JSON)")
    args = parser.parse_args(argv)
    if args.steps < 1 or args.warm_up < 1:
        parser.error("--steps and --warm-up are 1 or more")
    if args.peak_tflops is not None and not 0 < args.peak_tflops < math.inf:
        parser.error(f"--peak-tflops is {args.peak_tflops}: give a number above 0, such as 989 for an H100")
    try:
        config = load_config(RelationConfig, args.config, args.overrides)
        if args.out is not None:
            check_output(args.out, file=True)
        report = measure(config, args.steps, args.warm_up, args.peak_tflops)
        if args.out is not None:
            write_json(args.out, report)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
