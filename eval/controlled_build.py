"""Build controlled episodes with an LLM: `python -m eval.controlled_build FILE --llm MODEL@URL --out EPISODES`.

`FILE` holds questions with gold and background memories (eval/episodes.py), or with --longmemeval the released
LongMemEval JSON, whose turns are first made into atoms (paper, equation 2): those of turns that hold evidence are gold,
all others background; what only the assistant said makes no atom. Then a pool of candidate confounders is written for
each question, without looking at any method's output, dated, filtered (`eval.controlled`) and cut to eight (appendix
F.1). Answers are kept in a cache, so that a run can be stopped and goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from tqdm import tqdm

from eval.controlled import episode_record, filter_pool
from eval.controlled_prompts import confounder_question
from eval.controlled_rules import POOL, type_of
from eval.episodes import Episode, EpisodeMemory, MemoryRole, read_episodes
from eval.longmemeval import read_longmemeval
from eval.provenance import check_output
from eval.store_run import Stream
from roam.arguments import ArgumentParser
from roam.errors import DataError, InputError, RoamError
from roam.interfaces import Embedder
from roam.llm.cache import ReplyCache
from roam.llm.client import LLMClient, Unanswered
from roam.llm.settings import parse_endpoint
from roam.prompted.extractor import PromptedExtractor, Turn
from roam.writing import write_at_once

CANDIDATES = 12
"""Written a question, so that eight are left when some leak."""
NO_DATE = "1970-01-01"
"""Time of memories whose conversation has none; episodes need one for their order."""


def atoms_of(stream: Stream, extractor: PromptedExtractor) -> Episode | str:
    """The episode of a LongMemEval question, without confounders; or why there is none.

    Each turn is read alone, so that what it tells is known to be gold or not.
    """
    [question] = stream.questions
    memories: list[EpisodeMemory] = []
    for fact in stream.facts:
        found = extractor.extract([Turn("user", fact.text, fact.time, fact.id)], user=stream.id)
        role = MemoryRole.GOLD if fact.id in question.gold else MemoryRole.BACKGROUND
        memories += [
            EpisodeMemory(f"{fact.id}.a{number}", atom.text, fact.time or NO_DATE, role, None)
            for number, atom in enumerate(found.observations)
        ]
    if not any(memory.role is MemoryRole.GOLD for memory in memories):
        return f"{stream.id}: left out, no fact was found in its evidence"
    return Episode(question.id, question.kind, question.text, question.answer, tuple(memories), question.asked_at)


def with_candidates(episode: Episode, texts: Sequence[str]) -> Episode:
    """The episode with candidate confounders, dated, and without any that it had.

    Obsolete values come a week or more before the first gold memory, each on a day of its own: they were true before it
    (appendix F.1). Similar ones take the times of the episode's memories in turn, so that time tells nothing.
    """
    kind = type_of(episode.question_type)
    rest = [memory for memory in episode.memories if memory.role is not MemoryRole.CONFOUNDER]
    first = datetime.fromisoformat(min(memory.time for memory in rest if memory.role is MemoryRole.GOLD))
    added = []
    for number, text in enumerate(texts):
        before = (first - timedelta(days=7 * (len(texts) - number))).isoformat()
        time = before if kind == "II" else rest[number * len(rest) // len(texts)].time
        added.append(EpisodeMemory(f"confounder-{number}", text, time, MemoryRole.CONFOUNDER, kind))
    return replace(episode, memories=tuple(sorted([*rest, *added], key=lambda memory: memory.time)), pool_type=None)


def generate(
    episodes: Sequence[Episode], client: LLMClient, count: int, embedder: Embedder
) -> tuple[list[Episode], list[str]]:
    """Episodes with eight confounders each, and a line for every candidate and episode left out."""
    notes, pools = [], []
    for episode in tqdm(episodes, desc="confounders", unit="episode", disable=None):
        answer = client.ask(confounder_question(episode, count))
        if isinstance(answer, Unanswered):
            notes.append(f"{episode.id}: left out, no usable answer: {answer.reason}")
        else:
            pools.append(with_candidates(episode, answer))
    kept, dropped = filter_pool(pools, embedder) if pools else ([], [])
    return kept, [*notes, *dropped]


def read_input(args: argparse.Namespace, client: LLMClient) -> tuple[list[Episode], list[str]]:
    """The episodes to write confounders for, and a line for each question that gave none."""
    if not args.longmemeval:
        return read_episodes(args.file)[: args.limit], []
    streams = read_longmemeval(args.file).streams[: args.limit]
    extractor = PromptedExtractor(client)
    made = [atoms_of(stream, extractor) for stream in tqdm(streams, desc="atoms", unit="question", disable=None)]
    return [one for one in made if isinstance(one, Episode)], [one for one in made if isinstance(one, str)]


def run(args: argparse.Namespace, embedder: Embedder) -> Iterator[str]:
    """Build and write; yields what to tell."""
    check_output(args.out, file=True)
    with ReplyCache(args.cache or args.out.with_suffix(".llm.sqlite")) as cache:
        client = LLMClient(parse_endpoint(args.llm), cache=cache)
        episodes, notes = read_input(args, client)
        kept, dropped = generate(episodes, client, args.candidates, embedder)
    yield from (*notes, *dropped)
    if not kept:
        raise DataError("no episode has eight confounders that pass; give another model, or more --candidates")
    write_at_once(args.out, "".join(json.dumps(episode_record(one), ensure_ascii=False) + "\n" for one in kept))
    yield f"{args.out}: {len(kept)} of {len(episodes) + len(notes)} questions kept; {client.usage.as_dict()}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m eval.controlled_build",
        description="Write confounders for questions with gold memories, filter them and keep eight a question.",
        epilog="example: python -m eval.controlled_build longmemeval_s.json --longmemeval --llm "
        "gemma@http://127.0.0.1:8000/v1 --out controlled.jsonl",
    )
    parser.add_argument("file", type=Path, help="episodes with gold memories (eval/episodes.py), or LongMemEval JSON")
    parser.add_argument("--longmemeval", action="store_true", help="FILE is LongMemEval as released")
    parser.add_argument("--llm", required=True, metavar="MODEL@URL", help="who writes (key: $ROAM_LLM_KEY)")
    parser.add_argument("--out", type=Path, required=True, help="file for the episodes")
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="written a question (default: %(default)s)")
    parser.add_argument("--limit", type=int, help="first questions of the file only")
    parser.add_argument("--cache", type=Path, help="SQLite file of answers (default: beside --out)")
    args = parser.parse_args(argv)
    try:
        if args.candidates < POOL:
            raise InputError(f"--candidates is {args.candidates}: {POOL} confounders are kept, so write {POOL} or more")
        if args.limit is not None and args.limit < 1:
            raise InputError(f"--limit is {args.limit}: give 1 or more")
        from roam.embedders import load_embedder

        for line in run(args, load_embedder()):
            print(line)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
