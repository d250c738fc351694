"""A whole store as JSONL, and back: the log and the judgements, from which all else is derived.

The first line says what the file is, the last how many lines it has and their SHA-256. Between them come, user by user,
the observations and the events in their order, then the judgements. No row number of the store is in it, and no vector:
the same content gives the same bytes wherever it is kept, and it can be taken into a store with another embedder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from roam.errors import DataError, InputError, StoreError
from roam.events import Event, ImportReport, decode_event, encode_payload
from roam.judgement_rows import JudgementRow, iso
from roam.judging import check_probabilities
from roam.records import Observation
from roam.revision import Log, Reviser
from roam.state import State
from roam.storage import Store
from roam.validation import clean_id, clean_source, clean_text, clean_user, parse_time
from roam.verification import log_problems

KIND = "roam-export"
VERSION = 1
SHOWN = 5  # bad lines that a message spells out


@dataclass(slots=True)
class Block:
    """One user's part of an export, in order; `known_after` of a judgement counts the user's events."""

    lines: list[str] = field(default_factory=list)
    observations: list[tuple[Observation, datetime]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    judgements: list[JudgementRow] = field(default_factory=list)


def is_export(content: str) -> bool:
    """Whether a file's text begins as an export does."""
    return content.startswith(f'{{"kind":"{KIND}"')


def export_lines(store: Store, users: Iterable[str], *, receipts: bool) -> Iterator[str]:
    """Yield the lines of an export; `receipts` adds those of users that were erased whole."""
    digest, count = hashlib.sha256(), 0
    for line in _content(store, users, receipts=receipts):
        digest.update(f"{line}\n".encode())
        count += 1
        yield line
    yield _dump({"kind": "end", "lines": count, "sha256": digest.hexdigest()})


def _content(store: Store, users: Iterable[str], *, receipts: bool) -> Iterator[str]:
    yield _dump({"kind": KIND, "version": VERSION})
    if receipts:
        yield from _user_lines(store, "")
    for user in users:
        yield from _user_lines(store, user)


def _user_lines(store: Store, user: str) -> Iterator[str]:
    for entry in store.observations(user):
        yield _dump({
            "kind": "observation",
            "user": user,
            "id": entry.id,
            "text": entry.text,
            "observed_at": iso(entry.observed_at),
            "source": entry.source,
            "recorded_at": iso(store.recorded_at(entry.id)),
        })  # fmt: skip
    events = store.events(user)
    for event in events:
        yield _dump({
            "kind": "event",
            "user": user,
            "id": event.id,
            "event": event.kind.value,
            "observation_id": event.observation_id,
            "recorded_at": iso(event.recorded_at),
            "payload": json.loads(encode_payload(event)),
        })  # fmt: skip
    order = np.array([event.sequence for event in events], dtype=np.int64)
    for row in store.judgement_rows(user):
        yield _dump({
            "kind": "judgement",
            "user": user,
            "new": row.new_hash,
            "old": row.old_hash,
            "model": row.model,
            "probabilities": [float(value) for value in row.probabilities],
            "known_after": int(np.searchsorted(order, row.known_after, side="right")),
        })  # fmt: skip


def _dump(record: Mapping[str, object]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def read_export(path: str | Path) -> dict[str, Block]:
    """Read and check an export: {user: its part}; the receipts of erased users stand under "".

    Raises:
        DataError: no export, one of a newer version, cut off or altered, or with bad lines; all of them are counted.
    """
    try:
        content = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; give a file that export_jsonl wrote") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 (byte {error.start}): export the store again") from None
    return parse_export(content, str(path))


def parse_export(content: str, name: str) -> dict[str, Block]:
    """Check the text of an export and return its parts; see `read_export`."""
    if not is_export(content):
        raise DataError(f"{name} is no export of a store: give a file that export_jsonl or `roam export` wrote")
    lines = content.split("\n")
    if lines[0] != _dump({"kind": KIND, "version": VERSION}):
        raise DataError(f"{name} begins with {lines[0]!r:.80}, this roam reads version {VERSION}: upgrade roam")
    body = _check_end(lines, name)
    blocks: dict[str, Block] = {}
    bad: list[str] = []
    for number, line in enumerate(body[1:], start=2):
        try:
            record = json.loads(line)
            user = record["user"] if record["user"] == "" else clean_user(record["user"])
            block = blocks.setdefault(user, Block())
            _READERS[record["kind"]](record, block)
            block.lines.append(line)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            bad.append(f"line {number}: {type(error).__name__} {error}")
    if bad:
        more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        raise DataError(f"{name}: {len(bad)} bad lines ({'; '.join(bad[:SHOWN])}{more}): export the store again")
    return blocks


def _check_end(lines: list[str], name: str) -> list[str]:
    """Return the lines that the last one vouches for."""
    body, last = lines[:-2], lines[-2] if len(lines) > 2 and not lines[-1] else ""
    digest = hashlib.sha256("".join(f"{line}\n" for line in body).encode()).hexdigest()
    if last != _dump({"kind": "end", "lines": len(body), "sha256": digest}):
        raise DataError(f"{name} was cut off or altered: its last line does not vouch for it; export the store again")
    return body


def _read_observation(record: Mapping[str, Any], block: Block) -> None:
    observation = Observation(
        text=clean_text(record["text"]),
        user=clean_user(record["user"]),
        observed_at=parse_time(record["observed_at"]),
        source=clean_source(record["source"]),
        id=clean_id(record["id"]),
        sequence=len(block.observations) + 1,
    )
    if observation.text != record["text"]:
        raise InputError("text is not in the form in which texts are kept")
    block.observations.append((observation, datetime.fromisoformat(record["recorded_at"])))


def _read_event(record: Mapping[str, Any], block: Block) -> None:
    event = decode_event(
        len(block.events) + 1,
        clean_id(record["id"]),
        record["user"],
        record["event"],
        record["observation_id"],
        record["recorded_at"],
        json.dumps(record["payload"]),
    )
    block.events.append(event)


def _read_judgement(record: Mapping[str, Any], block: Block) -> None:
    probabilities = check_probabilities([record["probabilities"]], 1, str(record["model"]))[0]
    rank = record["known_after"]
    if not isinstance(rank, int) or not 0 <= rank <= len(block.events):
        raise InputError(f"known_after is {rank!r}: give a number of events")
    row = JudgementRow(str(record["model"]), str(record["new"]), str(record["old"]), probabilities, rank)
    block.judgements.append(row)


_READERS: Mapping[str, Callable[[Mapping[str, Any], Block], None]] = {
    "observation": _read_observation,
    "event": _read_event,
    "judgement": _read_judgement,
}


def take_in(store: Store, reviser: Reviser, blocks: Mapping[str, Block]) -> ImportReport:
    """Write the parts of an export in one transaction; texts are embedded before it begins."""
    with store.snapshot():
        skipped = [user for user, block in blocks.items() if user and _is_there(store, user, block)]
    fresh = {user: block for user, block in blocks.items() if user not in skipped}
    plans = {user: reviser.plan_rebuild(_checked(user, block)) for user, block in fresh.items() if user}
    with store.transaction(None):
        for user, block in fresh.items():
            _refuse_taken(store, user, block)
            _insert(store, user, block)
            if user:
                plans[user]({entry.id: entry for entry in store.observations(user)})
    return ImportReport(
        users=len(plans),
        observations=sum(len(block.observations) for block in fresh.values()),
        events=sum(len(block.events) for block in fresh.values()),
        skipped=tuple(skipped),
    )


def _is_there(store: Store, user: str, block: Block) -> bool:
    return list(_user_lines(store, user)) == block.lines


def _checked(user: str, block: Block) -> Log:
    """Return a part as a log; refuse one that is not the log of a store, for example one with a decision missing."""
    observations = {entry.id: entry for entry, _ in block.observations}
    log = Log(user, len(block.events), block.events, observations)
    try:
        found = [*log_problems(log), *_state_problems(log.state(), observations)]
    except (LookupError, TypeError, StoreError) as error:
        found = [f"its events do not follow from each other ({type(error).__name__} {error})"]
    if found:
        raise DataError(f"the export of user {user!r} is no sound log: {found[0]}; export the store again")
    return log


def _state_problems(state: State, observations: Mapping[str, Observation]) -> Iterator[str]:
    primaries = {id for id, primary in state.primary_of.items() if id == primary}
    if primaries != state.views.keys() or not primaries.issuperset(state.primary_of.values()):
        yield "its state has Evidence without a Primary, or a Primary without a view"
    if not observations.keys() >= state.primary_of.keys():
        yield "its state holds an observation that is not in it"


def _refuse_taken(store: Store, user: str, block: Block) -> None:
    if user and (store.observations(user, limit=1) or store.events(user, limit=1)):
        raise InputError(
            f"user {user!r} is in this store with other content: erase that user first, or import into another store"
        )
    for entry, _ in block.observations:
        if store.find_observation(entry.id) is not None:
            raise InputError(f"observation id {entry.id!r} is taken in this store: import into another store")
    for event in block.events:
        if user and store.find_event(event.id) is not None:
            raise InputError(f"event id {event.id!r} is taken in this store: import into another store")


def _insert(store: Store, user: str, block: Block) -> None:
    for observation, recorded_at in block.observations:
        store.insert_observation(observation, recorded_at)
    for event in block.events:
        if user or store.find_event(event.id) is None:
            store.append_event(event)
    order = [0, *(event.sequence for event in store.events(user))]
    for row in block.judgements:
        store.save_judgement(user, replace(row, known_after=order[row.known_after]))
