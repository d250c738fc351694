"""Fact families: groups of facts whose mutual relations are known by construction (data/LABELS.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from data.rows import Problem, Row, check_text, raise_problems, read_jsonl, read_source
from roam.errors import DataError

SLOTS: tuple[str, ...] = ("eqv", "spec", "gen", "con", "near")
"""The slots that hold a list of facts; `base` holds one."""


@dataclass(frozen=True, slots=True)
class Family:
    """A base fact and the facts around it.

    `eqv` are equivalent to base and to each other; each of `spec` strictly entails base; each of `gen` is strictly
    entailed by base; each of `con` is incompatible with base; each of `near` is independent of base and of each eqv.
    """

    family: str
    domain: str
    base: str
    eqv: tuple[str, ...] = ()
    spec: tuple[str, ...] = ()
    gen: tuple[str, ...] = ()
    con: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    line: int | None = field(default=None, compare=False)

    def slots(self) -> Mapping[str, tuple[str, ...]]:
        """Texts by slot, `base` first."""
        return {"base": (self.base,)} | {name: getattr(self, name) for name in SLOTS}

    def texts(self) -> tuple[str, ...]:
        """All texts, base first, in slot order."""
        return tuple(text for texts in self.slots().values() for text in texts)


def read_families(path: str | Path, *, strict: bool = True) -> list[Family]:
    """Families of a JSONL file, in file order.

    `DataError` names the first bad lines and counts all of them; `strict=False` leaves bad families out with a warning.
    """
    families, problems = scan_families(path)
    raise_problems(path, problems, strict=strict)
    if not families:
        raise DataError(f"{path}: no families in it; write one JSON object a line with family, domain, base and slots")
    return families


def scan_families(path: str | Path) -> tuple[list[Family], list[Problem]]:
    """The readable families of a file and a problem for each fault found."""
    rows, problems = read_jsonl(path, read_source(path))
    families: list[Family] = []
    lines: dict[str, int] = {}
    for row in rows:
        faults = _faults(row)
        name = str(row.values.get("family"))
        if not faults and name in lines:
            faults = [f"family {name!r} is also on line {lines[name]}; give it a name of its own"]
        problems.extend(Problem(str(path), row.line, "schema", fault) for fault in faults)
        if not faults:
            lines[name] = row.line
            families.append(_family(row))
    return families, sorted(problems, key=lambda problem: problem.line)


def _faults(row: Row) -> list[str]:
    faults: list[str] = []
    for name in ("family", "domain", "base"):
        if name not in row.values:
            faults.append(f"no {name}")
        elif fault := check_text(row.values[name], name):
            faults.append(fault)
    for name in SLOTS:
        texts = row.values.get(name)
        if texts is None:
            faults.append(f"no slot {name}; use [] for an empty one")
        elif not isinstance(texts, list):
            faults.append(f"slot {name} is {texts!r}, not a list of texts")
        else:
            faults += [fault for at, text in enumerate(texts) if (fault := check_text(text, f"{name}[{at}]"))]
    unknown = sorted(set(row.values) - {"family", "domain", "base", *SLOTS})
    if unknown:
        faults.append(f"unknown slot {', '.join(unknown)}; use {', '.join(('base', *SLOTS))}")
    return faults


def _family(row: Row) -> Family:
    def texts(name: str) -> tuple[str, ...]:
        value = row.values[name]
        return tuple(str(text).strip() for text in value) if isinstance(value, list) else ()

    return Family(
        family=str(row.values["family"]).strip(),
        domain=str(row.values["domain"]).strip(),
        base=str(row.values["base"]).strip(),
        eqv=texts("eqv"),
        spec=texts("spec"),
        gen=texts("gen"),
        con=texts("con"),
        near=texts("near"),
        line=row.line,
    )
