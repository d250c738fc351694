"""What a check of data files can find: one record a fault, in the words the report and the JSON use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MEANINGS: Mapping[str, str] = {
    "malformed": "lines that are no record",
    "schema": "missing fields, wrong types, empty texts, bad times",
    "label": "labels that are none of the five",
    "duplicate": "the same record twice",
    "duplicate_id": "one id for two records",
    "two_labels": "one ordered pair with two labels",
    "swap_conflict": "(a, b) and (b, a) with labels that contradict each other",
    "identical_not_eqv": "the same text on both sides, not labelled EQV",
    "class_missing": "relations without an example",
    "slot_conflict": "one text in two slots of a family that exclude each other",
    "family_conflict": "pairs that two families give two labels",
    "keep_not_in_target": "must_keep strings that the target lacks",
    "keep_not_in_input": "must_keep strings that no input holds",
    "forbidden_in_target": "must_not strings that the target holds",
    "two_targets": "the same inputs and relation with two targets",
    "convention": "targets that break the line convention of data/FUSION.md",
    "group_cut": "groups that stand in two files",
    "shared_text": "texts that stand in two files",
    "giveaway": "labels that one text or the length alone predict too well",
}
"""Every kind of finding, in report order, and what it means."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: its kind (a key of `MEANINGS`), where it is and what is wrong there."""

    kind: str
    places: tuple[Place, ...]
    message: str

    def __str__(self) -> str:
        where = ", ".join(str(place) for place in self.places)
        return f"{where}: {self.message}" if where else self.message

    def to_json(self) -> dict[str, object]:
        places = [{"path": place.path, "line": place.line} for place in self.places]
        return {"kind": self.kind, "places": places, "message": self.message}


def by_kind(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings by kind, kinds in report order, those without a finding left out."""
    out: dict[str, list[Finding]] = {kind: [] for kind in MEANINGS}
    for finding in findings:
        out[finding.kind].append(finding)
    return {kind: found for kind, found in out.items() if found}
