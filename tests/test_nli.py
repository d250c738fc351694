"""Pairs from NLI sets, whose labels speak of one direction, and training on labels that leave others open."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data.mix import main as mix_main
from data.nli import main as nli_main
from data.nli import read_nli
from data.pairs import read_pairs, write_pairs
from roam.errors import ConfigError, DataError
from roam.relations import RELATIONS
from tests.tiny import save_base, toy_pairs
from training.config import RelationConfig
from training.relation import train

IND, EQV, OSN, NSO, CON = RELATIONS
MEANINGS = {(NSO, EQV), (IND, OSN), (CON,), (OSN, EQV), (IND, NSO)}
HEADER = "premise,hypothesis,label\n"


def write_set(path: Path, rows: int = 90) -> Path:
    names = ("entailment", "neutral", "contradiction")
    path.write_text(HEADER + "".join(f"old {n},new {n},{names[n % 3]}\n" for n in range(rows)))
    return path


def test_what_an_nli_label_leaves_open(tmp_path: Path) -> None:
    path = tmp_path / "help" / "dev.tsv"
    path.parent.mkdir()
    path.write_text(
        "ori_sentence\tnew_sentence\tgold_label\nA dog ran.\tAn animal ran.\tentailment\n"
        "Cats sleep.\tOld cats sleep.\t1\nIt rains.\tIt is dry.\tcontradiction\nIt snows.\tMaybe.\t-\n"
    )
    found = [(pair.label, *pair.also) for pair in read_nli(path, strict=False)]
    assert found == [(NSO, EQV), (IND, OSN), (CON,)]
    assert [(pair.label, *pair.also) for pair in read_nli(path, strict=True)] == [(NSO,), (OSN,), (CON,)]
    assert {pair.source for pair in read_nli(path, strict=True)} == {"help-dev"}


def test_half_of_the_pairs_change_places_with_their_labels(tmp_path: Path) -> None:
    out = tmp_path / "nli.jsonl"
    assert nli_main([str(write_set(tmp_path / "a.csv")), "--each", "60", "--out", str(out)]) == 0
    pairs = read_pairs(out)
    assert len(pairs) == 60
    assert {(pair.label, *pair.also) for pair in pairs} == MEANINGS
    for pair in pairs:
        swapped = pair.old.startswith("new")
        assert (pair.label is OSN) <= swapped
        assert (pair.label is NSO) <= (not swapped)
        assert (pair.also == (OSN,)) <= (not swapped)
    assert nli_main([str(tmp_path / "a.csv"), "--each", "60", "--out", str(tmp_path / "again.jsonl")]) == 0
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEADER + "a,b,maybe\n", "label is 'maybe'"),
        ("text,label\na,entailment\n", "premise"),
        ("sentence1,sentence2,gold_label_edited\na,b,neutral\n", "gold_label"),
    ],  # a label of other texts (ScoNe)
)
def test_sets_that_are_no_nli(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_nli(path, strict=False)
    assert nli_main([str(path), "--out", str(tmp_path / "out.jsonl")]) == 2
    assert nli_main(["--out", str(tmp_path / "out.jsonl")]) == 2
    assert not (tmp_path / "out.jsonl").exists()


def test_also_is_written_and_read(tmp_path: Path) -> None:
    pairs = [replace(toy_pairs(1, 0, "t")[0], label=NSO, also=(EQV, IND), line=None)]
    for name in ("pairs.jsonl", "pairs.csv"):
        write_pairs(tmp_path / name, pairs)
        assert [pair.also for pair in read_pairs(tmp_path / name)] == [(EQV, IND)]
    row = {"old": "a", "new": "b", "label": "NSO"}
    for also, message in ((["NSO"], "not the label"), (["EQV", "EQV"], "once"), (["same"], "unknown"), (3, "list")):
        (tmp_path / "bad.jsonl").write_text(json.dumps({**row, "also": also}))
        with pytest.raises(DataError, match=message):
            read_pairs(tmp_path / "bad.jsonl")


def test_an_open_label_leaves_the_shares_of_its_relations_alone() -> None:
    import torch

    from training.pair_trainer import marginal_loss

    logits = torch.tensor([[0.3, -0.2, 0.1, 1.0, -1.0]], requires_grad=True)
    marginal_loss(logits, torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0]])).backward()
    found = logits.softmax(-1)[0].detach()
    of_allowed = found[[1, 3]] / found[[1, 3]].sum()
    gradient = logits.grad
    assert gradient is not None
    assert torch.allclose(gradient[0, [1, 3]], found[[1, 3]] - of_allowed, atol=1e-6)
    assert torch.allclose(gradient[0, [0, 2, 4]], found[[0, 2, 4]], atol=1e-6)
    one = marginal_loss(logits, torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]]))
    assert torch.allclose(one, torch.nn.functional.cross_entropy(logits, torch.tensor([3])))


@pytest.mark.parametrize("streaming", [False, True])
def test_training_on_open_labels(tmp_path: Path, streaming: bool) -> None:
    pairs = [replace(pair, also=(EQV,)) if pair.label is NSO else pair for pair in toy_pairs(40, 0, "t")]
    write_pairs(tmp_path / "train.jsonl", pairs)
    write_pairs(tmp_path / "dev.jsonl", toy_pairs(40, 1, "d"))
    config = RelationConfig(
        base=str(save_base(tmp_path / "bert")), train=str(tmp_path / "train.jsonl"), dev=str(tmp_path / "dev.jsonl"),
        out=str(tmp_path / "run"), batch_size=8, device="cpu", precision="fp32", max_steps=2, streaming=streaming,
        lora_rank=4,
    )  # fmt: skip
    assert train(config).adapter.is_dir()
    for key in ("label_smoothing", "soft_labels"):
        with pytest.raises(ConfigError, match=f"set {key}=0"):
            train(replace(config, **{key: 0.1}, out=str(tmp_path / key)))  # type: ignore[arg-type]


def test_a_mix_draws_from_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pairs(tmp_path / "a.jsonl", toy_pairs(40, 0, "a"))
    write_pairs(tmp_path / "b.jsonl", toy_pairs(10, 1, "b"))
    files, out = [f"{tmp_path / 'a.jsonl'}:15", str(tmp_path / "b.jsonl")], tmp_path / "mixed.jsonl"
    assert mix_main([*files, "--out", str(out)]) == 0
    pairs = read_pairs(out)
    assert (len(pairs), len(set(pairs))) == (25, 25)
    assert set(pairs) >= set(read_pairs(tmp_path / "b.jsonl"))
    assert mix_main([*files, "--out", str(tmp_path / "again.jsonl")]) == 0
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()
    for bad, message in ((f"{tmp_path / 'a.jsonl'}:41", "has 40 pairs"), (f"{tmp_path / 'a.jsonl'}:0", "1 or more")):
        assert mix_main([bad, "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
