"""`roam replay`, `roam reindex` and `roam verify --repair` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from roam.cli import main
from roam.memory import Memory
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

PARIS, ROME, TEA = "Maya lives in Paris.", "Maya lives in Rome.", "Maya likes tea."
Run = Callable[..., tuple[int, str, str]]


def open_memory(path: str | Path, dimension: int = 64, confidence: float = 0.85, reindex: bool = False) -> Memory:
    model = ScriptedRelations({(PARIS, ROME): ("CON", confidence)})
    embedder = HashEmbedder(dimension)
    return Memory.open(path, manager=model, embedder=embedder, fusion=JoinFuser(), reindex=reindex)


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = str(tmp_path / "m.db")
    with open_memory(path) as memory:
        for id, text in (("p", PARIS), ("r", ROME), ("t", TEA)):
            memory.add(text, user="maya", id=id)
    return path


@pytest.fixture
def run(db: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: str, dimension: int = 64) -> tuple[int, str, str]:
        def factory(path: str, **settings: bool) -> Memory:
            return open_memory(path, dimension, **settings)  # type: ignore[arg-type]

        code = main([*argv, "--db", db], memory_factory=factory)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def views(db: str, dimension: int = 64) -> list[str]:
    with open_memory(db, dimension) as memory:
        return [view.text for view in memory.primaries(user="maya")]


@pytest.mark.integration
def test_replay_shows_the_difference_and_changes_nothing(run: Run, db: str) -> None:
    code, out, _ = run("replay", "--user", "maya", "--threshold", "con=0.9", "--json")
    found = json.loads(out)
    assert (code, found["thresholds"], found["applied"]) == (0, {"CON": 0.9}, None)
    assert [(entry["observation"]["id"], entry["now"], entry["then"]) for entry in found["moved"]] == [("p", "r", "p")]
    assert (found["relations_now"]["CON"], found["relations_then"]["CON"]) == (1, 0)
    assert [view["text"] for view in found["views_then"]] == [PARIS, ROME, TEA]
    assert views(db) == [f"{PARIS} -> {ROME}", TEA]
    text = run("replay", "--user", "maya", "--threshold", "CON=0.9")[1]
    assert "Evidence of r -> Primary" in text
    assert "CON 1 -> 0" in text
    assert run("replay", "--user", "maya")[1].startswith("no fact would stand elsewhere")


@pytest.mark.integration
def test_an_applied_replay_is_an_event_that_undo_takes_back(run: Run, db: str) -> None:
    event = json.loads(run("replay", "--user", "maya", "--threshold", "CON=0.9", "--apply", "--json")[1])["applied"]
    assert views(db) == [PARIS, ROME, TEA]
    assert run("undo", event)[0] == 0
    assert views(db) == [f"{PARIS} -> {ROME}", TEA]
    assert "applied (event " in run("replay", "--user", "maya", "--threshold", "CON=0.9", "--apply")[1]


@pytest.mark.integration
@pytest.mark.parametrize("threshold", ["CON", "CON=much", "CON=1.5", "MAYBE=0.5"])
def test_a_bad_threshold_is_one_line_and_exit_code_2(run: Run, threshold: str) -> None:
    code, out, error = run("replay", "--user", "maya", "--threshold", threshold)
    assert (code, out, error.count("\n")) == (2, "", 1)


@pytest.mark.integration
def test_S21_reindex_takes_another_embedder(run: Run, db: str) -> None:
    code, _, error = run("list", "--user", "maya", dimension=32)
    assert (code, "roam reindex" in error) == (2, True)
    code, out, _ = run("reindex", "--json", dimension=32)
    assert (code, json.loads(out)) == (0, {"embedder": "hash-32", "users": 1, "observations": 3})
    assert views(db, 32) == [f"{PARIS} -> {ROME}", TEA]
    assert run("verify", dimension=32)[0] == 0
    assert run("reindex", dimension=64)[1] == "3 observations of 1 users embedded anew with hash-64\n"
    assert run("verify")[0] == 0


@pytest.mark.integration
def test_commands_that_need_a_store_do_not_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.db")
    for argv in (["replay", "--user", "u"], ["reindex"]):
        assert main([*argv, "--db", missing], memory_factory=open_memory) == 2
        assert "no store at" in capsys.readouterr().err
    assert not Path(missing).exists()


@pytest.mark.integration
def test_verify_repairs_on_request(run: Run, db: str) -> None:
    with open_memory(db) as memory:
        memory._store.rows("UPDATE state SET view = 'Damaged.' WHERE id = 't'")
    assert run("verify")[0] == 1
    code, out, _ = run("verify", "--repair")
    assert (code, out.splitlines()[-1]) == (1, "rebuilt from the log: maya")
    assert run("verify") == (0, "the store is sound and equals its log\n", "")
