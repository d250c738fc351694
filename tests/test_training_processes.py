"""Batches, streams and several processes: what a run on many pairs and many GPUs rests on, on tiny random bases."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from data.pairs import iter_pairs, read_pairs
from roam.errors import ConfigError, DataError, TrainingError
from roam.relation_model import TorchRelationModel
from tests.tiny import save_base
from tests.tiny_recipes import PAIRS, pair_files, small
from training.batches import BucketSampler, bucketed
from training.config import RelationConfig
from training.models import load_classifier
from training.relation import train
from training.run_folder import open_run
from training.streaming import rows

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pair_files(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "qwen", "qwen3")


# Batches and streams -----------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_buckets_hold_every_pair_once_and_waste_little() -> None:
    lengths = [5 + (index * 37) % 90 for index in range(1003)]
    order = bucketed(lengths, 16, seed=1, epoch=0)
    assert sorted(order) == list(range(1003))
    assert order == bucketed(lengths, 16, seed=1, epoch=0)
    assert order != bucketed(lengths, 16, seed=1, epoch=1)

    def padded(indices: list[int]) -> int:
        parts = [indices[start : start + 16] for start in range(0, len(indices), 16)]
        return sum(len(part) * max(lengths[index] for index in part) for part in parts)

    assert padded(order) < 1.15 * sum(lengths) < padded(list(range(1003)))
    sampler = BucketSampler(lengths, 16, 1)
    assert list(sampler) == order
    sampler.set_epoch(1)
    assert list(sampler) == bucketed(lengths, 16, seed=1, epoch=1)


@pytest.mark.unit
def test_a_stream_yields_what_the_file_holds(files: Path, tmp_path: Path) -> None:
    path = files / "train.jsonl"
    assert list(iter_pairs(path, lines_at_once=7)) == read_pairs(path)
    assert [pair.line for pair in iter_pairs(path, lines_at_once=7)] == list(range(1, 41))

    def encode(pairs: Any) -> list[dict[str, Any]]:
        return [{"id": pair.id, "length": len(pair.old)} for pair in pairs]

    def stream(source: Path, held_out: frozenset[str]) -> Iterator[dict[str, Any]]:
        return rows(str(source), encode, buffer=16, batch=4, seed=0, held_out=held_out)

    found = stream(path, frozenset())
    first, second = ([next(found)["id"] for _ in range(40)] for _ in range(2))
    assert sorted(first) == sorted(second) == sorted(pair.id for pair in read_pairs(path))
    assert first != second  # another order each time
    with pytest.raises(DataError, match=r"line 6: group 't1' is in train and dev"):
        list(stream(path, frozenset({"t1"})))
    bad = tmp_path / "bad.jsonl"
    bad.write_text(path.read_text().replace('"group": "t3"', '"group": ""', 1))
    with pytest.raises(DataError, match=r"bad\.jsonl:16: no group"):
        list(iter_pairs(bad, lines_at_once=5))


@pytest.mark.slow
def test_a_streamed_run_learns_from_all_of_the_file(qwen: Path, files: Path, tmp_path: Path) -> None:
    config = small(RelationConfig(streaming=True, stream_buffer=16), qwen, files, tmp_path / "run", max_steps=-1)
    done = train(config)
    assert done.metrics["pairs"] == 20
    last = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 5  # 40 pairs in batches of 8


# Several processes -------------------------------------------------------------------------------------------------


def launch(config: Path, *arguments: str, fsdp: Path | None = None, processes: int = 2) -> None:
    """A run under `accelerate launch` on the processor, with gloo between the processes; `fsdp`: its config."""
    program = ["-m", "training.relation"] if fsdp is None else [str(ROOT / "tests" / "fsdp_on_processors.py")]
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file",
               str(fsdp or ROOT / "configs" / "accelerate" / "cpu.yaml"), "--num_processes", str(processes),
               "--num_cpu_threads_per_process", "1", *program, str(config), *arguments]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def gap(one: Path, other: Path) -> float:
    """Largest difference between the adapters' weights of two runs."""
    from safetensors.numpy import load_file

    found = [load_file(str(run / "adapter" / "adapter_model.safetensors")) for run in (one, other)]
    assert found[0].keys() == found[1].keys()
    return max(float(np.abs(found[0][key] - found[1][key]).max()) for key in found[0])


def losses(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def half(run: Path, copy: Path) -> Path:
    """A copy of a run of four steps as if it had been stopped after two."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / "checkpoint-4")
    shutil.rmtree(copy / "adapter")
    return copy


def four_steps(architecture: str, files: Path, folder: Path) -> RelationConfig:
    """A recipe of four steps with a checkpoint after two, written down, and done by one process in `folder`/one."""
    from training.config import to_yaml

    base = save_base(folder / "base", architecture)
    recipe = small(
        RelationConfig(batching="buckets", dropout=0.0), base, files, folder / "one", max_steps=4, evals_per_epoch=2
    )
    (folder / "recipe.yaml").write_text(to_yaml(recipe))
    train(recipe)
    return recipe


@pytest.mark.slow
def test_two_processes_train_as_one_does_and_each_goes_on_from_the_other(files: Path, tmp_path: Path) -> None:
    config = four_steps("modernbert", files, tmp_path)
    one, two, recipe = tmp_path / "one", tmp_path / "two", tmp_path / "recipe.yaml"
    launch(recipe, f"out={two}")
    assert gap(one, two) < 1e-3
    assert losses(one) == pytest.approx(losses(two), abs=1e-3)
    fewer = half(two, tmp_path / "fewer")
    train(replace(config, out=str(fewer)), resume=True)
    more = half(one, tmp_path / "more")
    launch(recipe, f"out={more}", "--resume")
    for run in (fewer, more):
        assert gap(one, run) < 1e-3
        assert losses(run) == pytest.approx(losses(one), abs=1e-3)


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped FSDP config, but between processors."""
    settings = yaml.safe_load((ROOT / "configs" / "accelerate" / "fsdp.yaml").read_text())
    path = tmp_path_factory.mktemp("accelerate") / "fsdp.yaml"
    path.write_text(yaml.safe_dump(settings | {"use_cpu": True}))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["deberta-v2", "modernbert", "qwen3"])
def test_fsdp_trains_as_one_process_does(architecture: str, files: Path, fsdp: Path, tmp_path: Path) -> None:
    """Weights are shared out, gathered, saved and read back; any number of processes goes on from a checkpoint."""
    config = four_steps(architecture, files, tmp_path)
    one, two, recipe = tmp_path / "one", tmp_path / "two", tmp_path / "recipe.yaml"
    launch(recipe, f"out={two}", fsdp=fsdp)
    assert gap(one, two) < 1e-3
    assert losses(one) == pytest.approx(losses(two), abs=1e-3)
    here = TorchRelationModel.load(one / "adapter").predict_logits(PAIRS)
    assert np.abs(here - TorchRelationModel.load(two / "adapter").predict_logits(PAIRS)).max() < 1e-3
    if architecture == "qwen3":  # once is enough
        fewer = half(two, tmp_path / "fewer")
        with pytest.raises(TrainingError, match="was written under FSDP"):
            train(replace(config, out=str(fewer)), resume=True)
        launch(recipe, f"out={fewer}", "--resume", fsdp=fsdp, processes=1)
        assert gap(one, fewer) < 1e-3


@pytest.mark.slow
def test_two_processes_share_a_stream(files: Path, tmp_path: Path) -> None:
    from training.config import to_yaml

    base = save_base(tmp_path / "base", "modernbert")
    recipe = small(RelationConfig(streaming=True, stream_buffer=16, dropout=0.0), base, files, tmp_path / "one",
                   max_steps=4, evals_per_epoch=2)  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(to_yaml(recipe))
    train(recipe)
    launch(tmp_path / "recipe.yaml", f"out={tmp_path / 'two'}")
    assert gap(tmp_path / "one", tmp_path / "two") < 1e-3
    again = half(tmp_path / "two", tmp_path / "again")
    train(replace(recipe, out=str(again)), resume=True)  # goes on where the stream was
    assert gap(tmp_path / "one", again) < 1e-3


@pytest.mark.unit
def test_checkpoints_of_fsdp_and_of_one_process_are_told_apart(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "checkpoint-2"
    checkpoint.mkdir(parents=True)
    with pytest.raises(TrainingError, match="not written under FSDP"):
        open_run(tmp_path, RelationConfig(), {}, resume=True, sharded=True)
    (checkpoint / "pytorch_model_fsdp.bin").touch()
    with pytest.raises(TrainingError, match="was written under FSDP"):
        open_run(tmp_path, RelationConfig(), {}, resume=True)


@pytest.mark.unit
def test_one_process_trains_on_one_gpu_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from training.pair_trainer import one_gpu, training_arguments

    arguments: Any = training_arguments(RelationConfig(batch_size=8, device="cpu"), tmp_path, 4, "fp32")
    arguments._n_gpu = 4  # as on a machine with four
    assert arguments.train_batch_size == 32  # the trap
    assert one_gpu(arguments).train_batch_size == 8
    assert "accelerate launch takes all" in capsys.readouterr().out


@pytest.mark.integration
def test_parts_of_a_sharded_model_are_gathered(qwen: Path, tmp_path: Path) -> None:
    """What follows FSDP: saved by all, loaded in one piece by the first process."""
    from tests.tiny_adapter import randomise
    from training.relation import whole_model

    config = RelationConfig(base=str(qwen), device="cpu")
    model, _, _ = load_classifier(config)
    randomise(model)
    place = SimpleNamespace(process_index=0, device="cpu")
    trainer = SimpleNamespace(
        is_fsdp_enabled=True, save_model=lambda folder: model.save_pretrained(folder), args=place, model=model
    )
    again = whole_model(trainer, config, tmp_path / "adapter")
    assert again is not model
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = dict(again.named_parameters())
    assert learned
    assert all(np.array_equal(p.detach().numpy(), found[name].detach().numpy()) for name, p in learned.items())
    place.process_index = 1
    assert whole_model(trainer, config, tmp_path / "adapter") is None
    trainer.is_fsdp_enabled = False
    assert whole_model(trainer, config, tmp_path / "adapter") is model


@pytest.mark.unit
@pytest.mark.parametrize(("name", "kind"), [("ddp", "MULTI_GPU"), ("fsdp", "FSDP"), ("cpu", "MULTI_CPU")])
def test_accelerate_reads_the_launch_configs(name: str, kind: str) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    found = load_config_from_file(str(ROOT / "configs" / "accelerate" / f"{name}.yaml"))
    assert str(found.distributed_type) == f"DistributedType.{kind}" or found.distributed_type == kind
    assert found.num_processes == 2


@pytest.mark.unit
def test_what_processes_cannot_share_is_refused(
    files: Path, qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(RelationConfig(), qwen, files, tmp_path / "run")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="3 processes can't share it"):
        train(config)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="can't share out 4-bit weights"):
        train(replace(config, quantisation="nf4"))
    with pytest.raises(ConfigError, match="accelerate runs DDP in its place"):
        train(config)
    assert not (tmp_path / "run").exists()
