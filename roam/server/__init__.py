"""The store over HTTP: `create_app` for a program of your own, `roam serve` for the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roam.server.settings import Settings

if TYPE_CHECKING:
    from roam.server.app import create_app

__all__ = ["Settings", "create_app"]


def __getattr__(name: str) -> object:
    # FastAPI takes a third of a second to import; settings and keys are needed without it.
    if name == "create_app":
        from roam.server.app import create_app

        return create_app
    raise AttributeError(f"module 'roam.server' has no attribute {name!r}")
