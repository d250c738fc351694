"""GPU recipes on tiny random bases of their architecture: train, save, reload elsewhere, evaluate, export or refuse."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eval.relation import main as evaluate_main
from roam.adapters import read_card, write_card
from roam.backends import onnx_hindrance
from roam.bases import content_hash, weight_files
from roam.errors import BaseModelError, ConfigError, ExportError, TrainingError
from roam.records import Pair
from roam.relation_model import TorchRelationModel
from tests.tiny import save_base, save_qwen_tokenizer
from tests.tiny_recipes import PAIRS, pair_files, small
from training.config import RelationConfig, load_config
from training.export import main as export_main
from training.models import choose_precision, load_classifier, loading_options
from training.profile import Sizes, flops_per_token, peak_of, sizes_of
from training.relation import train

ROOT = Path(__file__).parent.parent
RECIPES = sorted((ROOT / "configs" / "relation" / "gpu").glob("*.yaml"))
ARCHITECTURES = {"deberta": "deberta-v2", "modernbert": "modernbert", "qwen3": "qwen3"}
HEADS = {"deberta-v2": ["classifier", "pooler.dense"], "modernbert": ["classifier", "head.dense"], "qwen3": ["score"]}
RELOAD = (
    "import json, sys; from roam.records import Pair; from roam.relation_model import TorchRelationModel\n"
    "pairs = [Pair(*p) for p in json.loads(sys.argv[2])]\n"
    "print(json.dumps(TorchRelationModel.load(sys.argv[1]).predict_logits(pairs).tolist()))"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pair_files(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "qwen", "qwen3")


def elsewhere(adapter: Path) -> np.ndarray:
    """Logits of the same pairs in a process of its own."""
    command = [sys.executable, "-c", RELOAD, str(adapter), json.dumps(PAIRS)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return np.array(json.loads(printed.strip().splitlines()[-1]), dtype=np.float32)


def saved_keys(adapter: Path) -> str:
    from safetensors import safe_open

    with safe_open(str(adapter / "adapter_model.safetensors"), "np") as file:
        return " ".join(file.keys())


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_gpu_recipe_runs_end_to_end(
    path: Path, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_config(RelationConfig, path)
    if config.quantisation != "none":
        pytest.importorskip("bitsandbytes", reason="4-bit bases need bitsandbytes")
    architecture = ARCHITECTURES[path.stem.partition("-")[0]]
    base = save_base(tmp_path / "base", architecture)
    done = train(small(config, base, files, tmp_path / "run"))
    card = read_card(done.adapter)
    assert card.quantisation == ("nf4" if path.stem.endswith("qlora") else "")
    keys = saved_keys(done.adapter)
    assert all(name in keys for name in HEADS[architecture]), keys
    assert ("lora_A" in keys) == (config.adapt == "lora")
    here = TorchRelationModel.load(done.adapter)
    assert here.tokenizer.padding_side == "right"
    assert here.tokenizer.pad_token_id != here.tokenizer.eos_token_id or here.tokenizer.eos_token_id is None
    assert np.abs(here.predict_logits(PAIRS) - elsewhere(done.adapter)).max() < 1e-5
    together = here.predict_logits([*PAIRS, Pair("Ana likes " + "very " * 9 + "strong tea", "Ana hates tea")])
    assert np.abs(together[:2] - here.predict_logits(PAIRS)).max() < 1e-4  # padding changes nothing
    report = tmp_path / "report"
    arguments = ["--adapter", str(done.adapter), "--pairs", str(files / "dev.jsonl"), "--out", str(report)]
    assert evaluate_main([*arguments, "--train", str(files / "train.jsonl")]) == 0
    assert "macro_f1" in json.loads((report / "report.json").read_text())
    export_or_refusal(done.adapter, card.quantisation, tmp_path, capsys)


def export_or_refusal(adapter: Path, quantisation: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Merged: equal answers, on request only from 4 bits. ONNX: a graph that keeps its word, or one line and code 2."""
    merged = ["--format", "merged", "--out", str(tmp_path / "merged")]
    if quantisation:
        capsys.readouterr()
        assert export_main([str(adapter), *merged]) == 2
        assert "merging into quantised weights degrades the result" in capsys.readouterr().err
        merged.append("--allow-quantised")
    assert export_main([str(adapter), *merged]) == 0
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert config["pad_token_id"] is not None
    assert "quantization_config" not in config
    assert "quantisation" not in json.loads((tmp_path / "merged" / "roam.json").read_text())
    capsys.readouterr()
    code = export_main([str(adapter), "--format", "onnx", "--out", str(tmp_path / "onnx")])
    said = capsys.readouterr()
    if quantisation:
        assert code == 2
        assert "ONNX has no graph" in said.err
    else:
        assert code == 0, said.err
        assert "100.00 % agree" in said.out


@pytest.mark.integration
def test_qwen_classifier_survives_saving(qwen: Path, files: Path, tmp_path: Path) -> None:
    """The head is saved, pairs are closed by EOS, padding is another token, and padded batches answer the same."""
    recipe = load_config(RelationConfig, ROOT / "configs" / "relation" / "gpu" / "qwen3-0.6b.yaml")
    changes = {"soft_labels": 0.5, "gradient_checkpointing": True, "precision": "bf16"}
    done = train(small(recipe, qwen, files, tmp_path / "run", **changes))
    loaded = TorchRelationModel.load(done.adapter)
    tokens = loaded.encoder.encode([Pair("a", "b")])[0].tokens
    assert tokens == ["a", "<|im_end|>", "b", "<|im_end|>"]
    assert loaded.model.config.pad_token_id == loaded.tokenizer.pad_token_id != loaded.tokenizer.eos_token_id
    long = Pair("Ana likes " + "very " * 9 + "strong tea", "Ana hates tea")
    assert np.abs(loaded.predict_logits([PAIRS[0], long])[0] - loaded.predict_logits([PAIRS[0]])[0]).max() < 1e-4
    assert "score" in saved_keys(done.adapter)


@pytest.mark.integration
def test_a_base_model_whose_padding_is_eos_gets_another(qwen: Path, files: Path, tmp_path: Path) -> None:
    base = shutil.copytree(qwen, tmp_path / "base")
    save_qwen_tokenizer(base, base_model=True)
    _, tokenizer, _ = load_classifier(RelationConfig(base=str(base), device="cpu"))
    assert tokenizer.eos_token == "<|endoftext|>"
    assert tokenizer.pad_token == "<|fim_pad|>"
    ids = tokenizer("a", "b")["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.pad_token_id not in ids


@pytest.mark.integration
def test_four_bit_base_keeps_its_head_and_is_part_of_the_card(qwen: Path, files: Path, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="4-bit bases need bitsandbytes")
    import bitsandbytes
    import torch

    config = RelationConfig(base=str(qwen), device="cpu", quantisation="nf4", adapt="lora")
    model, _, base = load_classifier(config)
    inner = model.base_model.model
    assert isinstance(inner.model.layers[0].self_attn.q_proj.base_layer, bitsandbytes.nn.Linear4bit)
    assert type(inner.score.modules_to_save["default"]) is torch.nn.Linear
    assert base.content_hash == content_hash(qwen)


@pytest.mark.unit
def test_a_quantised_card_has_another_digest_and_no_onnx(tmp_path: Path) -> None:
    from roam.adapters import AdapterCard
    from tests.tiny_adapter import LABELS

    plain = AdapterCard(kind="relation", labels=LABELS, base="b", base_hash="h")
    four = replace(plain, quantisation="nf4")
    assert plain.digest != four.digest
    assert "nf4" in onnx_hindrance(four)
    write_card(tmp_path, plain)
    assert "quantisation" not in json.loads((tmp_path / "roam.json").read_text())
    write_card(tmp_path, four)
    assert json.loads((tmp_path / "roam.json").read_text())["quantisation"] == "nf4"


@pytest.mark.unit
@pytest.mark.parametrize("model_type", ["deberta-v2", "t5", "qwen3", "gemma3_text"])
def test_fp16_is_refused_where_it_overflows(model_type: str) -> None:
    precision, reason = choose_precision(RelationConfig(precision="fp16"), model_type)
    assert precision != "fp16"
    assert "overflows" in reason


@pytest.mark.unit
def test_flash_attention_needs_a_gpu() -> None:
    with pytest.raises(TrainingError, match="attention=sdpa"):
        loading_options(RelationConfig(attention="flash_attention_2", device="cpu"))
    assert loading_options(RelationConfig(attention="sdpa", device="cpu")) == {"attn_implementation": "sdpa"}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"soft_labels": 1.5}, "share from 0 to 1"),
        ({"soft_labels": 0.5, "label_smoothing": 0.1}, "both soften"),
        ({"streaming": True, "max_train_pairs": 5}, "not drawn from"),
        ({"streaming": True, "workers": 2}, "set workers=0"),
        ({"adapt": "head", "initial_adapter": "a"}, "frozen base"),
        ({"pad_multiple": 0}, "1 or more"),
        ({"max_length": 2}, "8 or more"),
        ({"max_steps": 0}, "1 or more, or -1"),
        ({"seed": -1}, "give 0 to"),
    ],
)
def test_settings_that_exclude_each_other(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RelationConfig(**values)


@pytest.mark.integration
def test_settings_that_a_base_has_not_are_refused(
    files: Path, qwen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.config import to_yaml
    from training.relation import main

    deberta = save_base(tmp_path / "deberta", "deberta-v2")
    tokens = json.loads((qwen / "tokenizer_config.json").read_text())
    short = shutil.copytree(qwen, tmp_path / "short")
    (short / "tokenizer_config.json").write_text(json.dumps(tokens | {"model_max_length": 100}))
    (tmp_path / "recipe.yaml").write_text(to_yaml(small(RelationConfig(), qwen, files, tmp_path / "run")))
    (tmp_path / "file").touch()
    capsys.readouterr()  # what writing the base said
    for overrides, message in (
        ((f"base={deberta}", "attention=sdpa"), "use attention=eager or attention=auto"),
        (("head_modules=[scor]",), "has no scor; its parts are model, score"),
        ((f"base={short}",), "max_length is 128"),
        ((f"out={tmp_path / 'file'}",), "Not a directory; give a folder"),
    ):
        assert main([str(tmp_path / "recipe.yaml"), *overrides]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ")
        assert message in said
    assert not (tmp_path / "run").exists()


@pytest.mark.unit
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_load_and_say_what_they_need(path: Path) -> None:
    config = load_config(RelationConfig, path)
    assert config.out == f"runs/{path.stem}"
    assert "not measured" in path.read_text()
    assert config.batching == "buckets"


@pytest.mark.unit
def test_there_is_a_recipe_for_each_base() -> None:
    assert {path.stem for path in RECIPES} == {
        "deberta-v3-base", "deberta-v3-large", "modernbert-base", "modernbert-large", "qwen3-0.6b", "qwen3-1.7b",
        "qwen3-4b", "qwen3-0.6b-qlora", "qwen3-1.7b-qlora", "qwen3-4b-qlora", "qwen3-0.6b-probe",
    }  # fmt: skip


@pytest.mark.slow
def test_a_base_with_the_head_of_another_task_gets_a_new_one(files: Path, tmp_path: Path) -> None:
    """NLI bases bring a head of three labels: it is replaced, saved and loaded back; other odd shapes are refused."""
    import torch
    from transformers import AutoModelForSequenceClassification

    from tests.tiny import config_of

    base = save_base(tmp_path / "base", "deberta-v2")
    shape = config_of("deberta-v2")
    shape.num_labels = 3
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(shape).save_pretrained(str(base))
    done = train(small(RelationConfig(), base, files, tmp_path / "run", max_steps=1))
    assert TorchRelationModel.load(done.adapter).predict_logits(PAIRS).shape == (2, 5)
    odd = shutil.copytree(base, tmp_path / "odd")
    config = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps(config | {"intermediate_size": 32}))
    with pytest.raises(TrainingError, match="weights of another shape"):
        load_classifier(RelationConfig(base=str(odd), device="cpu"))


# A base's files ----------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_shards_hash_as_one_file(qwen: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    whole = load_file(str(qwen / "model.safetensors"))
    names = sorted(whole)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({name: whole[name] for name in held}, str(tmp_path / file))
    where = {name: file for file, held in parts.items() for name in held}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    assert [file.name for file in weight_files(tmp_path)] == sorted(parts)
    assert content_hash(tmp_path) == content_hash(qwen)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(BaseModelError, match=r"lacks model-00002-of-00002\.safetensors"):
        content_hash(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "../secret"}}))
    with pytest.raises(BaseModelError, match="outside of its folder"):
        weight_files(tmp_path)


@pytest.mark.unit
def test_onnx_refuses_a_quantised_adapter(tmp_path: Path) -> None:
    from roam.onnx_build import build

    plain: Any = SimpleNamespace(card=SimpleNamespace(quantisation="nf4"))
    with pytest.raises(ExportError, match="ONNX has no graph"):
        build(tmp_path, plain, tmp_path, "onnx")
    huge = SimpleNamespace(parameters=lambda: [SimpleNamespace(numel=lambda: 600_000_000)])
    plain = SimpleNamespace(card=SimpleNamespace(quantisation=""), model=huge)
    with pytest.raises(ExportError, match=r"2\.4 GB of weights"):
        build(tmp_path, plain, tmp_path, "onnx")


# Throughput ----------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_profile_measures_the_recipe(qwen: Path, files: Path, tmp_path: Path) -> None:
    from training.config import to_yaml
    from training.profile import main

    recipe = tmp_path / "recipe.yaml"
    config = small(RelationConfig(pad_multiple=8, batching="buckets"), qwen, files, tmp_path / "run")
    recipe.write_text(to_yaml(config))
    out = tmp_path / "profile.json"
    assert main([str(recipe), "--steps", "3", "--warm-up", "1", "--peak-tflops", "1", "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    for kind in ("train", "infer"):
        assert report[kind]["pairs_per_second"] > 0
        assert 0 <= report[kind]["padding_share"] < 0.5
        assert 0 < report[kind]["mfu"] == pytest.approx(report[kind]["tflops"], abs=1e-3)
    assert report["device"].startswith("processor")
    assert report["trained_parameters"] < report["parameters"]
    assert report["shapes"] <= 4
    assert not (tmp_path / "run").exists()
    assert main([str(recipe), "batch_size=100"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main([str(recipe), "--peak-tflops", "-1"])


@pytest.mark.unit
def test_mfu_knows_its_device_or_says_nothing() -> None:
    assert peak_of("NVIDIA L40S", None) == 362.0  # not the L4's
    assert peak_of("NVIDIA H200", None) == 989.0
    assert peak_of("a toaster", None) is None
    assert peak_of("NVIDIA H200", 500.0) == 500.0
    sizes = Sizes(total=150, trained=10, multiplied=100, passed=60)
    assert flops_per_token(sizes, training=False) == 200
    assert flops_per_token(sizes, training=True) == 340


@pytest.mark.unit
def test_flops_are_of_what_is_multiplied(qwen: Path) -> None:
    def sizes(**changes: Any) -> Sizes:
        config = RelationConfig(base=str(qwen), device="cpu", **changes)
        return sizes_of(load_classifier(config)[0], config)

    lora, probe, upper = sizes(), sizes(adapt="head"), sizes(lora_first_layer=1)
    assert lora.total - lora.multiplied == 260 * 32  # the table of tokens
    assert lora.passed == lora.multiplied
    assert probe.passed == probe.trained == 5 * 32  # no gradient goes through a frozen base
    assert probe.trained < upper.trained < lora.trained
    assert probe.passed < upper.passed < lora.passed
    if importlib.util.find_spec("bitsandbytes"):
        assert sizes(quantisation="nf4") == lora
