"""Update stores: a few facts, and updates that each contradict one of them (the form of Letta's core-memory bench).

File format (JSONL, one store a line): `store, atoms[{id, text, time?}], questions[{question, answer, gold_atom_ids[],
update{text, answer_after, time?}}]`. Each question belongs to one update, which is tried on a store of its own.
Letta's own file states no licence: measure with it, and do not pass its sentences on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eval.record_files import Record, iso_time, read_records, require_list, require_text, require_unique
from eval.store_run import Fact

QUOTES = "\"“”'"
UPDATE_ID = "update"
"""Id of the contradicting fact in its store; no atom may be called that."""


@dataclass(frozen=True, slots=True)
class Update:
    """One fact that contradicts `gold` facts of its store, and the question whose answer it changes."""

    question: str
    answer: str
    gold: tuple[str, ...]
    fact: Fact
    answer_after: str


@dataclass(frozen=True, slots=True)
class UpdateStore:
    """The facts of one store in file order, and the updates to try on them."""

    id: str
    facts: tuple[Fact, ...]
    updates: tuple[Update, ...]


def read_update_stores(path: str | Path) -> list[UpdateStore]:
    """Read an update file; `DataError` names the first bad lines and counts all of them."""
    return read_records(path, _parse, "update stores", "eval/update_stores.py")


def _parse(row: Record) -> UpdateStore:
    facts = tuple(
        Fact(str(atom["id"]), require_text(atom, "text"), iso_time(atom["time"]) if atom.get("time") else None)
        for atom in require_list(row, "atoms")
    )
    ids = [fact.id for fact in facts]
    require_unique([*ids, UPDATE_ID], "atom id")
    updates = tuple(_update(question, frozenset(ids)) for question in require_list(row, "questions"))
    if not facts or not updates:
        raise ValueError(f"store {row['store']!r} has {len(facts)} atoms and {len(updates)} questions: give both")
    return UpdateStore(str(row["store"]), facts, updates)


def _update(question: Record, ids: frozenset[str]) -> Update:
    gold = tuple(str(identifier) for identifier in require_list(question, "gold_atom_ids"))
    unknown = [identifier for identifier in gold if identifier not in ids]
    if not gold or unknown:
        raise ValueError(f"gold_atom_ids {list(gold)}: name at least one atom of the store and no other")
    update = question["update"]
    text = require_text(update, "text").strip()
    if text[0] in QUOTES and text[-1] in QUOTES:  # some generated updates come as a quotation; the quotes say nothing
        text = text.strip(QUOTES)
    return Update(
        question=require_text(question, "question"),
        answer=str(question.get("answer", "")),
        gold=gold,
        fact=Fact(UPDATE_ID, text, iso_time(update["time"]) if update.get("time") else None),
        answer_after=str(update.get("answer_after", "")),
    )
