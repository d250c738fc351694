"""mem0's history and Qdrant points become facts."""

from __future__ import annotations

import importlib.util
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from roam.cli import main
from roam.errors import DataError
from roam.integrations.mem0_import import read_mem0
from roam.memory import Memory
from tests.server_app import BEAGLE, DOG, GHENT, LYON, SCRIPT
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

SCHEMA = """CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT,
created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"""


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """What mem0 leaves: a memory that changed, one that was deleted, one that came back."""
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as database:
        database.execute(SCHEMA)
        rows = [
            ("h1", "m1", None, LYON, "ADD", "2026-01-05T10:00:00-08:00", None),
            ("h2", "m2", None, DOG, "ADD", "2026-01-06T10:00:00-08:00", None),
            ("h3", "m1", LYON, GHENT, "UPDATE", "2026-01-05T10:00:00-08:00", "2026-03-01T10:00:00-08:00"),
            ("h4", "m2", DOG, None, "DELETE", "2026-03-02T10:00:00-08:00", None),
            ("h5", "m3", None, " ", "ADD", "2026-03-03T10:00:00-08:00", None),
        ]
        database.executemany(
            "INSERT INTO history (id, memory_id, old_memory, new_memory, event, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
    database.close()
    return path


def points(*payloads: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"id": f"p{number}", "payload": payload, "vector": None} for number, payload in enumerate(payloads)]


def load(tmp_path: Path, *argv: str) -> int:
    def open_memory(path: str) -> Memory:
        return Memory.open(path, manager=ScriptedRelations(SCRIPT), embedder=HashEmbedder(), fusion=JoinFuser())

    return main(["import", "--mem0", *argv, "--db", str(tmp_path / "m.db"), "--json"], memory_factory=open_memory)


@pytest.mark.integration
def test_a_history_gives_what_was_not_deleted_and_its_changes(history: Path, tmp_path: Path, capsys: Any) -> None:
    before = history.read_bytes()
    assert load(tmp_path, str(history), "--user", "maya") == 2  # one row holds no text
    assert "line 5" in capsys.readouterr().err
    assert load(tmp_path, str(history), "--user", "maya", "--skip-bad") == 0
    assert json.loads(capsys.readouterr().out)["relations"] == {"IND": 1, "CON": 1}
    assert load(tmp_path, str(history), "--user", "maya", "--skip-bad") == 0  # again: nothing is added twice
    with Memory.open(tmp_path / "m.db", manager=ScriptedRelations(), embedder=HashEmbedder()) as memory:
        [view] = memory.primaries(user="maya")
        assert view.text == f"{LYON} -> {GHENT}"
        assert len(view.members) == 2
        assert memory.get("mem0-h1").observation.source == "mem0"
    assert history.read_bytes() == before
    assert not list(tmp_path.glob("history.db-*"))


@pytest.mark.integration
def test_a_history_that_mem0_itself_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("mem0") is None:
        pytest.skip("mem0ai is not installed")
    monkeypatch.setenv("MEM0_TELEMETRY", "False")
    monkeypatch.setenv("MEM0_DIR", str(tmp_path))
    from mem0.memory.storage import SQLiteManager

    path = tmp_path / "mem0.db"
    written = SQLiteManager(str(path))
    written.add_history("m1", None, LYON, "ADD", created_at="2026-01-05T10:00:00-08:00")
    written.add_history(
        "m1", LYON, GHENT, "UPDATE", created_at="2026-01-05T10:00:00-08:00", updated_at="2026-03-01T10:00:00-08:00"
    )
    written.add_history("m2", None, DOG, "ADD", created_at="2026-01-06T10:00:00-08:00")
    written.add_history("m2", DOG, None, "DELETE", is_deleted=1)
    written.close()
    assert load(tmp_path, str(path), "--user", "maya") == 0
    with Memory.open(tmp_path / "m.db", manager=ScriptedRelations(), embedder=HashEmbedder()) as memory:
        [view] = memory.primaries(user="maya")
        assert view.text == f"{LYON} -> {GHENT}"


@pytest.mark.integration
def test_points_that_qdrant_itself_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("mem0") is None or importlib.util.find_spec("qdrant_client") is None:
        pytest.skip("mem0ai and qdrant-client are not installed")
    monkeypatch.setenv("MEM0_TELEMETRY", "False")
    monkeypatch.setenv("MEM0_DIR", str(tmp_path))
    from mem0.vector_stores.qdrant import Qdrant

    store = Qdrant(collection_name="mem0", embedding_model_dims=2, path=str(tmp_path / "qdrant"))
    payloads: list[dict[str, Any]] = [
        {"data": DOG, "user_id": "maya", "created_at": "2026-01-07T09:00:00+00:00"},
        {"data": BEAGLE, "user_id": "maya", "created_at": "2026-02-11T09:00:00+00:00"},
        {"data": LYON, "agent_id": "coach", "created_at": "2026-02-12T09:00:00+00:00"},
    ]
    ids = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(3)]
    store.insert([[1.0, 0.0]] * 3, payloads, ids)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parent.parent / "scripts" / "tutorials" / "mem0.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```text\n(import json.*?)^```$", page, flags=re.M | re.S)
    connect = 'QdrantClient(url="http://localhost:6333")'
    assert connect in program
    exec(compile(program.replace(connect, "CLIENT"), "mem0.md", "exec"), {"CLIENT": store.client})
    assert load(tmp_path, "points.jsonl") == 0
    with Memory.open(tmp_path / "m.db", manager=ScriptedRelations(), embedder=HashEmbedder()) as memory:
        assert [view.atomic_text for view in memory.primaries(user="maya")] == [BEAGLE]
        assert [view.text for view in memory.primaries(user="agent_id:coach")] == [LYON]


@pytest.mark.integration
def test_a_history_needs_a_user(history: Path, tmp_path: Path, capsys: Any) -> None:
    assert load(tmp_path, str(history)) == 2
    assert "--user" in capsys.readouterr().err


@pytest.mark.unit
@pytest.mark.parametrize("form", ["list", "lines", "scroll"])
def test_points_come_in_any_of_their_forms(tmp_path: Path, form: str) -> None:
    exported = points(
        {"data": BEAGLE, "user_id": "maya", "created_at": "2026-02-01T00:00:00+00:00", "hash": "x"},
        {"data": DOG, "user_id": "maya", "run_id": "r", "created_at": "2026-01-01T00:00:00+00:00"},
        {"data": LYON, "agent_id": "chef", "updated_at": "2026-03-01T00:00:00+00:00"},
    )
    written = {
        "list": json.dumps(exported),
        "lines": "\n".join(map(json.dumps, exported)),
        "scroll": json.dumps({"result": {"points": exported, "next_page_offset": None}, "status": "ok"}),
    }[form]
    path = tmp_path / "points.json"
    path.write_text(written, encoding="utf-8")
    read = read_mem0(str(path))
    assert [(fact.id, fact.text, fact.user) for fact in read.facts] == [
        ("mem0-p1", DOG, "maya"), ("mem0-p0", BEAGLE, "maya"), ("mem0-p2", LYON, "agent_id:chef"),
    ]  # fmt: skip
    assert read.bad == ()


@pytest.mark.unit
@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"[1]", b'{"result": {"points": 3}}', b"SQLite format 3\x00 but no more"]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError):
        read_mem0(str(path))
    with pytest.raises(DataError):
        read_mem0(str(tmp_path / "missing"))
