"""The five relations between an incoming and a stored fact (paper section 2.2.1), and their fixed order.

`RELATIONS` is the only list in the project that owns a label order; everything else maps by name.
"""

from __future__ import annotations

import difflib
from enum import StrEnum

from roam.errors import LabelError


class Relation(StrEnum):
    """Relation of the NEW fact to the OLD fact of an ordered pair."""

    IND = "IND"  # independent: both can hold, neither entails the other
    EQV = "EQV"  # equivalent: each entails the other
    OSN = "OSN"  # old subsumed by new: the new fact is strictly more specific
    NSO = "NSO"  # new subsumed by old: the old fact is strictly more specific
    CON = "CON"  # conflict: same entity and attribute, incompatible states


RELATIONS: tuple[Relation, ...] = (Relation.IND, Relation.EQV, Relation.OSN, Relation.NSO, Relation.CON)
"""Column order of every probability array."""

INDEX: dict[Relation, int] = {relation: column for column, relation in enumerate(RELATIONS)}

PRIORITY: tuple[Relation, ...] = (Relation.CON, Relation.OSN, Relation.EQV, Relation.NSO, Relation.IND)
"""Highest priority first (paper equation 7)."""

SWAPPED: dict[Relation, Relation] = {
    Relation.IND: Relation.IND,
    Relation.EQV: Relation.EQV,
    Relation.OSN: Relation.NSO,
    Relation.NSO: Relation.OSN,
    Relation.CON: Relation.CON,
}
"""The relation of the same two texts when OLD and NEW change places."""


def parse_relation(value: object) -> Relation:
    """Return the relation named by `value` in any case; raise `LabelError` for everything else."""
    if isinstance(value, Relation):
        return value
    name = value.strip().upper() if isinstance(value, str) else ""
    if name in Relation.__members__:
        return Relation[name]
    nearest = difflib.get_close_matches(name, Relation.__members__, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise LabelError(f"unknown relation {value!r}: use one of {', '.join(RELATIONS)}{hint}")
