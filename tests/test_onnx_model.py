"""The relation model in ONNX Runtime: same answers as torch, built once, kept in the cache, chosen by default."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.pairs import write_pairs
from roam import backends, onnx_build, relation_model
from roam.adapters import read_card
from roam.backends import gpu_available, load_relation_model, plan_backend
from roam.cli import main as roam_main
from roam.cli_manager import LazyRelationModel
from roam.errors import AdapterError, BaseModelError, ExportError, InputError
from roam.managers import load_manager
from roam.onnx_cache import cached_folder, load_cached
from roam.onnx_model import EXPORT_VERSION, MANIFEST, MODEL, OnnxRelationModel, session_threads
from roam.pair_encoding import PairEncoder
from roam.records import Pair
from roam.relation_model import TorchRelationModel
from tests.tiny import toy_pairs
from tests.tiny_adapter import save_adapter
from training.export import main

LONG = Pair("Ana likes very strong tea " * 12, "Ana likes coffee " * 3)
PAIRS = [*(Pair(pair.old, pair.new) for pair in toy_pairs(25, 4, "x")), LONG, Pair("", "?")]


@pytest.fixture(scope="module", params=["bert", "mpnet"])
def any_adapter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_adapter(tmp_path_factory.mktemp(request.param), request.param, swap_margin=0.3, max_length=32)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_adapter(tmp_path_factory.mktemp("adapter"), "mpnet", max_length=32)


@pytest.fixture(scope="module")
def built(adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the adapter's int8 model."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROAM_CACHE", str(cache))
        load_cached(adapter, "onnx-int8")
    return cache


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no GPU, no backend set and int8 as the default, whatever this machine has."""
    monkeypatch.setenv("ROAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ROAM_BACKEND", raising=False)
    monkeypatch.setattr(backends, "gpu_available", lambda: False)
    monkeypatch.setattr(backends, "ON_PROCESSOR", "onnx-int8")
    return tmp_path / "cache"


@pytest.fixture
def filled(built: Path, adapter: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cache with the int8 model in it; returns what was built again (by copying: tracing takes seconds)."""
    shutil.copytree(built, cache)
    again: list[str] = []

    def copy(adapter: Path, plain: TorchRelationModel, folder: Path, precision: str) -> None:
        again.append(precision)
        shutil.copytree(cached_folder(plain.card, precision).parent.parent.parent / "good", folder, dirs_exist_ok=True)

    shutil.copytree(cached_folder(read_card(adapter), "onnx-int8"), cache.parent / "good")
    monkeypatch.setattr(onnx_build, "build", copy)
    return again


def test_the_encoder_lays_pairs_out_as_transformers_does(any_adapter: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(any_adapter)
    ours = PairEncoder.of(theirs, 32)
    expected = theirs([p.old for p in PAIRS], [p.new for p in PAIRS], truncation="longest_first", max_length=32,
                      padding=True)  # fmt: skip
    found = ours.batch(ours.encode(PAIRS))
    assert set(found) == set(expected)
    for name, values in found.items():
        assert values.tolist() == expected[name], name


def test_fp32_answers_as_torch(any_adapter: Path) -> None:
    plain, exported = TorchRelationModel.load(any_adapter, device="cpu"), load_cached(any_adapter, "onnx")
    assert np.abs(exported.predict_logits(PAIRS) - plain.predict_logits(PAIRS)).max() < 1e-4
    assert exported.predict_proba([]).shape == (0, 5)
    assert exported.thresholds == plain.thresholds
    for size in (1, 7):  # batch and token counts are free
        assert np.allclose(exported.predict_proba(PAIRS[:size]), plain.predict_proba(PAIRS[:size]), atol=1e-4)


def test_int8_answers_nearly_as_torch(any_adapter: Path) -> None:
    import onnx

    plain, exported = TorchRelationModel.load(any_adapter, device="cpu"), load_cached(any_adapter, "onnx-int8")
    gap = np.abs(exported.predict_proba(PAIRS) - plain.predict_proba(PAIRS)).max()
    assert 0 < gap < 0.1
    graph = onnx.load(cached_folder(plain.card, "onnx-int8") / MODEL).graph
    whole = [t for t in graph.initializer if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 2]
    assert len(whole) == 12  # six matrices in each of two layers
    assert {node.op_type for node in graph.node} >= {"MatMulIntegerToFloat", "QuantizeLinear"}


def test_bf16_answers_nearly_as_fp32(any_adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load_relation_model(any_adapter, backend="torch")
    half = load_relation_model(any_adapter, backend="torch-bf16")
    assert half.digest == plan_backend(any_adapter, "torch-bf16").digest == f"{plain.digest}-bf16"
    gap = np.abs(half.predict_proba(PAIRS) - plain.predict_proba(PAIRS)).max()
    assert 0 < gap < 0.1
    monkeypatch.setattr(relation_model, "BF16_GAP", 0.0)
    with pytest.raises(AdapterError, match="in bf16 probe pairs get other probabilities"):
        load_relation_model(any_adapter, backend="torch-bf16")


def test_an_old_gpu_runs_fp32_and_says_so(
    adapter: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backends, "gpu_available", lambda: True)
    assert load_relation_model(adapter).digest == read_card(adapter).digest
    assert "the GPU has no arithmetic in bf16" in caplog.text


def test_a_pair_gets_the_same_answer_in_any_batch(any_adapter: Path) -> None:
    exported = load_cached(any_adapter, "onnx-int8")
    together = exported.predict_proba(PAIRS)
    alone = np.concatenate([exported.predict_proba([pair]) for pair in PAIRS])
    assert np.abs(alone - together).max() < 1e-5


def test_the_cached_model_is_read_not_built(adapter: Path, filled: list[str]) -> None:
    first = load_manager(adapter).relation_model
    assert isinstance(first, OnnxRelationModel)
    assert first.digest == f"{read_card(adapter).digest}-onnx-int8-v{EXPORT_VERSION}"
    assert filled == []


def test_another_base_is_refused_although_the_kept_model_needs_none(
    adapter: Path, filled: list[str], tmp_path: Path
) -> None:
    load_manager(adapter)  # from the cache
    for wrong in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(BaseModelError):
            load_manager(adapter, base=wrong)


def cut_short(folder: Path) -> None:
    (folder / MODEL).write_bytes((folder / MODEL).read_bytes()[:-100])


def flipped(folder: Path) -> None:
    content = bytearray((folder / MODEL).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / MODEL).write_bytes(content)


def another_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def manifest_field(name: str, value: object) -> Any:
    def change(folder: Path) -> None:
        document = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps({**document, name: value}))

    return change


DAMAGES = {
    "cut short": cut_short,
    "a bit flipped": flipped,
    "graph gone": lambda folder: (folder / MODEL).unlink(),
    "manifest gone": lambda folder: (folder / MANIFEST).unlink(),
    "manifest is no JSON": lambda folder: (folder / MANIFEST).write_text("{"),
    "manifest is a list": lambda folder: (folder / MANIFEST).write_text("[]"),
    "unknown key": manifest_field("colour", "red"),
    "another tokenizer": another_tokenizer,
    "another adapter's": manifest_field("adapter", "0" * 16),
    "an older version": manifest_field("version", 0),
    "unknown precision": manifest_field("precision", "onnx-int4"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_or_foreign_model_is_refused_and_built_anew(
    damage: Any, adapter: Path, filled: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    good = load_relation_model(adapter).predict_proba(PAIRS)
    folder = cached_folder(read_card(adapter), "onnx-int8")
    damage(folder)
    with pytest.raises(ExportError, match="export"):
        OnnxRelationModel.load(folder, card=read_card(adapter))
    assert np.array_equal(load_relation_model(adapter).predict_proba(PAIRS), good)
    assert filled == ["onnx-int8"]
    assert "building it anew" in caplog.text
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # nothing left lying about


def test_a_recalibrated_adapter_gets_its_own_model(adapter: Path, built: Path, tmp_path: Path) -> None:
    other = shutil.copytree(adapter, tmp_path / "other")
    card = json.loads((other / "roam.json").read_text())
    (other / "roam.json").write_text(json.dumps({**card, "temperature": 2.0}))
    assert cached_folder(read_card(other), "onnx-int8") != cached_folder(read_card(adapter), "onnx-int8")


def test_a_cache_that_can_not_be_written_means_torch_and_a_reason(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("ROAM_CACHE", str(tmp_path / "file" / "cache"))
    lazy = LazyRelationModel(str(adapter))
    lazy.predict_proba(PAIRS[:1])
    assert lazy.digest == read_card(adapter).digest  # what judged is what the log names
    assert "relation model on torch: the ONNX model can't be kept" in caplog.text
    with pytest.raises(ExportError, match="set ROAM_CACHE to a folder with room"):
        load_relation_model(adapter, backend="onnx-int8")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    plan = plan_backend(adapter)
    assert (plan.backend, plan.expected) == ("torch", False)
    assert "can't be written: set ROAM_CACHE" in plan.reason


def test_a_model_that_answers_otherwise_is_not_used(
    adapter: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(onnx_build.PROBE_GAPS, "onnx-int8", 0.0)
    assert isinstance(load_relation_model(adapter), TorchRelationModel)
    assert "does not answer as the adapter does" in caplog.text
    assert list((cache / "onnx").iterdir()) == []


def test_the_cached_path_needs_no_torch(adapter: Path, filled: list[str]) -> None:
    script = (
        "import sys, json; from roam.managers import load_manager\n"
        "from roam.records import Pair\n"
        "model = load_manager(sys.argv[1], backend='onnx-int8').relation_model\n"
        "print(json.dumps([model.predict_proba([Pair('Ana likes tea', 'Ana hates tea')]).shape, sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(adapter)], capture_output=True, text=True, check=True)
    shape, modules = json.loads(done.stdout)
    assert shape == [1, 5]
    assert "onnxruntime" in modules
    assert {"torch", "transformers", "peft", "onnx", "huggingface_hub"} & set(modules) == set()


def test_backends_are_chosen_by_argument_variable_and_machine(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan_backend(adapter).backend == "onnx-int8"
    monkeypatch.setattr(backends, "gpu_available", lambda: True)
    assert (plan_backend(adapter).backend, plan_backend(adapter).expected) == ("torch-bf16", True)
    assert plan_backend(adapter, "onnx").backend == "onnx"
    monkeypatch.setenv("ROAM_BACKEND", "onnx-int8")
    assert plan_backend(adapter).backend == "onnx-int8"
    assert plan_backend(adapter, "torch").backend == "torch"
    assert len({plan_backend(adapter, name).digest for name in ("torch", "torch-bf16", "onnx", "onnx-int8")}) == 4
    monkeypatch.setenv("ROAM_BACKEND", "cuda")
    with pytest.raises(InputError, match=r"backend 'cuda' does not exist; .* auto, torch, torch-bf16, onnx, onnx-int8"):
        plan_backend(adapter)


@pytest.mark.parametrize("package", ["onnxruntime", "onnx"])
def test_without_the_packages_torch_runs_and_says_why(
    package: str, adapter: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find = backends.importlib.util.find_spec
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None if name == package else find(name))
    assert isinstance(load_relation_model(adapter), TorchRelationModel)
    [record] = [record for record in caplog.records if record.name == "roam.backends"]
    assert record.levelno == logging.WARNING
    assert f"{package} is not installed" in record.getMessage()


def test_a_built_model_needs_no_onnx_package(adapter: Path, filled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    find = backends.importlib.util.find_spec
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None if name == "onnx" else find(name))
    assert plan_backend(adapter).backend == "onnx-int8"


def test_gpu_is_asked_of_torch_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpu_available()
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not gpu_available()


def test_the_lazy_model_knows_its_digest_before_it_loads(adapter: Path, filled: list[str]) -> None:
    lazy = LazyRelationModel(str(adapter))
    before = lazy.digest
    lazy.predict_proba(PAIRS[:1])
    assert lazy.digest == before == load_relation_model(adapter).digest
    assert LazyRelationModel(str(adapter), backend="torch").digest == read_card(adapter).digest != before


def test_the_command_line_takes_a_backend(adapter: Path, filled: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["relate", "Ana likes tea", "Ana hates tea", "--manager", str(adapter), "--json"]
    digests = []
    for backend in ("torch", "onnx-int8", "auto"):
        assert roam_main([*arguments, "--backend", backend]) == 0
        digests.append(json.loads(capsys.readouterr().out)["model"])
    assert digests[0] != digests[1] == digests[2]
    assert roam_main([*arguments, "--backend", "tpu"]) == 2
    error = json.loads(capsys.readouterr().err)
    assert error["error"] == "InputError"
    assert "'tpu' does not exist" in error["message"]


@pytest.mark.parametrize("precision", ["onnx", "onnx-int8"])
def test_export_says_how_it_compares_and_stands_alone(
    precision: str, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(tmp_path / "pairs.jsonl", toy_pairs(20, 3, "x"))
    out = tmp_path / "out"
    arguments = [str(adapter.parent), "--format", precision, "--pairs", str(tmp_path / "pairs.jsonl")]  # a run folder
    assert main([*arguments, "--out", str(out), "--least-agreement", "90", "--most-f1-loss", "10"]) == 0
    printed = capsys.readouterr().out
    assert "parity on 20 pairs: 100.00 % agree, macro-F1" in printed
    report = json.loads((out / "export.json").read_text())
    assert report["format"] == precision
    assert report["parity"]["agreement"] == 1.0
    assert report["limits"] == {"agreement": 0.9, "f1_loss": 0.1}
    alone = load_manager(out).relation_model
    assert alone.digest == report["model"] == plan_backend(out).digest
    assert np.abs(alone.predict_proba(PAIRS) - TorchRelationModel.load(adapter).predict_proba(PAIRS)).max() < 0.1
    with pytest.raises(InputError, match=f"holds an exported {precision} model"):
        load_manager(out, backend="torch")


def test_an_export_below_the_limits_is_an_error_and_leaves_nothing(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from training import export_onnx

    judge = export_onnx.judge

    def shifted(model: Any, pairs: Any) -> Any:
        found = judge(model, pairs)
        return np.roll(found, 1, axis=1) if isinstance(model, OnnxRelationModel) else found

    monkeypatch.setattr(export_onnx, "judge", shifted)
    assert main([str(adapter), "--format", "onnx", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the onnx model is too far from the adapter: parity on 2 pairs: 0.00 % agree")
    assert "agreement from 99.5 %, macro-F1 loss up to 0.5; nothing was written" in error
    assert list(tmp_path.iterdir()) == [tmp_path / "cache"] or list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "onnx", "--least-agreement", "101"], "--least-agreement 101.0 is not between 0 and 100"),
        (["--format", "onnx", "--most-f1-loss", "-1"], "--most-f1-loss -1.0 is not between 0 and 100"),
        (["--format", "onnx", "--pairs", "none.jsonl"], "--pairs 'none.jsonl' does not exist"),
    ],
)
def test_bad_export_arguments(
    arguments: list[str], message: str, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(adapter), "--out", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_fuser_is_no_relation_model(adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = shutil.copytree(adapter, tmp_path / "fuser")
    card = json.loads((other / "roam.json").read_text())
    (other / "roam.json").write_text(json.dumps({**card, "kind": "fuser"}))
    with pytest.raises(AdapterError, match="'fuser' adapter; a relation adapter is needed"):
        load_relation_model(other)
    assert main([str(other), "--format", "onnx", "--out", str(tmp_path / "out")]) == 2
    assert "ONNX export takes relation adapters" in capsys.readouterr().err


def test_threads_follow_the_variable_that_torch_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert session_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    assert session_threads() == len(os.sched_getaffinity(0))


@pytest.mark.integration
def test_the_runtime_reports_its_use_to_nobody(tmp_path: Path) -> None:
    """ONNX Runtime of 1.29 and later would write an id of the machine, and tell its maker of each session."""
    program = """
import roam
import onnx
from onnx import TensorProto, helper
from roam.onnx_model import open_session
from pathlib import Path
import sys
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.save(model, sys.argv[1])
open_session(Path(sys.argv[1]), 1)
"""
    # Settings by which the runtime leaves tests alone would hide what it does for everybody else.
    hidden = ("CI", "ORT_", "XDG_", "GITHUB_", "TF_BUILD")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment.update(HOME=str(tmp_path), PYTHONPATH=str(Path(__file__).parent.parent))
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "m.onnx")], env=environment, check=True, timeout=120)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
