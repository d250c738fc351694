"""Reading benchmark files: JSON Lines or one JSON array, every bad record named, and the dates they use."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from roam.errors import DataError

SHOWN_PROBLEMS = 3
T = TypeVar("T")
Record = Mapping[str, Any]

_WEEKDAY = re.compile(r"\s*\([A-Za-z]{3}\)\s*")
_FORMATS = ("%Y/%m/%d %H:%M", "%Y/%m/%d", "%I:%M %p on %d %B, %Y")
"""Of LongMemEval and MEME, with and without a time of day, and of LoCoMo; ISO 8601 is tried first."""


def read_records(path: str | Path, parse: Callable[[Record], T], what: str, source: str) -> list[T]:
    """Return `parse` of every record of a JSON Lines file, or of a file that is one JSON array.

    Args:
        parse: makes a value of one JSON object; a ValueError, KeyError, TypeError or AttributeError says it is bad.
        what: what a record is, in the plural, for messages ("episodes").
        source: where the format is described, for messages ("eval/episodes.py").

    Raises:
        DataError: names the first bad records by line (or by position in an array) and counts all of them.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error}); give a file of {what}") from error
    found: list[T] = []
    problems: list[str] = []
    for place, value in _values(path, text):
        try:
            if isinstance(value, ValueError):
                raise value
            if not isinstance(value, Mapping):
                raise TypeError(f"a JSON {type(value).__name__}, not an object")
            found.append(parse(value))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append(f"{path}:{place}: " + (f"no {error}" if isinstance(error, KeyError) else str(error)))
    if problems:
        shown = "; ".join(problems[:SHOWN_PROBLEMS])
        raise DataError(f"{len(problems)} bad {what}, the first: {shown}; the format is described in {source}")
    if not found:
        raise DataError(f"{path}: no {what} in it; write one JSON object a line (format: {source})")
    return found


def _values(path: str | Path, text: str) -> Iterator[tuple[str, object]]:
    """(line or position, value or the error of reading it) of every record."""
    if text.lstrip().startswith("["):
        try:
            array = json.loads(text)
        except ValueError as error:
            raise DataError(f"{path}: starts as a JSON array and is none ({error}); mend or cut it") from error
        yield from ((f"[{position}]", value) for position, value in enumerate(array))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield str(number), json.loads(line)
            except ValueError as error:
                yield str(number), error


def iso_time(value: object) -> str:
    """The ISO 8601 form of a date as the benchmarks write them; ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"time {value!r} is not a text")
    text = _WEEKDAY.sub(" ", value).strip()
    try:
        datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return text
    for form in _FORMATS:
        try:
            return datetime.strptime(text, form).isoformat(timespec="minutes")
        except ValueError:
            continue
    raise ValueError(
        f"time {value!r}: write an ISO 8601 date, 2023/04/10 (Mon) 14:47 as LongMemEval does, or LoCoMo's form"
    )


def require_text(record: Record, key: str) -> str:
    """The non-blank text under `key`; KeyError or ValueError otherwise."""
    value = record[key]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key} is {value!r}, not a text")
    return value


def require_list(record: Record, key: str) -> Sequence[Any]:
    """The list under `key`; KeyError or ValueError otherwise."""
    value = record[key]
    if not isinstance(value, list):
        raise ValueError(f"{key} is a {type(value).__name__}, not a list")
    return value


def require_unique(ids: Sequence[str], what: str) -> None:
    """ValueError when an id is there twice."""
    seen: set[str] = set()
    for identifier in ids:
        if identifier in seen:
            raise ValueError(f"{what} {identifier!r} is there twice")
        seen.add(identifier)
