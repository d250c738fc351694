"""What management costs, with and without an LLM: `python -m eval.overhead --out DIR` (paper Table 10).

The memories of controlled episodes are fed to a fresh store under each manager: the distilled classifier, prompted ROAM
and the paper's baselines. Counted an episode, on this machine and in this run: LLM calls, forward passes of the
classifier, input tokens before and after what a prefix cache can reuse, output tokens, seconds. Beside it stands how
often the distilled and the prompted model agree with the gold labels of pairs. Without an LLM only the managers that
need none are measured, and the report says which are missing.

Writes report.json, report.md, overhead.png, rows.jsonl (one line a manager and episode), and the server's log.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from data.pairs import LabelledPair, file_sha256, read_pairs
from eval.episodes import Episode, MemoryRole, read_episodes
from eval.llm_server import LocalServer, llama_cpp_command
from eval.methods import build_methods, needs_llm, split_names
from eval.overhead_cost import Cost, Setup, agreement, measure, sample_pairs, summarise
from eval.overhead_report import machine, markdown, overhead_picture
from eval.provenance import output_folder, versions, write_json, write_jsonl
from eval.relation_report import round_floats
from roam.arguments import ArgumentParser
from roam.errors import DataError, InputError, RoamError
from roam.interfaces import Embedder
from roam.llm import LLMClient, LLMSettings, PrefixMeter
from roam.llm.settings import parse_endpoint

ROOT = Path(__file__).resolve().parent.parent
MANAGERS = ("append", "roam", "prompted", "mem0", "evermemos")
LOCAL_MODEL = "local"
"""Name under which a server that serves one file is asked; it takes any."""


def _llm(args: argparse.Namespace, out: Path, stack: ExitStack) -> tuple[LLMSettings | None, LocalServer | None]:
    """The LLM to measure and its server, if it is started here; None without any."""
    if args.llm is not None:
        return parse_endpoint(args.llm, concurrency=args.concurrency, timeout=args.timeout), None
    if args.gguf is None and args.server is None:
        return None, None
    command = args.server or llama_cpp_command(args.server_python, args.gguf, args.threads)
    server = stack.enter_context(LocalServer(command, out / "server.log"))
    name = LOCAL_MODEL if args.gguf is None else args.gguf.stem
    return LLMSettings(server.url, name, concurrency=args.concurrency, timeout=args.timeout), server


def _episodes(args: argparse.Namespace) -> list[Episode]:
    episodes = read_episodes(args.data)[: args.episodes]
    for episode in episodes:
        count = len(episode.ids(MemoryRole.CONFOUNDER))
        if count < args.confounders:
            raise DataError(f"episode {episode.id!r} has {count} confounders and N = {args.confounders} is asked for")
    return [episode.with_confounders(args.confounders) for episode in episodes]


class Shared(NamedTuple):
    """What all managers of a run have in common."""

    embedder: Embedder
    settings: LLMSettings | None
    server: LocalServer | None
    k: int


def _setup(name: str, shared: Shared, stack: ExitStack) -> Setup:
    """One manager with a client of its own, so that its cost is its own; no answer comes from any cache."""
    settings = shared.settings if needs_llm(name) else None
    client = None if settings is None else LLMClient(settings, meter=PrefixMeter())
    [method] = build_methods([name], shared.embedder, cache=":memory:", thresholds=None, stack=stack, client=client)
    setup = Setup(method, client, shared.embedder, shared.k, shared.server)
    setup.warm()
    return setup


@dataclass
class Measured:
    """What is known so far: costs by manager, agreement by relation model, how each server was asked for JSON."""

    costs: dict[str, list[Cost]] = field(default_factory=dict)
    agreed: dict[str, Any] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure as the parsed arguments say; returns what report.json says.

    All files are written anew after each manager, so that a run that is stopped leaves what it has measured.
    """
    from roam.embedders import DEFAULT_EMBEDDER, load_embedder

    episodes, pairs = _episodes(args), sample_pairs(read_pairs(args.pairs), args.per_relation)
    out = output_folder(args.out)
    embedder = load_embedder(args.embedder or DEFAULT_EMBEDDER)
    with ExitStack() as stack:
        names = split_names(args.managers or ",".join(MANAGERS))
        settings, server = _llm(args, out, stack)
        missing = [name for name in names if needs_llm(name) and settings is None]
        if missing and args.managers:
            raise InputError(
                f"--managers {', '.join(missing)} need an LLM: give --gguf FILE, --server COMMAND or --llm MODEL@URL"
            )
        shared, found = Shared(embedder, settings, server, args.k), Measured()
        report: dict[str, Any] = {}
        left = [name for name in names if name not in missing]
        while left:
            _measure(left.pop(0), episodes, pairs, shared, found)
            absent = dict.fromkeys(missing, "no LLM was given") | dict.fromkeys(left, "the run was stopped before it")
            report = _write(args, out, shared, found, absent, len(episodes), len(pairs))
    return report


def _measure(
    name: str, episodes: Sequence[Episode], pairs: Sequence[LabelledPair], shared: Shared, found: Measured
) -> None:
    """Add the figures of one manager, for a classifier with facts one by one and in one batch."""
    local = not needs_llm(name) and name != "append"
    for label, batched in ((name, False), (f"{name}, batched", True)):
        if batched and not local:
            continue  # an LLM is billed a pair, whether it was foreseen or not
        with ExitStack() as stack:
            setup = _setup(name, shared, stack)  # anew: no judgement of the last run is at hand
            found.costs[label] = measure(setup, episodes, label, batched=batched)
            if setup.method.peer is None and name != "append" and not batched:
                found.agreed[name] = agreement(setup, pairs, name)
            if setup.client is not None and setup.client.output_mode is not None:
                found.modes[name] = str(setup.client.output_mode)


def _write(
    args: argparse.Namespace,
    out: Path,
    shared: Shared,
    found: Measured,
    absent: Mapping[str, str],
    episodes: int,
    pairs: int,
) -> dict[str, Any]:
    """Write report.json, report.md, overhead.png and rows.jsonl; returns what report.json says."""
    report: dict[str, Any] = round_floats(
        {
            "data": args.data.name,
            "episodes": episodes,
            "n": args.confounders,
            "k": args.k,
            "seed": args.seed,
            "llm": None if shared.settings is None else shared.settings.model,
            "output_modes": found.modes,
            "not_measured": dict(absent),
            "managers": {name: summarise(costs, args.seed) for name, costs in found.costs.items()},
            "agreement": {"pairs": pairs, "file": args.pairs.name, "models": found.agreed},
            "machine": machine(args.threads),
            "hashes": {
                "data": file_sha256(args.data),
                "pairs": file_sha256(args.pairs),
                "embedder": shared.embedder.digest,
            },
            "versions": versions(),
        }
    )
    write_json(out / "report.json", report)
    (out / "report.md").write_text(markdown(report), encoding="utf-8")
    rows = [cost.row(name) for name, costs in found.costs.items() for cost in costs]
    write_jsonl(out / "rows.jsonl", round_floats(rows))
    overhead_picture(report, out / "overhead.png")
    return report


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m eval.overhead",
        description="Measure what memory management costs an episode under each manager, beside the paper's Table 10.",
        epilog="examples: python -m eval.overhead --gguf smollm2.gguf --server-python llama/bin/python "
        "--out reports/cost; python -m eval.overhead --llm qwen3-8b@http://127.0.0.1:8000/v1 --episodes 60 "
        "--out reports/cost",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the report")
    parser.add_argument(
        "--data", type=Path, default=ROOT / "data" / "controlled.jsonl", help="episodes (eval/episodes.py)"
    )
    parser.add_argument("--episodes", type=int, default=5, help="how many of them (default: %(default)s)")
    parser.add_argument("--confounders", type=int, default=4, help="N, as in Table 10 (default: %(default)s)")
    parser.add_argument("--managers", help=f"as eval.benchmark takes them (default: {','.join(MANAGERS)})")
    parser.add_argument("--k", type=int, default=10, help="candidates a fact is compared with (default: %(default)s)")
    parser.add_argument("--gguf", type=Path, help="a GGUF file: llama-cpp-python's server is started with it")
    parser.add_argument("--server-python", default=sys.executable, help="Python that has llama-cpp-python[server]")
    parser.add_argument("--server", metavar="COMMAND", help="start this server instead; {port} stands for its port")
    parser.add_argument("--llm", metavar="MODEL@URL", help="use a server that runs already")
    parser.add_argument("--threads", type=int, default=1, help="threads of the server (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, default=1, help="LLM requests at a time (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds an LLM request may take")
    parser.add_argument("--pairs", type=Path, default=ROOT / "data" / "relation_test_843.jsonl", help="labelled pairs")
    parser.add_argument("--per-relation", type=int, default=10, help="pairs of each relation (default: %(default)s)")
    parser.add_argument("--embedder", help="another sentence encoder: short name, hub id or folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the intervals")
    args = parser.parse_args(argv)
    for option, least in (("episodes", 1), ("confounders", 0), ("k", 1), ("threads", 1), ("concurrency", 1),
                          ("per_relation", 1)):  # fmt: skip
        if getattr(args, option) < least:
            parser.error(f"--{option.replace('_', '-')} is {getattr(args, option)}: use {least} or more")
    if sum(value is not None for value in (args.llm, args.gguf, args.server)) > 1:
        parser.error("give one of --gguf, --server and --llm")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the page; 2 on bad input, with one line on standard error."""
    args = parse_args(argv)
    try:
        report = run(args)
    except RoamError as error:
        print(f"eval.overhead: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(markdown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
