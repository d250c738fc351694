"""Items that can be overwritten, on a store whose observations never change.

An item of another library has one id and a text that may be replaced. Here each text is an observation of its own: the
first has the item's id, later ones `~2`, `~3`, ... after it. Replacing adds the new text first and retracts the old one
then, so that a crash in between loses nothing, and `history` still tells what was said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roam.errors import InputError, NotFoundError
from roam.events import Record
from roam.memory import Memory
from roam.records import Decision
from roam.validation import MAX_ID

_MARK = "~"


def item_id(observation_id: str) -> str:
    """Return the item that an observation is a text of."""
    head, mark, number = observation_id.rpartition(_MARK)
    return head if mark and number.isdigit() else observation_id


def texts_of(memory: Memory, item: str, user: str | None = None) -> list[Record]:
    """Return the observations of an item, oldest first; none for an unknown one."""
    found: list[Record] = []
    while True:
        name = item if not found else f"{item}{_MARK}{len(found) + 1}"
        try:
            found.append(memory.get(name, user=user))
        except NotFoundError:
            return found


def replace_text(
    memory: Memory, item: str, text: str, *, user: str, observed_at: str | None = None, source: str | None = None
) -> Decision:
    """Give an item a text, its first or another; the same text again changes nothing.

    Raises:
        InputError: bad input, or an id that holds the mark of versions.
    """
    if item_id(item) != item:
        raise InputError(f"id is {item!r}: an item's id may not end in {_MARK!r} and digits")
    known = texts_of(memory, item, user)
    if not known:
        return memory.add(text, user=user, observed_at=observed_at, source=source, id=item)
    last = known[-1]
    name = last.observation.id
    if last.primary_id is None or last.observation.text != text or last.observation.source != source:
        name = f"{item}{_MARK}{len(known) + 1}"
    decision = memory.add(text, user=user, observed_at=observed_at, source=source, id=name)
    for older in known:
        if older.primary_id is not None and older.observation.id != name:
            memory.retract(older.observation.id, user=user)
    return decision


def erase_item(memory: Memory, item: str, user: str | None = None) -> bool:
    """Erase all texts of an item, newest first, so that a crash leaves no gap in their numbers; False for none."""
    known = texts_of(memory, item, user)
    for record in reversed(known):
        memory.erase(record.observation.id, user=user)
    return bool(known)


def pack(extras: Mapping[str, Any]) -> str | None:
    """Return what an item carries besides its text, as the `source` of an observation.

    Raises:
        InputError: more than fits, or what is no JSON.
    """
    if not extras:
        return None
    try:
        packed = json.dumps(dict(extras), ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"metadata cannot be kept ({error}): give values that JSON has") from error
    if len(packed) > MAX_ID:
        raise InputError(
            f"metadata takes {len(packed)} characters as JSON, at most {MAX_ID} are kept: keep a reference instead"
        )
    return packed


def unpack(source: str | None) -> dict[str, Any]:
    """Return what `pack` kept; a source that it did not write is returned under its own name."""
    if source is None:
        return {}
    if source.startswith("{"):
        try:
            found = json.loads(source)
        except ValueError:
            return {"source": source}
        if isinstance(found, dict):
            return found
    return {"source": source}
