"""Rows of text data files (JSONL, CSV) with their line numbers, and the problems met while reading them.

The readers of pair, family and fusion files stand on this module: it knows files, lines and keys, not their meaning.
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roam.errors import DataError

SHOWN_PROBLEMS = 5
"""How many bad lines an error message spells out; all of them are counted."""

CSV_DELIMITERS = (",", ";", "\t")
CSV_SUFFIXES = frozenset({".csv", ".tsv"})
JSONL_SUFFIXES = frozenset({".jsonl", ".ndjson", ".json"})
_WHITESPACE_CONTROLS = frozenset("\t\n\r")


@dataclass(frozen=True, slots=True)
class Problem:
    """One bad line of a file: `kind` is a short snake_case name, `message` says value got and value allowed."""

    path: str
    line: int
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a file: the line it starts at and its values by lower-cased key, in file order."""

    line: int
    values: dict[str, object]


def read_source(path: str | Path) -> str:
    """The text of a UTF-8 file with or without a byte-order mark; `DataError` when it cannot be read as such."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; give a JSONL or CSV file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); convert it to UTF-8 first") from error


def is_csv(path: str | Path, text: str) -> bool:
    """Whether the file is read as CSV: by its suffix, otherwise by whether its first character opens a JSON value."""
    suffix = Path(path).suffix.lower()
    if suffix in CSV_SUFFIXES:
        return True
    if suffix in JSONL_SUFFIXES:
        return False
    return text.lstrip()[:1] not in {"{", "["}


def read_rows(path: str | Path, required: Sequence[frozenset[str]]) -> tuple[list[Row], list[Problem]]:
    """Rows of a JSONL or CSV file and the problems met; a CSV header needs a column of each set in `required`."""
    text = read_source(path)
    return read_csv(path, text, required) if is_csv(path, text) else read_jsonl(path, text)


def read_jsonl(path: str | Path, text: str) -> tuple[list[Row], list[Problem]]:
    """Objects of a JSONL text, one a line; blank lines are skipped, lines that are no object become problems."""
    rows: list[Row] = []
    problems: list[Problem] = []
    # Not splitlines(): U+2028 and the like may stand unescaped inside a JSON string.
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            value = json.loads(content, object_pairs_hook=_unique_keys)
        except (ValueError, RecursionError) as error:
            problems.append(Problem(str(path), line, "malformed", f"not JSON: {error}; write one object a line"))
            continue
        if not isinstance(value, dict):
            message = f"a JSON {type(value).__name__}, not an object; write one object a line"
            problems.append(Problem(str(path), line, "malformed", message))
            continue
        values = {key.strip().lower(): item for key, item in value.items()}
        if len(values) < len(value):
            message = f"keys that differ in case only: {', '.join(value)}"
            problems.append(Problem(str(path), line, "malformed", message))
            continue
        rows.append(Row(line, values))
    return rows, problems


def _unique_keys(items: list[tuple[str, object]]) -> dict[str, object]:
    """json.loads would let the last of two equal keys win silently: two labels of one row must be an error."""
    values = dict(items)
    if len(values) < len(items):
        raise ValueError(f"a key is there twice in {[key for key, _ in items]}")
    return values


def read_csv(path: str | Path, text: str, required: Sequence[frozenset[str]]) -> tuple[list[Row], list[Problem]]:
    """Rows of a CSV text with a header.

    The delimiter is the one of `,` `;` tab under which the header has a column of each set in `required`; `DataError`
    when there is none. Rows with too many or too few fields become problems; empty fields are left out of `values`.
    """
    delimiter, header = _sniff_header(path, text, required)
    rows: list[Row] = []
    problems: list[Problem] = []
    for line, fields in _csv_records(path, text, delimiter):
        if line == 1 or not any(field.strip() for field in fields):
            continue
        if len(fields) != len(header):
            message = f"{len(fields)} fields where the header has {len(header)}; quote fields that hold {delimiter!r}"
            problems.append(Problem(str(path), line, "malformed", message))
            continue
        rows.append(Row(line, {key: field for key, field in zip(header, fields, strict=True) if field.strip()}))
    return rows, problems


def _sniff_header(path: str | Path, text: str, required: Sequence[frozenset[str]]) -> tuple[str, list[str]]:
    headers = {}
    for delimiter in CSV_DELIMITERS:
        _, fields = next(_csv_records(path, text, delimiter), (1, []))
        headers[delimiter] = [field.strip().lower() for field in fields]
        if all(names & set(headers[delimiter]) for names in required):
            if len(set(headers[delimiter])) < len(headers[delimiter]):
                raise DataError(f"{path}:1: a column is there twice in the header {headers[delimiter]}")
            return delimiter, headers[delimiter]
    longest = max(headers.values(), key=len)
    wanted = "; ".join(" or ".join(sorted(names)) for names in required)
    raise DataError(
        f"{path}:1: the header has columns {longest}; needed, separated by comma, semicolon or tab: {wanted}"
    )


def _csv_records(path: str | Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for fields in reader:
            yield line, fields
            line = reader.line_num + 1  # a quoted field may hold line breaks: a record starts after the last one's end
    except csv.Error as error:
        raise DataError(f"{path}:{line}: not CSV: {error}") from error


def check_text(value: object, name: str) -> str | None:
    """What is wrong with `value` as a text of field `name`, or None: not a string, blank, control characters."""
    if not isinstance(value, str):
        return f"{name} is {value!r}, not a text"
    if not value.strip():
        return f"{name} is empty"
    for character in value:
        # Cc: control characters; Cs: halves of surrogate pairs, which UTF-8 cannot write.
        if unicodedata.category(character) in {"Cc", "Cs"} and character not in _WHITESPACE_CONTROLS:
            return f"{name} holds the control character U+{ord(character):04X}"
    return None


def raise_problems(path: str | Path, problems: Sequence[Problem], *, strict: bool) -> None:
    """Raise `DataError` that names the first bad lines and counts all; when not `strict`, warn in the same words."""
    if not problems:
        return
    lines = len({problem.line for problem in problems})
    shown = "\n".join(f"  {problem}" for problem in problems[:SHOWN_PROBLEMS])
    more = len(problems) - SHOWN_PROBLEMS
    rest = f"\n  ... and {more} more; `python -m data.check {path}` lists them" if more > 0 else ""
    message = f"{path}: {lines} bad line{'s' if lines > 1 else ''}:\n{shown}{rest}"
    if strict:
        raise DataError(message)
    warnings.warn(f"{message}\n  these lines are left out", stacklevel=3)
