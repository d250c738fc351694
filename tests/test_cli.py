"""The `roam` command, run in-process with scripted models, and once as a program of its own."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from roam.cli import build_parser, main
from roam.errors import AdapterError, BaseModelError
from roam.fusion import DeterministicFuser
from roam.managers import Manager
from roam.memory import Memory
from roam.relations import Relation
from tests.stubs import HashEmbedder, ScriptedRelations

LYON, GHENT, TEA = "The user lives in Lyon.", "The user has moved to Ghent.", "Likes green tea."
MAYBE = "The user may live in Ghent."
SCRIPT = {(LYON, GHENT): "CON", (LYON, MAYBE): ("CON", 0.6)}


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def run(db: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command on a store with scripted relations; a usage error's exit counts as its code."""
    monkeypatch.setenv("ROAM_DB", str(db))

    def call(*argv: str) -> Result:
        def open_memory(path: str) -> Memory:
            model = ScriptedRelations(SCRIPT)
            return Memory.open(path, manager=model, embedder=HashEmbedder(), thresholds={"CON": 0.8})

        try:
            code = main(argv, memory_factory=open_memory, manager_loader=scripted_manager)
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


def scripted_manager() -> Manager:
    return Manager(ScriptedRelations(SCRIPT), DeterministicFuser())


def add(run: Run, text: str, user: str = "maya", **options: str) -> Any:
    extra = [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", value)]
    result = run("add", text, "--user", user, "--json", *extra)
    assert result.code == 0, result.err
    return result.json


@pytest.mark.integration
def test_a_change_of_state_from_add_to_search(run: Run) -> None:
    old = add(run, LYON, observed_at="2026-01-05")
    new = add(run, GHENT, observed_at="2026-03-01", source="chat-2")
    assert (new["relation"], new["demoted_ids"]) == ("CON", [old["observation_id"]])
    [view] = run("list", "--user", "maya", "--json").json
    assert (view["atomic_text"], view["observed_at"], len(view["members"])) == (GHENT, "2026-03-01", 2)
    found = run("search", "Where does she live?", "--user", "maya", "--budget", "64", "--json").json
    assert "Ghent" in found["context"]
    assert found["tokens"] <= 64
    assert [hit["id"] for hit in found["hits"]] == [new["observation_id"]]
    with_evidence = run("search", "lives in Lyon", "--user", "maya", "--include-evidence", "--json").json
    assert {hit["role"] for hit in with_evidence["hits"]} == {"primary", "evidence"}


@pytest.mark.integration
def test_text_output_of_every_reading_command(run: Run) -> None:
    decision = add(run, LYON, observed_at="2026-01-05")
    add(run, TEA)
    assert "CON" in run("add", GHENT, "--user", "maya", "--observed-at", "2026-03-01").out
    assert TEA in run("list", "--user", "maya").out
    assert "of 256 tokens" in run("search", "tea", "--user", "maya").out
    explained = run("explain", decision["observation_id"]).out
    assert LYON in explained
    assert decision["id"] in explained
    assert "Evidence" in explained or "evidence" in explained
    assert len(run("history", "--user", "maya").out.splitlines()) == 3
    assert run("verify").code == 0
    assert run("list", "--user", "nobody").out == "nothing is stored of user 'nobody'\n"


@pytest.mark.integration
def test_as_of_lists_what_was_current_then(run: Run) -> None:
    add(run, LYON, observed_at="2026-01-05")
    add(run, GHENT, observed_at="2026-03-01")
    result = run("as-of", "2026-02-01", "--user", "maya", "--json")
    assert result.code == 0, result.err
    assert [view["atomic_text"] for view in result.json] == [LYON]


@pytest.mark.integration
def test_uncertain_pairs_are_listed_for_review(run: Run) -> None:
    add(run, LYON)
    add(run, MAYBE)
    [row] = run("review", "--user", "maya", "--json").json
    assert (row["relation"], row["old"], row["new"]) == ("CON", LYON, MAYBE)
    assert MAYBE in run("review", "--user", "maya").out


@pytest.mark.integration
def test_retract_undo_and_erase(run: Run) -> None:
    add(run, LYON)
    new = add(run, GHENT)
    assert run("retract", new["observation_id"]).code == 0
    assert [view["atomic_text"] for view in run("list", "--user", "maya", "--json").json] == [LYON]
    again = add(run, GHENT)
    assert run("undo", again["id"]).code == 0
    texts = {view["atomic_text"] for view in run("list", "--user", "maya", "--json").json}
    assert texts == {LYON, GHENT}
    assert run("erase", again["observation_id"], "--json").json["observations"] == 1


@pytest.mark.integration
def test_erase_of_a_user_needs_confirmation_and_spares_the_others(run: Run) -> None:
    add(run, LYON)
    add(run, TEA, user="omar")
    refused = run("erase", "--all", "--user", "maya")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert len(run("list", "--user", "maya", "--json").json) == 1
    assert run("erase", "--all", "--user", "maya", "--yes").code == 0
    assert run("list", "--user", "maya", "--json").json == []
    assert len(run("list", "--user", "omar", "--json").json) == 1


@pytest.mark.integration
def test_import_reads_jsonl_and_csv(run: Run, tmp_path: Path) -> None:
    jsonl, table = tmp_path / "facts.jsonl", tmp_path / "facts.csv"
    jsonl.write_text(
        json.dumps({"text": LYON, "user": "maya", "observed_at": "2026-01-05", "expect": "IND"}) + "\n\n"
        + json.dumps({"text": GHENT, "user": "maya", "observed_at": "2026-03-01", "source": None}) + "\n",
        encoding="utf-8",
    )  # fmt: skip
    table.write_text(
        'Text,observed_at\r\n"Likes green tea.",2026-01-01\r\n"Says ""hi"", loudly.",\r\n', encoding="utf-8"
    )
    assert run("import", str(jsonl), "--json").json == {"added": 2, "relations": {"IND": 1, "CON": 1}, "skipped": []}
    result = run("import", str(table), "--user", "omar")
    assert (result.code, result.out) == (0, "2 facts added: IND 2\n")
    views = run("list", "--user", "omar", "--json").json
    assert [(view["text"], view["observed_at"]) for view in views] == [
        ("Likes green tea.", "2026-01-01"),
        ('Says "hi", loudly.', None),
    ]


@pytest.mark.integration
def test_import_twice_with_ids_changes_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "facts.jsonl"
    file.write_text(json.dumps({"id": "a1", "text": LYON, "user": "maya"}), encoding="utf-8")
    assert [run("import", str(file)).code for _ in range(2)] == [0, 0]
    assert len(run("history", "--user", "maya", "--json").json) == 1


@pytest.mark.unit
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{"text": "y", "observd_at": "2026-01-05"}', "line 2: unknown key 'observd_at'; did "
         "you mean 'observed_at'?"),
        ("a.csv", "text,observd_at\nx,2026-01-05\n", "a.csv, line 1: unknown key 'observd_at'; did you mean"),
        ("a.csv", "text,source\nx,a\ny,a,b\n", "1 of 2 rows are bad (line 3: 3 cells under 2 columns"),
        ("a.csv", "text,source\nx\n\ny,a\n", "1 of 2 rows are bad (line 2: 1 cells under 2 columns"),
        ("a.jsonl", '{"text": "x", "id": "n"}\n\n{"text": "x", "id": "n"}', "line 3: id 'n' is that of line 1 too"),
    ],
)  # fmt: skip
def test_import_refuses_what_it_would_have_to_drop(
    run: Run, db: Path, tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    result = run("import", str(tmp_path / name), "--user", "maya")
    assert (result.code, message in result.err, result.err.count("\n")) == (2, True, 1), result.err
    assert not db.exists()


@pytest.mark.unit
def test_import_names_the_columns_that_it_leaves_out(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"text,mood,text_length\n{TEA},good,16\n", encoding="utf-8")
    result = run("import", str(tmp_path / "a.csv"), "--user", "maya")
    assert result.code == 0
    assert "left out, as no part of a fact: mood, text_length" in result.err


@pytest.mark.integration
def test_export_of_a_user_who_is_not_there(run: Run, tmp_path: Path) -> None:
    add(run, TEA)
    result = run("export", str(tmp_path / "x.jsonl"), "--user", "Maya", "--json")
    assert (result.code, json.loads(result.err)["error"]) == (2, "NotFoundError")
    assert not (tmp_path / "x.jsonl").exists()


@pytest.mark.integration
def test_undo_and_redo_of_an_observation_name_its_decision(run: Run) -> None:
    add(run, LYON)
    new = add(run, GHENT)
    for command in ("undo", "redo"):
        result = run(command, new["observation_id"])
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert f"that is an observation; its decision is {new['id']}: roam {command} {new['id']}" in result.err
    undone = run("undo", new["id"], "--json").json
    redone = run("redo", new["id"])
    assert redone.out.startswith(f"{new['id']} counts again: its undo {undone['id']} is undone by ")


@pytest.mark.integration
def test_import_counts_every_bad_row_and_adds_nothing(run: Run, db: Path, tmp_path: Path) -> None:
    rows = [{"text": LYON, "user": "maya"}, {"text": " ", "user": "maya"}, {"text": TEA}, ["x"]]
    rows += [{"text": TEA, "user": "maya", "observed_at": f"no time {n}"} for n in range(5)]
    file = tmp_path / "facts.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n{not json\n", encoding="utf-8")
    refused = run("import", str(file))
    assert refused.code == 2
    assert "9 of 10 rows are bad" in refused.err
    assert "line 2: text is empty" in refused.err
    assert "and 4 more" in refused.err
    assert refused.err.count("\n") == 1
    assert not db.exists()
    kept = run("import", str(file), "--skip-bad", "--json").json
    assert kept["added"] == 1
    assert [row["line"] for row in kept["skipped"]] == list(range(2, 11))


@pytest.mark.unit
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("no.jsonl", None, "cannot read"),
        ("empty.jsonl", b"\n \n", "holds no rows"),
        ("latin.jsonl", b'{"text": "caf\xe9"}', "no text in UTF-8"),
        ("other.db", b"SQLite format 3\x00\x10\xff", "is an SQLite database, no text file"),
        ("columns.csv", b"fact,user\nx,maya\n", "not `text`"),
        ("quote.csv", b'text,user\n"open,maya\n', "not CSV"),
        ("all_bad.jsonl", b"{}\n", "1 of 1 rows are bad"),
    ],
)
def test_import_refuses_unusable_files(
    run: Run, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    result = run("import", str(file), "--user", "maya")
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.unit
@pytest.mark.parametrize(
    "argv",
    [
        ["add", "", "--user", "maya"],
        ["add", "a\x00b", "--user", "maya"],
        ["add", "x" * 100_000, "--user", "maya"],
        ["add", TEA, "--user", ""],
        ["add", TEA, "--user", "maya", "--observed-at", "yesterday"],
        ["add", TEA],
        ["search", "tea", "--user", "maya", "--budget", "0"],
        ["search", "tea", "--user", "maya", "--budget", "many"],
        ["erase"],
        ["erase", "x", "--all", "--user", "maya", "--yes"],
        ["erase", "--all", "--yes"],
        ["import", "x.jsonl", "--batch", "0"],
        ["relate", TEA, " "],
        ["forget"],
        ["list", "--user", "maya"],
        ["verify"],
    ],
)
def test_bad_input_is_one_line_exit_2_and_no_store(run: Run, db: Path, argv: list[str]) -> None:
    result = run(*argv)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("roam")
    assert result.err.count("\n") == 1
    assert not db.exists()


@pytest.mark.integration
@pytest.mark.parametrize("argv", [["explain", "x"], ["retract", "x"], ["erase", "x"], ["undo", "x"]])
def test_an_unknown_id_is_named(run: Run, argv: list[str]) -> None:
    add(run, TEA)
    result = run(*argv, "--json")
    assert result.code == 2
    error = json.loads(result.err)
    assert error["error"] == "NotFoundError"
    assert "'x'" in error["message"]


@pytest.mark.integration
def test_a_file_that_is_no_store_is_refused_untouched(run: Run, db: Path) -> None:
    db.write_bytes(b"not a database, but somebody's notes" * 50)
    before = db.read_bytes()
    result = run("add", TEA, "--user", "maya")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert db.read_bytes() == before


@pytest.mark.unit
def test_relate_prints_the_relation_and_all_probabilities(run: Run) -> None:
    result = run("relate", LYON, GHENT, "--json").json
    assert result["relation"] == "CON"
    assert set(result["probabilities"]) == set(Relation)
    assert sum(result["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert run("relate", LYON, TEA).out.startswith("IND\nIND 0.960")


@pytest.mark.unit
def test_add_reads_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEA + "\n"))
    assert run("add", "-", "--user", "maya").code == 0
    assert TEA in run("list", "--user", "maya").out


@pytest.mark.unit
@pytest.mark.parametrize("error", [AdapterError("no adapter:\ntrain one"), BaseModelError("no base")])
def test_errors_of_models_are_one_line(capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    def fail() -> Manager:
        raise error

    assert main(["relate", LYON, GHENT], manager_loader=fail) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.unit
def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> Manager:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    assert main(["relate", LYON, GHENT], manager_loader=fail) == 2
    assert "pip install 'roam-distilled[models]'" in capsys.readouterr().err


@pytest.mark.unit
@pytest.mark.parametrize(
    ("program", "argv", "hint"),
    [
        ("roam.cli", ["add", TEA, "--usr", "maya"], "; --usr: did you mean --user?"),
        ("roam.cli", ["list", "--user", "maya", "--jsno"], "; --jsno: did you mean --json?"),
        ("eval.relation", ["--pairs", "x", "--output=y"], "; --output: did you mean --out?"),
        ("data.build", ["--sed", "1"], "; --sed: did you mean --seed?"),
        ("training.relation", ["x.yaml", "--resum", "--reusme"], "; --reusme: did you mean --resume?"),
        ("data.check", ["x", "--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest(
    program: str, argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        importlib.import_module(program).main(argv)
    last = capsys.readouterr().err.splitlines()[-1]
    assert (stopped.value.code, hint in last) == (2, True), last
    assert last.count("did you mean") == hint.count("did you mean")


@pytest.mark.unit
def test_every_command_takes_json_and_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    [commands] = [action.choices for action in build_parser()._actions if isinstance(action.choices, dict)]
    assert {"add", "import", "search", "list", "explain", "history", "as-of", "retract", "erase", "undo", "review",
            "verify", "relate", "pull", "doctor", "export", "redo", "serve", "key", "mcp",
            "replay", "reindex", "scrub"} == set(commands)  # fmt: skip
    for name, parser in commands.items():
        text = parser.format_help()
        assert "--json" in text, name
        assert f"example: roam {name}" in text, name
        assert all(f"'{manager}'" in text for manager in ("pretrained", "prompted", "served")), name


@pytest.mark.integration
def test_doctor_tells_what_is_missing(run: Run) -> None:
    result = run("doctor", "--manager", "nowhere", "--json")
    rows = {row["check"]: row for row in result.json}
    assert result.code == 1
    assert rows["adapter"]["ok"] is False
    assert "nowhere" in rows["adapter"]["detail"]
    assert rows["numpy"]["ok"] is True


@pytest.mark.integration
def test_as_a_program(tmp_path: Path, root: Path) -> None:
    command = [sys.executable, "-m", "roam"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, cwd=root, check=True)
    assert version.stdout.startswith("roam 0.")
    bad = subprocess.run(
        [*command, "list", "--user", "maya", "--db", str(tmp_path / "none.db")],
        capture_output=True, text=True, cwd=root, check=False,
    )  # fmt: skip
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
    assert "Traceback" not in bad.stderr
