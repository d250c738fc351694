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
