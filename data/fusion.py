"""Fusion examples and their files: the contract of DESIGN section 6, the convention of data/FUSION.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from data.rows import Problem, Row, check_text, raise_problems, read_jsonl, read_source
from roam.errors import DataError, InputError
from roam.records import TimedText
from roam.relations import Relation, parse_relation

FUSED_RELATIONS: frozenset[Relation] = frozenset(Relation) - {Relation.IND}
"""Relations that fuse views; independent facts stay apart (paper Table 1)."""


@dataclass(frozen=True, slots=True)
class FusionExample:
    """Views to fuse (`inputs`, at least two), the relation that joined them and the view wanted.

    `must_keep` and `must_not` are case-sensitive substring tests of a fused view.
    """

    id: str
    relation: Relation
    inputs: tuple[TimedText, ...]
    target: str
    must_keep: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    line: int | None = field(default=None, compare=False)


def read_fusion(path: str | Path, *, strict: bool = True) -> list[FusionExample]:
    """Fusion examples of a JSONL file, in file order.

    `DataError` names the first bad lines and counts all of them; `strict=False` leaves bad lines out with a warning.
    """
    examples, problems = scan_fusion(path)
    raise_problems(path, problems, strict=strict)
    if not examples:
        raise DataError(f"{path}: no examples in it; write one JSON object a line with id, relation, inputs and target")
    return examples


def scan_fusion(path: str | Path) -> tuple[list[FusionExample], list[Problem]]:
    """The readable examples of a file and a problem for each fault found."""
    rows, problems = read_jsonl(path, read_source(path))
    examples: list[FusionExample] = []
    for row in rows:
        faults: list[tuple[str, str]] = []
        example = _parse_row(row, faults)
        problems.extend(Problem(str(path), row.line, kind, message) for kind, message in faults)
        if not faults:
            examples.append(example)
    return examples, sorted(problems, key=lambda problem: problem.line)


def _parse_row(row: Row, faults: list[tuple[str, str]]) -> FusionExample:
    """The example of one row; it counts only if nothing was added to `faults`."""
    relation = Relation.IND
    try:
        relation = parse_relation(row.values.get("relation"))
        if relation not in FUSED_RELATIONS:
            faults.append(("label", f"relation {relation} fuses nothing; use {', '.join(sorted(FUSED_RELATIONS))}"))
    except InputError as error:
        faults.append(("label", str(error)))
    faults.extend(("schema", fault) for name in ("id", "target") if (fault := check_text(row.values.get(name), name)))
    return FusionExample(
        id=str(row.values.get("id")).strip(),
        relation=relation,
        inputs=_inputs(row.values.get("inputs"), faults),
        target=str(row.values.get("target")).strip(),
        must_keep=_texts(row, "must_keep", faults),
        must_not=_texts(row, "must_not", faults),
        tags=_texts(row, "tags", faults),
        line=row.line,
    )


def _inputs(value: object, faults: list[tuple[str, str]]) -> tuple[TimedText, ...]:
    if not isinstance(value, list) or len(value) < 2:
        faults.append(("schema", f"inputs is {value!r}; use a list of two or more objects with text and time"))
        return ()
    inputs = []
    for at, item in enumerate(value):
        if not isinstance(item, dict):
            faults.append(("schema", f"inputs[{at}] is {item!r}; use an object with text and time"))
            continue
        if fault := check_text(item.get("text"), f"inputs[{at}].text"):
            faults.append(("schema", fault))
        if fault := _time_fault(item.get("time")):
            faults.append(("schema", f"inputs[{at}].time is {fault}"))
        inputs.append(TimedText(str(item.get("text")).strip(), item.get("time")))
    return tuple(inputs)


def _time_fault(value: object) -> str | None:
    if value is None:
        return None
    try:
        datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        return f"{value!r}: use ISO 8601, such as 2026-03-01, or null"
    return None


def _texts(row: Row, name: str, faults: list[tuple[str, str]]) -> tuple[str, ...]:
    """A list of strings, kept as they are (outer spaces count in substring tests); empty when the key is absent."""
    value = row.values.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        faults.append(("schema", f"{name} is {value!r}; use a list of non-empty strings"))
        return ()
    return tuple(value)
