"""Benchmarks of a whole store: `python -m eval.benchmark NAME`, one command a benchmark of the paper.

Every stream of facts is fed to a fresh store under each method in time order; then the questions are searched within
each budget. Writes report.json, report.md, rows.jsonl (one line a measured item; ids and figures only), tables as CSV
and timings.json. A run that was stopped goes on where it was: judgements, vectors and finished stores are in the cache.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from data.pairs import file_sha256
from eval.answering import Answerer
from eval.benchmark_controlled import LEVELS, run_controlled
from eval.benchmark_meme import run_meme
from eval.benchmark_questions import run_questions
from eval.benchmark_report import csv_tables, markdown
from eval.benchmark_runner import Runner
from eval.benchmark_updates import run_updates
from eval.episodes import read_episodes
from eval.locomo import read_locomo
from eval.longmemeval import read_longmemeval
from eval.meme_episodes import read_meme
from eval.methods import Method, build_methods, split_names
from eval.provenance import output_folder, versions, write_json, write_jsonl
from eval.relation_report import round_floats
from eval.run_cache import CachedEmbedder, RunCache
from eval.store_run import Settings
from eval.update_stores import read_update_stores
from roam.arguments import ArgumentParser
from roam.errors import DataError, InputError, RoamError
from roam.llm import LLMClient, ReplyCache
from roam.llm.settings import parse_endpoint
from roam.relations import Relation, parse_relation

Results = tuple[dict[str, Any], list[dict[str, Any]], dict[str, float]]
MEMORY = ":memory:"


def _controlled(args: argparse.Namespace, methods: Sequence[Method], runner: Runner) -> Results:
    episodes = read_episodes(args.data)[: args.limit]
    levels = args.confounders or (max(LEVELS),)
    entries, rows, seconds = run_controlled(episodes, methods, runner, levels)
    return {"episodes": len(episodes), "n": max(levels)} | entries, rows, seconds


def _updates(args: argparse.Namespace, methods: Sequence[Method], runner: Runner) -> Results:
    stores = read_update_stores(args.data)[: args.limit]
    entries, rows, seconds = run_updates(stores, methods, runner)
    return {"stores": len(stores)} | entries, rows, seconds


def _meme(args: argparse.Namespace, methods: Sequence[Method], runner: Runner) -> Results:
    episodes = read_meme(args.data)[: args.limit]
    entries, rows, seconds = run_meme(episodes, methods, runner)
    return {"episodes": len(episodes)} | entries, rows, seconds


def _longmemeval(args: argparse.Namespace, methods: Sequence[Method], runner: Runner) -> Results:
    found = read_longmemeval(args.data)
    if not found.streams:
        raise DataError(f"{args.data}: none of its {found.left_out} questions has a marked turn; give answerable ones")
    entries, rows, seconds = run_questions(found.streams[: args.limit], methods, runner)
    return {"left_out": found.left_out} | entries, rows, seconds


def _locomo(args: argparse.Namespace, methods: Sequence[Method], runner: Runner) -> Results:
    found = read_locomo(args.data)
    streams = [stream for stream in found.streams if stream.questions][: args.limit]
    if not streams:
        raise DataError(f"{args.data}: no question whose evidence has observations; give their dialogue ids")
    entries, rows, seconds = run_questions(streams, methods, runner)
    return {"dialogues": len(streams), "uncovered": found.uncovered} | entries, rows, seconds


BENCHMARKS: Mapping[str, Callable[[argparse.Namespace, Sequence[Method], Runner], Results]] = {
    "controlled": _controlled,
    "longmemeval": _longmemeval,
    "meme": _meme,
    "locomo": _locomo,
    "updates": _updates,
}


def parse_thresholds(text: str | None) -> dict[Relation, float] | None:
    """{relation: probability} of a list such as CON=0.9,OSN=0.8; None for None."""
    if text is None:
        return None
    thresholds = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            raise InputError(f"--thresholds {part!r}: write RELATION=PROBABILITY with a value in 0..1, such as CON=0.9")
        thresholds[parse_relation(name)] = value
    return thresholds


def _numbers(least: int) -> Callable[[str], tuple[int, ...]]:
    """An argument type: whole numbers of at least `least` separated by commas, each once."""

    def parse(text: str) -> tuple[int, ...]:
        try:
            values = tuple(dict.fromkeys(int(part) for part in text.split(",")))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: write whole numbers such as 128,256") from None
        if min(values) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: use {least} or more")
        return values

    return parse


def build_parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m eval.benchmark",
        description="Feed streams of facts to a store under each method; measure what it keeps and what it retrieves.",
        epilog="examples: python -m eval.benchmark controlled --data episodes.jsonl --managers all "
        "--budget 128,256,512 --confounders 0,2,4,6,8 --out reports/controlled; "
        "python -m eval.benchmark updates --data stores.jsonl --managers roam,append --out reports/updates",
    )
    parser.add_argument("name", choices=BENCHMARKS, help="which benchmark")
    parser.add_argument("--data", type=Path, required=True, help="its data (formats: the readers' modules under eval/)")
    parser.add_argument("--managers", default="roam,append",
                        help="comma-separated: append, newest-wins[:COSINE], roam, prompted or adapter folders, each "
                             "with :con, :con+eqv or :nofusion behind it; mem0, mem0ai, evermemos[:COSINE]; or all "
                             "that need no LLM: all (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--budget",
        type=_numbers(1),
        default=(256,),
        help="tokens of memory context; of several the first is the report's own (default: 256)",
    )
    parser.add_argument("--confounders", type=_numbers(0),
                        help=f"controlled only: N, the paper's being {LEVELS} (default: {max(LEVELS)})")  # fmt: skip
    parser.add_argument("--k", type=int, default=10, help="candidates a fact is compared with (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the report")
    parser.add_argument("--limit", type=int, help="only the first N episodes, stores or dialogues")
    parser.add_argument("--cache", type=Path, help="SQLite file kept from run to run (default: OUT/cache.sqlite)")
    parser.add_argument("--thresholds", help="replace the adapters' thresholds, e.g. CON=0.9,OSN=0.8")
    parser.add_argument("--embedder", help="another sentence encoder: short name, hub id or folder")
    parser.add_argument("--llm", metavar="MODEL@URL", help="LLM of prompted, mem0, mem0ai and evermemos, such as "
                        "qwen3-8b@http://127.0.0.1:8000/v1 (key: $ROAM_LLM_KEY)")  # fmt: skip
    parser.add_argument("--answerer", metavar="MODEL@URL", help="LLM that answers the questions: adds accuracies")
    parser.add_argument("--judge", metavar="MODEL@URL", help="LLM that judges the answers (default: the answerer)")
    parser.add_argument("--llm-cache", type=Path, help="SQLite file of LLM answers (default: OUT/llm.sqlite)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the intervals")
    return parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser()
    args = parser.parse_args(argv)
    for option in ("k", "limit"):
        value = getattr(args, option)
        if value is not None and value < 1:
            parser.error(f"--{option} is {value}: use 1 or more")
    if args.judge and not args.answerer:
        parser.error("--judge judges the answers of --answerer: give that too")
    if args.confounders and args.name != "controlled":
        parser.error(f"--confounders says how many confounders `controlled` keeps; leave it out of {args.name}")
    return args


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run one benchmark as the parsed arguments say; writes all files and returns what report.json says."""
    from roam.embedders import DEFAULT_EMBEDDER, load_embedder

    names, thresholds = split_names(args.managers), parse_thresholds(args.thresholds)
    out = output_folder(args.out)
    file = args.cache or out / "cache.sqlite"
    needed = any((args.llm, args.answerer, args.judge))
    with ExitStack() as stack:
        cache = stack.enter_context(RunCache(file))
        embedder = CachedEmbedder(load_embedder(args.embedder or DEFAULT_EMBEDDER), cache)
        replies = stack.enter_context(ReplyCache(args.llm_cache or out / "llm.sqlite")) if needed else None
        client = None if args.llm is None else LLMClient(parse_endpoint(args.llm), cache=replies)
        methods = build_methods(names, embedder, cache=file, thresholds=thresholds, stack=stack, client=client)
        runner = Runner(embedder, cache, Settings(args.budget, args.k), args.seed, _answerer(args, replies))
        entries, rows, seconds = BENCHMARKS[args.name](args, methods, runner)
    report = round_floats(
        {
            "benchmark": args.name,
            "data": args.data.name,
            "budget": args.budget[0],
            "k": args.k,
            "seed": args.seed,
            **entries,
            **({} if runner.answerer is None else {"answerer": runner.answerer.digest}),
            "hashes": {"data": file_sha256(args.data), "embedder": embedder.digest},
            "versions": versions(),
        }
    )
    write_json(out / "report.json", report)
    (out / "report.md").write_text(markdown(report), encoding="utf-8")
    for name, text in csv_tables(report).items():
        (out / f"{name}.csv").write_text(text, encoding="utf-8")
    write_jsonl(out / "rows.jsonl", round_floats(rows))
    cost = {} if client is None else {"llm": client.usage.as_dict()}
    write_json(out / "timings.json", {"seconds_per_store": seconds, **cost})
    return dict(report)


def _answerer(args: argparse.Namespace, replies: ReplyCache | None) -> Answerer | None:
    if args.answerer is None:
        return None
    judge = None if args.judge is None else LLMClient(parse_endpoint(args.judge), cache=replies)
    return Answerer(LLMClient(parse_endpoint(args.answerer), cache=replies), judge)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        report = run(args)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(markdown(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
