"""Export of merged models on tiny random bases: same answers, standalone, quantised bases only on request."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.fusion import FusionExample, read_fusion
from data.pairs import write_pairs
from roam.adapters import AdapterCard, Probe, read_card, weights_hash, write_card
from roam.bases import content_hash
from roam.errors import AdapterError, InputError
from roam.fusion.model import LoadedFuser
from roam.prompts import FUSION_TEMPLATE
from roam.relation_model import TorchRelationModel
from tests.tiny import toy_pairs
from tests.tiny_adapter import LABELS, PAIRS, randomise, save_adapter
from tests.tiny_fuser import example_rows, save_fuser_base, write_rows
from training.export import Answer, compare, export_merged, main
from training.fuser_config import FuserConfig
from training.fuser_data import prompt_of
from training.fuser_model import load_trainable


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_adapter(tmp_path_factory.mktemp("relation"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = example_rows(Path(__file__).parent.parent / "data" / "fusion_train.jsonl", 3)
    return write_rows(tmp_path_factory.mktemp("fusion") / "fusion.jsonl", rows)


def save_fuser(base_folder: Path, folder: Path, examples: list[FusionExample]) -> Path:
    """A fuser adapter with random weights, as training saves one."""
    model, tokenizer, base = load_trainable(FuserConfig(base=str(base_folder)))
    randomise(model)
    model.save_pretrained(str(folder), save_embedding_layers=False)
    tokenizer.save_pretrained(str(folder))
    card = AdapterCard(kind="fuser", labels=LABELS, base=base.name, base_hash=base.content_hash,
                       template=FUSION_TEMPLATE, weights_hash=weights_hash(folder))  # fmt: skip
    loaded = LoadedFuser(model, tokenizer, card)
    texts = [(prompt_of(example), example.target) for example in examples]
    probes = tuple(Probe(a, b, {"token": loaded.token_probability(a, b)}) for a, b in texts)
    write_card(folder, replace(card, probes=probes))
    return folder


def test_merged_relation_model_stands_alone(relation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    write_pairs(tmp_path / "pairs.jsonl", toy_pairs(20, 3, "x"))
    out = tmp_path / "merged"
    assert main([str(relation), "--out", str(out), "--pairs", str(tmp_path / "pairs.jsonl")]) == 0
    assert "parity on 20 inputs: 20/20 answers agree" in capsys.readouterr().out
    model = AutoModelForSequenceClassification.from_pretrained(out)
    assert [model.config.id2label[index] for index in range(5)] == list(LABELS)
    card = read_card(relation)
    assert json.loads((out / "roam.json").read_text()) == json.loads((relation / "roam.json").read_text())
    alone = TorchRelationModel(model, AutoTokenizer.from_pretrained(out), card).predict_logits(PAIRS)
    assert np.abs(alone - TorchRelationModel.load(relation).predict_logits(PAIRS)).max() < 1e-4
    report = json.loads((out / "export.json").read_text())
    assert report["parity"]["agreement"] == 20
    assert report["weights"] == content_hash(out)


@pytest.mark.parametrize("t5", [False, True], ids=["decoder", "t5"])
def test_merged_fuser_says_the_same(t5: bool, file: Path, tmp_path: Path) -> None:
    examples = read_fusion(file)
    adapter = save_fuser(save_fuser_base(tmp_path / "base", examples, t5=t5), tmp_path / "adapter", examples)
    parity = export_merged(adapter, tmp_path / "out", pairs=file)
    assert (parity.compared, parity.agreement) == (3, 3)
    assert parity.largest_logit_gap < 1e-3


def test_T05_quantised_base_is_refused_unless_asked(relation: Path, tmp_path: Path) -> None:
    base = shutil.copytree(read_card(relation).base, tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (base / "config.json").write_text(json.dumps(config))
    with pytest.raises(AdapterError, match=r"is 8-bit \(bitsandbytes\): .* --allow-quantised"):
        export_merged(relation, tmp_path / "out", base=str(base))
    assert not (tmp_path / "out").exists()


def test_T05_merge_on_a_4_bit_base_reports_parity(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("bitsandbytes", reason="4-bit bases need bitsandbytes")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

    examples = read_fusion(file)
    plain = save_fuser_base(tmp_path / "plain", examples)
    quantised = tmp_path / "quantised"
    settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    AutoModelForCausalLM.from_pretrained(plain, quantization_config=settings, device_map="cpu").save_pretrained(
        quantised
    )
    AutoTokenizer.from_pretrained(plain).save_pretrained(quantised)
    adapter = save_fuser(quantised, tmp_path / "adapter", examples)
    arguments = [str(adapter), "--out", str(tmp_path / "out"), "--pairs", str(file)]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "is 4-bit (bitsandbytes)" in error
    assert "--allow-quantised" in error
    assert not (tmp_path / "out").exists()
    assert main([*arguments, "--allow-quantised"]) == 0
    assert "parity on 3 inputs" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "export.json").read_text())
    assert report["quantised_base"] == "4-bit (bitsandbytes)"
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert {parameter.dtype for parameter in saved.parameters()} == {torch.float32}


def test_failed_parity_writes_nothing(relation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from peft import LoraModel

    monkeypatch.setattr(LoraModel, "merge_and_unload", lambda self, **_: self.unload())  # LoRA lost
    with pytest.raises(AdapterError, match="does not answer as the adapter does"):
        export_merged(relation, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_other_formats_and_full_folders_are_refused(
    relation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(relation), "--format", "gguf", "--out", str(tmp_path / "out")]) == 2
    assert "'gguf' can't be exported; formats are: merged, onnx, onnx-int8" in capsys.readouterr().err
    (tmp_path / "kept.txt").write_text("kept")
    with pytest.raises(InputError, match="not an empty folder"):
        export_merged(relation, tmp_path)
    assert (tmp_path / "kept.txt").read_text() == "kept"
    assert main([str(relation), "--out", str(tmp_path / "out"), "--pairs", str(tmp_path / "none.jsonl")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_parity_counts_what_differs() -> None:
    before = [Answer("0", np.array([1.0, 0.0], np.float32)), Answer("1", np.array([0.0, 1.0], np.float32))]
    after = [Answer("0", np.array([1.0, 0.25], np.float32)), Answer("0", np.array([0.5, 0.0], np.float32))]
    parity = compare(before, after)
    assert (parity.compared, parity.agreement, parity.largest_logit_gap) == (2, 1, 1.0)
    assert str(parity) == "parity on 2 inputs: 1/2 answers agree, largest logit gap 1.00e+00"
