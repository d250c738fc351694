"""Soft labels from several teachers: duplicates, opinions, confident learning, the card, and a student at the end."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from data import label_batch
from data.confident import confident_classes, confident_joint, lexical_probabilities, suspected
from data.pairs import LabelledPair, read_pairs
from data.personamem import Candidate
from data.soft_labels import agreements, combine, deduplicate, merge_opinions, read_opinions
from roam.errors import DataError
from roam.relations import INDEX, RELATIONS, Relation
from tests.llm_server import relations, serving
from tests.tiny import save_base, toy_pairs
from training.distil import main

NONE = [float("nan")] * 5


def one_hot(*names: str) -> np.ndarray:
    return np.array([[float(relation == name) for relation in RELATIONS] if name else NONE for name in names])


def candidates(path: Path, pairs: Sequence[LabelledPair]) -> Path:
    rows = [{"id": pair.id, "old": pair.old, "new": pair.new, "group": pair.group} for pair in pairs]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def opinions(path: Path, pairs: Sequence[LabelledPair], labels: Sequence[Relation], sure: float = 1.0) -> Path:
    """A teacher's file; what is not given to its label is shared out among the others."""
    rest = (1 - sure) / 4
    rows = [{"id": pair.id, "probs": {str(r): sure if r is label else rest for r in RELATIONS}}
            for pair, label in zip(pairs, labels, strict=True)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.unit
def test_repeated_and_identical_candidates_are_left_out() -> None:
    texts = [("Likes tea.", "Likes coffee."), ("likes  tea", "Likes coffee!"), ("Likes tea.", "LIKES TEA"),
             ("Likes coffee.", "Likes tea.")]  # fmt: skip
    found = deduplicate([Candidate(str(n), old, new, "g", "s") for n, (old, new) in enumerate(texts)])
    assert [candidate.id for candidate in found.kept] == ["0", "3"]  # the other order is another pair
    assert (found.repeated, found.identical) == (1, 1)


@pytest.mark.unit
def test_opinions_are_averaged_by_weight_over_those_who_answered() -> None:
    by_teacher = {"a": one_hot("CON", "IND", ""), "b": one_hot("CON", "EQV", "")}
    mean, answered = combine(by_teacher, {"a": 3.0, "b": 1.0})
    assert mean[0, INDEX[Relation.CON]] == 1
    assert mean[1, INDEX[Relation.IND]] == 0.75
    assert answered.tolist() == [2, 2, 0]
    assert np.isnan(mean[2]).all()
    found = [Candidate(str(n), f"old {n}", f"new {n}", "g", "s") for n in range(3)]
    merged = merge_opinions(found, by_teacher, {"a": 3.0, "b": 1.0}, least=0.8)
    assert [(pair.id, pair.label) for pair in merged.pairs] == [("0", Relation.CON)]
    assert [row["said"] for row in merged.review] == [
        {"a": {"IND": 1.0}, "b": {"EQV": 1.0}}, {"a": "no answer", "b": "no answer"},
    ]  # fmt: skip
    soft = merge_opinions(found, by_teacher, {"a": 3.0, "b": 1.0}, least=0.5).pairs[1]
    assert soft.probs is not None
    assert soft.probs[Relation.IND] == 0.75
    [row] = agreements(by_teacher)
    assert (row["pairs"], row["share"]) == (2, 0.5)


@pytest.mark.unit
def test_a_teachers_file_is_checked(tmp_path: Path) -> None:
    found = [Candidate(name, "old", "new", "g", "s") for name in ("x", "y", "z")]
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "x", "label": "con"}\n{"id": "y", "label": null}\n{"id": "other", "label": "IND"}\n')
    read = read_opinions(path, found)
    assert read[0, INDEX[Relation.CON]] == 1
    assert np.isnan(read[1:]).all()
    for content, message in (
        ('{"id": "x", "probs": {"IND": 1.0}}\n', "give a number for each"),
        ('{"id": "x", "probs": {"IND": 0.9, "EQV": 0.9, "OSN": 0, "NSO": 0, "CON": 0}}\n', "sum to 1"),
        ('{"id": "x", "label": "SAME"}\n', r"t\.jsonl:1: .*SAME"),
        ('{"id": "q", "label": "IND"}\n', "none of its ids"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            read_opinions(path, found)


@pytest.mark.unit
def test_confident_classes_by_hand() -> None:
    """Class 0 is given 0.6 on average, class 1 0.8: a row counts for a class only from there on."""
    labels = np.array([0, 0, 1, 1])
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7], [0.1, 0.9], [0.3, 0.7]])
    wide = np.hstack([probabilities, np.zeros((4, 3))])
    assert confident_classes(labels, wide).tolist() == [0, -1, 1, -1]
    wide[1, :2] = 0.15, 0.85
    assert confident_classes(labels, wide).tolist() == [0, 1, 1, -1]
    assert suspected(labels, wide).tolist() == [False, True, False, False]
    assert confident_joint(labels, wide)[:2, :2].tolist() == [[1, 1], [0, 1]]
    with pytest.raises(DataError, match="of shape"):
        suspected(labels, probabilities)


@pytest.mark.integration
def test_flipped_labels_are_found() -> None:
    rng = random.Random(0)
    pairs = toy_pairs(400, 5, "p")
    flipped = set(rng.sample(range(400), 40))
    noisy = [
        LabelledPair(pair.id, pair.old, pair.new, rng.choice([r for r in RELATIONS if r is not pair.label]), pair.group)
        if at in flipped else pair
        for at, pair in enumerate(pairs)
    ]  # fmt: skip
    labels = np.array([INDEX[pair.label] for pair in noisy])
    found = set(np.flatnonzero(suspected(labels, lexical_probabilities(noisy, 4, 0))).tolist())
    assert len(found & flipped) >= 0.8 * len(flipped)
    assert len(found & flipped) >= 0.8 * len(found)
    with pytest.raises(DataError, match="too few for 4 folds"):
        lexical_probabilities(noisy[:10], 4, 0)


@pytest.mark.integration
def test_a_batch_goes_out_and_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = toy_pairs(5, 0, "b")
    source = candidates(tmp_path / "c.jsonl", pairs)
    out = tmp_path / "q.jsonl"
    assert label_batch.main(["write", str(source), "--model", "big", "--out", str(out)]) == 0
    asked = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["custom_id"] for row in asked] == [pair.id for pair in pairs]
    assert {row["url"] for row in asked} == {"/v1/chat/completions"}
    assert asked[0]["body"]["messages"][0] == asked[1]["body"]["messages"][0]  # the rules are a common prefix

    def answer(name: str, content: str, status: int = 200) -> dict[str, object]:
        body = {"choices": [{"message": {"role": "assistant", "content": content}}]}
        return {"custom_id": name, "response": {"status_code": status, "body": body}, "error": None}

    rows = [answer("b0", '{"relation": "CON"}'), answer("b1", "I think so"), answer("b2", "", 500)]
    rows.append({"custom_id": "b3", "response": "text"})
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    teacher = tmp_path / "t.jsonl"
    assert label_batch.main(["read", str(source), str(tmp_path / "a.jsonl"), "--out", str(teacher)]) == 0
    assert "1 of 5 candidates have a label" in capsys.readouterr().out
    said = [json.loads(line) for line in teacher.read_text().splitlines()]
    assert [row["label"] for row in said] == ["CON", None, None, None, None]
    assert [row["why"] for row in said[3:]] == ["no completion in the response (TypeError)", "not answered"]
    assert label_batch.main(["read", str(source), str(source), "--out", str(teacher)]) == 2
    assert "none of its custom_ids" in capsys.readouterr().err


@pytest.mark.integration
def test_teachers_to_training_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files and an LLM label; a repeated pair, a quarrel and wrong labels are taken out, and the card says so."""
    pairs = toy_pairs(200, 7, "p")
    unique = {(pair.old, pair.new) for pair in pairs}
    rng = random.Random(1)
    wrong = [rng.choice(RELATIONS) if rng.random() < 0.1 else pair.label for pair in pairs]
    source = candidates(tmp_path / "c.jsonl", pairs)
    first = opinions(tmp_path / "one.jsonl", pairs, wrong, 0.8)
    second = opinions(tmp_path / "two.jsonl", pairs, wrong, 0.9)
    script = {(pair.old, pair.new): str(label) for pair, label in zip(pairs, wrong, strict=True)}
    with serving(relations(script)) as server:
        arguments = [str(source), "--teacher", str(first), "--teacher", str(second), "--teacher", server.endpoint,
                     "--out", str(tmp_path / "out"), "--folds", "3", "--dev-share", "0.2"]  # fmt: skip
        assert main(arguments) == 0, capsys.readouterr().err
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["candidates"]["given"] == 200
    assert card["candidates"]["judged"] == len(unique)
    assert card["candidates"]["repeated"] == 200 - len(unique)
    assert len(card["agreement"]) == 3
    train, dev = (read_pairs(tmp_path / "out" / f"{name}.jsonl") for name in ("train", "dev"))
    assert len(train) + len(dev) + card["to_review"] + card["suspected"] == len(unique)
    assert not {pair.group for pair in train} & {pair.group for pair in dev}
    truth = {pair.id: pair.label for pair in pairs}
    kept_wrong = sum(truth[pair.id] is not pair.label for pair in (*train, *dev))
    assert card["suspected"] > 0
    assert kept_wrong < 0.5 * sum(a is not b.label for a, b in zip(wrong, pairs, strict=True))
    assert all(pair.probs is not None and max(pair.probs, key=lambda r: pair.probs[r]) is pair.label for pair in train)
    text = (tmp_path / "out" / "README.md").read_text()
    assert "not by people" in text
    assert f"| repeat an earlier one | {-card['candidates']['repeated']} |" in text


@pytest.mark.unit
def test_bad_calls_are_answered_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = toy_pairs(5, 0, "p")
    source = candidates(tmp_path / "c.jsonl", pairs)
    same = opinions(tmp_path / "t.jsonl", pairs, [Relation.IND] * 5)
    out = ["--out", str(tmp_path / "out")]
    assert main([str(source), "--teacher", str(same), *out]) == 2
    assert "no pair of CON, EQV, NSO, OSN is left" in capsys.readouterr().err
    assert main([str(source), "--teacher", str(tmp_path / "absent"), *out]) == 2
    assert "no adapter folder" in capsys.readouterr().err
    tested = Path(__file__).parent.parent / "data" / "relation_test_843.jsonl"
    assert main([str(tested), "--teacher", str(same), *out]) == 2
    assert "must not learn from what it is tested on" in capsys.readouterr().err
    wrong = ["--teacher", ""], ["--weight", "nan"], ["--teacher", str(same)], ["--weight", "1", "--weight", "2"]
    for more in (*wrong, ["--folds", "1"]):
        with pytest.raises(SystemExit, match="2"):
            main([str(source), "--teacher", str(same), *more, *out])


@pytest.mark.slow
def test_distilled_end_to_end_with_a_trained_student(tmp_path: Path) -> None:
    """A student in three folds contradicts the teacher; another is trained on what is left, on soft labels too."""
    from dataclasses import replace

    from training.config import RelationConfig, to_yaml
    from training.relation import train

    pairs = toy_pairs(150, 9, "p")
    rng = random.Random(2)
    wrong = [rng.choice(RELATIONS) if rng.random() < 0.1 else pair.label for pair in pairs]
    teacher = opinions(tmp_path / "t.jsonl", pairs, wrong, 0.8)
    base = save_base(tmp_path / "base", "bert")
    recipe = RelationConfig(base=str(base), device="cpu", precision="fp32", epochs=8.0, batch_size=8, seed=1,
                            learning_rate=1e-2, lora_rank=4, swap_margin=0.0, batching="buckets")  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(to_yaml(recipe))
    out = tmp_path / "out"
    arguments = [str(candidates(tmp_path / "c.jsonl", pairs)), "--teacher", str(teacher), "--student",
                 str(tmp_path / "recipe.yaml"), "--folds", "3", "--dev-share", "0.25", "--out", str(out)]  # fmt: skip
    assert main(arguments) == 0
    done = train(replace(recipe, train=str(out / "train.jsonl"), dev=str(out / "dev.jsonl"), soft_labels=0.5,
                         out=str(tmp_path / "run")))  # fmt: skip
    assert done.metrics["macro_f1"] > 0.4
