"""Averages of adapters: the mean of their weights, calibrated anew, and refused where it would mean nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from data.pairs import write_pairs
from roam.adapters import parse_card, read_card, weights_hash, write_card
from roam.errors import AdapterError
from roam.relation_model import TorchRelationModel
from tests.tiny import toy_pairs
from tests.tiny_adapter import save_adapter
from training.average import averaged
from training.average import main as average_main

WEIGHTS = "adapter_model.safetensors"


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two adapters of one base: the second has the weights of the first, each 0.5 larger."""
    folder = tmp_path_factory.mktemp("parts")
    first = save_adapter(folder, max_length=64)
    second = shutil.copytree(first, folder / "second")
    save_file({name: tensor + 0.5 for name, tensor in load_file(first / WEIGHTS).items()}, second / WEIGHTS)
    write_card(second, replace(parse_card(second), weights_hash=weights_hash(second)))
    write_pairs(folder / "dev.jsonl", toy_pairs(40, 1, "d"))
    return first, second


def test_the_average_is_the_mean_and_loads(adapters: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = adapters
    dev = str(first.parent / "dev.jsonl")
    assert average_main([str(first), str(second), "--out", str(tmp_path / "mean"), "--dev", dev]) == 0
    before, after = load_file(first / WEIGHTS), load_file(tmp_path / "mean" / WEIGHTS)
    assert before.keys() == after.keys()
    assert all((after[name] - before[name] - 0.25).abs().max() < 1e-6 for name in before)
    card = read_card(tmp_path / "mean")
    assert card.metrics["average of"] == [read_card(first).digest, read_card(second).digest]
    assert card.metrics["dev"]["pairs"] == 40
    TorchRelationModel.load(tmp_path / "mean")
    assert f"mean of the weights of {read_card(first).digest} and" in (tmp_path / "mean" / "README.md").read_text()
    for bad in ([str(first)], [str(first), str(second), "--dev", "none.jsonl"], [str(first), str(tmp_path)]):
        assert average_main([*bad, "--out", str(tmp_path / "none"), *([] if "--dev" in bad else ["--dev", dev])]) == 2
    assert not (tmp_path / "none").exists()
    assert average_main([str(first), str(second), "--out", str(second), "--dev", dev]) == 2
    assert read_card(second).metrics == read_card(first).metrics


def test_adapters_of_other_shapes_are_refused(adapters: tuple[Path, Path], tmp_path: Path) -> None:
    first, _ = adapters
    odd = shutil.copytree(first, tmp_path / "odd")
    tensors = load_file(odd / WEIGHTS)
    removed = min(tensors)
    save_file({name: tensor for name, tensor in tensors.items() if name != removed}, odd / WEIGHTS)
    with pytest.raises(AdapterError, match="differ in 1 tensors"):
        averaged([first, odd])
    shorter = shutil.copytree(first, tmp_path / "shorter")
    write_card(shorter, replace(read_card(shorter), max_length=32))
    arguments = [str(first), str(shorter), "--out", str(tmp_path / "out"), "--dev", str(first.parent / "dev.jsonl")]
    assert average_main(arguments) == 2
