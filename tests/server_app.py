"""Applications over scripted models, in this process or listening on a port of their own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from roam.memory import Memory
from roam.server import Settings, create_app
from roam.server.passes import SharedPasses
from roam.server.run import make_server
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

LYON, GHENT, DOG, BEAGLE = (
    "The user lives in Lyon.",
    "The user moved to Ghent.",
    "Has a dog.",
    "Has a beagle named Otto.",
)
MAYBE = "The user may be living in Ghent."
SCRIPT = {(LYON, GHENT): "CON", (DOG, BEAGLE): "OSN", (LYON, MAYBE): ("CON", 0.6)}
THRESHOLDS = {"CON": 0.8}


def make_app(tmp_path: Path, model: ScriptedRelations | None = None, **settings: Any) -> FastAPI:
    """An application over a store in `tmp_path`."""
    shared = SharedPasses(model or ScriptedRelations(SCRIPT))

    def open_memory(path: str) -> Memory:
        return Memory.open(path, manager=shared, embedder=HashEmbedder(), fusion=JoinFuser(), thresholds=THRESHOLDS)

    return create_app(open_memory, shared, Settings(**{"db": str(tmp_path / "m.db"), **settings}))


@contextmanager
def client_of(app: FastAPI) -> Iterator[TestClient]:
    """A client of an application that has started; it stops at the end."""
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


@contextmanager
def listening(app: FastAPI, settings: Settings) -> Iterator[tuple[str, uvicorn.Server]]:
    """The application behind a real socket of 127.0.0.1, in a thread; yields its address and the server."""
    server = make_server(app, settings)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()
        assert not thread.is_alive(), "the server did not stop"
