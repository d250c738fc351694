"""Fact files for `roam import`: JSONL or CSV, one fact a row, every bad row counted."""

from __future__ import annotations

import csv
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


@dataclass(frozen=True)
class BadRow:
    """A row that holds no usable fact: its line number (from 1) and what is wrong."""

    line: int
    reason: str


@dataclass(frozen=True)
class FactFile:
    """What a fact file holds, in file order."""

    facts: tuple[Observation, ...]
    bad: tuple[BadRow, ...]

    def refusal(self, name: str) -> str:
        """One line that counts the bad rows and spells out the first few."""
        shown = "; ".join(f"line {row.line}: {row.reason}" for row in self.bad[:SHOWN])
        more = f"; and {len(self.bad) - SHOWN} more" if len(self.bad) > SHOWN else ""
        total = len(self.facts) + len(self.bad)
        return f"{name}: {len(self.bad)} of {total} rows are bad ({shown}{more}); correct them or pass --skip-bad"


def read_facts(name: str, content: str, *, user: str | None = None) -> FactFile:
    """Read the facts in a file's text: `text`, `user`, optional `observed_at`, `source`, `id`.

    CSV is told by the ending `.csv`; everything else is JSONL. `user` stands in where a row names none; other columns
    are left alone.

    Raises:
        DataError: a file that is empty, or a CSV without a `text` column.
    """
    rows = _csv_rows(content, name) if name.lower().endswith(".csv") else _json_rows(content)
    return collect_facts(rows, name, user=user)


def collect_facts(rows: Iterable[tuple[int, object]], name: str, *, user: str | None = None) -> FactFile:
    """Check numbered rows that hold facts; `DataError` when there is none."""
    facts: list[Observation] = []
    bad: list[BadRow] = []
    for line, row in rows:
        try:
            facts.append(_fact(row, user))
        except InputError as error:
            bad.append(BadRow(line, str(error)))
    if not facts and not bad:
        raise DataError(f"{name} holds no rows: give JSONL or CSV with at least `text` and `user`")
    return FactFile(tuple(facts), tuple(bad))


def read_content(name: str) -> str:
    """Read a file ("-": standard input); `DataError` for one that cannot be read or is not UTF-8."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}; give an existing JSONL or CSV file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _json_rows(content: str) -> Iterator[tuple[int, object]]:
    for line, text in enumerate(content.split("\n"), start=1):
        if text.strip():
            try:
                yield line, json.loads(text)
            except (ValueError, RecursionError) as error:
                yield line, InputError(f"not JSON ({error})")


def _csv_rows(content: str, name: str) -> Iterator[tuple[int, object]]:
    reader = csv.DictReader(io.StringIO(content, newline=""), strict=True)
    try:
        columns = [(column or "").strip().lower() for column in reader.fieldnames or ()]
        if content.strip() and "text" not in columns:
            raise DataError(
                f"{name} has the columns {columns}, not `text`: name the column that holds the facts `text`"
            )
        reader.fieldnames = columns
        for row in reader:
            # A missing cell and an empty one both mean "not given".
            yield reader.line_num, {key: value or None for key, value in row.items() if isinstance(key, str)}
    except csv.Error as error:
        raise DataError(
            f"{name}, line {reader.line_num}: not CSV ({error}); quote cells that hold commas or quotes"
        ) from None


def _fact(row: object, default_user: str | None) -> Observation:
    if isinstance(row, InputError):
        raise row
    if not isinstance(row, Mapping):
        raise InputError(f"a {type(row).__name__} where an object with `text` and `user` is expected")
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
