"""Runs the application under uvicorn until a signal says stop."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from roam.errors import ConfigError
from roam.records import Pair
from roam.server.passes import SharedPasses
from roam.server.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from roam.interfaces import Embedder

WARM_UP = Pair("Has a dog.", "Has a beagle.")


def listen(settings: Settings) -> socket.socket:
    """Take the address before anything is loaded; `ConfigError` where it cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:  # a name that cannot be one of a host is a UnicodeError
        told = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot listen on {settings.host} port {settings.port} ({told}): choose another "
            "--port, or end the program that has it"
        ) from error


def make_server(app: FastAPI, settings: Settings) -> uvicorn.Server:
    """Return the server of an application; `run(sockets=[listen(settings)])` blocks until a signal.

    On a signal no new connection is taken, requests in progress have `settings.grace` seconds, and what waits to be
    written is written before the stores are closed.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level=logging.WARNING,
        access_log=False,  # it would log queries, which name users; the application logs what is fit to keep
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(settings.grace)),
    )
    return uvicorn.Server(config)


def warm_up(model: SharedPasses, embedder: Embedder) -> None:
    """Load the weights before the first request needs them; raises what loading them raises."""
    model.predict_proba([WARM_UP])
    embedder.embed([WARM_UP.old])
