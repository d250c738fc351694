"""Training end to end on tiny random bases: save, reload in a fresh process, resume, refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.held_out import refuse_test_rows
from data.pairs import read_pairs, write_pairs
from roam.adapters import read_card, weights_hash, write_card
from roam.errors import AdapterError, BaseModelError, ConfigError, DataError, InputError, TrainingError
from roam.records import Pair
from roam.relation_model import TorchRelationModel, length_batches, softmax
from roam.relations import INDEX, RELATIONS, SWAPPED
from tests.tiny import save_base, toy_pairs
from training.calibrate import main as calibrate_main
from training.config import RelationConfig, from_mapping, load_config, to_yaml
from training.models import choose_precision, load_classifier
from training.progress import RunGuard
from training.relation import main, train
from training.run_folder import open_run
from training.saving import cost_thresholds, fit_calibration

ROOT = Path(__file__).parent.parent
CONFIGS = sorted((ROOT / "configs" / "relation").glob("*.yaml"))
PAIRS = [Pair("Ana likes tea", "Ana hates tea"), Pair("Gus likes very strong coffee", "Gus likes coffee")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write_pairs(folder / "train.jsonl", toy_pairs(80, 0, "t"))
    write_pairs(folder / "dev.jsonl", toy_pairs(40, 1, "d"))
    return folder


def recipe(files: Path, base: Path, out: Path, **changes: Any) -> RelationConfig:
    plain = RelationConfig(
        base=str(base), train=str(files / "train.jsonl"), dev=str(files / "dev.jsonl"), out=str(out), batch_size=8,
        learning_rate=2e-3, device="cpu", precision="fp32", log_every=1, epochs=1.0, lora_rank=4, lora_alpha=8,
    )  # fmt: skip
    return replace(plain, **changes)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "bert")


@pytest.fixture(scope="module")
def run(files: Path, bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    train(recipe(files, bert, out, epochs=6.0, learning_rate=2e-2))  # far enough for probes that tell labels apart
    return out


def test_run_folder_holds_what_a_reader_needs(run: Path) -> None:
    for name in ("config.yaml", "data.json", "metrics.json", "versions.json", "history.jsonl", "curve.png",
                 "adapter/README.md", "adapter/roam.json", "adapter/adapter_model.safetensors",
                 "adapter/tokenizer.json"):  # fmt: skip
        assert (run / name).stat().st_size > 0, name
    card = read_card(run / "adapter")
    assert set(card.data_hash) == {"train.jsonl", "dev.jsonl"}
    assert len(card.probes) == 10
    assert set(card.thresholds) == {relation.value for relation in RELATIONS[1:]}
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert any("eval_macro_f1" in row for row in history)


def test_T01_T02_T03_logits_survive_a_fresh_process(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {"bert": ["classifier"], "mpnet": ["classifier.dense", "classifier.out_proj"],
              "deberta-v2": ["classifier", "pooler.dense"], "modernbert": ["classifier", "head.dense"]}  # fmt: skip
    adapters = []
    for architecture in needed:
        base = save_base(tmp_path / architecture, architecture)
        adapters.append(train(recipe(files, base, tmp_path / f"run-{architecture}", max_steps=4)).adapter)
    code = (
        "import json, sys; from roam.records import Pair; from roam.relation_model import TorchRelationModel\n"
        "pairs = [Pair(*p) for p in json.loads(sys.argv[1])]\n"
        "print(json.dumps([TorchRelationModel.load(a).predict_logits(pairs).tolist() for a in sys.argv[2:]]))"
    )
    # T14: no compiler on the path.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    printed = subprocess.run(
        [sys.executable, "-c", code, json.dumps(PAIRS), *map(str, adapters)], capture_output=True, text=True, check=True
    ).stdout
    from safetensors import safe_open

    for (architecture, names), adapter, logits in zip(
        needed.items(), adapters, json.loads(printed.strip().splitlines()[-1]), strict=True
    ):
        here = TorchRelationModel.load(adapter).predict_logits(PAIRS)
        assert np.abs(here - np.array(logits, dtype=np.float32)).max() < 1e-5, architecture
        with safe_open(str(adapter / "adapter_model.safetensors"), "np") as file:
            keys = " ".join(file.keys())
        assert all(name in keys for name in names), keys


def test_T02_T17_head_is_wrapped_and_learns(bert: Path, files: Path, tmp_path: Path) -> None:
    from peft.utils import ModulesToSaveWrapper

    model, _, _ = load_classifier(recipe(files, bert, tmp_path))
    wrapped = [name for name, module in model.named_modules() if isinstance(module, ModulesToSaveWrapper)]
    assert any(name.endswith("classifier") for name in wrapped)
    assert all(p.requires_grad for name, p in model.named_parameters() if "modules_to_save" in name)
    assert not any(p.requires_grad for name, p in model.named_parameters() if "original_module" in name)


def test_T04_merged_equals_adapter(run: Path, bert: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForSequenceClassification

    merged = TorchRelationModel.load(run / "adapter")
    backbone = AutoModelForSequenceClassification.from_pretrained(str(bert), num_labels=5)
    unmerged = PeftModel.from_pretrained(backbone, str(run / "adapter"))
    plain = TorchRelationModel(unmerged, merged.tokenizer, merged.card)
    pairs = [Pair(pair.old, pair.new) for pair in toy_pairs(50, 3, "x")]
    first, second = merged.predict_logits(pairs), plain.predict_logits(pairs)
    assert np.abs(first - second).max() < 1e-4
    assert (first.argmax(1) == second.argmax(1)).all()


def test_T06_labels_are_mapped_by_name(run: Path, bert: Path, tmp_path: Path) -> None:
    """An adapter whose head was trained in another label order gives the same predictions; odd labels are refused."""
    plain = TorchRelationModel.load(run / "adapter")
    order = [4, 2, 0, 3, 1]
    permuted = replace(plain.card, labels=tuple(plain.card.labels[index] for index in order))
    head = plain.model.classifier
    import torch

    with torch.no_grad():
        head.weight.copy_(head.weight[order].clone())
        head.bias.copy_(head.bias[order].clone())
    again = TorchRelationModel(plain.model, plain.tokenizer, permuted)
    fresh = TorchRelationModel.load(run / "adapter")
    assert np.allclose(again.predict_proba(PAIRS), fresh.predict_proba(PAIRS), atol=1e-6)
    broken = shutil.copytree(run / "adapter", tmp_path / "broken")
    write_card(broken, replace(read_card(broken), labels=("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3", "LABEL_4")))
    with pytest.raises(AdapterError, match="not the five relations"):
        TorchRelationModel.load(broken)
    write_card(broken, permuted)
    with pytest.raises(AdapterError, match="probe pairs get other probabilities"):
        TorchRelationModel.load(broken)


def test_T08_padding_does_not_change_the_answer(run: Path, tmp_path: Path) -> None:
    model = TorchRelationModel.load(run / "adapter")
    long = Pair("Ana likes very very very strong green tea", "Ana likes no coffee no milk no bread")
    alone, together = model.predict_logits([PAIRS[0]]), model.predict_logits([PAIRS[0], long])
    assert np.abs(alone[0] - together[0]).max() < 1e-5
    # A tokenizer that pads on the left changes nothing: encoders pool the first token, so padding stays on the right.
    left = shutil.copytree(run / "adapter", tmp_path / "left")
    settings = json.loads((left / "tokenizer_config.json").read_text())
    (left / "tokenizer_config.json").write_text(json.dumps(settings | {"padding_side": "left"}))
    loaded = TorchRelationModel.load(left)
    assert loaded.tokenizer.padding_side == "left"
    assert np.abs(loaded.predict_logits([PAIRS[0], long]) - together).max() < 1e-5


def test_T08_training_pads_on_the_right(bert: Path, files: Path, tmp_path: Path) -> None:
    base = shutil.copytree(bert, tmp_path / "base")
    settings = json.loads((base / "tokenizer_config.json").read_text())
    (base / "tokenizer_config.json").write_text(json.dumps(settings | {"padding_side": "left"}))
    _, tokenizer, _ = load_classifier(recipe(files, base, tmp_path))
    rows = tokenizer.pad({"input_ids": [[2, 5, 3], [2, 3]]})["input_ids"]
    assert rows[1] == [2, 3, tokenizer.pad_token_id]


def test_T08_pad_equal_to_eos_is_refused(bert: Path, files: Path, tmp_path: Path) -> None:
    base = shutil.copytree(bert, tmp_path / "base")
    config = json.loads((base / "tokenizer_config.json").read_text())
    config |= {"eos_token": "[PAD]", "cls_token": None}
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(TrainingError, match="equals EOS"):
        load_classifier(recipe(files, base, tmp_path))


def test_T09_resume_equals_an_unbroken_run(files: Path, bert: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    whole = train(recipe(files, bert, tmp_path / "whole", max_steps=10, evals_per_epoch=2))
    broken = recipe(files, bert, tmp_path / "broken", max_steps=10, evals_per_epoch=2)
    train(broken)
    checkpoints = sorted((tmp_path / "broken" / "checkpoints").glob("checkpoint-*"), key=lambda p: int(p.name[11:]))
    assert [int(p.name[11:]) for p in checkpoints] == [5, 10]
    shutil.rmtree(checkpoints[-1])
    again = train(broken, resume=True)
    first, second = (load_file(str(r.adapter / "adapter_model.safetensors")) for r in (whole, again))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[key], second[key]) for key in first)
    # The adapter may be the best checkpoint, from before the break: compare the last ones, weights and optimizer.
    last = [folder / "checkpoints" / "checkpoint-10" for folder in (whole.folder, again.folder)]
    start = load_file(str(whole.folder / "checkpoints" / "checkpoint-5" / "adapter_model.safetensors"))
    first, second = (load_file(str(folder / "adapter_model.safetensors")) for folder in last)
    assert all(np.array_equal(first[key], second[key]) for key in first)
    assert not all(np.array_equal(first[key], start[key]) for key in first)
    import torch

    one, other = (torch.load(folder / "optimizer.pt")["state"] for folder in last)
    assert all(torch.equal(one[key]["exp_avg_sq"], other[key]["exp_avg_sq"]) for key in one)
    rows = [json.loads(line)["step"] for line in (tmp_path / "broken" / "history.jsonl").read_text().splitlines()]
    assert rows == sorted(rows)
    assert rows.count(3) == 1


def test_resume_without_a_checkpoint_says_so(files: Path, bert: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="nothing to resume"):
        train(recipe(files, bert, tmp_path / "none"), resume=True)


def test_resume_refuses_other_settings_and_a_new_run_drops_old_checkpoints(tmp_path: Path) -> None:
    config = RelationConfig(out=str(tmp_path))
    (tmp_path / "checkpoints" / "checkpoint-900").mkdir(parents=True)
    assert open_run(tmp_path, config, {"train.jsonl": "a"}, resume=False) is None
    assert not (tmp_path / "checkpoints").exists()
    (tmp_path / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    found = open_run(tmp_path, replace(config, epochs=3.0, out="elsewhere"), {"train.jsonl": "a"}, resume=True)
    assert found == str(tmp_path / "checkpoints" / "checkpoint-5")
    with pytest.raises(TrainingError, match=r"seed \(0 before, 7 now\)"):
        open_run(tmp_path, replace(config, seed=7), {"train.jsonl": "a"}, resume=True)
    with pytest.raises(TrainingError, match=r"content of train\.jsonl"):
        open_run(tmp_path, config, {"train.jsonl": "b"}, resume=True)


def test_an_adapter_to_go_on_from_must_fit(run: Path, files: Path, bert: Path, tmp_path: Path) -> None:
    other = save_base(tmp_path / "other", seed=1)
    with pytest.raises(AdapterError, match="was trained on"):
        load_classifier(recipe(files, other, tmp_path, initial_adapter=str(run / "adapter")))
    with pytest.raises(AdapterError, match=r"has no roam\.json"):
        load_classifier(recipe(files, bert, tmp_path, initial_adapter=str(tmp_path)))
    permuted = shutil.copytree(run / "adapter", tmp_path / "permuted")
    card = read_card(permuted)
    write_card(permuted, replace(card, labels=card.labels[::-1]))
    with pytest.raises(AdapterError, match="labels in the order"):
        load_classifier(recipe(files, bert, tmp_path, initial_adapter=str(permuted)))


def test_T10_T11_fp16_is_refused_where_it_overflows() -> None:
    for model_type in ("deberta-v2", "t5"):
        precision, reason = choose_precision(RelationConfig(precision="fp16"), model_type)
        assert precision != "fp16"
        assert "overflows" in reason


def test_T10_nan_and_collapse_stop_the_run() -> None:
    class State:
        global_step, max_steps = 7, 10

    guard = RunGuard(collapse_after=5)
    with pytest.raises(TrainingError, match="loss is nan at step 7"):
        guard.on_log(None, State(), None, logs={"loss": float("nan")})
    with pytest.raises(TrainingError, match="one class only"):
        guard.on_evaluate(None, State(), None, metrics={"eval_classes": 1})
    guard.on_evaluate(None, State(), None, metrics={"eval_classes": 2})


def test_nan_run_exits_with_2(files: Path, bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(to_yaml(recipe(files, bert, tmp_path / "run", learning_rate=1e30, max_steps=8)))
    assert main([str(config)]) == 2
    assert "error:" in capsys.readouterr().err


def test_T13_adapter_moves_and_base_is_given(run: Path, bert: Path, tmp_path: Path) -> None:
    moved = shutil.move(shutil.copytree(run / "adapter", tmp_path / "a"), tmp_path / "moved")
    base = shutil.copytree(bert, tmp_path / "base")
    there = TorchRelationModel.load(moved, base=base)
    assert np.allclose(there.predict_proba(PAIRS), TorchRelationModel.load(run / "adapter").predict_proba(PAIRS))
    other = save_base(tmp_path / "other", seed=1)
    with pytest.raises(BaseModelError, match="content hash"):
        TorchRelationModel.load(moved, base=other)


def test_changed_adapter_weights_are_refused(run: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(run / "adapter", tmp_path / "broken")
    weights = broken / "adapter_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(AdapterError, match="differ from the ones"):
        read_card(broken)
    write_card(broken, replace(read_card(run / "adapter"), weights_hash=weights_hash(broken), probes=()))
    with pytest.raises(AdapterError, match="holds no probes"):
        TorchRelationModel.load(broken)


@pytest.mark.parametrize(("content", "message"), [("{", "not JSON"), ("{}", "format"), ('{"format": 1}', "lacks")])
def test_broken_card_is_refused(run: Path, tmp_path: Path, content: str, message: str) -> None:
    broken = shutil.copytree(run / "adapter", tmp_path / "broken")
    (broken / "roam.json").write_text(content)
    with pytest.raises(AdapterError, match=message):
        read_card(broken)


def test_same_seed_same_weights(files: Path, bert: Path, tmp_path: Path) -> None:
    first = train(recipe(files, bert, tmp_path / "a", max_steps=3))
    second = train(recipe(files, bert, tmp_path / "b", max_steps=3))
    third = train(recipe(files, bert, tmp_path / "c", max_steps=3, seed=1))
    assert weights_hash(first.adapter) == weights_hash(second.adapter) != weights_hash(third.adapter)


def test_missing_class_and_leaking_group_are_refused(files: Path, bert: Path, tmp_path: Path) -> None:
    pairs = toy_pairs(40, 0, "t")
    write_pairs(tmp_path / "no_con.jsonl", [pair for pair in pairs if pair.label != "CON"])
    with pytest.raises(DataError, match="no pair labelled CON"):
        train(recipe(files, bert, tmp_path / "r", train=str(tmp_path / "no_con.jsonl")))
    with pytest.raises(DataError, match="groups are in train and dev"):
        train(recipe(files, bert, tmp_path / "r", dev=str(files / "train.jsonl")))
    with pytest.raises(DataError, match=r"data\.build"):
        train(recipe(files, bert, tmp_path / "r", train=str(tmp_path / "absent.jsonl")))


@pytest.mark.parametrize("role", ["train", "dev", "streamed"])
def test_the_test_set_is_refused_in_any_part(
    role: str, files: Path, bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tested = read_pairs(ROOT / "data" / "relation_test_843.jsonl")
    hidden = replace(tested[0], id="h", old=tested[0].old.upper(), group="h")  # case and group are no disguise
    write_pairs(tmp_path / "own.jsonl", [*toy_pairs(80, 0, "t"), hidden])
    changes = {"train": str(tmp_path / "own.jsonl"), "streaming": True} if role == "streamed" else {}
    changes = changes or {role: str(tmp_path / "own.jsonl")}
    (tmp_path / "recipe.yaml").write_text(to_yaml(recipe(files, bert, tmp_path / "r", **changes)))
    assert main([str(tmp_path / "recipe.yaml")]) == 2
    error = capsys.readouterr().err
    assert "own.jsonl: 1 of 81 rows hold texts of the test set" in error
    assert "leave these rows out" in error
    assert not (tmp_path / "r").exists()


def test_one_text_under_test_may_be_chance_and_many_are_not() -> None:
    tested = read_pairs(ROOT / "data" / "relation_test_843.jsonl")[:4]
    plain = toy_pairs(200, 0, "t")
    half = [replace(pair, new=f"{pair.new} {number}") for number, pair in enumerate(tested)]
    refuse_test_rows("own.jsonl", [*plain, half[0]])
    with pytest.raises(InputError, match=r"4 of 204 rows .* 0 of them nothing else"):
        refuse_test_rows("own.jsonl", [*plain, *half])


def test_a_recipe_that_is_not_yaml_is_one_line_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.yaml").write_text("epochs: 2\nlora_rank: [1, 2\nbase: x\n")
    assert main([str(tmp_path / "recipe.yaml")]) == 2
    error = capsys.readouterr().err
    assert "recipe.yaml, line 3, column 5: while parsing a flow sequence expected" in error
    assert error.count("\n") == 1
    (tmp_path / "recipe.yaml").write_text('a: "\x01"')
    assert main([str(tmp_path / "recipe.yaml")]) == main([str(CONFIGS[0]), "epochs=[1"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_committed_config_trains(path: Path, files: Path, tmp_path: Path) -> None:
    """Each recipe runs end to end with its base replaced by a tiny one of the same architecture."""
    config = load_config(RelationConfig, path)
    architecture = next((name for name in ("mpnet", "deberta-v2", "modernbert") if name in path.stem), "bert")
    base = save_base(tmp_path / "base", architecture)
    small = replace(
        config, base=str(base), train=str(files / "train.jsonl"), dev=str(files / "dev.jsonl"),
        out=str(tmp_path / "run"), max_steps=4, epochs=1.0, batch_size=8,
        lora_first_layer=min(config.lora_first_layer, 1),
    )  # fmt: skip
    if config.initial_adapter:
        first = train(replace(small, initial_adapter=None, out=str(tmp_path / "first")))
        small = replace(small, initial_adapter=str(first.adapter))
    done = train(small)
    assert done.metrics["pairs"] == 40
    assert ("before: train.jsonl" in read_card(done.adapter).data_hash) == bool(config.initial_adapter)


def test_lora_first_layer_keeps_lower_layers_frozen(bert: Path, files: Path, tmp_path: Path) -> None:
    model, _, _ = load_classifier(recipe(files, bert, tmp_path, lora_first_layer=1))
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad and "lora_" in name]
    assert trained
    assert all("layer.1." in name for name in trained)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lerning_rate": 1}, "did you mean 'learning_rate'"),
        ({"foo": 1}, "unknown key 'foo'; keys are base, "),
        ({"epochs": "many"}, r"epochs is 'many' \(str\); it must be float"),
        ({"batch_size": 2.5}, "must be int"),
        ({"batch_size": True}, "must be int"),
        ({"schedule": "fast"}, "use one of linear, cosine, constant"),
        ({"epochs": -1}, "epochs is -1.0; give a number above 0"),
        ({"batch_size": 0}, "batch_size is 0; give 1 or more"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"warmup": 1.5}, "below 1"),
        ({"max_train_pairs": 0}, "give 1 or more"),
        ({"lora_targets": "("}, "no regular expression"),
    ],
)
def test_config_is_strict(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(RelationConfig, values)


def test_config_reads_what_it_writes(tmp_path: Path) -> None:
    config = RelationConfig(dropout=0.1, max_train_pairs=7, head_modules=("classifier",))
    (tmp_path / "c.yaml").write_text(to_yaml(config))
    assert load_config(RelationConfig, tmp_path / "c.yaml") == config
    assert load_config(RelationConfig, tmp_path / "c.yaml", ["learning_rate=5e-4", "dropout=null"]).dropout is None
    with pytest.raises(ConfigError, match="not key=value"):
        load_config(RelationConfig, tmp_path / "c.yaml", ["epochs"])
    with pytest.raises(ConfigError, match="no config file"):
        load_config(RelationConfig, tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(RelationConfig, tmp_path)
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(RelationConfig, tmp_path / "c.yaml")
    (tmp_path / "c.yaml").write_text("epochs: 1\nseed: 2\nepochs: 3\n")
    with pytest.raises(ConfigError, match="'epochs' is there twice"):
        load_config(RelationConfig, tmp_path / "c.yaml")


def test_calibration_recovers_scale_and_biases() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 5)).astype(np.float32) * 2
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([rng.choice(5, p=row / row.sum()) for row in probabilities])
    shift = np.array([0.0, -1.0, 0.5, 0.5, 0.0], dtype=np.float32)
    temperature, bias = fit_calibration((logits - shift) * 3, labels)
    assert temperature == pytest.approx(3, rel=0.1)
    assert bias["OSN"] == bias["NSO"]
    counts = np.bincount(labels, minlength=5)
    wanted = shift - np.log(counts / counts[0])  # what is left when every class weighs the same
    assert [bias[relation.value] for relation in RELATIONS] == pytest.approx(wanted.tolist(), abs=0.2)


def test_cost_thresholds_rise_with_the_cost() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.4, 1.0, 2000)
    right = rng.uniform(size=2000) < confidence  # calibrated
    probabilities = np.zeros((2000, 5), dtype=np.float32)
    probabilities[:, 4] = confidence
    probabilities[:, 0] = 1 - confidence
    probabilities = np.where(confidence[:, None] > 0.5, probabilities, probabilities)
    labels = np.where(right, 4, 0)
    low, high = (cost_thresholds(probabilities, labels, cost)["CON"] for cost in (1.0, 9.0))
    assert low < high
    assert high == pytest.approx(0.9, abs=0.06)  # cost / (1 + cost)


def test_length_batches_hold_everything_within_the_budget() -> None:
    lengths = [5, 3, 50, 7, 7, 2, 120]
    batches = length_batches(lengths, 30)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 30 for batch in batches)


def test_swap_margin_makes_both_orders_agree(run: Path) -> None:
    loaded = TorchRelationModel.load(run / "adapter")
    never, always, doubtful = (
        TorchRelationModel(loaded.model, loaded.tokenizer, replace(loaded.card, swap_margin=margin))
        for margin in (0.0, 1.1, 0.5)
    )
    pairs = [Pair(pair.old, pair.new) for pair in toy_pairs(30, 4, "x")]
    swapped = [Pair(pair.new, pair.old) for pair in pairs]
    columns = [INDEX[SWAPPED[relation]] for relation in RELATIONS]
    assert np.allclose(always.predict_proba(swapped)[:, columns], always.predict_proba(pairs), atol=1e-5)
    plain = never.predict_proba(pairs)
    assert not np.allclose(never.predict_proba(swapped)[:, columns], plain, atol=1e-3)
    ranked = np.sort(softmax(never.predict_logits(pairs)), axis=1)
    sure = ranked[:, -1] - ranked[:, -2] >= 0.5
    expected = np.where(sure[:, None], plain, always.predict_proba(pairs))
    assert np.allclose(doubtful.predict_proba(pairs), expected, atol=1e-5)
    assert len({never.digest, always.digest, doubtful.digest}) == 3
    assert always.predict_proba([]).shape == (0, 5)


def test_calibrate_again_keeps_the_weights(run: Path, files: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(run / "adapter", tmp_path / "adapter")
    before = read_card(folder)
    dev = str(files / "dev.jsonl")
    assert calibrate_main([str(folder), "--dev", dev, "--swap-margin", "1.1", "--false-merge-cost", "9"]) == 0
    after = read_card(folder)
    assert (after.weights_hash, after.swap_margin, after.data_hash) == (before.weights_hash, 1.1, before.data_hash)
    TorchRelationModel.load(folder)
    assert calibrate_main([str(folder), "--dev", dev, "--threshold", "CON=0.5"]) == 0
    assert read_card(folder).thresholds["CON"] == 0.5
    assert calibrate_main([str(tmp_path), "--dev", dev]) == 2
    assert calibrate_main([str(folder), "--dev", str(ROOT / "data" / "relation_test_843.jsonl")]) == 2
    assert calibrate_main([str(folder), "--dev", dev, "--threshold", "CON=2"]) == 2
