"""Fact files for `roam import`: JSONL or CSV, one fact a row, every bad row counted."""

from __future__ import annotations

import csv
import difflib
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from roam.errors import DataError, InputError
from roam.records import Observation
from roam.validation import clean_id, clean_source, clean_text, clean_user, parse_time

SHOWN = 5  # bad rows that the one-line message spells out
SQLITE_HEADER = b"SQLite format 3\x00"
FIELDS = ("text", "user", "observed_at", "source", "id")


@dataclass(frozen=True)
class BadRow:
    """A row that holds no usable fact: its line number (from 1) and what is wrong."""

    line: int
    reason: str


@dataclass(frozen=True)
class FactFile:
    """What a fact file holds, in file order, and the keys that no fact has, which were left out."""

    facts: tuple[Observation, ...]
    bad: tuple[BadRow, ...]
    left_out: tuple[str, ...] = ()

    def refusal(self, name: str) -> str:
        """One line that counts the bad rows and spells out the first few."""
        shown = "; ".join(f"line {row.line}: {row.reason}" for row in self.bad[:SHOWN])
        more = f"; and {len(self.bad) - SHOWN} more" if len(self.bad) > SHOWN else ""
        total = len(self.facts) + len(self.bad)
        return f"{name}: {len(self.bad)} of {total} rows are bad ({shown}{more}); correct them or pass --skip-bad"


def read_facts(name: str, content: str, *, user: str | None = None) -> FactFile:
    """Read the facts in a file's text: `text`, `user`, optional `observed_at`, `source`, `id`.

    CSV is told by the ending `.csv`; everything else is JSONL. `user` stands in where a row names none. A key that
    looks like one of these misspelt makes its row a bad one; other keys are left out and named.

    Raises:
        DataError: a file that is empty, or a CSV without a `text` column or with a misspelt one.
    """
    rows = _csv_rows(content, name) if name.lower().endswith(".csv") else _json_rows(content)
    return collect_facts(rows, name, user=user)


def collect_facts(rows: Iterable[tuple[int, object]], name: str, *, user: str | None = None) -> FactFile:
    """Check numbered rows that hold facts; `DataError` when there is none. An id may occur once."""
    facts: list[Observation] = []
    bad: list[BadRow] = []
    lines: dict[str, int] = {}
    others: dict[str, None] = {}
    for line, row in rows:
        try:
            fact = _fact(row, user)
            if fact.id and lines.setdefault(fact.id, line) != line:
                raise InputError(f"id {fact.id!r} is that of line {lines[fact.id]} too: ids are unique")
            facts.append(fact)
        except InputError as error:
            bad.append(BadRow(line, str(error)))
        if isinstance(row, Mapping):
            others |= dict.fromkeys(str(key) for key in row if key not in FIELDS)
    if not facts and not bad:
        raise DataError(f"{name} holds no rows: give JSONL or CSV with at least `text` and `user`")
    return FactFile(tuple(facts), tuple(bad), tuple(others))


def misspelt(keys: Iterable[object]) -> str | None:
    """What is wrong with keys of which one looks like a field that is not among them; None for others."""
    given = [str(key) for key in keys]
    missing = [field for field in FIELDS if field not in given]
    for key in given:
        if key in FIELDS:
            continue
        nearest = difflib.get_close_matches(key.strip().lower(), missing, n=1)
        if nearest:
            return f"unknown key {key!r}; did you mean {nearest[0]!r}? (keys are {', '.join(FIELDS)})"
    return None


def read_content(name: str) -> str:
    """Read a file ("-": standard input); `DataError` for one that cannot be read or is no UTF-8 text."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        if raw.startswith(SQLITE_HEADER):
            raise DataError(
                f"{name} is an SQLite database, no text file: give JSONL or CSV, or what `roam export` writes; "
                "for mem0's history add --mem0"
            )
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}; give an existing JSONL or CSV file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is no text in UTF-8 (byte {error.start}); give JSONL or CSV, saved as UTF-8") from None


def _json_rows(content: str) -> Iterator[tuple[int, object]]:
    for line, text in enumerate(content.split("\n"), start=1):
        if text.strip():
            try:
                yield line, json.loads(text)
            except (ValueError, RecursionError) as error:
                yield line, InputError(f"not JSON ({error})")


def _csv_rows(content: str, name: str) -> Iterator[tuple[int, object]]:
    reader = csv.reader(io.StringIO(content, newline=""), strict=True)
    try:
        columns = [column.strip().lower() for column in next(reader, [])]
        wrong = misspelt(columns)
        if wrong:
            raise DataError(f"{name}, line 1: {wrong}")
        if content.strip() and "text" not in columns:
            raise DataError(
                f"{name} has the columns {columns}, not `text`: name the column that holds the facts `text`"
            )
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(columns):
                yield (
                    reader.line_num,
                    InputError(f"{len(cells)} cells under {len(columns)} columns; quote cells that hold commas"),
                )
                continue
            # An empty cell means "not given".
            yield reader.line_num, {key: value or None for key, value in zip(columns, cells, strict=True)}
    except csv.Error as error:
        raise DataError(
            f"{name}, line {reader.line_num}: not CSV ({error}); quote cells that hold commas or quotes"
        ) from None


def _fact(row: object, default_user: str | None) -> Observation:
    if isinstance(row, InputError):
        raise row
    if not isinstance(row, Mapping):
        raise InputError(f"a {type(row).__name__} where an object with `text` and `user` is expected")
    wrong = misspelt(row)
    if wrong:
        raise InputError(wrong)
    user = row.get("user") or default_user
    if user is None:
        raise InputError("no `user`; add the column or pass --user")
    given = row.get("id")
    return Observation(
        text=clean_text(row.get("text")),
        user=clean_user(user),
        observed_at=parse_time(row.get("observed_at")),
        source=clean_source(row.get("source")),
        id=clean_id(given) if given is not None else "",
    )
