"""Store diagnostics on states worked out by hand, and the controlled benchmark on a scripted store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval import benchmark, false_conflict
from eval.benchmark_controlled import run_controlled, run_episode
from eval.benchmark_runner import Runner
from eval.diagnostics import FinalState, RetainedUnit, diagnose, paired_differences, summarise, summarise_by_type
from eval.episodes import Episode, EpisodeMemory, MemoryRole, read_episodes
from eval.methods import Method
from eval.run_cache import RunCache
from eval.stated import states
from eval.store_model import AppendModel, CachedRelationModel
from eval.store_run import Settings
from roam.errors import DataError, InputError
from roam.managers import Manager
from roam.records import Pair
from roam.relations import INDEX, Relation
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

GOLD, BACKGROUND, CONFOUNDER = MemoryRole.GOLD, MemoryRole.BACKGROUND, MemoryRole.CONFOUNDER

ROWS = [
    {"id": "b1", "text": "The user keeps bees.", "time": "2024-01-01", "role": "background", "ctype": None},
    {"id": "c1", "text": "The user owns two bikes.", "time": "2024-01-02", "role": "confounder", "ctype": "II"},
    {"id": "c2", "text": "The user owns three bikes.", "time": "2024-01-03", "role": "confounder", "ctype": "II"},
    {"id": "g1", "text": "The user owns four bikes.", "time": "2024-01-05", "role": "gold", "ctype": None},
    {"id": "b2", "text": "The user sails on Sundays.", "time": "2024-01-04", "role": "background", "ctype": None},
]
QUESTION = {"question_id": "q1", "question_type": "knowledge-update", "question": "How many bikes?", "answer": "4"}


def write_episodes(path: Path, *episodes: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(episode) + "\n" for episode in episodes))
    return path


def episode(**roles: MemoryRole) -> Episode:
    """An episode of one-word memories: a="gold" and so on; confounders are of type I."""
    memories = [EpisodeMemory(n, f"Alpha {n} beta.", "2024-01-01", r, "I" if r is CONFOUNDER else None)
                for n, r in roles.items()]  # fmt: skip
    return Episode("q", "any", "?", "!", tuple(memories))


# Episodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_episodes_are_read_in_time_order(tmp_path: Path) -> None:
    (read,) = read_episodes(write_episodes(tmp_path / "e.jsonl", QUESTION | {"memories": ROWS}))
    assert [memory.id for memory in read.memories] == ["b1", "c1", "c2", "b2", "g1"]
    assert read.type == "II"
    assert read.ids(GOLD) == {"g1"}
    assert episode(g=GOLD, c=CONFOUNDER).type == "I"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memories": [ROWS[0]]}, "no gold memory"),
        ({"memories": [ROWS[3], ROWS[3]]}, "twice"),
        ({"memories": [ROWS[3] | {"role": "noise"}]}, "noise"),
        ({"question": None, "memories": [{"id": "x"}]}, "text"),
    ],
)
def test_bad_episodes_are_named_by_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    good = QUESTION | {"memories": ROWS}
    path = write_episodes(tmp_path / "e.jsonl", good, good | change)
    with pytest.raises(DataError, match=r"e\.jsonl:2: ") as caught:
        read_episodes(path)
    assert said in str(caught.value)


@pytest.mark.unit
@pytest.mark.parametrize("content", ["", "\n\n", "{not json}\n"])
def test_files_without_episodes_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "e.jsonl").write_text(content)
    with pytest.raises(DataError):
        read_episodes(tmp_path / "e.jsonl")


# What counts as stated --------------------------------------------------------------------------------------------


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "fact", "expected"),
    [
        ("2024-01-05: The user owns four bikes.", "The user owns four bikes.", True),
        ("Owned four bikes, and owns four bikes now", "The user currently owns four bikes.", True),
        ("The user owns three bikes.", "The user owns four bikes.", False),
        ("The user owns bikes.", "The user owns 4 bikes.", False),
        ("Moved to Paris with a sister.", "The user moved to Berlin with a sister.", False),
        ("The user eats meat.", "The user does not eat meat.", False),
        ("A big old red wooden boat on a lake", "The user has a big old red wooden boat on a river", True),
        ("A big boat", "The user has a big old red wooden boat", False),
        ("anything", "The user is.", False),
    ],
)
def test_stated(text: str, fact: str, expected: bool) -> None:
    assert states(text, fact) is expected


# Diagnostics ------------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_diagnosis_by_hand() -> None:
    case = episode(g1=GOLD, g2=GOLD, b1=BACKGROUND, b2=BACKGROUND, b3=BACKGROUND, c1=CONFOUNDER, c2=CONFOUNDER)
    state = FinalState(
        units=(
            RetainedUnit("Alpha g1 beta. And Alpha b1 beta.", 30, frozenset({"g1", "b1", "g2"})),
            RetainedUnit("Alpha c1 beta.", 10, frozenset({"c1", "c2"})),
            RetainedUnit("Alpha b2 beta.", 20, frozenset({"b2", "b3"})),
            RetainedUnit("", 0, frozenset({"c9"})),
        ),
        primary_of={"g1": "g1", "b1": "g1", "g2": "b2", "c1": "c1", "c2": "c1", "b2": "b2", "b3": "b2"},
        demoted_by={"b1": Relation.CON, "g2": Relation.NSO, "c2": Relation.EQV, "b3": Relation.NSO},
    )
    found = diagnose(case, state)
    assert found.values == {
        "any_source": 1.0, "all_source": 1.0, "gold_recall": 1.0,
        "stated_gold": 0.5,  # g2 is a member of the first view, but its text is gone
        "confounder_share": 10 / 60, "units": 3.0, "tokens": 60.0,
    }  # fmt: skip
    assert found.counts["background_primary"] == (1, 3)
    assert found.counts["gold_demoted"] == (1, 2)
    assert found.counts["gold_lost"] == (0, 2)
    assert found.merged == {"CON": 1, "NSO": 1}
    assert found.counts["confounder_primary"] == (1, 2)
    assert found.fates == {"stated": 1, "retrieved, not stated, behind a non-gold Primary by NSO": 1}


@pytest.mark.unit
def test_gold_behind_gold_is_not_demoted_and_a_vanished_one_is_lost() -> None:
    case = episode(g1=GOLD, g2=GOLD, g3=GOLD)
    found = diagnose(case, FinalState((), {"g1": "g2", "g2": "g2"}))
    assert found.counts["gold_demoted"] == (0, 3)
    assert found.counts["gold_lost"] == (1, 3)
    assert found.values["gold_recall"] == found.values["confounder_share"] == 0.0


@pytest.mark.unit
def test_a_view_that_mixes_confounders_with_others_does_not_count_as_confounder_tokens() -> None:
    case = episode(g1=GOLD, c1=CONFOUNDER)
    mixed = FinalState((RetainedUnit("x", 10, frozenset({"g1", "c1"})),), {"g1": "g1", "c1": "g1"})
    assert diagnose(case, mixed).values["confounder_share"] == 0.0


@pytest.mark.unit
def test_summary_averages_episodes_and_pools_memories() -> None:
    one = episode(g1=GOLD, b1=BACKGROUND, b2=BACKGROUND, b3=BACKGROUND, c1=CONFOUNDER)
    two = episode(g1=GOLD, b1=BACKGROUND, c1=CONFOUNDER)
    kept = {name: name for name in ("g1", "b1", "b2", "b3", "c1")}
    full = (RetainedUnit("Alpha g1 beta.", 4, frozenset({"g1"})),)
    found = summarise(
        [diagnose(one, FinalState(full, kept)), diagnose(two, FinalState((), {"g1": "g1", "c1": "c1", "b1": "g1"}))], 0
    )
    assert found["gold_recall"] == 0.5
    assert found["background_primary"] == 3 / 4
    assert found["counts"]["background_primary"] == [3, 4]
    low, high = found["intervals"]["background_primary"]
    assert low <= 3 / 4 <= high
    by_type = summarise_by_type([diagnose(one, FinalState(full, kept))], 0)["by_type"]
    assert set(by_type) == {"I"}


# Judgement cache --------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_a_cached_judgement_is_not_asked_twice_even_by_another_run(tmp_path: Path) -> None:
    model = ScriptedRelations({("a", "b"): Relation.OSN})
    asked = [Pair("a", "b"), Pair("b", "a"), Pair("a", "b")]
    with CachedRelationModel(model, tmp_path / "cache.sqlite") as cached:
        first = cached.predict_proba(asked)
        assert model.calls == [[Pair("a", "b"), Pair("b", "a")]]
        assert (cached.hits, cached.misses) == (0, 2)
    assert first[:, INDEX[Relation.OSN]].argmax() == 0
    assert np.array_equal(first, model.predict_proba(asked))
    other = ScriptedRelations({("a", "b"): Relation.CON})
    with CachedRelationModel(other, tmp_path / "cache.sqlite", {Relation.CON: 0.5}) as cached:
        assert np.array_equal(cached.predict_proba(asked), first)
        assert other.calls == []
        assert cached.thresholds == {Relation.CON: 0.5}
        assert cached.predict_proba([]).shape == (0, 5)


@pytest.mark.unit
def test_another_model_has_judgements_of_its_own(tmp_path: Path) -> None:
    for digest, relation in (("one", Relation.OSN), ("two", Relation.CON)):
        model = ScriptedRelations({("a", "b"): relation}, digest=digest)
        with CachedRelationModel(model, tmp_path / "cache.sqlite") as cached:
            assert cached.predict_proba([Pair("a", "b")])[0].argmax() == INDEX[relation]


@pytest.mark.unit
def test_a_file_that_is_no_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("not a database " * 100)
    with pytest.raises(DataError, match="judgement cache"):
        CachedRelationModel(AppendModel(), tmp_path / "text.txt")


# The benchmark ----------------------------------------------------------------------------------------------------

SCRIPT = {
    (ROWS[1]["text"], ROWS[2]["text"]): Relation.CON,
    (ROWS[1]["text"], ROWS[3]["text"]): Relation.CON,
    (ROWS[2]["text"], ROWS[3]["text"]): Relation.CON,
    (ROWS[0]["text"], ROWS[4]["text"]): Relation.NSO,  # a wrong merge: sailing vanishes behind the bees
}


def methods() -> list[Method]:
    return [Method("roam", ScriptedRelations(SCRIPT)), Method("append", AppendModel(), "off")]


def runner(*budgets: int) -> Runner:
    return Runner(HashEmbedder(), RunCache(":memory:"), Settings(budgets))


@pytest.mark.integration
def test_controlled_on_a_scripted_store(tmp_path: Path) -> None:
    episodes = read_episodes(write_episodes(tmp_path / "e.jsonl", QUESTION | {"memories": ROWS}))
    report, rows, seconds = run_controlled(episodes, methods(), runner(256), [2])
    roam, append = report["managers"]["roam"], report["managers"]["append"]
    assert roam["background_primary"] == 0.5
    assert roam["background_merged_by"] == {"NSO": 1}
    assert append["background_primary"] == 1.0
    assert roam["gold_recall"] == append["gold_recall"] == 1.0
    assert roam["units"] == 2.0
    assert append["units"] == 5.0
    assert roam["confounder_share"] == roam["confounder_primary"] == 0.0
    assert 0.3 < append["confounder_share"] < 0.5
    assert append["confounder_primary"] == 1.0
    assert roam["gold_demoted"] == 0.0
    assert set(roam["by_type"]) == {"II"}
    (row,) = [row for row in rows if row["manager"] == "roam"]
    assert {(d["id"], d["primary"], d["by"]) for d in row["demoted"]} == {
        ("c1", "g1", "CON"), ("c2", "g1", "CON"), ("b2", "b1", "NSO"),
    }  # fmt: skip
    assert set(seconds) == {"roam", "append"}
    assert roam["confounders_left_judged"] == {}
    assert append["confounders_left_judged"] == {"IND": 2}
    with pytest.raises(DataError, match="2 confounders and N = 4"):
        run_controlled(episodes, methods(), runner(256), [0, 4])
    (pair,) = report["comparisons"]
    assert (pair["manager"], pair["other"]) == ("roam", "append")
    assert pair["differences"]["confounder_share"]["difference"] == -append["confounder_share"]


@pytest.mark.integration
def test_controlled_sweeps_confounders_and_budgets(tmp_path: Path) -> None:
    episodes = read_episodes(write_episodes(tmp_path / "e.jsonl", QUESTION | {"memories": ROWS}))
    report, rows, _ = run_controlled(episodes, methods(), runner(256, 8), [0, 1, 2])
    assert {(c["manager"], c["n"], c["budget"]) for c in report["cells"]} == {
        (name, n, budget) for name in ("roam", "append") for n in (0, 1, 2) for budget in (8, 256)
    }
    assert len(rows) == 12
    units = {c["n"]: c["units"] for c in report["cells"] if (c["manager"], c["budget"]) == ("append", 256)}
    assert units == {0: 3.0, 1: 4.0, 2: 5.0}
    assert {c["n"]: set(c["by_type"]) for c in report["cells"]} == {0: {"II"}, 1: {"II"}, 2: {"II"}}


@pytest.mark.unit
def test_fewer_confounders_are_part_of_more() -> None:
    case = episode(g=GOLD, **{f"c{number}": CONFOUNDER for number in range(8)})
    kept = [case.with_confounders(count).ids(CONFOUNDER) for count in (0, 2, 4, 8, 9)]
    assert [len(ids) for ids in kept] == [0, 2, 4, 8, 8]
    assert kept[1] < kept[2] < kept[3]
    assert case.with_confounders(0).ids(GOLD) == {"g"}


@pytest.mark.unit
def test_paired_differences_cancel_what_both_share() -> None:
    cases = [Episode(f"q{n}", "any", "?", "!", episode(g=GOLD, b=BACKGROUND).memories) for n in range(20)]
    units = [(RetainedUnit("Alpha g beta.", 4, frozenset({"g"})),) if n % 2 else () for n in range(20)]
    kept, merged = {"g": "g", "b": "b"}, {"g": "g", "b": "g"}
    ours = [diagnose(case, FinalState(unit, kept)) for case, unit in zip(cases, units, strict=True)]
    theirs = [diagnose(case, FinalState(unit, merged)) for case, unit in zip(cases, units, strict=True)]
    found = paired_differences(ours, theirs, 0)
    assert found["gold_recall"] == {"difference": 0.0, "interval": [0.0, 0.0]}
    assert found["background_primary"] == {"difference": 1.0, "interval": [1.0, 1.0]}
    assert "confounder_primary" not in found
    with pytest.raises(ValueError, match="same episodes"):
        paired_differences(ours, theirs[::-1], 0)


@pytest.mark.integration
def test_a_small_budget_keeps_few_units_and_counts_only_what_is_kept(tmp_path: Path) -> None:
    episodes = read_episodes(write_episodes(tmp_path / "e.jsonl", QUESTION | {"memories": ROWS}))
    found = run_episode(episodes[0], methods()[1], runner(8))
    assert sum(unit["tokens"] for unit in found["retained"]["8"]) <= 8
    assert 0 < found["diagnoses"]["8"]["values"]["units"] <= 2


@pytest.mark.integration
def test_E01_controlled_twice_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from roam import embedders
    from roam import managers as manager_module

    monkeypatch.setattr(embedders, "load_embedder", lambda name: HashEmbedder())
    monkeypatch.setattr(manager_module, "load_manager", lambda name: Manager(ScriptedRelations(SCRIPT), JoinFuser()))
    data = write_episodes(tmp_path / "e.jsonl", QUESTION | {"memories": ROWS}, QUESTION | {"memories": ROWS[1:]})
    for out in ("one", "two"):
        code = benchmark.main(["controlled", "--data", str(data), "--out", str(tmp_path / out),
                               "--confounders", "2", "--cache", str(tmp_path / "cache.sqlite")])  # fmt: skip
        assert code == 0
    for name in ("report.json", "report.md", "rows.jsonl", "cells.csv", "comparisons.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    report = json.loads((tmp_path / "one" / "report.json").read_text())
    assert set(report["managers"]) == {"roam", "append"}
    assert report["hashes"]["embedder"] == HashEmbedder().digest
    assert "| append, Type II | 100.0 " in capsys.readouterr().out


@pytest.mark.unit
def test_thresholds_of_the_command() -> None:
    assert benchmark.parse_thresholds("CON=0.9,osn=1") == {Relation.CON: 0.9, Relation.OSN: 1.0}
    assert benchmark.parse_thresholds(None) is None
    for bad in ("CON", "CON=2", "MAYBE=0.5", "CON=nan"):
        with pytest.raises(InputError):
            benchmark.parse_thresholds(bad)


@pytest.mark.unit
def test_bad_arguments_exit_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["controlled", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "o")]) == 2
    assert "error: " in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        benchmark.main(["controlled", "--data", "x", "--out", "y", "--budget", "0"])
    assert stopped.value.code == 2
    with pytest.raises(SystemExit):
        benchmark.main(["meme", "--data", "x", "--out", "y", "--confounders", "4"])
    assert "leave it out of meme" in capsys.readouterr().err


# False conflicts --------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_R10_cross_topic_pairs_are_seeded_distinct_and_of_unrelated_domains() -> None:
    families = false_conflict.read_families(false_conflict.ROOT / "families.jsonl")
    pairs = false_conflict.cross_topic_pairs(families, 1000, seed=0)
    assert len(set(pairs)) == 1000
    assert pairs == false_conflict.cross_topic_pairs(families, 1000, seed=0)
    assert pairs != false_conflict.cross_topic_pairs(families, 1000, seed=1)
    domains: dict[str, set[str]] = {}
    for family in families:
        for text in family.texts():
            domains.setdefault(text, set()).add(family.domain)
    assert all(domains[old].isdisjoint(domains[new]) for old, new in pairs)
    with pytest.raises(DataError, match="of 10 cross-topic pairs"):
        false_conflict.cross_topic_pairs(families[:1], 10, seed=0)


@pytest.mark.unit
def test_R12_false_rates_by_hand() -> None:
    pairs = [Pair(f"old {n}", f"new {n}") for n in range(10)]
    script = {pairs[0]: (Relation.CON, 0.9), pairs[1]: (Relation.CON, 0.5), pairs[2]: (Relation.EQV, 0.9)}
    model = ScriptedRelations(script)
    model.thresholds = {Relation.CON: 0.8}
    found = false_conflict.false_rates(model, pairs, batch_size=4, name="set", seed=0)
    assert found["most_probable"]["false_con"] == 0.2
    assert found["most_probable"]["merge_error"] == 0.3
    assert found["at_thresholds"]["false_con"] == 0.1
    assert found["at_thresholds"]["predicted"] == {"IND": 8, "EQV": 1, "OSN": 0, "NSO": 0, "CON": 1}
    low, high = found["most_probable"]["intervals"]["merge_error"]
    assert low <= 0.3 <= high
