"""Options of the commands that serve a store; apart from what they do, so that `roam --help` imports nothing for it."""

from __future__ import annotations

import argparse


def serve_options(parser: argparse.ArgumentParser) -> None:
    """Options of `roam serve`."""
    option = parser.add_argument
    option("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    option("--port", type=int, default=8765, help="port to listen on (default: %(default)s)")
    option("--keys", metavar="FILE", help="API keys, as `roam key` makes them; needed for other addresses")
    option("--rate", type=float, default=50.0, metavar="N", help="requests a second and key (default: %(default)s)")
    option("--burst", type=int, default=200, metavar="N", help="requests at once and key (default: %(default)s)")
    option("--max-body", type=int, default=1_048_576, metavar="BYTES", help="largest request (default: %(default)s)")
    option(
        "--grace", type=float, default=30.0, metavar="S", help="seconds to finish when stopped (default: %(default)s)"
    )
    option("--no-warm-up", dest="warm_up", action="store_false", help="load the weights at the first request only")
    option("--verbose", action="store_true", help="log each request (no user, no text) to standard error")


def key_options(parser: argparse.ArgumentParser) -> None:
    """Options of `roam key`."""
    option = parser.add_argument
    option("name", nargs="?", help="what to call the key, e.g. the program that will use it")
    option("--keys", required=True, metavar="FILE", help="the file of hashed keys")
    option("--tenant", metavar="NAME", help="the tenant whose store it opens (a server with {tenant} in --db)")
    option("--user", action="append", metavar="ID", help="a user it may touch; may be given more than once")
    option("--all-users", action="store_true", help="it may touch every user of its store")
    option("--operator", action="store_true", help="it may read the metrics too")
    option("--revoke", action="store_true", help="take the key out; a running server stops taking it at once")
    option("--list", action="store_true", help="list the keys, without their secrets")


def mcp_options(parser: argparse.ArgumentParser) -> None:
    """Options of `roam mcp`."""
    option = parser.add_argument
    option("--user", required=True, metavar="ID", help="whose memory; the model cannot choose another")
    option("--read-only", action="store_true", help="offer recall and explain only")
