"""The `roam` command: parsing, and how errors leave the process.

Exit codes: 0 done, 1 `verify`, `doctor` or `scrub` found a fault, 2 bad input or an unusable store (one line on
standard error).
Nothing heavy is imported before a command needs it, so that `roam --help` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from roam.arguments import ArgumentParser
from roam.cli_replay import replay_options
from roam.cli_serve_options import key_options, mcp_options, serve_options
from roam.errors import InputError, RoamError

if TYPE_CHECKING:
    from roam.managers import Manager
    from roam.memory import Memory

MemoryFactory = Callable[..., "Memory"]
"""Opens the store at a path; `reindex=True` is passed on to `Memory.open`."""
ManagerLoader = Callable[[], "Manager"]

EXTRAS = {
    "torch": "models", "transformers": "models", "peft": "models", "safetensors": "models", "tokenizers": "models",
    "huggingface_hub": "models", "onnx": "models", "onnxruntime": "models", "fastapi": "serve", "uvicorn": "serve",
    "starlette": "serve", "prometheus_client": "serve", "pydantic": "serve", "mcp": "mcp",
}  # fmt: skip

EPILOG = """\
a first tour:
  roam add "The user lives in Lyon." --user maya --observed-at 2026-01-05
  roam add "The user now lives in Ghent." --user maya --observed-at 2026-03-01
  roam search "Where does she live?" --user maya
  roam list --user maya
  roam relate "Has a dog." "Has a beagle named Otto."

environment: ROAM_DB (store, default ./memory.db), ROAM_MANAGER (what --manager takes, default pretrained),
ROAM_BACKEND (auto, torch, torch-bf16, onnx, onnx-int8), ROAM_CACHE (base weights and ONNX models), OMP_NUM_THREADS
(processors to use)
"""


class _Parser(ArgumentParser):
    """Reports a usage error as one line, like every other error of the command."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"roam: {message}{self.nearest()} (see `{self.prog} --help`)\n")


def build_parser() -> argparse.ArgumentParser:
    """Every command with its arguments; `args.command` names the one that was given."""
    parser = _Parser(
        prog="roam",
        description="A memory for agents: facts go in, duplicates, refinements and changes are told apart by a small "
        "classifier, and questions are answered from what is current.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for add_commands in (_write_commands, _read_commands, _repair_commands, _model_commands, _serve_commands):
        add_commands(commands)
    return parser


Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"


def _command(commands: Commands, name: str, help_text: str, example: str, *, store: bool = True) -> _Parser:
    parser: _Parser = commands.add_parser(
        name, help=help_text, description=help_text[0].upper() + help_text[1:] + ".", epilog=f"example: {example}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    if store:
        parser.add_argument("--db", default=None, metavar="PATH", help="the store (default: $ROAM_DB or ./memory.db)")
    parser.add_argument(
        "--manager", default=None, metavar="NAME",
        help="'pretrained', an adapter folder, 'prompted' (asks the LLM at $ROAM_LLM_URL), 'served' (the adapter at "
        "$ROAM_SERVED_RELATION) or cascade:FAST,ACCURATE,MARGIN; default: $ROAM_MANAGER or pretrained",
    )  # fmt: skip
    parser.add_argument("--base", default=None, metavar="DIR", help="base weights, when not where the adapter says")
    parser.add_argument(
        "--backend", default=None, metavar="NAME",
        help="torch, torch-bf16, onnx, onnx-int8 or auto: ONNX on a processor, torch-bf16 on a GPU (default: "
        "$ROAM_BACKEND or auto)",
    )  # fmt: skip
    return parser


def _user(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument("--user", required=required, metavar="ID", help="whose memory; matched exactly")


def _write_commands(commands: Commands) -> None:
    add = _command(commands, "add", "add one fact", 'roam add "Has a dog." --user maya --observed-at 2026-03-01')
    add.add_argument("text", help="one self-contained fact; - reads it from standard input")
    _user(add)
    add.add_argument("--observed-at", metavar="TIME", help="ISO 8601 date or date-time at which the fact was told")
    add.add_argument("--source", metavar="NAME", help="where it comes from, e.g. a chat's id")

    load = _command(
        commands, "import", "add many facts from a file, or take in a store's export", "roam import facts.jsonl"
    )
    load.add_argument(
        "file",
        help="JSONL or CSV with text, user, optional observed_at, source, id, or what `roam export` wrote; "
        "- reads JSONL from stdin",
    )
    _user(load, required=False)
    load.add_argument("--skip-bad", action="store_true", help="add the good rows of a file that has bad ones")
    load.add_argument("--mem0", action="store_true", help="the file is mem0's history.db, or its Qdrant points as JSON")
    load.add_argument("--batch", type=int, default=64, metavar="N", help="facts a transaction (default: %(default)s)")


def _read_commands(commands: Commands) -> None:
    search = _command(
        commands, "search", "find what answers a question", 'roam search "Any pets?" --user maya --budget 64'
    )
    search.add_argument("query", help="the question")
    _user(search)
    search.add_argument(
        "--budget", type=int, default=256, metavar="TOKENS", help="tokens of context (default: %(default)s)"
    )
    search.add_argument("--include-evidence", action="store_true", help="also return superseded facts, marked as such")

    _user(_command(commands, "list", "list the current views of a user", "roam list --user maya --json"))

    explain = _command(commands, "explain", "tell why a fact is where it is", "roam explain 3f2a")
    explain.add_argument("id", help="the id of an observation")
    _user(explain, required=False)

    _user(
        _command(commands, "history", "list what happened to a user's memory, oldest first", "roam history --user maya")
    )

    as_of = _command(commands, "as-of", "list the views as they were at a time", "roam as-of 2026-02-01 --user maya")
    as_of.add_argument("time", help="ISO 8601 date or date-time")
    _user(as_of)

    review = _command(
        commands, "review", "list the pairs that were too uncertain to act on, and decide them",
        "roam review --user maya --decide 81c0 3f2a CON",
    )  # fmt: skip
    _user(review)
    act = review.add_mutually_exclusive_group()
    act.add_argument(
        "--decide", nargs=3, metavar=("NEW", "OLD", "RELATION"),
        help="say what a fact (its id) is to an earlier one: IND, EQV, OSN, NSO or CON",
    )  # fmt: skip
    act.add_argument("--pairs", metavar="FILE", help="write what was decided as training pairs (JSONL; -: to stdout)")

    export = _command(
        commands, "export", "write the whole store, or one user's part, as JSONL", "roam export all.jsonl"
    )
    export.add_argument("file", help="the file to write; - writes to stdout. `roam import` takes it in")
    _user(export, required=False)


def _repair_commands(commands: Commands) -> None:
    retract = _command(commands, "retract", "take a fact out and restore what it had superseded", "roam retract 3f2a")
    retract.add_argument("id", help="the id of an observation")
    _user(retract, required=False)

    erase = _command(
        commands, "erase", "remove a fact, or a user, with every byte", "roam erase --user maya --all --yes"
    )
    erase.add_argument("id", nargs="?", help="the id of an observation")
    _user(erase, required=False)
    erase.add_argument("--all", action="store_true", help="erase all that the store holds of --user")
    erase.add_argument("--yes", action="store_true", help="confirm --all")

    _command(commands, "scrub", "overwrite what erased facts have left behind in the database's files", "roam scrub")

    undo = _command(commands, "undo", "take back a decision", "roam undo 81c0")
    undo.add_argument("id", help="the id of a decision, as `roam explain` prints it")

    redo = _command(commands, "redo", "have an event count again that was undone", "roam redo 81c0")
    redo.add_argument("id", help="the id of the event that was undone")

    verify = _command(
        commands, "verify", "check that the store is sound and equals its log", "roam verify --db memory.db"
    )
    verify.add_argument("--repair", action="store_true", help="rebuild from its log what does not equal it")

    replay = _command(
        commands, "replay", "show what --manager or other thresholds would make of a user's facts",
        "roam replay --user maya --threshold CON=0.9",
    )  # fmt: skip
    _user(replay)
    replay_options(replay)

    _command(commands, "reindex", "embed all facts anew, after the encoder has changed", "roam reindex --db memory.db")


def _model_commands(commands: Commands) -> None:
    relate = _command(
        commands, "relate", "tell the relation of a new fact to an old one", 'roam relate "Has a dog." "Has a beagle."',
        store=False,
    )  # fmt: skip
    relate.add_argument("old", help="the stored fact")
    relate.add_argument("new", help="the incoming fact")

    pull = _command(
        commands,
        "pull",
        "fetch base weights and build the ONNX model, so that all else works offline",
        "roam pull",
        store=False,
    )
    pull.add_argument(
        "bases", nargs="*", metavar="BASE", help="base names (default: what the manager and the search need)"
    )

    doctor = _command(commands, "doctor", "check what is installed and what is missing", "roam doctor")
    doctor.add_argument("--try", dest="attempt", action="store_true", help="also load the models and store two facts")


def _serve_commands(commands: Commands) -> None:
    serve_options(_command(commands, "serve", "serve the store over HTTP, with a page to look at it", "roam serve"))
    key_options(
        _command(
            commands, "key", "make, list and revoke API keys", "roam key app --keys keys.json --user maya", store=False
        )
    )
    mcp_options(_command(commands, "mcp", "serve one user's memory to an agent over MCP", "roam mcp --user maya"))


def main(
    argv: Sequence[str] | None = None,
    *,
    memory_factory: MemoryFactory | None = None,
    manager_loader: ManagerLoader | None = None,
) -> int:
    """Run one command and return its exit code. The two hooks let a program, or a test, bring its own models."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.version:
        from roam import __version__

        print(f"roam {__version__}")
        return 0
    if args.command is None:
        parser.print_help()
        return 0
    args.db = getattr(args, "db", None) or os.environ.get("ROAM_DB") or "memory.db"
    args.manager = args.manager or os.environ.get("ROAM_MANAGER") or "pretrained"
    try:
        return _run(args, memory_factory, manager_loader or _default_loader(args))
    except RoamError as error:
        return _fail(type(error).__name__, str(error), as_json=args.json)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        return _fail(
            "InputError", f"{error.name} is not installed: pip install 'roam-distilled[{extra}]'", as_json=args.json
        )
    except BrokenPipeError:
        # The reader (head, less) has gone; keep the interpreter from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _run(args: argparse.Namespace, memory_factory: MemoryFactory | None, load_manager: ManagerLoader) -> int:
    from roam import cli_models, cli_serve, cli_store

    if args.command in cli_serve.COMMANDS:
        return cli_serve.COMMANDS[args.command](args, memory_factory, load_manager)
    if args.command in cli_models.COMMANDS:
        return cli_models.COMMANDS[args.command](args, load_manager)
    prepare = cli_store.PREPARE.get(args.command)
    if prepare is not None:
        prepare(args)  # refuses bad arguments before the store is created or a model is loaded
    if args.command not in cli_store.CREATES and memory_missing(args.db):
        raise InputError(f"no store at {args.db!r}: `roam add` makes one, or name another with --db or ROAM_DB")
    open_memory = memory_factory or _default_factory(args)
    memory = open_memory(args.db, reindex=True) if args.command == "reindex" else open_memory(args.db)
    try:
        return cli_store.COMMANDS[args.command](args, memory)
    finally:
        memory.close()


def memory_missing(path: str) -> bool:
    """True when `path` is a plain file name with no file: reading commands must not create an empty store."""
    return path != ":memory:" and "://" not in path and not os.path.exists(path)  # noqa: PTH110 - pathlib costs start-up time


def _default_factory(args: argparse.Namespace) -> MemoryFactory:
    def open_memory(path: str, *, reindex: bool = False) -> Memory:
        from roam.cli_manager import choose_manager
        from roam.memory import Memory

        manager, fusion = choose_manager(args.manager, base=args.base, backend=args.backend)
        return Memory.open(path, manager=manager, fusion=fusion, reindex=reindex)

    return open_memory


def _default_loader(args: argparse.Namespace) -> ManagerLoader:
    def load() -> Manager:
        from roam.managers import load_manager

        return load_manager(args.manager, base=args.base, backend=args.backend)

    return load


def _fail(kind: str, message: str, *, as_json: bool) -> int:
    line = " ".join(message.split())
    print(json.dumps({"error": kind, "message": line}) if as_json else f"roam: {line}", file=sys.stderr)
    return 2
