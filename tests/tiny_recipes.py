"""Recipes cut down to a tiny base, a few pairs and the processor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from data.pairs import write_pairs
from roam.records import Pair
from tests.tiny import toy_pairs
from training.config import RelationConfig

PAIRS = [Pair("Ana likes tea", "Ana hates tea"), Pair("Gus likes very strong coffee", "Gus likes coffee")]


def pair_files(folder: Path) -> Path:
    """`folder` with train.jsonl and dev.jsonl in it."""
    write_pairs(folder / "train.jsonl", toy_pairs(40, 0, "t"))
    write_pairs(folder / "dev.jsonl", toy_pairs(20, 1, "d"))
    return folder


def small(config: RelationConfig, base: Path, files: Path, out: Path, **changes: Any) -> RelationConfig:
    """A recipe on a tiny base, a few pairs and the processor."""
    plain = replace(
        config, base=str(base), train=str(files / "train.jsonl"), dev=str(files / "dev.jsonl"), out=str(out),
        device="cpu", precision="fp32", workers=0, max_steps=3, epochs=1.0, evals_per_epoch=1, batch_size=8,
        log_every=1,
    )  # fmt: skip
    return replace(plain, **changes)
