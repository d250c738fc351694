"""Commands that serve a store to others: `serve`, `key` and `mcp`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from roam.cli_render import to_json
from roam.errors import InputError
from roam.validation import clean_user

if TYPE_CHECKING:
    from roam.cli import ManagerLoader, MemoryFactory
    from roam.cli_manager import Chosen


def serve(args: argparse.Namespace, open_memory: MemoryFactory | None, load_manager: ManagerLoader) -> int:
    """Serve until a signal says stop; bad settings end it before a model is loaded."""
    from roam.cli_manager import Chosen, choose_manager
    from roam.managers import Manager
    from roam.server import Settings, create_app
    from roam.server.passes import SharedPasses
    from roam.server.run import listen, make_server, warm_up
    from roam.server.settings import TENANT
    from roam.server.tracing import export_from_environment

    settings = Settings(
        db=args.db,
        host=args.host,
        port=args.port,
        keys=Path(args.keys) if args.keys else None,
        rate=args.rate,
        burst=args.burst,
        max_body=args.max_body,
        grace=args.grace,
    )
    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    export_from_environment()
    if open_memory is None:
        manager, fusion = choose_manager(args.manager, base=args.base, backend=args.backend)
        model = SharedPasses(manager.relation_model)
        open_memory = _opener(Chosen(Manager(model, manager.fuser), fusion))
    else:
        model = SharedPasses(load_manager().relation_model)
    app = create_app(open_memory, model, settings)
    bound = listen(settings)
    if TENANT not in settings.db:
        open_memory(settings.db).close()  # a store that cannot be used is refused now, not at the first request
    if args.warm_up:
        from roam.embedders import load_embedder

        warm_up(model, load_embedder())
    host, port = bound.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    print(f"roam serves {settings.place} on http://{address}/ (stop with Ctrl-C)", flush=True)
    make_server(app, settings).run(sockets=[bound])
    return 0


def key(args: argparse.Namespace, open_memory: MemoryFactory | None, load_manager: ManagerLoader) -> int:
    """Make, list or revoke API keys. The secret is printed once and kept nowhere."""
    from roam.server.keys import add_key, read_rows, revoke_key

    file = Path(args.keys)
    if args.list:
        rows = [{name: value for name, value in row.items() if name != "sha256"} for row in read_rows(file)]
        if args.json:
            print(to_json(rows))
        for row in () if args.json else rows:
            scope = "all users" if row["users"] is None else ", ".join(row["users"])
            marks = " (operator)" if row["operator"] else ""
            print(f"{row['name']}  tenant {row['tenant'] or '-'}  {scope}{marks}  made {row['created']}")
        return 0
    if args.name is None:
        raise InputError("give the name of the key to make or to revoke, or --list")
    if args.revoke:
        revoke_key(file, args.name)
        print(to_json({"revoked": args.name}) if args.json else f"key {args.name} is revoked")
        return 0
    if bool(args.user) == bool(args.all_users):
        raise InputError("say whom the key is for: --user ID (again for more), or --all-users")
    users = None if args.all_users else args.user
    secret = add_key(file, args.name, tenant=args.tenant, users=users, operator=args.operator)
    print(to_json({"name": args.name, "key": secret}) if args.json else secret)
    return 0


def mcp(args: argparse.Namespace, open_memory: MemoryFactory | None, load_manager: ManagerLoader) -> int:
    """Speak the Model Context Protocol on standard input and output, for the memory of one user."""
    from roam.cli_manager import choose_manager
    from roam.server.mcp_server import make_server

    user = clean_user(args.user)
    if open_memory is None:
        open_memory = _opener(choose_manager(args.manager, base=args.base, backend=args.backend))
    memory = open_memory(args.db)
    try:
        make_server(memory, user=user, read_only=args.read_only).run("stdio")
    finally:
        memory.close()
    return 0


def _opener(chosen: Chosen) -> MemoryFactory:
    from roam.memory import Memory

    return lambda path: Memory.open(path, manager=chosen.manager, fusion=chosen.fusion)


COMMANDS: dict[str, Callable[[argparse.Namespace, MemoryFactory | None, ManagerLoader], int]] = {
    "serve": serve, "key": key, "mcp": mcp,
}  # fmt: skip
