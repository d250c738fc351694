"""Commands that work on a store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from roam import cli_replay
from roam.cli_input import read_content, read_facts
from roam.cli_render import explanation_text, line, search_text, to_json
from roam.errors import DataError, InputError
from roam.relations import parse_relation
from roam.validation import check_count, clean_text, clean_user, parse_time
from roam.writing import STANDARD_OUTPUT

if TYPE_CHECKING:
    from roam.memory import Memory


def _show(args: argparse.Namespace, records: Iterable[object], nothing: str) -> int:
    """Print records a line each, or as one JSON array."""
    listed = list(records)
    if args.json:
        print(to_json(listed))
    else:
        print("\n".join(map(line, listed)) or nothing)
    return 0


def _show_one(args: argparse.Namespace, record: object) -> int:
    print(to_json(record) if args.json else line(record))
    return 0


# Checks that need no store and no model come first: bad input must cost nothing and change nothing.


def prepare_add(args: argparse.Namespace) -> None:
    if args.text == "-":
        args.text = sys.stdin.read()
    clean_text(args.text)
    clean_user(args.user)
    parse_time(args.observed_at)


def prepare_import(args: argparse.Namespace) -> None:
    from roam.transfer import is_export, parse_export

    check_count(args.batch, "--batch")
    content = "" if args.mem0 else read_content(args.file)
    args.export = parse_export(content, args.file) if is_export(content) else None
    if args.export is not None:
        if args.user is not None:
            raise InputError(f"{args.file} is an export, which names its users: leave --user out")
        return
    if args.mem0:
        from roam.integrations.mem0_import import read_mem0

        args.facts = read_mem0(args.file, user=args.user)
    else:
        args.facts = read_facts(args.file, content, user=args.user)
    if args.facts.bad and (not args.skip_bad or not args.facts.facts):
        raise DataError(args.facts.refusal(args.file))


def prepare_search(args: argparse.Namespace) -> None:
    clean_text(args.query, "query")
    clean_user(args.user)
    check_count(args.budget, "--budget")


def prepare_review(args: argparse.Namespace) -> None:
    clean_user(args.user)
    if args.decide:
        parse_relation(args.decide[2])


def prepare_erase(args: argparse.Namespace) -> None:
    if bool(args.id) == bool(args.all):
        raise InputError("erase takes either the id of one observation, or --all with --user")
    if args.all and not args.user:
        raise InputError("erase --all needs --user: whose memory is to be erased")
    if args.all and not args.yes:
        raise InputError(f"erase --all removes all that is stored of {args.user!r} for good: add --yes to confirm")


# The commands.


def add(args: argparse.Namespace, memory: Memory) -> int:
    return _show_one(args, memory.add(args.text, user=args.user, observed_at=args.observed_at, source=args.source))


def import_facts(args: argparse.Namespace, memory: Memory) -> int:
    from collections import Counter

    from tqdm import tqdm

    if args.export is not None:
        return _show_one(args, memory.import_blocks(args.export))
    facts = args.facts.facts
    if args.facts.left_out:
        print(f"{args.file}: left out, as no part of a fact: {', '.join(args.facts.left_out)}", file=sys.stderr)
    counts: Counter[str] = Counter()
    # The bar goes to standard error and only to a terminal; standard output stays parseable.
    with tqdm(total=len(facts), unit="fact", disable=None, file=sys.stderr) as bar:
        for start in range(0, len(facts), args.batch):
            decisions = memory.add_many(facts[start : start + args.batch])
            counts.update(str(decision.relation) for decision in decisions)
            bar.update(len(decisions))
    bad = [{"line": row.line, "reason": row.reason} for row in args.facts.bad]
    if args.json:
        print(to_json({"added": len(facts), "relations": counts, "skipped": bad}))
        return 0
    relations = "  ".join(f"{name} {count}" for name, count in counts.most_common())
    print(f"{len(facts)} facts added: {relations}" + (f"; {len(bad)} bad rows skipped" if bad else ""))
    for row in bad:
        print(f"skipped line {row['line']}: {row['reason']}", file=sys.stderr)
    return 0


def search(args: argparse.Namespace, memory: Memory) -> int:
    result = memory.search(args.query, user=args.user, budget=args.budget, include_evidence=args.include_evidence)
    print(to_json(result) if args.json else search_text(result))
    return 0


def list_views(args: argparse.Namespace, memory: Memory) -> int:
    return _show(args, memory.primaries(user=args.user), f"nothing is stored of user {args.user!r}")


def explain(args: argparse.Namespace, memory: Memory) -> int:
    explanation = memory.explain(args.id, user=args.user)
    print(to_json(explanation) if args.json else explanation_text(explanation))
    return 0


def history(args: argparse.Namespace, memory: Memory) -> int:
    return _show(args, memory.history(user=args.user), f"nothing is stored of user {args.user!r}")


def as_of(args: argparse.Namespace, memory: Memory) -> int:
    return _show(args, memory.as_of(args.time, user=args.user), f"nothing was known of user {args.user!r} then")


def review(args: argparse.Namespace, memory: Memory) -> int:
    if args.decide:
        new, old, relation = args.decide
        return _show_one(args, memory.decide(new, old, relation, user=args.user))
    if args.pairs:
        return _wrote(args, args.pairs, memory.export_pairs(args.pairs, user=args.user), "pairs")
    rows = [
        {
            "decision": pair.decision_id, "relation": pair.relation, "probability": pair.probability,
            "old_id": pair.old.id, "old": pair.old.text, "new_id": pair.new.id, "new": pair.new.text,
        }
        for pair in memory.reviews(user=args.user)
    ]  # fmt: skip
    return _show(args, rows, "nothing to review")


def export(args: argparse.Namespace, memory: Memory) -> int:
    return _wrote(args, args.file, memory.export_jsonl(args.file, user=args.user), "lines")


def _wrote(args: argparse.Namespace, file: str, count: int, what: str) -> int:
    """Say how much was written, unless standard output holds it."""
    if file != STANDARD_OUTPUT:
        print(to_json({"file": file, what: count}) if args.json else f"{count} {what} written to {file}")
    return 0


def retract(args: argparse.Namespace, memory: Memory) -> int:
    return _show_one(args, memory.retract(args.id, user=args.user))


def erase(args: argparse.Namespace, memory: Memory) -> int:
    return _show_one(args, memory.erase_user(args.user) if args.all else memory.erase(args.id, user=args.user))


def scrub(args: argparse.Namespace, memory: Memory) -> int:
    clean = memory.scrub()
    if args.json:
        print(to_json({"scrubbed": clean}))
    else:
        print(
            "no erased byte is left" if clean else "bytes may be left: others read the store, or the server keeps them"
        )
    return 0 if clean else 1


def undo(args: argparse.Namespace, memory: Memory) -> int:
    return _show_one(args, memory.undo(args.id))


def redo(args: argparse.Namespace, memory: Memory) -> int:
    event = memory.redo(args.id)
    if args.json:
        return _show_one(args, event)
    print(f"{args.id} counts again: its undo {event.target} is undone by {event.id}")
    return 0


def verify(args: argparse.Namespace, memory: Memory) -> int:
    report = memory.verify(repair=args.repair)
    if args.json:
        print(to_json(report))
    else:
        print("\n".join(report.problems) or "the store is sound and equals its log")
        if report.repaired:
            print(f"rebuilt from the log: {', '.join(report.repaired)}")
    return 0 if report.ok else 1


PREPARE: dict[str, Callable[[argparse.Namespace], None]] = {
    "add": prepare_add, "import": prepare_import, "search": prepare_search, "erase": prepare_erase,
    "review": prepare_review, **cli_replay.PREPARE,
}  # fmt: skip

COMMANDS: dict[str, Callable[[argparse.Namespace, Memory], int]] = {
    "add": add, "import": import_facts, "search": search, "list": list_views, "explain": explain, "history": history,
    "as-of": as_of, "review": review, "retract": retract, "erase": erase, "scrub": scrub, "undo": undo,
    "redo": redo, "verify": verify, "export": export, **cli_replay.COMMANDS,
}  # fmt: skip

CREATES = frozenset({"add", "import"})
"""Commands that may create the store; the others would only show an empty one."""
