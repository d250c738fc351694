"""The main job on one page: `python -m eval.demo`.

Fills a store from the bundled stream of dated facts, compares what it did with the notes beside the facts, asks the
bundled questions within a token budget, and sets the cost against the calls that the prompted protocol of the paper
would need. Prints the page and writes page.md, demo.json, demo.png and the store itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.pairs import file_sha256
from eval.demo_data import Outcome, Question, StreamFact, outcomes, read_questions, read_stream, superseded
from eval.demo_page import picture, render
from eval.provenance import output_folder, versions, write_json
from eval.store_model import AppendModel
from roam import Memory
from roam.errors import InputError, RoamError
from roam.interfaces import Embedder, RelationModel
from roam.records import Decision, View
from roam.relations import RELATIONS, Relation

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 32  # facts an `add_many`; small enough for a moving progress bar
CHAINS_SHOWN = 4


@dataclass(frozen=True)
class Filled:
    """A store after the stream: what it decided and what that took."""

    memory: Memory
    decisions: list[Decision]
    seconds: float


def fill(path: str, model: RelationModel, embedder: Embedder, facts: Sequence[StreamFact], note: str) -> Filled:
    """Add the stream in order of arrival to a new store at `path`."""
    from tqdm import tqdm

    memory = Memory.open(path, manager=model, embedder=embedder)
    started = time.perf_counter()
    decisions: list[Decision] = []
    with tqdm(total=len(facts), desc=note, unit="fact", disable=None) as bar:
        for start in range(0, len(facts), CHUNK):
            chunk = [fact.observation for fact in facts[start : start + CHUNK]]
            decisions += memory.add_many(chunk)
            bar.update(len(chunk))
    return Filled(memory, decisions, time.perf_counter() - started)


def users_of(facts: Sequence[StreamFact]) -> list[str]:
    """Users in order of their first fact."""
    return list(dict.fromkeys(fact.observation.user for fact in facts))


def all_views(memory: Memory, facts: Sequence[StreamFact]) -> list[View]:
    """The Primaries of every user of the stream."""
    return [view for user in users_of(facts) for view in memory.primaries(user=user)]


def store_shape(filled: Filled, facts: Sequence[StreamFact], embedder: Embedder) -> dict[str, int]:
    """Sizes of a store: texts that retrieval can return, their tokens, and how many of them are out of date."""
    views = all_views(filled.memory, facts)
    outdated = superseded(facts)
    return {
        "observations": len(facts),
        "primaries": len(views),
        "evidence": len(facts) - len(views),
        "tokens": sum(embedder.count_tokens(view.text) for view in views),
        "outdated_primaries": sum(view.id in outdated for view in views),
        "outdated": len(outdated),
    }


def ask(
    filled: Filled, facts: Sequence[StreamFact], questions: Sequence[Question], budget: int
) -> list[dict[str, Any]]:
    """Search for each question; `found`: the context holds every wanted string; `stale`: an outdated state is shown as
    current, that is, as the atomic text of a Primary among the hits."""
    atomic = {view.id: view.atomic_text for view in all_views(filled.memory, facts)}
    rows = []
    for question in questions:
        result = filled.memory.search(question.text, user=question.user, budget=budget)
        context = result.context.casefold()
        current = [atomic[hit.id].casefold() for hit in result.hits]
        rows.append(
            {
                "user": question.user,
                "question": question.text,
                "found": all(wanted.casefold() in context for wanted in question.must_contain),
                "stale": any(old.casefold() in text for old in question.not_current for text in current),
                "first": result.hits[0].text if result.hits else "",
                "hits": len(result.hits),
                "tokens": result.tokens,
            }
        )
    return rows


def agreement(facts: Sequence[StreamFact], decisions: Sequence[Decision]) -> dict[str, Any]:
    """Counts of outcomes by the relation that the note expects, and the wrong merges of independent facts."""
    found = outcomes(facts, decisions)
    table = {str(relation): dict.fromkeys(map(str, Outcome), 0) for relation in RELATIONS}
    for fact, outcome in zip(facts, found, strict=True):
        table[str(fact.expected)][str(outcome)] += 1
    merged = Counter(
        str(decision.relation)
        for fact, decision in zip(facts, decisions, strict=True)
        if fact.expected is Relation.IND and decision.relation is not Relation.IND
    )
    return {
        "by_relation": table,
        "right": sum(outcome is Outcome.RIGHT for outcome in found),
        "facts": len(facts),
        "wrong_merges_of_independent": dict(merged),
    }


def cost(filled: Filled, load_seconds: float) -> dict[str, Any]:
    """What the run took, and the calls of the prompted protocol for the same decisions.

    Algorithm 1 with a prompted manager makes one call a retrieved candidate (relation inference) and one a
    non-independent update (fusion); the paper counts the same two kinds in its Table 10.
    """
    stats = filled.memory.stats
    judged = sum(len(decision.judgements) for decision in filled.decisions)
    fusions = sum(decision.relation is not Relation.IND for decision in filled.decisions)
    return {
        "seconds": filled.seconds,
        "load_seconds": load_seconds,
        "facts_per_second": len(filled.decisions) / filled.seconds,
        "forward_passes": stats.forward_passes,
        "pairs_classified": stats.pairs,
        "llm_calls": stats.llm_calls,
        "prompted_relation_calls": judged,
        "prompted_fusion_calls": fusions,
        "prompted_calls": judged + fusions,
        "to_review": sum(len(decision.review) for decision in filled.decisions),
    }


def value_chains(filled: Filled, facts: Sequence[StreamFact]) -> list[dict[str, Any]]:
    """The views of current states that conflicts led to, those with the most members first."""
    changed = {decision.primary_id for decision in filled.decisions if decision.relation is Relation.CON}
    views = [view for view in all_views(filled.memory, facts) if view.id in changed]
    views.sort(key=lambda view: (-len(view.members), view.id))
    return [{"user": view.user, "view": view.text, "members": list(view.members)} for view in views[:CHAINS_SHOWN]]


def growth(facts: Sequence[StreamFact], decisions: Sequence[Decision]) -> list[int]:
    """Number of Primaries after each fact."""
    primaries: set[str] = set()
    sizes = []
    for fact, decision in zip(facts, decisions, strict=True):
        primaries.add(fact.observation.id)
        primaries -= set(decision.demoted_ids)
        sizes.append(len(primaries))
    return sizes


def read_report(folder: Path) -> dict[str, Any]:
    """The report.json that `python -m eval.relation` wrote."""
    path = folder / "report.json"
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"--report {folder}: no readable report.json ({error}); run `python -m eval.relation` first"
        ) from error
    return report


def run(args: argparse.Namespace) -> Mapping[str, Any]:
    """Do all that the page tells of; returns the contents of demo.json."""
    from roam.embedders import load_embedder
    from roam.managers import load_manager

    facts, questions = read_stream(args.stream), read_questions(args.questions)
    report = read_report(args.report)
    out = output_folder(args.out)
    store = out / "memory.db"
    for file in (store, Path(f"{store}-wal"), Path(f"{store}-shm")):
        file.unlink(missing_ok=True)  # the page is about a store that starts empty
    started = time.perf_counter()
    model, embedder = load_manager(args.adapter, base=args.base).relation_model, load_embedder()
    load_seconds = time.perf_counter() - started
    plain = fill(":memory:", AppendModel(), embedder, facts, "append-all")
    managed = fill(str(store), model, embedder, facts, "managed")
    page = {
        "adapter": str(args.adapter),
        "hashes": {"stream": file_sha256(args.stream), "questions": file_sha256(args.questions), "model": model.digest},
        "versions": versions(),
        "users": len(users_of(facts)),
        "first_day": min(str(fact.observation.observed_at)[:10] for fact in facts),
        "last_day": max(str(fact.observation.observed_at)[:10] for fact in facts),
        "budget": args.budget,
        "relation_report": {key: report[key] for key in ("data", "pairs", "macro_f1", "accuracy", "per_class")},
        "macro_interval": report["intervals"]["macro_f1"],
        "before": store_shape(plain, facts, embedder),
        "after": store_shape(managed, facts, embedder),
        "agreement": agreement(facts, managed.decisions),
        "growth": growth(facts, managed.decisions),
        "chains": value_chains(managed, facts),
        "questions": ask(managed, facts, questions, args.budget),
        "questions_before": ask(plain, facts, questions, args.budget),
        "cost": cost(managed, load_seconds),
        "files": {"report": str(args.report), "store": str(store), "page": str(out / "page.md")},
    }
    for filled in (plain, managed):
        filled.memory.close()
    write_json(out / "demo.json", page)
    (out / "page.md").write_text(render(page), encoding="utf-8")
    picture(page, out / "demo.png")
    return page


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m eval.demo",
        description="Fill a store from the bundled stream, ask the bundled questions, and print one page.",
        epilog="example: python -m eval.demo --adapter pretrained --report reports/run/relation --out reports/run/demo",
    )
    parser.add_argument(
        "--adapter", default="pretrained", help="'pretrained' or an adapter folder (default: %(default)s)"
    )
    parser.add_argument("--base", help="folder of the base weights, when they are not where the adapter says")
    parser.add_argument("--report", type=Path, required=True, help="folder with the report.json of eval.relation")
    parser.add_argument("--out", type=Path, required=True, help="folder for page.md, demo.json, demo.png and memory.db")
    parser.add_argument("--stream", type=Path, default=ROOT / "data" / "demo_stream.jsonl")
    parser.add_argument("--questions", type=Path, default=ROOT / "data" / "demo_questions.jsonl")
    parser.add_argument("--budget", type=int, default=256, help="tokens of context a question (default: %(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 2 on bad input, with one line on standard error."""
    args = parse_args(argv)
    try:
        page = run(args)
    except RoamError as error:
        print(f"eval.demo: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(render(page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
