"""`roam doctor`: what works, what does not, and what to do; it changes nothing."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from roam import cli_doctor
from roam.cli import main
from roam.fusion import DeterministicFuser
from roam.managers import Manager
from roam.memory import Memory
from tests.back_ends import ROLE, Schemas
from tests.stubs import HashEmbedder, ScriptedRelations


@pytest.fixture(autouse=True)
def _no_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Base weights are hashed whole, which takes seconds; `tests/test_bases.py` is about them."""
    monkeypatch.setattr(cli_doctor, "_bases", lambda manager: [])


def checks(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    main(["doctor", "--json", *argv], manager_loader=lambda: Manager(ScriptedRelations(), DeterministicFuser()))
    return {row["check"]: row for row in json.loads(capsys.readouterr().out)}


@pytest.mark.integration
def test_stores_are_looked_into_without_being_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = tmp_path / "m.db"
    assert "none yet" in checks(capsys, "--db", str(db))["store"]["detail"]
    assert not db.exists()
    Memory.open(db, manager=ScriptedRelations(), embedder=HashEmbedder()).close()
    assert db.stat().st_mode & 0o777 == 0o600  # a new store is its owner's alone
    db.chmod(0o644)
    before = db.read_bytes()
    row = checks(capsys, "--db", str(db))["store"]
    assert row["ok"] is True
    assert "chmod 600" in row["detail"]
    db.chmod(0o600)
    assert "chmod" not in checks(capsys, "--db", str(db))["store"]["detail"]
    assert db.read_bytes() == before
    foreign = tmp_path / "other.db"
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE x (y)")
    database.close()
    assert "no store of roam" in checks(capsys, "--db", str(foreign))["store"]["detail"]
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"x" * 5000)
    assert checks(capsys, "--db", str(junk))["store"]["ok"] is False


@pytest.mark.integration
def test_what_is_missing_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = {"torch", "mcp", "numpy"}
    found = cli_doctor._found
    monkeypatch.setattr(cli_doctor, "_found", lambda name: name not in gone and found(name))
    rows = checks(capsys)
    assert rows["torch"]["ok"] is False
    assert "roam-distilled[models]" in rows["torch"]["detail"]
    assert "pip install 'roam-distilled'" in rows["numpy"]["detail"]
    assert rows["extra mcp"]["ok"] is True  # wanting no MCP server is no fault
    assert "roam-distilled[mcp]" in rows["extra mcp"]["detail"]
    assert "sqlite-vec" in rows["vector search"]["detail"]


@pytest.mark.integration
def test_a_cache_that_cannot_be_written_or_is_full_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROAM_CACHE", str(tmp_path / "not" / "there"))
    assert checks(capsys)["cache"]["ok"] is True
    monkeypatch.setattr(cli_doctor, "LEAST_FREE", 10**18)
    assert "free some" in checks(capsys)["cache"]["detail"]
    monkeypatch.setattr(cli_doctor.os, "access", lambda path, mode: False)
    assert "ROAM_CACHE" in checks(capsys)["cache"]["detail"]


@pytest.mark.integration
def test_a_trial_runs_two_facts_through_a_store(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import roam.embedders

    monkeypatch.setattr(roam.embedders, "load_embedder", lambda *name: HashEmbedder())
    row = checks(capsys, "--try")["trial"]
    assert (row["ok"], "IND" in row["detail"]) == (True, True)


@pytest.mark.integration
def test_a_database_is_looked_into_and_its_password_not_shown(
    postgres: Schemas, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres.administer(f"CREATE SCHEMA doctor_test AUTHORIZATION {ROLE}")
    try:
        url = postgres.url("doctor_test")
        assert ":roam@" in url  # a password to keep quiet about
        row = checks(capsys, "--db", url)["store"]
        assert row["ok"] is True
        assert "none yet" in row["detail"]
        assert "pgvector" in row["detail"]
        assert ":roam@" not in row["detail"]
        Memory.open(url, manager=ScriptedRelations(), embedder=HashEmbedder()).close()
        assert "schema" in checks(capsys, "--db", url)["store"]["detail"]
    finally:
        postgres.administer("DROP SCHEMA doctor_test CASCADE")


@pytest.mark.unit
def test_a_database_out_of_reach_is_a_fault_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    row = checks(capsys, "--db", "postgresql://maya:secret@127.0.0.1:1/app?password=secret")["store"]
    assert row["ok"] is False
    assert "correct --db" in row["detail"]
    assert "secret" not in row["detail"]


@pytest.mark.unit
def test_no_address_gives_a_password_away(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    for url, remedy in (("mysql://me:secret@h/db", "not supported"), ("postgresql://me:se%cret@h/db", "correct --db")):
        row = checks(capsys, "--db", url)["store"]
        assert (row["ok"], remedy in row["detail"]) == (False, True)
        assert "cret" not in row["detail"]


@pytest.mark.integration
@pytest.mark.parametrize("columns", ["key text, value text", "entry text"])
def test_a_database_of_another_program_is_a_fault(
    columns: str, postgres: Schemas, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres.administer(f"CREATE SCHEMA doctor_test AUTHORIZATION {ROLE}")
    try:
        postgres.administer(f"CREATE TABLE doctor_test.meta ({columns})")
        postgres.administer(f"ALTER TABLE doctor_test.meta OWNER TO {ROLE}")
        row = checks(capsys, "--db", postgres.url("doctor_test"))["store"]
        assert (row["ok"], "of another program" in row["detail"]) == (False, True)
    finally:
        postgres.administer("DROP SCHEMA doctor_test CASCADE")


@pytest.mark.unit
def test_managers_without_an_adapter_of_their_own_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert "asks a server" in checks(capsys, "--manager", "served")["adapter"]["detail"]
    assert checks(capsys, "--manager", "cascade:fast")["adapter"]["ok"] is False
    argv = ["doctor", "--json", "--manager", "cascade:fast@torch,accurate@torch,0.5"]
    main(argv, manager_loader=lambda: Manager(ScriptedRelations(), DeterministicFuser()))
    details = [row["detail"] for row in json.loads(capsys.readouterr().out) if row["check"] == "adapter"]
    assert [detail.partition(":")[0] for detail in details] == ["fast", "accurate"]
    bases = cli_doctor.needed_bases("cascade:fast,accurate,0.5")
    assert {name.rpartition("/")[2] for name in bases} == {"all-MiniLM-L6-v2", "all-mpnet-base-v2"}
    assert len(cli_doctor.needed_bases("prompted")) == 1
