"""The command as a process of its own: stopped in the middle of a load, and watched by a collector of traces."""

from __future__ import annotations

import http.client
import http.server
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from roam.memory import Memory
from tests.stubs import HashEmbedder, ScriptedRelations
from tests.test_server_batching import PROGRAM

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


@contextmanager
def serving(db: Path, root: Path, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`roam serve` over scripted models; yields its address and the process, which the test has to stop."""
    command, settings = [sys.executable, "-c", PROGRAM, str(db)], {**os.environ, **environment}
    with subprocess.Popen(command, cwd=root, env=settings, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[4] + "v1", process
        finally:
            process.kill()


def add(address: str, fact_id: str, user: str = "maya") -> int:
    """Add a fact and return the status, 0 where no answer came."""
    body = json.dumps({"text": f"This is fact {fact_id}.", "user": user, "id": fact_id}).encode()
    request = urllib.request.Request(f"{address}/memories", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, ConnectionError, http.client.HTTPException):
        return 0


@pytest.mark.integration
def test_a_stop_in_the_middle_of_a_load_loses_nothing_that_was_acknowledged(tmp_path: Path, root: Path) -> None:
    db = tmp_path / "m.db"
    with serving(db, root) as (address, process), ThreadPoolExecutor(8) as pool:
        assert add(address, "first") == 201
        stopped = threading.Event()

        def client(number: int) -> dict[str, int]:
            told: dict[str, int] = {}
            for turn in range(10_000):
                told[f"c{number}-{turn}"] = status = add(address, f"c{number}-{turn}", f"user-{number}")
                if status == 0 or stopped.is_set():
                    return told
            return told

        running = [pool.submit(client, number) for number in range(8)]
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        stopped.set()
        assert process.wait(30) in (0, -signal.SIGTERM)
        answers = {name: status for future in running for name, status in future.result(60).items()}
    acknowledged = [name for name, status in answers.items() if status == 201]
    assert set(answers.values()) <= {201, 503, 0}
    with Memory.open(db, manager=ScriptedRelations(), embedder=HashEmbedder()) as memory:
        assert [name for name in acknowledged if memory.get(name).observation.id != name] == []
        assert memory.verify().ok
    assert not db.with_name("m.db-wal").exists()


@pytest.mark.integration
@pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry") is None
    or importlib.util.find_spec("opentelemetry.exporter") is None
    or importlib.util.find_spec(EXPORTER) is None,
    reason="the extra otel is not installed",
)
def test_traces_go_to_the_collector_that_is_named_and_tell_no_user_and_no_text(tmp_path: Path, root: Path) -> None:
    received: list[tuple[str, bytes]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        named = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
        with serving(tmp_path / "m.db", root, **named) as (address, process):
            assert add(address, "of-secret", "maya-secret") == 201
            urllib.request.urlopen(f"{address}/memories?user=maya-secret", timeout=10).close()
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        collector.shutdown()
    assert {path for path, _ in received} == {"/v1/traces"}
    sent = b"".join(body for _, body in received)
    assert b"roam.write" in sent
    assert b"secret" not in sent
