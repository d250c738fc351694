"""Updates, MEME, LongMemEval and LoCoMo on scripted stores; methods, resuming, and the paper's tables."""

from __future__ import annotations

import csv
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from eval import benchmark, paper_tables
from eval.benchmark_controlled import run_controlled
from eval.benchmark_meme import is_stale, outdated_by, run_meme
from eval.benchmark_questions import run_questions
from eval.benchmark_runner import Runner
from eval.benchmark_updates import run_updates
from eval.diagnostics import RetainedUnit
from eval.episodes import Episode, EpisodeMemory, MemoryRole
from eval.locomo import read_locomo
from eval.meme_episodes import read_meme
from eval.methods import ALL, Method, build_methods, split_names
from eval.run_cache import CachedEmbedder, RunCache
from eval.shares import paired_shares, summarise_shares
from eval.store_model import AppendModel, NewestWinsModel, RelationSubset
from eval.store_run import Settings
from eval.update_stores import read_update_stores
from roam.errors import DataError, InputError
from roam.managers import Manager
from roam.records import Pair
from roam.relations import INDEX, Relation
from tests.benchmark_samples import LOCOMO, MEME, UPDATES, write_lines
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

APPEND = Method("append", AppendModel(), "off")


def runner(*budgets: int, cache: RunCache | None = None) -> Runner:
    return Runner(HashEmbedder(), cache or RunCache(":memory:"), Settings(budgets or (256,)))


# Methods ----------------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_a_dropped_relation_becomes_independent_and_nothing_else_changes() -> None:
    script = {("a", "b"): (Relation.EQV, 0.6), ("a", "c"): (Relation.CON, 0.9), ("a", "d"): (Relation.NSO, 0.5)}
    pairs = [Pair("a", new) for new in "bcde"]
    model = ScriptedRelations(script)
    full, kept = model.predict_proba(pairs), RelationSubset(model, [Relation.CON]).predict_proba(pairs)
    assert [Relation(r) for r in ("IND", "CON", "IND", "IND")] == [
        next(r for r, column in INDEX.items() if column == row.argmax()) for row in kept
    ]
    assert (kept[1] == full[1]).all()
    assert kept.sum(axis=1) == pytest.approx(1.0)
    assert RelationSubset(model, [Relation.CON]).digest != model.digest


@pytest.mark.unit
def test_newest_wins_by_cosine() -> None:
    embedder = HashEmbedder()
    pairs = [
        Pair("Ilse repairs clocks in Graz.", "Ilse repairs clocks in Linz."),
        Pair("Ilse swims.", "Bo bakes bread."),
    ]
    cosines = [float(embedder.embed([p.old])[0] @ embedder.embed([p.new])[0]) for p in pairs]
    model = NewestWinsModel(embedder, sum(cosines) / 2)
    assert [row.argmax() for row in model.predict_proba(pairs)] == [INDEX[Relation.CON], INDEX[Relation.IND]]
    assert model.predict_proba([]).shape == (0, 5)


@pytest.mark.unit
def test_methods_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from roam import managers as manager_module

    asked: list[str] = []

    def load(name: str) -> Manager:
        asked.append(name)
        return Manager(ScriptedRelations({}, digest=name), JoinFuser())

    monkeypatch.setattr(manager_module, "load_manager", load)
    assert split_names("append, all") == list(ALL)
    with ExitStack() as stack:
        methods = build_methods(
            [*ALL, "newest-wins:0.9", "some/folder:con"],
            HashEmbedder(),
            cache=tmp_path / "c.sqlite",
            thresholds={Relation.CON: 0.7},
            stack=stack,
        )
        found = {method.name: method.identity() for method in methods}
    assert asked == ["pretrained", "some/folder"]
    assert {name: entry["fusion"] for name, entry in found.items()} == {
        "append": "off", "newest-wins": "off", "roam:con": "deterministic", "roam:con+eqv": "deterministic",
        "roam:nofusion": "off", "roam": "deterministic", "newest-wins:0.9": "off", "some/folder:con": "deterministic",
    }  # fmt: skip
    assert found["roam"]["thresholds"] == {"CON": 0.7}
    assert len({json.dumps(entry) for entry in found.values()}) == len(found)


@pytest.mark.unit
@pytest.mark.parametrize("name", ["newest-wins:2", "newest-wins:often"])
def test_bad_method_names(name: str) -> None:
    with ExitStack() as stack, pytest.raises(InputError, match="newest-wins"):
        build_methods([name], HashEmbedder(), cache=":memory:", thresholds=None, stack=stack)
    with pytest.raises(InputError, match="names none"):
        split_names(" , ")


# Cache ------------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_second_run_takes_finished_stores_and_vectors_from_the_cache(tmp_path: Path) -> None:
    stores = read_update_stores(write_lines(tmp_path / "u.jsonl", UPDATES))
    model = ScriptedRelations({})
    with RunCache(tmp_path / "c.sqlite") as cache:
        first = run_updates(stores, [Method("roam", model)], runner(cache=cache))
    asked = len(model.calls)
    assert asked > 0
    with RunCache(tmp_path / "c.sqlite") as cache:
        again = run_updates(stores, [Method("other name", model)], runner(cache=cache))
        assert len(model.calls) == asked
        assert again[0]["managers"]["other name"] == first[0]["managers"]["roam"]
        changed = ScriptedRelations({}, digest="changed")
        run_updates(stores, [Method("roam", changed)], runner(cache=cache))
        assert changed.calls
        counted: list[str] = []
        embedder = HashEmbedder()
        plain = embedder.embed
        embedder.embed = lambda texts: (counted.extend(texts), plain(texts))[1]  # type: ignore[method-assign]
        cached = CachedEmbedder(embedder, cache)
        assert (cached.embed(["x", "y", "x"]) == plain(["x", "y", "x"])).all()
        assert (cached.embed(["y", "z"]) == plain(["y", "z"])).all()
        assert counted == ["x", "y", "z"]
    (tmp_path / "text").write_text("not a database " * 100)
    with pytest.raises(DataError, match="run cache"):
        RunCache(tmp_path / "text")


# Updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_shares_by_hand() -> None:
    items = [{"a": (1, 1), "b": (0, 0)}, {"a": (0, 1), "b": (0, 0)}, {"a": (1, 2), "b": (0, 0)}]
    found = summarise_shares(items, ["x", "x", "y"], 0)
    assert found["a"] == 0.5
    assert found["b"] is None
    assert found["counts"] == {"a": [2, 4], "b": [0, 0]}
    assert found["intervals"] == {"a": [0.5, 0.5], "b": None}  # both groups have the same share
    assert paired_shares(items, items, ["x", "x", "y"], 0) == {"a": {"difference": 0.0, "interval": [0.0, 0.0]}}


@pytest.mark.integration
def test_updates_by_hand(tmp_path: Path) -> None:
    stores = read_update_stores(write_lines(tmp_path / "u.jsonl", UPDATES))
    old, new = UPDATES["atoms"][0]["text"], "Ilse Brandt repairs clocks in Linz."
    swim, hops = UPDATES["atoms"][2]["text"], "Tomas Reyl grows hops on a terrace."
    model = ScriptedRelations({(old, new): "CON", (swim, hops): "OSN"})  # the second is a wrong merge, of a gold fact
    report, rows, _ = run_updates(stores, [Method("roam", model), APPEND], runner(256, 3))
    roam, append = report["managers"]["roam"], report["managers"]["append"]
    assert (report["updates"], report["single_gold"]) == (2, 1)
    assert roam["new_retrievable"] == roam["new_stated"] == roam["new_primary"] == 1.0
    assert roam["counts"]["old_demoted"] == [1, 1]
    assert roam["counts"]["bystanders_primary"] == [3, 3]
    assert append["counts"]["old_demoted"] == [0, 1]
    assert append["old_stayed_judged"] == {"IND": 1}
    assert roam["old_stayed_judged"] == {}
    assert append["stale_answer"] == 0.0  # both texts are in the context, so the new one can be read
    (small,) = [c for c in report["cells"] if (c["manager"], c["budget"]) == ("append", 3)]
    assert small["new_stated"] == 0.0
    assert [row["relation"] for row in rows if row["manager"] == "roam"] == ["CON", "OSN"]
    (pair,) = [pair for pair in report["comparisons"] if pair["budget"] == 256]
    assert pair["differences"]["old_demoted"]["difference"] == 1.0


@pytest.mark.integration
def test_a_lost_bystander_names_its_relation(tmp_path: Path) -> None:
    stores = read_update_stores(write_lines(tmp_path / "u.jsonl", UPDATES))
    ids = [fact.text for fact in stores[0].facts]
    model = ScriptedRelations({(ids[1], ids[2]): "EQV", (ids[1], "Ilse Brandt repairs clocks in Linz."): "CON"})
    report, _, _ = run_updates(stores, [Method("roam", model)], runner())
    assert report["managers"]["roam"]["bystanders_lost_by"] == {"CON by the update": 1, "EQV before it": 1}
    assert report["managers"]["roam"]["counts"]["bystanders_primary"] == [1, 3]
    assert report["managers"]["roam"]["counts"]["bystanders_kept"] == [2, 3]
    assert report["managers"]["roam"]["old_stayed_judged"] == {"IND": 1}


# MEME and streams of questions ------------------------------------------------------------------------------------


@pytest.mark.integration
def test_meme_chains_and_stale_answers(tmp_path: Path) -> None:
    episodes = read_meme(write_lines(tmp_path / "m.jsonl", MEME))
    atoms = {atom["id"]: atom.get("text3p") or atom["text"] for atom in MEME["atoms"]}
    model = ScriptedRelations({(atoms["x0"], atoms["x5"]): "CON", (atoms["x4"], atoms["x5"]): "IND"})
    report, rows, _ = run_meme(episodes, [Method("roam", model), APPEND], runner(256))
    roam, append = report["managers"]["roam"], report["managers"]["append"]
    assert roam["chains"]["counts"] == {
        "superseded_demoted": [1, 1], "chains_current": [1, 1], "deleted_demoted": [0, 1],
        "untouched_primary": [1, 1], "stale_answer": [0, 2],
    }  # fmt: skip
    assert append["chains"]["superseded_demoted"] == append["chains"]["chains_current"] == 0.0
    assert append["superseded_stayed_judged"] == {"IND": 2}
    assert set(roam["by_type"]) == {"Cas", "Del", "ER"}
    assert report["unsupported_questions"] == 1
    assert len(rows) == 6


@pytest.mark.integration
def test_meme_stale_answer_where_only_the_old_fact_fits(tmp_path: Path) -> None:
    (episode,) = read_meme(write_lines(tmp_path / "m.jsonl", MEME))
    cascade, deletion, exact = episode.stream.questions
    assert outdated_by(cascade, episode) == {"x1": ("x2", "x5")}
    assert outdated_by(deletion, episode) == {"x3": ("x6",)}
    assert outdated_by(exact, episode) == {}
    texts = {fact.id: fact.text for fact in episode.stream.facts}
    old, gone, both = (RetainedUnit(t, 9, frozenset({"x3", "x6"})) for t in (texts["x3"], texts["x6"], "unrelated"))
    assert is_stale(deletion, episode, [old], texts) is True
    assert is_stale(deletion, episode, [old, gone], texts) is False
    assert is_stale(deletion, episode, [both], texts) is False
    assert is_stale(exact, episode, [old], texts) is None


@pytest.mark.integration
def test_questions_of_one_stream_share_a_store(tmp_path: Path) -> None:
    found = read_locomo(write_lines(tmp_path / "l.jsonl", LOCOMO))
    model = ScriptedRelations({("Ada owns a kayak.", "Ada sold her kayak."): "CON"})
    report, rows, seconds = run_questions(found.streams, [Method("roam", model), APPEND], runner(256))
    roam = report["managers"]["roam"]
    assert report["questions"] == 2
    assert roam["gold_recall"] == 1.0
    assert roam["primary_share"] == pytest.approx(2 / 3)
    assert report["managers"]["append"]["primary_share"] == 1.0
    assert set(roam["by_type"]) == {"multi-hop", "single-hop"}
    assert [row["stream"] for row in rows] == ["d1"] * 4
    assert set(seconds) == {"roam", "append"}


# The commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs with tiny stand-ins in the place of the encoder and the adapter."""
    from roam import embedders
    from roam import managers as manager_module

    monkeypatch.setattr(embedders, "load_embedder", lambda name: HashEmbedder())
    monkeypatch.setattr(manager_module, "load_manager", lambda name: Manager(ScriptedRelations({}), JoinFuser()))


@pytest.mark.integration
@pytest.mark.usefixtures("stubbed")
def test_every_benchmark_has_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.benchmark_samples import LONGMEMEVAL

    for name, record, said in (
        ("updates", UPDATES, "old demoted"),
        ("meme", MEME, "chains current"),
        ("longmemeval", LONGMEMEVAL, "single-session-user"),
        ("locomo", LOCOMO, "multi-hop"),
    ):
        data, out = write_lines(tmp_path / f"{name}.jsonl", record), tmp_path / name
        assert benchmark.main([name, "--data", str(data), "--out", str(out)]) == 0
        assert said in capsys.readouterr().out
        report = json.loads((out / "report.json").read_text())
        assert set(report["managers"]) == {"roam", "append"}
        with (out / "cells.csv").open() as file:
            lines = list(csv.DictReader(file))
        assert {line["manager"] for line in lines} == {"roam", "append"}
    assert benchmark.main(["locomo", "--data", str(tmp_path / "meme.jsonl"), "--out", str(tmp_path / "x")]) == 2
    assert "error: " in capsys.readouterr().err


def sweep_report(folder: Path) -> Path:
    """A controlled report at three levels and two budgets, in `folder`."""
    memories = [
        EpisodeMemory(f"c{n}", f"The user saw {n} herons.", "2024-01-01", MemoryRole.CONFOUNDER, "I") for n in range(8)
    ]
    gold = EpisodeMemory("g", "The user rows on Fridays.", "2024-01-02", MemoryRole.GOLD, None)
    report, _, _ = run_controlled(
        [Episode("q", "multi-session", "When does the user row?", "Fridays", (*memories, gold))],
        [Method("roam", ScriptedRelations({})), APPEND], runner(256, 128), (0, 4, 8),
    )  # fmt: skip
    folder.mkdir()
    whole = {"benchmark": "controlled", "data": "e.jsonl", "episodes": 1, "hashes": {"embedder": "hash-64"}} | report
    (folder / "report.json").write_text(json.dumps(whole))
    return folder


@pytest.mark.integration
def test_the_papers_tables_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = sweep_report(tmp_path / "run"), tmp_path / "out"
    assert paper_tables.main(["--controlled", str(run), "--out", str(out)]) == 0
    written = {path.name for path in out.iterdir()}
    assert written == {"tables.md", "figure_3.png", "figure_4.png", *(f"table_{n}.csv" for n in (2, 3, 5, 9))}
    page = (out / "tables.md").read_text()
    assert "| paper: ROAM, Qwen3.5-9B | 84.9 | 78.1 | 78.3 | 76.6 | 71.9 | 59.8 | 33.1 |" in page
    assert "No answer model" in page
    with (out / "table_2.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "here"]
    assert [(row["method"], row["N=0"], row["LongMemEval"]) for row in rows] == [
        ("roam", "100.00", ""),
        ("append", "100.00", ""),
    ]
    assert paper_tables.main(["--meme", str(run), "--out", str(out)]) == 2
    assert paper_tables.main(["--out", str(out)]) == 2
    assert "error: " in capsys.readouterr().err
