"""Benchmarks of a whole store: `python -m eval.benchmark controlled`.

For each episode a fresh store takes all memories in time order, then the question is searched within the budget. Writes
report.json, report.md, episodes.jsonl (one line a manager and episode; ids only) and timings.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from data.pairs import file_sha256
from eval.benchmark_report import controlled_markdown
from eval.diagnostics import Diagnosis, FinalState, RetainedUnit, diagnose, summarise_by_type
from eval.episodes import Episode, read_episodes
from eval.provenance import output_folder, versions, write_json, write_jsonl
from eval.relation_report import round_floats
from eval.store_model import AppendModel, CachedRelationModel
from roam.errors import InputError, RoamError
from roam.interfaces import Embedder
from roam.records import Observation
from roam.relations import Relation, parse_relation

if TYPE_CHECKING:
    from roam.managers import Manager

BENCHMARKS = ("controlled",)
USER = "user"


def run_episode(episode: Episode, manager: Manager, embedder: Embedder, *, budget: int, k: int) -> FinalState:
    """Feed one episode to a fresh in-memory store and search its question."""
    from roam.memory import Memory
    from roam.validation import parse_time

    observations = [
        Observation(text=memory.text, user=USER, observed_at=parse_time(memory.time), id=memory.id)
        for memory in episode.memories
    ]
    memory = Memory.open(":memory:", manager=manager, embedder=embedder, k=k)
    try:
        decisions = memory.add_many(observations)
        result = memory.search(episode.question, user=USER, budget=budget)
        views = memory.primaries(user=USER)
    finally:
        memory.close()
    demoted_by: dict[str, Relation] = {}
    for decision in decisions:
        for identifier in decision.demoted_ids:
            demoted_by.setdefault(identifier, decision.relation)
    return FinalState(
        units=tuple(RetainedUnit(hit.text, hit.tokens, frozenset(hit.members)) for hit in result.hits),
        primary_of={member: view.id for view in views for member in view.members},
        demoted_by=demoted_by,
    )


def build_manager(
    name: str, cache: str | Path, thresholds: Mapping[Relation, float] | None, stack: ExitStack
) -> Manager:
    """Return the manager called `name`: "append", "roam" (the pretrained one) or an adapter folder.

    Judgements of a relation model go through the cache file `cache`, which `stack` closes. `thresholds` replace the
    adapter's own.
    """
    from roam.fusion import DeterministicFuser
    from roam.managers import Manager, load_manager

    if name == "append":
        return Manager(AppendModel(), DeterministicFuser())
    loaded = load_manager("pretrained" if name == "roam" else name)
    model = stack.enter_context(CachedRelationModel(loaded.relation_model, cache, thresholds))
    return Manager(model, loaded.fuser)


def run_controlled(
    episodes: Sequence[Episode], managers: Mapping[str, Manager], embedder: Embedder, *, budget: int, k: int, seed: int
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, float]]:
    """Return (report entry by manager, one row a manager and episode, seconds an episode by manager)."""
    entries: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    seconds: dict[str, float] = {}
    for name, manager in managers.items():
        diagnoses: list[Diagnosis] = []
        started = time.perf_counter()
        for episode in tqdm(episodes, desc=name, unit="episode", disable=None):
            state = run_episode(episode, manager, embedder, budget=budget, k=k)
            diagnoses.append(diagnose(episode, state))
            rows.append(episode_row(name, episode, state, diagnoses[-1]))
        seconds[name] = (time.perf_counter() - started) / len(episodes)
        model = manager.relation_model
        entries[name] = summarise_by_type(diagnoses, seed) | {
            "model": model.digest,
            "thresholds": {str(relation): float(value) for relation, value in model.thresholds.items()},
        }
    return entries, rows, seconds


def episode_row(manager: str, episode: Episode, state: FinalState, diagnosis: Diagnosis) -> dict[str, Any]:
    """One line of episodes.jsonl: the measures, the retained units and every demotion, by memory id."""
    roles = {memory.id: str(memory.role) for memory in episode.memories}
    return {
        "manager": manager,
        "episode": episode.id,
        "type": episode.type,
        "question_type": episode.question_type,
        **round_floats(dict(diagnosis.values)),
        **{name: list(counts) for name, counts in diagnosis.counts.items()},
        "retained": [{"members": sorted(unit.members), "tokens": unit.tokens} for unit in state.units],
        "demoted": [
            {"id": m, "role": roles.get(m), "primary": p, "primary_role": roles.get(p), "by": state.demoted_by.get(m)}
            for m, p in sorted(state.primary_of.items())
            if m != p
        ],
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


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m eval.benchmark",
        description="Feed episodes to a store under each manager and measure what it keeps and what it retrieves.",
        epilog="example: python -m eval.benchmark controlled --data episodes.jsonl --managers roam,append --out out/c",
    )
    parser.add_argument("name", choices=BENCHMARKS, help="which benchmark")
    parser.add_argument("--data", type=Path, required=True, help="episode file (format: eval/episodes.py)")
    parser.add_argument("--managers", default="roam,append",
                        help="comma-separated: roam, append or adapter folders (default: %(default)s)")  # fmt: skip
    parser.add_argument("--budget", type=int, default=256, help="tokens of memory context (default: %(default)s)")
    parser.add_argument("--k", type=int, default=10, help="candidates an observation is compared with")
    parser.add_argument("--out", type=Path, required=True, help="folder for the report")
    parser.add_argument("--limit", type=int, help="only the first N episodes")
    parser.add_argument("--cache", type=Path, help="SQLite file that keeps judgements from run to run")
    parser.add_argument("--thresholds", help="replace the adapter's thresholds, e.g. CON=0.9,OSN=0.8")
    parser.add_argument("--seed", type=int, default=0, help="seed of the intervals")
    args = parser.parse_args(argv)
    for option in ("budget", "k", "limit"):
        value = getattr(args, option)
        if value is not None and value < 1:
            parser.error(f"--{option} is {value}: use 1 or more")
    return args


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run one benchmark as the parsed arguments say; writes all files and returns what report.json says."""
    from roam.embedders import load_embedder

    episodes = read_episodes(args.data)[: args.limit]
    names = list(dict.fromkeys(name.strip() for name in args.managers.split(",") if name.strip()))
    if not names:
        raise InputError(f"--managers {args.managers!r} names none: use roam, append or adapter folders")
    thresholds = parse_thresholds(args.thresholds)
    out = output_folder(args.out)
    embedder = load_embedder()
    with ExitStack() as stack:
        managers = {name: build_manager(name, args.cache or ":memory:", thresholds, stack) for name in names}
        entries, rows, seconds = run_controlled(
            episodes, managers, embedder, budget=args.budget, k=args.k, seed=args.seed
        )
    report = {
        "benchmark": args.name,
        "data": args.data.name,
        "episodes": len(episodes),
        "budget": args.budget,
        "k": args.k,
        "seed": args.seed,
        "managers": round_floats(entries),
        "hashes": {"data": file_sha256(args.data), "embedder": embedder.digest},
        "versions": versions(),
    }
    write_json(out / "report.json", report)
    (out / "report.md").write_text(controlled_markdown(report), encoding="utf-8")
    write_jsonl(out / "episodes.jsonl", rows)
    write_json(out / "timings.json", {"seconds_per_episode": seconds})
    return report


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        report = run(args)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(controlled_markdown(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
