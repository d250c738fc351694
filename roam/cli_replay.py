"""Commands that decide or index anew what is stored: `replay` and `reindex`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roam.memory import Memory
    from roam.replaying import Replay


def replay_options(parser: argparse.ArgumentParser) -> None:
    """Options of `roam replay`."""
    parser.add_argument(
        "--threshold", action="append", default=[], metavar="RELATION=PROBABILITY",
        help="another least probability for a relation to count, e.g. CON=0.9; may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--apply", action="store_true", help="make it the state; `roam undo` of the event takes it back"
    )


def prepare_replay(args: argparse.Namespace) -> None:
    """Check the arguments and read `--threshold` into a mapping."""
    from roam.errors import InputError
    from roam.policy import check_thresholds
    from roam.validation import clean_user

    clean_user(args.user)
    given: dict[str, float] = {}
    for entry in args.threshold:
        name, _, value = entry.partition("=")
        try:
            given[name] = float(value)
        except ValueError:
            raise InputError(f"--threshold is {entry!r}: give a relation and a probability, such as CON=0.9") from None
    args.thresholds = check_thresholds(given)


def replay(args: argparse.Namespace, memory: Memory) -> int:
    """Decide a user's facts anew by the manager and thresholds given; show the difference, and apply it on request."""
    from roam.cli_render import plain, to_json

    thresholds = {relation.value: value for relation, value in {**memory.thresholds, **args.thresholds}.items()}
    found = memory.replay(user=args.user, thresholds=thresholds)
    event = memory.apply(found) if args.apply else None
    if args.json:
        shown = ("user", "moved", "relations_now", "relations_then", "views_then", "forward_passes")
        record = {name: plain(getattr(found, name)) for name in shown}
        print(to_json({**record, "thresholds": thresholds, "applied": None if event is None else event.id}))
    else:
        print(_text(found))
        if event is not None:
            print(f"applied (event {event.id}; `roam undo {event.id}` takes it back)")
    return 0


def _text(found: Replay) -> str:
    """The observations that would stand elsewhere, and how many decisions of each relation there are now and then."""
    lines = [
        f"{moved.observation.id}  {moved.observation.text}\n"
        f"    {_place(moved.observation.id, moved.now)} -> {_place(moved.observation.id, moved.then)}"
        for moved in found.moved
    ] or ["no fact would stand elsewhere"]
    counts = [
        f"{relation} {found.relations_now[relation]} -> {found.relations_then[relation]}"
        for relation in found.relations_now
    ]
    return "\n".join([*lines, f"decisions now -> then: {'  '.join(counts)}"])


def _place(id: str, primary: str | None) -> str:
    if primary is None:
        return "out of the state"
    return "Primary" if primary == id else f"Evidence of {primary}"


def reindex(args: argparse.Namespace, memory: Memory) -> int:
    """Say what opening the store with `reindex=True` has done."""
    from roam.cli_render import to_json

    done = memory.reindexed
    if done is None:
        raise AssertionError("this command opens the store with reindex=True")
    if args.json:
        print(to_json(done))
    else:
        print(f"{done.observations} observations of {done.users} users embedded anew with {done.embedder}")
    return 0


PREPARE: dict[str, Callable[[argparse.Namespace], None]] = {"replay": prepare_replay}
COMMANDS: dict[str, Callable[[argparse.Namespace, Memory], int]] = {"replay": replay, "reindex": reindex}
