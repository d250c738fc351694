"""What every test shares: no network, no model hub, and markers that skip where weights are missing."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.back_ends import back_end, parametrise, postgres, stop_server

# Before anything imports huggingface_hub, which reads it once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # a worker has one core; threads of several that share it wait for each other

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_BASE = "all-MiniLM-L6-v2"


class NetworkBlockedError(RuntimeError):
    """A test, or the code under test, tried to open a connection."""


@functools.cache
def base_is_here(name: str) -> bool:
    """Whether a known base's weights can be resolved without a download."""
    from roam.bases import resolve_base
    from roam.errors import BaseModelError

    try:
        resolve_base(name, download=False)
    except BaseModelError:
        return False
    return True


__all__ = ("back_end", "postgres")  # fixtures


def pytest_sessionfinish() -> None:
    stop_server()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrise(metafunc)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("models"):
        for name in marker.args or (DEFAULT_BASE,):
            if not base_is_here(name):
                pytest.skip(f"base weights {name} are not on this machine: `roam pull {name}`")


def _refuse(allowed: frozenset[str]) -> Callable[..., Any]:
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> Any:
        host = address[0] if isinstance(address, tuple) else ""
        if self.family == socket.AF_UNIX or host in allowed:
            return connect(self, address)
        raise NetworkBlockedError(f"connection to {address!r}: tests run offline")

    return guarded


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this machine can be reached: a test that needs more is wrong."""
    guarded = _refuse(frozenset({"127.0.0.1", "::1", "localhost"}))
    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded)


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a socket object can be made: for what promises to open none (REPORTS S05)."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise NetworkBlockedError("a socket was opened where none may be")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.fixture
def root() -> Path:
    """The repository root."""
    return ROOT
