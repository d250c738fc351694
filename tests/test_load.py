"""The load test's own arithmetic, and a short run of it: nothing is lost, whatever comes together."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

from roam.errors import InputError
from roam.memory import Memory
from roam.server import Settings
from tests.server_app import listening, make_app
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations


@pytest.fixture(scope="module")
def load_test() -> ModuleType:
    path = Path(__file__).parent.parent / "scripts" / "load_test.py"
    spec = importlib.util.spec_from_file_location("load_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["load_test"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.integration
@pytest.mark.slow
def test_many_clients_at_once_lose_nothing(load_test: ModuleType, tmp_path: Path) -> None:
    options = {"rate": 1e6, "burst": 10**6}
    app = make_app(tmp_path, **options)
    with listening(app, Settings(db=str(tmp_path / "m.db"), **options)) as (address, _):
        report = load_test.run_load(address, clients=8, requests=160, seconds=60)
        batches = app.state.context.metrics.batch
    assert (report["acknowledged"], report["lost"]) == (80, 0)
    assert report["add"]["answered"] == report["search"]["answered"] == 80
    assert 0 < report["add"]["p50_ms"] <= report["add"]["p99_ms"]
    assert report["add"]["failed"] == report["search"]["failed"] == 0
    samples = [sample for metric in batches.collect() for sample in metric.samples]
    [writes] = [sample.value for sample in samples if sample.name.endswith("_count")]
    assert writes < 80  # facts of several clients were written together
    with Memory.open(
        tmp_path / "m.db", manager=ScriptedRelations(), embedder=HashEmbedder(), fusion=JoinFuser()
    ) as memory:
        assert len(memory.users()) == 8
        assert memory.verify().ok


@pytest.mark.unit
def test_load_is_put_on_this_machine_only(load_test: ModuleType) -> None:
    for url in ("http://example.org", "http://192.168.0.1:8765", "nonsense", "http://127.0.0.1:99999", "http://["):
        with pytest.raises(InputError, match="this machine"):
            load_test.run_load(url, clients=1, requests=1, seconds=1)


@pytest.mark.unit
def test_percentiles(load_test: ModuleType) -> None:
    tally = load_test.Tally(seconds=[number / 1000 for number in range(1, 1001)])
    found = tally.summary()
    assert (round(found["p50_ms"]), round(found["p99_ms"]), found["answered"]) == (500, 990, 1000)
    assert load_test.Tally().summary() == {"answered": 0, "refused": 0, "failed": 0}


@pytest.mark.unit
def test_what_cannot_be_measured_is_refused(
    load_test: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in (["--clients", "0"], ["--clients", "9", "--requests", "8"], ["--seconds", "0"]):
        assert load_test.main(["--url", "http://127.0.0.1:9", *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert load_test.main(["--json", str(tmp_path / "no" / "load.json")]) == 2
    assert "folder" in capsys.readouterr().err


@pytest.mark.unit
def test_a_connection_that_breaks_is_counted_as_a_failure(load_test: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
    report = load_test.run_load(f"http://127.0.0.1:{port}", clients=2, requests=4, seconds=5)
    assert (report["add"]["failed"], report["search"]["failed"], report["acknowledged"]) == (2, 2, 0)


@pytest.mark.unit
def test_a_load_that_is_none_starts_no_server(
    load_test: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load_test, "own_server", lambda: pytest.fail("a server was started"))
    assert load_test.main(["--clients", "0"]) == 2
    assert "1 client or more" in capsys.readouterr().err
