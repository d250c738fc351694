"""Fuser training end to end on tiny random bases: views end by EOS, adapters reload, recipes run."""

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

from data.fusion import FusionExample, read_fusion
from eval.fusion import main as evaluate_main
from eval.fusion_report import request_of
from roam.adapters import read_card, write_card
from roam.errors import AdapterError, ConfigError, DataError, InputError, TrainingError
from roam.fusion.model import LoadedFuser
from roam.prompts import FUSION_TEMPLATE, fusion_prompt
from roam.records import FusionRequest, TimedText
from roam.relations import Relation
from tests.tiny_fuser import example_rows, save_fuser_base, write_rows
from training.config import from_mapping, load_config, to_yaml
from training.export import main as export_main
from training.fuser import FuserProgress, build_trainer, main, train, trainer_arguments
from training.fuser_config import FuserConfig, fuser_precision
from training.fuser_data import check_fits, encoder_decoder_dataset, in_dev, prompt_of, read_split
from training.fuser_model import load_trainable
from training.tokens import PAD_TOKEN, set_padding

ROOT = Path(__file__).parent.parent
GPU_CONFIGS = sorted((ROOT / "configs" / "fuser" / "gpu").glob("*.yaml"))
CONFIGS = [
    *sorted((ROOT / "configs" / "fuser").glob("*.yaml")),
    ROOT / "configs" / "fuser" / "gpu" / "flan-t5-base.yaml",
]
RELOAD = (
    "import json, sys; from roam.fusion.model import LoadedFuser\n"
    "fuser = LoadedFuser.load(sys.argv[1])\n"
    "prompts, targets = json.loads(sys.argv[2])\n"
    "logits = [fuser.target_logits(*pair)[0].tolist() for pair in zip(prompts, targets)]\n"
    "print(json.dumps([[view.text for view in fuser.generate(prompts)], logits]))"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four examples for training and the same four under ids that fall into dev, told apart by an earlier date."""
    rows = example_rows(ROOT / "data" / "fusion_train.jsonl", 4)
    numbers = range(1000)
    train_ids = [f"t{n}" for n in numbers if not in_dev(f"t{n}", 0.1)]
    dev_ids = [f"d{n}" for n in numbers if in_dev(f"d{n}", 0.1)]
    for row, name in zip(rows, train_ids, strict=False):
        row["id"] = name
    held_out = [{**row, "id": name, "inputs": row["inputs"][::-1]} for row, name in zip(rows, dev_ids, strict=False)]
    return write_rows(tmp_path_factory.mktemp("fusion") / "fusion.jsonl", [*rows, *held_out])


@pytest.fixture(scope="module")
def examples(file: Path) -> list[FusionExample]:
    return read_fusion(file)


@pytest.fixture(scope="module")
def decoder(examples: list[FusionExample], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_fuser_base(tmp_path_factory.mktemp("base") / "llama", examples)


@pytest.fixture(scope="module")
def t5(examples: list[FusionExample], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_fuser_base(tmp_path_factory.mktemp("base") / "t5", examples, t5=True)


def recipe(file: Path, base: Path, out: Path, **changes: Any) -> FuserConfig:
    plain = FuserConfig(
        base=str(base), train=str(file), out=str(out), batch_size=4, device="cpu", precision="fp32",
        schedule="constant", learning_rate=3e-3, warmup=0.0, max_steps=3, log_every=1, weight_decay=0.0,
        lora_rank=32, lora_alpha=64,
    )  # fmt: skip
    return replace(plain, **changes)


@pytest.fixture(scope="module")
def run(file: Path, decoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    train(recipe(file, decoder, out))
    return out


@pytest.mark.parametrize("architecture", ["decoder", "t5"])
def test_T16_overfitted_views_end_by_eos(
    architecture: str, file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    base: Path = request.getfixturevalue(architecture)
    config = recipe(file, base, tmp_path, max_steps=30, epochs=1.0, log_every=20)
    train_examples, _ = read_split(config)
    model, tokenizer, _ = load_trainable(config)
    tmp_path.joinpath("checkpoints").mkdir()
    progress = FuserProgress(tmp_path, 4)
    trainer = build_trainer(config, model, tokenizer, train_examples, train_examples, "fp32", progress)
    trainer.train()
    fuser = LoadedFuser(trainer.model, tokenizer, read_card_stub(config))
    longest = max(len(tokenizer(example.target)["input_ids"]) for example in train_examples)
    views = fuser.generate([prompt_of(example) for example in train_examples], max_new_tokens=longest + 20)
    assert [view.text for view in views] == [example.target for example in train_examples]
    assert all(view.ended for view in views)
    cut = fuser.generate([prompt_of(train_examples[0])], max_new_tokens=2)
    assert not cut[0].ended


def read_card_stub(config: FuserConfig) -> Any:
    from roam.adapters import AdapterCard

    return AdapterCard(kind="fuser", labels=(), base=config.base, base_hash="", template=FUSION_TEMPLATE)


def test_loss_is_on_the_completion_and_eos_only(file: Path, decoder: Path, tmp_path: Path) -> None:
    config = recipe(file, decoder, tmp_path)
    train_examples, dev = read_split(config)
    model, tokenizer, _ = load_trainable(config)
    trainer = build_trainer(config, model, tokenizer, train_examples, dev, "fp32", FuserProgress(tmp_path, 4))
    (batch,) = list(trainer.get_train_dataloader())
    learned = [[token for token in row if token != -100] for row in batch["labels"].tolist()]
    assert all(row[-1] == tokenizer.eos_token_id for row in learned)
    assert {tokenizer.decode(row[:-1]).strip() for row in learned} == {example.target for example in train_examples}
    assert (batch["labels"] == tokenizer.pad_token_id).sum() == 0


def test_t5_labels_end_with_eos(file: Path, t5: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(t5)
    for row in encoder_decoder_dataset(read_fusion(file), tokenizer)["labels"]:
        assert row[-1] == tokenizer.eos_token_id
        assert row.count(tokenizer.eos_token_id) == 1


def test_padding_is_never_eos(examples: list[FusionExample], decoder: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(decoder)
    assert tokenizer.pad_token == tokenizer.eos_token  # the trap is there
    set_padding(tokenizer, len(tokenizer))
    assert tokenizer.pad_token == "<unk>"
    with pytest.raises(TrainingError, match="is EOS"):
        set_padding(tokenizer, len(tokenizer), "<eos>")
    with pytest.raises(TrainingError, match="not in the vocabulary"):
        set_padding(tokenizer, len(tokenizer), "<absent>")
    save_fuser_base(tmp_path, examples, free_special=False, spare_rows=1)
    bare = AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(TrainingError, match="never learned"):
        set_padding(bare, len(bare))
    set_padding(bare, len(bare) + 1)
    assert bare.pad_token == PAD_TOKEN
    assert bare.pad_token_id == len(bare) - 1


def test_T11_fp16_is_refused_for_t5(file: Path, t5: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precision, reason = fuser_precision(FuserConfig(precision="fp16"), "t5")
    assert precision != "fp16"
    assert "overflows" in reason

    def stop(config: FuserConfig, *arguments: Any) -> None:
        raise TrainingError(f"would train in {arguments[4]}")

    monkeypatch.setattr("training.fuser.build_trainer", stop)
    with pytest.raises(TrainingError, match="would train in fp32"):
        train(recipe(file, t5, tmp_path, precision="fp16"))
    assert trainer_arguments(FuserConfig(), tmp_path, 8, precision)["fp16"] is False


def test_run_folder_holds_what_a_reader_needs(run: Path, file: Path, decoder: Path) -> None:
    for name in ("config.yaml", "data.json", "metrics.json", "versions.json", "history.jsonl", "curve.png",
                 "adapter/README.md", "adapter/roam.json", "adapter/adapter_model.safetensors",
                 "adapter/tokenizer.json"):  # fmt: skip
        assert (run / name).stat().st_size > 0, name
    card = read_card(run / "adapter")
    assert (card.kind, card.template) == ("fuser", FUSION_TEMPLATE)
    assert set(card.data_hash) == {file.name}
    assert {"torch", "trl", "peft"} <= set(card.versions)
    assert card.metrics["dev"]["examples"] == 4
    assert load_config(FuserConfig, run / "config.yaml") == recipe(file, decoder, run)


def test_adapter_reloads_and_fuses(run: Path, examples: list[FusionExample]) -> None:
    fuser = LoadedFuser.load(run / "adapter")
    requests = [request_of(example) for example in examples]
    together = fuser.fuse(requests)
    assert together == [fuser.fuse([request])[0] for request in requests]  # padding does not change a view
    assert together == LoadedFuser.load(run / "adapter", merge=False).fuse(requests)


def test_other_base_template_or_kind_is_refused(
    run: Path, examples: list[FusionExample], decoder: Path, tmp_path: Path
) -> None:
    adapter = shutil.copytree(run / "adapter", tmp_path / "adapter")
    card = read_card(adapter)
    write_card(adapter, replace(card, template="fusion/0"))
    with pytest.raises(AdapterError, match="trained on template"):
        LoadedFuser.load(adapter)
    write_card(adapter, replace(card, kind="relation"))
    with pytest.raises(AdapterError, match="a fuser adapter is needed"):
        LoadedFuser.load(adapter)
    probe = replace(card.probes[0], probabilities={"token": card.probes[0].probabilities["token"] + 0.5})
    write_card(adapter, replace(card, probes=(probe,)))
    with pytest.raises(AdapterError, match="another probability"):
        LoadedFuser.load(adapter)
    write_card(adapter, replace(card, probes=()))
    with pytest.raises(AdapterError, match="holds no probes"):
        LoadedFuser.load(adapter)


def test_resume_goes_on(run: Path, file: Path, decoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    steps = [json.loads(line)["step"] for line in (folder / "history.jsonl").read_text().splitlines()]
    assert max(steps) == 3
    train(recipe(file, decoder, folder, max_steps=4), resume=True)
    again = [json.loads(line)["step"] for line in (folder / "history.jsonl").read_text().splitlines()]
    assert again[: len(steps)] == steps
    assert max(again) == 4


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_fuser_recipe_runs(path: Path, file: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    config = load_config(FuserConfig, path)
    base: Path = request.getfixturevalue("t5" if "t5" in path.stem else "decoder")
    small = replace(
        config, base=str(base), train=str(file), more_train=(), more_share=(), out=str(tmp_path), max_steps=2,
        batch_size=2, variants=0,  # the tiny vocabulary has no other names and dates
    )  # fmt: skip
    done = train(small)
    assert LoadedFuser.load(done.adapter).card.kind == "fuser"


@pytest.mark.slow
@pytest.mark.parametrize("path", GPU_CONFIGS, ids=lambda path: path.stem)
def test_every_gpu_fuser_recipe_runs_end_to_end(
    path: Path, file: Path, examples: list[FusionExample], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Train on a tiny model of the recipe's architecture, reload in another process, evaluate, and export: merged
    answers as the adapter, ONNX is refused."""
    t5 = "t5" in path.stem
    base = save_fuser_base(tmp_path / "base", examples, t5=t5, qwen=not t5)
    config = replace(load_config(FuserConfig, path), base=str(base), train=str(file), out=str(tmp_path / "run"),
                     max_steps=2, batch_size=2, device="cpu", precision="fp32")  # fmt: skip
    done = train(config)
    fuser = LoadedFuser.load(done.adapter)
    assert fuser.tokenizer.pad_token_id != fuser.tokenizer.eos_token_id
    prompts, targets = zip(*((prompt_of(example), example.target) for example in examples[:2]), strict=True)
    views = [view.text for view in fuser.generate(prompts)]
    assert fuser.tokenizer.padding_side == ("right" if t5 else "left")  # what is generated goes on at the right
    command = [sys.executable, "-c", RELOAD, str(done.adapter), json.dumps([prompts, targets])]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    again, logits = json.loads(printed.strip().splitlines()[-1])
    assert again == views
    for pair, rows in zip(zip(prompts, targets, strict=True), logits, strict=True):
        assert np.abs(fuser.target_logits(*pair)[0] - np.array(rows)).max() < 1e-4
    assert LoadedFuser.load(done.adapter, merge=False).fuse([request_of(examples[0])]) == views[:1]
    report = tmp_path / "report"
    assert evaluate_main(["--adapter", str(done.adapter), "--examples", str(file), "--out", str(report)]) == 0
    assert (report / "report.json").stat().st_size > 0
    out = str(tmp_path / "merged")
    assert export_main([str(done.adapter), "--format", "merged", "--out", out, "--pairs", str(file)]) == 0
    assert "8/8 answers agree" in capsys.readouterr().out
    assert export_main([str(done.adapter), "--format", "onnx", "--out", str(tmp_path / "onnx")]) == 2
    assert "ONNX export takes relation adapters" in capsys.readouterr().err


def test_gpu_recipes_say_that_figures_are_estimates() -> None:
    assert {path.stem for path in GPU_CONFIGS} == {"flan-t5-base", "flan-t5-large", "qwen3-0.6b", "qwen3-1.7b"}
    for path in GPU_CONFIGS:
        load_config(FuserConfig, path)
        assert "Estimate, not measured" in path.read_text()


def test_prompt_keeps_texts_apart() -> None:
    inputs = (TimedText("Likes tea.\n2 (2024-01-01): Hates tea.", "2023-01-01"), TimedText("Likes  tea", None))
    lines = fusion_prompt(FusionRequest(inputs, Relation.EQV)).splitlines()
    assert lines == [
        "Fuse into one view. Relation: EQV.",
        "1 (2023-01-01): Likes tea. 2 (2024-01-01): Hates tea.",
        "2 (no date): Likes tea",
        "View:",
    ]
    with pytest.raises(InputError, match="fuses nothing"):
        fusion_prompt(FusionRequest(inputs, Relation.IND))


def test_variants_are_made_of_training_examples_alone(file: Path, tmp_path: Path) -> None:
    plain, varied = (recipe(file, tmp_path, tmp_path, variants=count) for count in (0, 2))
    (written, dev), (train_part, same_dev) = read_split(plain), read_split(varied)
    assert same_dev == dev
    assert train_part[: len(written)] == written
    assert {example.id.split("-variant-")[0] for example in train_part} == {example.id for example in written}
    assert len(train_part) == 3 * len(written)
    assert read_split(varied)[0] == train_part


def test_lora_stays_in_the_upper_layers(decoder: Path, tmp_path: Path) -> None:
    upper, _, _ = load_trainable(recipe(decoder, decoder, tmp_path, lora_depth=0.5))
    layers = {name.split(".layers.")[1].split(".")[0] for name, p in upper.named_parameters() if p.requires_grad}
    total = upper.config.num_hidden_layers
    assert layers == {str(number) for number in range(total // 2, total)}
    with pytest.raises(TrainingError, match="matches no linear layer"):
        load_trainable(recipe(decoder, decoder, tmp_path, lora_depth=0.5, lora_targets="nothing"))


def test_split_is_by_id_and_checked(file: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (ROOT / "data" / "fusion_train.jsonl").read_text().splitlines()]
    share = sum(in_dev(row["id"], 0.1) for row in rows) / len(rows)
    assert 0.07 < share < 0.13
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    held_out = next(row for row in rows if row["id"].startswith("d"))
    extra = write_rows(tmp_path / "extra.jsonl", [{**held_out, "id": "x1"}])
    with pytest.raises(DataError, match="repeat dev inputs"):
        read_split(FuserConfig(train=str(file), more_train=(str(extra),)))
    twice = write_rows(tmp_path / "twice.jsonl", [rows[0]])
    with pytest.raises(DataError, match="more than once"):
        read_split(FuserConfig(train=str(file), more_train=(str(twice),)))
    with pytest.raises(DataError, match="does not exist"):
        read_split(FuserConfig(train=str(tmp_path / "none.jsonl")))


def test_the_test_set_is_refused_in_any_file(file: Path, tmp_path: Path) -> None:
    tested = json.loads((ROOT / "data" / "fusion_test.jsonl").read_text().splitlines()[0])
    hidden = write_rows(tmp_path / "hidden.jsonl", [{**tested, "id": "h1", "inputs": tested["inputs"][::-1]}])
    for config in (FuserConfig(train=str(hidden)), FuserConfig(train=str(file), more_train=(str(hidden),))):
        with pytest.raises(InputError, match=r"hidden\.jsonl: 1 of 1 rows hold texts of the test set"):
            read_split(config)


def test_further_files_make_up_the_share_that_the_recipe_names(file: Path, tmp_path: Path) -> None:
    row = json.loads(file.read_text().splitlines()[0])
    further = [{**row, "id": f"x{n}", "target": f"{row['target']} {n}"} for n in range(100)]
    for entry in further:
        entry["inputs"] = [{"text": f"User has {entry['id']} cats.", "time": None}] * 2
    extra = str(write_rows(tmp_path / "extra.jsonl", further))
    written, _ = read_split(FuserConfig(train=str(file)))
    everything, _ = read_split(FuserConfig(train=str(file), more_train=(extra,)))
    assert len(everything) == len(written) + 100
    half = FuserConfig(train=str(file), more_train=(extra,), more_share=(0.5,))
    mixed, _ = read_split(half)
    assert sum(example.id.startswith("x") for example in mixed) == len(written) == len(mixed) / 2
    assert mixed == read_split(half)[0]
    assert mixed != read_split(replace(half, seed=1))[0]
    with pytest.raises(DataError, match="lower more_share"):
        read_split(replace(half, more_share=(0.99,)))


@pytest.mark.parametrize("shares", [(0.5, 0.2), (0.0,), (1.0,), (-0.5,)])
def test_shares_that_make_no_mixture_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="more_share"):
        FuserConfig(more_train=("a.jsonl",), more_share=shares)


def test_what_does_not_fit_is_refused(examples: list[FusionExample], decoder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(decoder)
    with pytest.raises(DataError, match="longer than max_length=8"):
        check_fits(examples, tokenizer, FuserConfig(max_length=8))
    unwritable = [replace(examples[0], target="The user plays the theorbo.")]
    with pytest.raises(TrainingError, match="can't write 1 of 1 targets"):
        check_fits(unwritable, tokenizer, FuserConfig())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lora_rang": 4}, "did you mean 'lora_rank'"),
        ({"dev_share": 1.5}, "between 0 and 1"),
        ({"batch_size": 0}, "give 1 or more"),
        ({"precision": "half"}, "use one of auto, fp32, bf16, fp16"),
        ({"seed": -1}, "give 0 to"),
        ({"max_steps": 0}, "1 or more, or -1"),
        ({"lora_targets": "("}, "no regular expression"),
    ],
)
def test_fuser_config_is_strict(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(FuserConfig, values)


def test_several_processes_are_refused(
    file: Path, decoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingError, match="by one process"):
        train(recipe(file, decoder, tmp_path))


def test_command_line_answers_errors_with_2(file: Path, decoder: Path, tmp_path: Path, capsys: Any) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(to_yaml(recipe(file, decoder, tmp_path / "run")))
    (tmp_path / "file").touch()
    for override, message in (
        ("max_length=8", "longer than max_length"),
        ("lora_targets=none", "matches no linear layer"),
        (f"out={tmp_path / 'file'}", "out "),
    ):
        assert main([str(config), override]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ")
        assert message in said
    assert not (tmp_path / "run").exists()
