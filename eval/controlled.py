"""Building and checking episodes of the controlled benchmark: `python -m eval.controlled check|filter|audit FILE`.

- `check`: what a finished file must hold (`eval.controlled_rules`), with `--against` other files none of whose
  sentences may come back. For an authored set: format of eval/episodes.py, eight confounders and at least six
  background memories an episode, ids used once in the file; `"derived": true` beside an answer that the gold memories
  do not say but let one work out (a sum, an order, a duration).
- `filter`: takes a file whose episodes have any number of candidate confounders, leaves out those that leak and keeps
  the first eight; episodes with fewer are left out and named.
- `audit`: how close confounders come to the question beside the gold memories (Table 8).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eval.controlled_rules import (
    POOL,
    copied,
    embedding_leak,
    episode_problems,
    lexical_leak,
    unanswerable,
    vectors_of,
)
from eval.episodes import Episode, MemoryRole, parse_episode, read_episodes
from eval.paper_values import TABLE_8
from eval.provenance import check_output
from eval.record_files import Record, read_records
from eval.relation_report import table
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError
from roam.interfaces import Embedder

AUDIT_ROWS = (
    ("queries", "queries", "{:.0f}"),
    ("confounders", "confounders", "{:.0f}"),
    ("confounder_query", "confounder–query similarity", "{:.4f}"),
    ("gold_query", "gold–query similarity", "{:.4f}"),
    ("above_one", "above at least one gold", "{:.2%}"),
    ("above_all", "above all gold", "{:.2%}"),
)


def check(path: Path, against: Sequence[Path], least: int, embedder: Embedder | None) -> list[str]:
    """Return all problems of a finished file, in words; `DataError` when it can't be read at all."""
    marked = read_records(path, _with_derived, "episodes", "eval/episodes.py")
    episodes = [episode for episode, _ in marked]
    problems = [f"{episode.id}: {problem}" for episode in episodes for problem in episode_problems(episode)]
    problems += [
        f'{episode.id}: no gold memory holds the answer {episode.answer!r:.40}; mend it or add "derived": true'
        for episode, derived in marked
        if not derived and unanswerable(episode)
    ]
    for what, counted in (
        ("question id", Counter(episode.id for episode in episodes)),
        ("question", Counter(episode.question for episode in episodes)),
        ("memory", Counter(memory.text for episode in episodes for memory in episode.memories)),
    ):
        problems += [f"{what} {value!r:.60} is there {times} times" for value, times in counted.items() if times > 1]
    problems += copied(episodes, [episode for other in against for episode in read_episodes(other)])
    if embedder is not None:
        vectors = vectors_of(episodes, embedder)
        for episode in episodes:
            for memory in episode.memories:
                leak = embedding_leak(memory, episode, vectors) if memory.role is MemoryRole.CONFOUNDER else None
                problems += [f"{episode.id}: {memory.id}: {leak}"] if leak else []
    if len(episodes) < least:
        problems.append(f"{len(episodes)} episodes: give at least {least}")
    return problems


def _with_derived(record: Record) -> tuple[Episode, bool]:
    return parse_episode(record), bool(record.get("derived", False))


def filter_pool(episodes: Sequence[Episode], embedder: Embedder) -> tuple[list[Episode], list[str]]:
    """Return episodes with the first eight confounders that pass, and a line for each candidate or episode left out."""
    vectors = vectors_of(episodes, embedder)
    kept, dropped = [], []
    for episode in episodes:
        good: list[str] = []
        for memory in (m for m in episode.memories if m.role is MemoryRole.CONFOUNDER):
            reason = lexical_leak(memory, episode) or embedding_leak(memory, episode, vectors)
            if reason:
                dropped.append(f"{episode.id}: {memory.id} left out: {reason}")
            elif len(good) < POOL:
                good.append(memory.id)
        if len(good) < POOL:
            dropped.append(f"{episode.id}: left out, {len(good)} of its candidates pass and {POOL} are needed")
            continue
        memories = tuple(m for m in episode.memories if m.role is not MemoryRole.CONFOUNDER or m.id in good)
        kept.append(replace(episode, memories=memories))
    return kept, dropped


def audit(episodes: Sequence[Episode], embedder: Embedder) -> dict[str, dict[str, float]]:
    """Table 8 by confounder type: counts, mean cosines to the question, and how often a confounder beats gold.

    Means are over confounders and over gold memories; the last two rows are shares of confounders whose cosine to the
    question exceeds that of at least one, or of all, gold memories of their episode.
    """
    vectors = vectors_of(episodes, embedder)
    found: dict[str, dict[str, float]] = {}
    for kind in sorted({episode.type for episode in episodes}):
        part = [episode for episode in episodes if episode.type == kind]
        near: list[float] = []
        gold_near: list[float] = []
        above: list[tuple[bool, bool]] = []
        for episode in part:
            question = vectors[episode.question]
            cosines = {m.id: float(vectors[m.text] @ question) for m in episode.memories}
            gold = [cosines[identifier] for identifier in sorted(episode.ids(MemoryRole.GOLD))]
            confounders = [cosines[identifier] for identifier in sorted(episode.ids(MemoryRole.CONFOUNDER))]
            near += confounders
            gold_near += gold
            above += [(cosine > min(gold), cosine > max(gold)) for cosine in confounders]
        if not near:
            raise DataError(f"the type {kind} episodes have no confounders; give episodes with their pools")
        one, every = np.mean(np.array(above, dtype=float), axis=0)
        found[kind] = {
            "queries": len(part), "confounders": len(near), "confounder_query": float(np.mean(near)),
            "gold_query": float(np.mean(gold_near)), "above_one": float(one), "above_all": float(every),
        }  # fmt: skip
    return found


def audit_markdown(found: Mapping[str, Mapping[str, float]], name: str, embedder: str) -> str:
    """Table 8 beside the paper's."""
    columns = [(f"Type {kind}", values) for kind, values in found.items()]
    columns += [(f"paper, Type {kind}", values) for kind, values in TABLE_8.items()]
    rows = [[title, *(form.format(values[key]) for _, values in columns)] for key, title, form in AUDIT_ROWS]
    head = f"# Confounders of {name}\n\nCosines by {embedder}; the paper's by Qwen3-Embedding-0.6B.\n\n"
    return head + "\n".join(table(["", *(title for title, _ in columns)], rows)) + "\n"


def episode_record(episode: Episode) -> dict[str, Any]:
    """The JSON object of an episode, as eval/episodes.py reads it."""
    return {
        "question_id": episode.id,
        "question_type": episode.question_type,
        "question": episode.question,
        "answer": episode.answer,
        "memories": [
            {"id": m.id, "text": m.text, "time": m.time, "role": str(m.role), "ctype": m.type} for m in episode.memories
        ],
    }


def build_parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m eval.controlled",
        description="Check, filter and audit episodes of the controlled benchmark (paper, appendix F.1).",
        epilog="example: python -m eval.controlled check data/episodes.jsonl --least 60 --against other.jsonl",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    checker = commands.add_parser("check", help="list what is wrong with a finished file; exit code 1 if anything is")
    checker.add_argument("--against", type=Path, nargs="*", default=[], help="files none of whose sentences may return")
    checker.add_argument("--least", type=int, default=1, help="episodes that the file must have (default: %(default)s)")
    checker.add_argument("--no-embedding", action="store_true", help="leave the embedding rule out; needs no weights")
    filterer = commands.add_parser("filter", help="leave leaking candidates out and keep eight an episode")
    filterer.add_argument("--out", type=Path, required=True, help="file for the episodes that are kept")
    auditor = commands.add_parser("audit", help="similarity of confounders to questions (Table 8)")
    for command in (checker, filterer, auditor):
        command.add_argument("file", type=Path, help="episodes (format: eval/episodes.py)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    try:
        return _run(args)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    from roam.embedders import load_embedder

    if args.command == "check":
        problems = check(args.file, args.against, args.least, None if args.no_embedding else load_embedder())
        print("\n".join([*problems, f"{len(problems)} problems in {args.file}"]))
        return 1 if problems else 0
    if args.command == "filter":
        check_output(args.out, file=True)
    episodes, embedder = read_episodes(args.file), load_embedder()
    if args.command == "audit":
        print(audit_markdown(audit(episodes, embedder), args.file.name, embedder.digest))
        return 0
    kept, dropped = filter_pool(episodes, embedder)
    try:
        lines = [json.dumps(episode_record(episode), ensure_ascii=False) + "\n" for episode in kept]
        args.out.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise DataError(f"--out {args.out}: {error.strerror}; give a file that can be written") from error
    print("\n".join([*dropped, f"{len(kept)} of {len(episodes)} episodes kept"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
