"""The relation report from files to files, with a model that answers from a hash of the texts."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from data.build import ROOT, split_families
from data.families import read_families
from data.pairs import LabelledPair, write_pairs
from eval import relation
from eval.provenance import check_output, output_folder
from eval.relation_report import PAPER_TABLE_4, markdown
from eval.zero_shot import zero_shot
from roam.errors import DataError, InputError
from roam.records import Pair
from roam.relations import INDEX, RELATIONS, Relation

pytestmark = pytest.mark.integration

PNG = b"\x89PNG"


class HashModel:
    """Knows the gold relation of most pairs (by their text) and is unsure by a hash of both texts."""

    digest = "hash-model"
    thresholds: Mapping[Relation, float] = {Relation.CON: 0.9}

    def __init__(self, fail_on: str = "nothing") -> None:
        self.fail_on = fail_on
        self.largest_call = 0

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        self.largest_call = max(self.largest_call, len(pairs))
        rows = np.zeros((len(pairs), 5), dtype=np.float32)
        for row, (old, new) in zip(rows, pairs, strict=True):
            noise = hashlib.sha256(f"{old}|{new}".encode()).digest()
            row[:] = [0.05 + byte / 5000 for byte in noise[:5]]
            named = [r for r in RELATIONS if str(r) in new]
            if named and noise[5] > 40:
                row[INDEX[named[0]]] += 0.5
            row /= row.sum()
        return rows


def pairs(count: int, start: int = 0) -> list[LabelledPair]:
    """`count` pairs, five to a group, whose NEW text names the relation."""
    return [
        LabelledPair(
            id=f"P{n}", old=f"Fact {n} of old.", new=f"Fact {n} {RELATIONS[n % 5]}.", label=RELATIONS[n % 5],
            group=f"g{n // 5}", domain=("food", "work")[n % 2],
        )
        for n in range(start, start + count)
    ]  # fmt: skip


def write_files(folder: Path) -> dict[str, Path]:
    """Test pairs, training pairs for the baselines, and an adapter's configuration."""
    paths = {"test": folder / "test.jsonl", "train": folder / "train.jsonl", "config": folder / "roam.json"}
    write_pairs(paths["test"], pairs(100))
    write_pairs(paths["train"], pairs(100, start=1000))
    paths["config"].write_text("{}")
    return paths


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return write_files(tmp_path)


def run(files: Mapping[str, Path], out: Path, model: HashModel | None = None, **options: Any) -> dict[str, Any]:
    return relation.evaluate(
        model or HashModel(), files["test"], out, name="stub", config=files["config"], train_path=files["train"],
        **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One report that the tests below only read; the pictures and predictions lie beside it in report["folder"]."""
    folder = tmp_path_factory.mktemp("report")
    return run(write_files(folder), folder) | {"folder": folder}


def test_E01_twice_with_the_same_seed_is_the_same_byte_for_byte(files: dict[str, Path], tmp_path: Path) -> None:
    run(files, tmp_path / "a", seed=7)
    run(files, tmp_path / "b", seed=7)
    for name in ("report.json", "report.md", "predictions.jsonl", "confusion.png", "per_class.png", "reliability.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    report = json.loads((tmp_path / "a" / "report.json").read_text())
    for kind, path in (("pairs", files["test"]), ("train", files["train"]), ("config", files["config"])):
        assert report["hashes"][kind] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert report["hashes"]["model"] == "hash-model"
    assert report["seed"] == 7
    low, high = report["intervals"]["macro_f1"]
    assert low < report["macro_f1"] < high
    assert run(files, tmp_path / "c", seed=8)["intervals"]["macro_f1"] != [low, high]


def test_C08_report_has_each_class_confusion_intervals_and_calibration(report: dict[str, Any]) -> None:
    assert set(report["per_class"]) == {str(r) for r in RELATIONS}
    for score in report["per_class"].values():
        assert set(score) == {"precision", "recall", "f1", "support"}
        assert score["support"] == 20
    assert np.array(report["confusion"]).sum() == 100
    assert set(report["intervals"]["per_class"]["NSO"]) == {"precision", "recall", "f1"}
    for key in ("macro_f1", "accuracy", "ece", "swap_consistency", "false_demotion_rate", "merge_error_rate"):
        assert 0 <= report[key] <= 1, key
    assert set(report["by_domain"]) == {"food", "work"}
    assert {"majority", "words of OLD", "words of NEW"} <= set(report["baselines"])
    assert report["baselines"]["majority"]["accuracy"] == pytest.approx(0.2)
    for name in ("confusion.png", "per_class.png", "reliability.png", "risk_coverage.png"):
        assert (report["folder"] / name).read_bytes().startswith(PNG)


def test_the_paper_row_is_table_4() -> None:
    figures = PAPER_TABLE_4["per_class"].values()
    for key, macro in (("precision", "macro_precision"), ("recall", "macro_recall"), ("f1", "macro_f1")):
        assert np.mean([row[key] for row in figures]) == pytest.approx(PAPER_TABLE_4[macro], abs=6e-4)
    assert PAPER_TABLE_4["per_class"]["NSO"]["f1"] == 0.693


def test_predictions_are_in_file_order_and_match_the_model(files: dict[str, Path], tmp_path: Path) -> None:
    model = HashModel()
    run(files, tmp_path, model, batch_size=3)
    rows = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"P{n}" for n in range(100)]
    assert model.largest_call == 3 * relation.CHUNK_BATCHES
    for row, pair in zip(rows, pairs(100), strict=True):
        expected = HashModel().predict_proba([Pair(pair.old, pair.new)])[0]
        assert [row["probs"][str(r)] for r in RELATIONS] == pytest.approx(expected.tolist(), abs=1e-6)
        assert row["pred"] == str(RELATIONS[int(expected.argmax())])
        assert "old" not in row


def test_worst_errors_are_wrong_and_most_confident_first(report: dict[str, Any]) -> None:
    errors = report["worst_errors"]
    assert errors
    assert all(row["gold"] != row["predicted"] for row in errors)
    confidences = [row["probability"] for row in errors]
    assert confidences == sorted(confidences, reverse=True)
    assert errors[0]["line"] == int(errors[0]["id"][1:]) + 1


def test_thresholds_turn_unsure_conflicts_into_independence(report: dict[str, Any]) -> None:
    con = INDEX[Relation.CON]
    assert np.array(report["confusion"])[:, con].sum() > 0
    assert np.array(report["at_thresholds"]["confusion"])[:, con].sum() == 0
    assert report["at_thresholds"]["abstained"] > 0


def test_a_higher_threshold_demotes_less_and_finds_less(report: dict[str, Any]) -> None:
    rows = report["risk_coverage"]["by_threshold"]
    assert rows[0] == {"threshold": 0.0, "false_demotion": report["false_demotion_rate"], "found": pytest.approx(
        np.trace(np.array(report["confusion"])[1:, 1:]) / 80, abs=1e-6)}  # fmt: skip
    for key in ("false_demotion", "found"):
        values = [row[key] for row in rows]
        assert values == sorted(values, reverse=True)
        assert values[0] > values[-1] == 0  # the stub is never sure
    assert "| one threshold for all |" in markdown(report)


def test_an_absent_class_is_named_and_the_figures_stay_in_place(files: dict[str, Path], tmp_path: Path) -> None:
    write_pairs(files["test"], [pair for pair in pairs(60) if pair.label is not Relation.OSN])
    report = run(files, tmp_path)
    assert report["absent_classes"] == ["OSN"]
    assert report["per_class"]["OSN"]["support"] == 0
    assert report["per_class"]["NSO"]["support"] == 12
    assert "No gold pair of OSN" in markdown(report)


def test_peers_are_compared_on_the_same_pairs(files: dict[str, Path], report: dict[str, Any], tmp_path: Path) -> None:
    peer = {"itself": report["folder"] / "predictions.jsonl"}
    row = run(files, tmp_path / "again", peers=peer)["baselines"]["itself"]
    assert row["difference"]["macro_f1"] == 0
    (tmp_path / "short.jsonl").write_text('{"id": "P0", "pred": "CON"}\n')
    with pytest.raises(DataError, match="99 of 100"):
        relation.read_predictions(tmp_path / "short.jsonl", pairs(100))


@pytest.mark.slow
def test_default_training_pairs_share_no_text_with_the_test() -> None:
    families, _ = split_families(read_families(ROOT / "families.jsonl"))
    held = [LabelledPair("x", family.base, family.base, Relation.EQV, "x") for family in families[:50]]
    kept = relation.bundled_training_pairs(held)
    texts = {text for pair in kept for text in (pair.old, pair.new)}
    assert not any(family.base in texts for family in families[:50])
    assert sum(family.base in texts for family in families[50:]) > 0.9 * len(families[50:])


def command(*arguments: str) -> int:
    return relation.main(list(arguments))


def test_bad_input_is_one_line_and_exit_code_2(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"old": "a", "new": "b", "label": "MAYBE"}\n')
    cases = [
        ("--adapter", str(tmp_path / "nothing"), "--pairs", str(files["test"]), "--out", out),
        ("--pairs", str(tmp_path / "missing.jsonl"), "--out", out),
        ("--pairs", str(broken), "--out", out),
    ]
    for case in cases:
        assert command(*case) == 2
        assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(SystemExit) as stopped:
        command("--pairs", str(files["test"]), "--out", out, "--batch-size", "0")
    assert stopped.value.code == 2
    assert not Path(out).exists()


@pytest.mark.parametrize(
    "program",
    ["relation --pairs x", "fusion --examples x", "false_conflict", "benchmark controlled --data x",
     "atlas --report x --pairs x", "experiments --results x", "paper_tables --controlled x", "controlled filter x"],
)  # fmt: skip
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_loaded(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*arguments: object, **named: object) -> None:
        raise AssertionError("loaded first")

    monkeypatch.setattr("roam.managers.load_manager", load)
    monkeypatch.setattr("roam.embedders.load_embedder", load)
    (tmp_path / "file").write_text("kept")
    name, *arguments = program.split()
    main = importlib.import_module(f"eval.{name}").main
    for out in (tmp_path if name == "controlled" else tmp_path / "file", tmp_path / "file" / "below"):
        assert main([*arguments, "--out", str(out)]) == 2
        error = capsys.readouterr().err
        assert f"--out {out}" in error
        assert error.count("\n") == 1
    assert (tmp_path / "file").read_text() == "kept"


def test_a_folder_is_tried_and_nothing_is_left_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_output(tmp_path / "a" / "b")
    check_output(tmp_path / "report.md", file=True)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="can be written"):
        check_output(tmp_path / "a" / "report.md", file=True)

    def full(**named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(InputError, match="No space left on device"):
        output_folder(tmp_path)


def test_the_command_writes_the_report(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from roam import managers

    class Stub:
        relation_model = HashModel()

    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "roam.json").write_text("{}")
    monkeypatch.setattr(managers, "load_manager", lambda name, base=None: Stub())
    out = tmp_path / "out"
    options = {"adapter": tmp_path / "adapter", "pairs": files["test"], "train": files["train"], "out": out}
    code = command(*(part for name, value in options.items() for part in (f"--{name}", str(value))))
    assert code == 0
    assert "macro-F1 0." in capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    assert report["model"] == "adapter"
    assert json.loads((out / "timings.json").read_text())["pairs_per_second"] > 0
    assert "second" not in json.dumps(report)
    assert f"**{100 * report['macro_f1']:.1f}**" in (out / "report.md").read_text()


def test_zero_shot_rules_by_hand() -> None:
    class Near:
        digest, dimension = "near", 2

        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.array([[0.0, 1.0] if "piano" in text else [1.0, 0.0] for text in texts], dtype=np.float32)

        def count_tokens(self, text: str) -> int:
            return len(text.split())

        def truncate(self, text: str, tokens: int) -> str:
            return text

    pairs = [
        Pair("Has a dog.", "Plays the piano."), Pair("Has a dog.", "Owns a dog."), Pair("Has a dog.", "Has no dog."),
        Pair("Has 2 dogs.", "Has 3 dogs."), Pair("Has a dog.", "Has a dog named Otto."),
        Pair("Has a dog named Otto.", "Has a dog."),
    ]  # fmt: skip
    found = [RELATIONS[column] for column in zero_shot(pairs, Near())]
    assert found == [Relation.IND, Relation.EQV, Relation.CON, Relation.CON, Relation.OSN, Relation.NSO]
