"""The store's benchmark runs, on small sizes, and its filled stores are sound."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "bench_store.py"))


@pytest.mark.integration
def test_a_small_run_writes_a_table_and_a_picture(
    script: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--out", str(tmp_path), "--sizes", "100", "150", "--records", "200", "--repeats", "3"]
    assert script["main"](arguments) == 0
    curves = json.loads((tmp_path / "store.json").read_text("utf-8"))["curves"]
    assert [row["size"] for row in curves["sqlite, one user"]] == [100, 150]
    assert [row["size"] for row in curves["sqlite, users of 100"]] == [200]
    assert all(row["recall_at_10"] == 1.0 for rows in curves.values() for row in rows)
    assert (tmp_path / "store.md").read_text("utf-8").count("\n") == 5
    assert (tmp_path / "store.png").read_bytes().startswith(b"\x89PNG")
    assert "| sqlite, one user | 150 |" in capsys.readouterr().out


@pytest.mark.integration
def test_a_filled_store_equals_one_that_facts_were_added_to(script: dict[str, Any]) -> None:
    with script["opened"](":memory:") as memory:
        script["fill"](memory, 0, 250, lambda number: f"user-{number // 100}")
        assert memory.verify().problems == ()
        assert memory.users() == ["user-0", "user-1", "user-2"]
        assert len(memory.primaries(user="user-2")) == 50
        memory.add(script["text_of"](7), user="user-0")  # the same words as a fact that is there
        assert len(memory.primaries(user="user-0")) == 100
