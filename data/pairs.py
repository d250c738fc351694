"""Labelled ordered pairs (OLD, NEW) and their files: the contract of DESIGN section 6.

    >>> pairs = read_pairs("data/relation_test_843.jsonl")
    >>> pairs[0].label
    <Relation.OSN: 'OSN'>

A pair file is JSONL, or CSV with a header (`,` `;` or tab). Needed: old, new and label (or relation), keys and labels
in any case; see `ALIASES` for the other names that are understood.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import cast

from data.rows import (
    CSV_SUFFIXES,
    Problem,
    Row,
    check_text,
    raise_problems,
    read_jsonl,
    read_rows,
)
from roam.errors import DataError, InputError
from roam.relations import RELATIONS, Relation, parse_relation
from roam.writing import write_at_once

ALIASES: Mapping[str, tuple[str, ...]] = {
    "old": ("old", "old_text", "old_fact", "old_memory", "premise", "sentence1", "sentence_a", "text1", "text_a"),
    "new": ("new", "new_text", "new_fact", "new_memory", "hypothesis", "sentence2", "sentence_b", "text2", "text_b"),
    "label": ("label", "relation", "gold_label"),
    "id": ("id", "pair_id", "uid"),
    "group": ("group", "group_id", "family", "persona"),
    "domain": ("domain", "topic"),
    "source": ("source",),
    "old_time": ("old_time", "old_date"),
    "new_time": ("new_time", "new_date"),
    "probs": ("probs", "probabilities"),
    "also": ("also",),
}
"""Accepted keys of each field, lower case, the contract's own name first."""

TEXT_GROUP = "text-"
"""Start of the group names that the reader makes up from shared texts."""

_REQUIRED = ("old", "new", "label")
_PROBABILITY_SLACK = 1e-3


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """One ordered pair of facts about the same user and the relation of NEW to OLD.

    `group` is the persona or family that splits never cut. `probs` are a teacher's or annotators' probabilities by
    relation. `also` are relations that the label is not told apart from: entailment in one direction leaves open
    whether a pair is NSO or EQV. `old_time`, `new_time` are ISO 8601. `line` is where the pair stood in its file; it
    does not take part in equality.
    """

    id: str
    old: str
    new: str
    label: Relation
    group: str
    domain: str | None = None
    source: str | None = None
    old_time: str | None = None
    new_time: str | None = None
    probs: Mapping[Relation, float] | None = field(default=None, hash=False)
    also: tuple[Relation, ...] = ()
    line: int | None = field(default=None, compare=False)


def normalise_text(text: str) -> str:
    """`text` as compared between rows: Unicode NFC, runs of whitespace as one space, case folded."""
    return " ".join(unicodedata.normalize("NFC", text).split()).casefold()


def read_pairs(path: str | Path, *, strict: bool = True) -> list[LabelledPair]:
    """Pairs of a JSONL or CSV file, in file order, texts without outer whitespace.

    A missing id becomes `<file stem>:<line>`. Rows without a group are grouped by the texts they share, directly or
    through other such rows, so that no split can put one text on both sides. `DataError` names the first bad lines and
    counts all of them; `strict=False` leaves bad lines out with a warning instead.
    """
    pairs, problems = scan_pairs(path)
    raise_problems(path, problems, strict=strict)
    if not pairs:
        raise DataError(f"{path}: no pairs in it; write one JSON object a line with old, new and label")
    return pairs


def iter_pairs(path: str | Path, *, lines_at_once: int = 1024) -> Iterator[LabelledPair]:
    """The pairs of a JSONL file one after the other, for files that memory can't hold.

    The first bad line raises `DataError`, and so does a pair without a group: groups can't be found from shared texts
    without having seen the whole file.
    """
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    with Path(path).open(encoding="utf-8-sig", newline="\n") as stream:
        before = 0
        while lines := list(islice(stream, lines_at_once)):
            rows, problems = read_jsonl(path, "".join(lines))
            found = [(row, *_parse_row(row, Path(path).stem)) for row in rows]
            problems += [Problem(str(path), row.line, *fault) for row, _, faults in found for fault in faults]
            problems += [Problem(str(path), row.line, "schema", "no group: a stream needs one in each row")
                         for row, pair, _ in found if pair is not None and not pair.group]  # fmt: skip
            raise_problems(path, [replace(one, line=one.line + before) for one in problems], strict=True)
            for row, pair, _ in found:
                if pair is not None:
                    line = row.line + before
                    named = pair.id == f"{Path(path).stem}:{row.line}"  # made up from the line's number
                    yield replace(pair, line=line, id=f"{Path(path).stem}:{line}" if named else pair.id)
            before += len(lines)


def scan_pairs(path: str | Path) -> tuple[list[LabelledPair], list[Problem]]:
    """The readable pairs of a file and a problem for each fault found; `DataError` only if the file is no such file."""
    rows, problems = read_rows(path, [frozenset(ALIASES[name]) for name in _REQUIRED])
    pairs = []
    for row in rows:
        pair, faults = _parse_row(row, Path(path).stem)
        problems.extend(Problem(str(path), row.line, kind, message) for kind, message in faults)
        if pair is not None:
            pairs.append(pair)
    return with_groups(pairs), sorted(problems, key=lambda problem: problem.line)


def write_pairs(path: str | Path, pairs: Iterable[LabelledPair]) -> None:
    """Write `pairs` as JSONL, or as CSV by suffix, replacing the file at once; unset fields are left out."""
    path = Path(path)
    records = [_record(pair) for pair in pairs]
    if path.suffix.lower() in CSV_SUFFIXES:
        content = _csv_text(records, "\t" if path.suffix.lower() == ".tsv" else ",")
    else:
        content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_at_once(path, content)


def file_sha256(path: str | Path) -> str:
    """SHA-256 of the bytes of a file, as 64 hexadecimal digits."""
    try:
        with Path(path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _parse_row(row: Row, stem: str) -> tuple[LabelledPair | None, list[tuple[str, str]]]:
    """The pair of one row, or None and its faults as (kind, message)."""
    faults: list[tuple[str, str]] = []
    values: dict[str, object] = {}
    for name, keys in ALIASES.items():
        given = [row.values[key] for key in keys if row.values.get(key) is not None]
        if name in _REQUIRED and any(value != given[0] for value in given[1:]):
            faults.append(("schema", f"two different values for {name}: {given[0]!r} and {given[1]!r}"))
        if given:
            values[name] = given[0]
    missing = [name for name in _REQUIRED if name not in values]
    if missing:
        faults.append(("schema", f"no {', no '.join(missing)} (keys: {', '.join(row.values) or 'none'})"))
    faults.extend(
        ("schema", fault) for name in ("old", "new") if name in values and (fault := check_text(values[name], name))
    )
    label: Relation | None = None
    if "label" in values:
        try:
            label = parse_relation(values["label"])
        except InputError as error:
            faults.append(("label", str(error)))
    optional: dict[str, str | None] = {}
    for name in ("id", "group", "domain", "source", "old_time", "new_time"):
        try:
            optional[name] = _parse_name(values.get(name), name)
        except InputError as error:
            faults.append(("schema", str(error)))
    probs: dict[Relation, float] | None = None
    try:
        probs = _parse_probs(values.get("probs"))
    except InputError as error:
        faults.append(("schema", str(error)))
    also: tuple[Relation, ...] = ()
    try:
        also = _parse_also(values.get("also"), label)
    except InputError as error:
        faults.append(("label", str(error)))
    if faults or label is None:
        return None, faults
    pair = LabelledPair(
        id=optional["id"] or f"{stem}:{row.line}",
        old=str(values["old"]).strip(),
        new=str(values["new"]).strip(),
        label=label,
        group=optional["group"] or "",
        domain=optional["domain"],
        source=optional["source"],
        old_time=optional["old_time"],
        new_time=optional["new_time"],
        probs=probs,
        also=also,
        line=row.line,
    )
    return pair, []


def _parse_name(value: object, name: str) -> str | None:
    """A short string field; whole numbers are taken as their digits, blank as missing, times must be ISO 8601."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    fault = check_text(value, name)
    if fault:
        raise InputError(fault)
    text = str(value).strip()
    if name.endswith("_time"):
        try:
            datetime.fromisoformat(text)
        except ValueError:
            raise InputError(f"{name} is {text!r}: use ISO 8601, such as 2026-03-01 or 2026-03-01T09:30") from None
    return text


def _parse_probs(value: object) -> dict[Relation, float] | None:
    """Probabilities by relation name. A bare list is refused: it would leave the label order to chance."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise InputError(f"probs is {value!r}, not a JSON object") from None
    if not isinstance(value, Mapping):
        raise InputError(f'probs is a {type(value).__name__}: use an object by relation, such as {{"IND": 0.9, ...}}')
    probs = {parse_relation(key): number for key, number in value.items()}
    numbers = list(probs.values())
    if len(probs) != len(RELATIONS) or any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
        raise InputError(f"probs needs one number for each of {', '.join(RELATIONS)}, got {dict(value)!r}")
    if not all(0 <= number <= 1 for number in numbers) or not math.isclose(sum(numbers), 1, abs_tol=_PROBABILITY_SLACK):
        raise InputError(f"probs must lie in 0..1 and sum to 1, got {numbers} (sum {sum(numbers):g})")
    return {relation: float(probs[relation]) for relation in RELATIONS}


def _parse_also(value: object, label: Relation | None) -> tuple[Relation, ...]:
    """Relations beside the label: a list of names, or names with spaces between (CSV)."""
    names = value.split() if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, Sequence):
        raise InputError(f'also is a {type(value).__name__}: use a list of relations, such as ["EQV"]')
    found = tuple(parse_relation(name) for name in names)
    if len({*found, label}) != len(found) + 1:
        raise InputError(f"also is {value!r}: name each relation once, and not the label")
    return found


def with_groups(pairs: Sequence[LabelledPair]) -> list[LabelledPair]:
    """Give pairs without a group the group of all such pairs that they share a text with, transitively."""
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        while parent.setdefault(text, text) != text:
            parent[text] = parent[parent[text]]
            text = parent[text]
        return text

    for pair in pairs:
        if not pair.group:
            low, high = sorted((root(normalise_text(pair.old)), root(normalise_text(pair.new))))
            parent[high] = low  # the smallest text names the group whatever the order of the rows
    return [pair if pair.group else replace(pair, group=_text_group(root(normalise_text(pair.old)))) for pair in pairs]


def _text_group(text: str) -> str:
    return TEXT_GROUP + hashlib.sha256(text.encode()).hexdigest()[:12]


def _record(pair: LabelledPair) -> dict[str, object]:
    record: dict[str, object] = {
        "id": pair.id,
        "old": pair.old,
        "new": pair.new,
        "label": pair.label.value,
        "group": pair.group,
    }
    for name in ("domain", "source", "old_time", "new_time"):
        if getattr(pair, name) is not None:
            record[name] = getattr(pair, name)
    if pair.probs is not None:
        record["probs"] = {relation.value: pair.probs[relation] for relation in RELATIONS}
    if pair.also:
        record["also"] = [relation.value for relation in pair.also]
    return record


def _csv_text(records: Sequence[dict[str, object]], delimiter: str) -> str:
    optional = ("domain", "source", "old_time", "new_time", "probs", "also")
    used = ["id", "old", "new", "label", "group", *(name for name in optional if any(name in r for r in records))]
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, used, delimiter=delimiter, restval="", lineterminator="\n")
    writer.writeheader()
    for record in records:
        if "probs" in record:
            record = {**record, "probs": json.dumps(record["probs"])}
        if "also" in record:
            record = {**record, "also": " ".join(map(str, cast(list[str], record["also"])))}
        writer.writerow(record)
    return stream.getvalue()
