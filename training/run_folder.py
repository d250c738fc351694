"""The run folder when training begins: resolved config, data hashes, and the checkpoint to go on from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from roam.errors import TrainingError
from training.config import to_yaml

FREE_KEYS = frozenset({
    "train", "dev", "more_train", "out", "device", "epochs", "max_steps", "log_every", "collapse_after",
    "max_dev_pairs", "max_dev_examples", "swap_margin", "false_merge_cost", "workers", "gradient_checkpointing",
    "attention",
})  # fmt: skip
"""What may change when a run goes on: the files are compared by hash, the rest leaves the steps so far as they were."""


def open_run(
    folder: Path, config: Any, data_hashes: Mapping[str, str], *, resume: bool, write: bool = True,
    sharded: bool = False,
) -> str | None:  # fmt: skip
    """Write config.yaml and data.json into `folder` and return the checkpoint to go on from, None for a new run.

    Of several processes one writes (`write`); the others check the same. `sharded`: the run is under FSDP.

    A new run drops the checkpoints of an earlier one: resuming takes the checkpoint with most steps, whoever wrote it.
    Raises `TrainingError` when there is nothing to resume, or when config or data differ from those of the run so far.
    """
    checkpoint = None
    if resume:
        checkpoint = last_checkpoint(folder)
        _check_kind(Path(checkpoint), sharded)
        _check_same(folder, config, data_hashes)
    if not write:
        return checkpoint
    if not resume and (folder / "checkpoints").is_dir():
        print(f"dropping the checkpoints of an earlier run in {folder}", flush=True)
        shutil.rmtree(folder / "checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
    (folder / "data.json").write_text(json.dumps(dict(data_hashes), indent=2) + "\n", encoding="utf-8")
    return checkpoint


def last_checkpoint(folder: Path) -> str:
    from transformers.trainer_utils import get_last_checkpoint

    checkpoints = folder / "checkpoints"
    found: str | None = get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None
    if found is None:
        raise TrainingError(f"nothing to resume in {checkpoints}; run without --resume")
    return found


def _check_kind(checkpoint: Path, sharded: bool) -> None:
    """FSDP's checkpoints have another form, whatever the number of processes; neither side reads the other's."""
    before = any(checkpoint.glob("pytorch_model_fsdp*"))
    if before and not sharded:
        raise TrainingError(f"{checkpoint} was written under FSDP: resume with configs/accelerate/fsdp.yaml")
    if sharded and not before:
        raise TrainingError(f"{checkpoint} was not written under FSDP: resume without it, or run without --resume")


def _check_same(folder: Path, config: Any, data_hashes: Mapping[str, str]) -> None:
    recipe, hashes = folder / "config.yaml", folder / "data.json"
    if not recipe.is_file():
        raise TrainingError(f"no {recipe}, so nobody can tell what the checkpoints are of; run without --resume")
    before = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    now = yaml.safe_load(to_yaml(config))
    changed = [f"{key} ({before[key]} before, {now[key]} now)" for key in now
               if key not in FREE_KEYS and key in before and before[key] != now[key]]  # fmt: skip
    if hashes.is_file():  # older runs have none
        data = json.loads(hashes.read_text(encoding="utf-8"))
        changed += [f"content of {name}" for name, digest in data_hashes.items() if data.get(name) != digest]
    if changed:
        raise TrainingError(
            f"{folder} was begun with other settings: {', '.join(changed)}; go back to them, or run without --resume"
        )
