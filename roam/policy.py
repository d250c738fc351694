"""The deterministic policy: which record survives, which become Evidence (paper Algorithm 1, equations 7-9, Table 1).

Pure functions without input or output. `DESIGN` section 4 fixes what the paper leaves open: late arrivals (4.1), a
generality that several specifics entail (4.2) and abstention below a threshold (4.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from roam.errors import InputError
from roam.relations import PRIORITY, RELATIONS, Relation, parse_relation


@dataclass(frozen=True, slots=True)
class Stamp:
    """A record as the policy sees it: who it is and when it was observed.

    `observed_at` is the record's own time; `affirmed_at` is the latest known time among all that its view stands for
    (a restatement in June shows that a state first told in January still held in June). `sequence` is arrival order.
    """

    id: str
    sequence: int
    observed_at: datetime | None = None
    affirmed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RoleUpdate:
    """The selected relation r*, the matched set H, the survivor M* and D, the records that become Evidence."""

    relation: Relation
    primary_id: str
    demoted_ids: tuple[str, ...] = ()
    matched_ids: tuple[str, ...] = ()


def count_relation(
    probabilities: Mapping[Relation, float], thresholds: Mapping[Relation, float]
) -> tuple[Relation, Relation]:
    """Return (relation that counts, argmax) for one pair.

    The argmax counts when it reaches its threshold; below it the pair counts as IND (DESIGN 4.5). Ties of the argmax
    go to the relation that demotes least, that is to the lowest priority.
    """
    cautious_first = tuple(reversed(PRIORITY))
    raw = max(cautious_first, key=lambda relation: probabilities.get(relation, 0.0))
    if raw is Relation.IND or probabilities[raw] >= thresholds.get(raw, 0.0):
        return raw, raw
    return Relation.IND, raw


def check_thresholds(thresholds: Mapping[Relation, float] | Mapping[str, float]) -> dict[Relation, float]:
    """Return `thresholds` keyed by relation; raise `InputError` for a value outside 0..1 or an unknown relation."""
    checked: dict[Relation, float] = {}
    for name, value in thresholds.items():
        relation = parse_relation(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise InputError(f"threshold of {relation} is {value!r}: give a probability between 0 and 1")
        checked[relation] = float(value)
    return checked


def select_relation(relations: Sequence[Relation]) -> Relation:
    """Return the highest-priority relation, CON > OSN > EQV > NSO > IND (equation 7); IND when there is none."""
    return min(relations, key=PRIORITY.index, default=Relation.IND)


def in_time_order(stamps: Sequence[Stamp], *, affirmed: bool = False) -> list[Stamp]:
    """Sort by observation time; undated records keep their place in arrival order, ties go by arrival.

    With `affirmed` the time of a record is the last time its state was affirmed. For two records this is: the earlier
    time first when both are known and differ, else the earlier arrival first.
    """
    arrival = sorted(stamps, key=lambda stamp: stamp.sequence)

    def time_of(stamp: Stamp) -> datetime | None:
        return (stamp.affirmed_at or stamp.observed_at) if affirmed else stamp.observed_at

    dated = sorted(
        ((time, stamp.sequence, stamp) for stamp in arrival if (time := time_of(stamp)) is not None),
        key=lambda entry: entry[:2],
    )
    queue = iter(dated)
    return [stamp if time_of(stamp) is None else next(queue)[2] for stamp in arrival]


def update_roles(new: Stamp, judged: Sequence[tuple[Stamp, Relation]]) -> RoleUpdate:
    """Apply Table 1 to one observation and the relation that counts for each candidate Primary.

    Args:
        new: the incoming record.
        judged: each candidate with the relation of the NEW record to it; a candidate may appear once.

    Raises:
        InputError: a relation that is not one of the five, or a candidate named twice.
    """
    seen = [stamp.id for stamp, _ in judged]
    if len(set(seen)) != len(seen) or new.id in seen:
        raise InputError(f"candidates {seen} of {new.id}: give each stored record once and never the new one itself")
    for _, relation in judged:
        if relation not in RELATIONS:
            raise InputError(f"unknown relation {relation!r}: use one of {', '.join(RELATIONS)}")
    selected = select_relation([relation for _, relation in judged])
    if selected is Relation.IND:
        return RoleUpdate(Relation.IND, new.id)
    matched = in_time_order([stamp for stamp, relation in judged if relation is selected])
    survivor, demoted = _survivor(selected, new, matched)
    return RoleUpdate(
        relation=selected,
        primary_id=survivor.id,
        demoted_ids=tuple(stamp.id for stamp in demoted),
        matched_ids=tuple(stamp.id for stamp in matched),
    )


def _survivor(relation: Relation, new: Stamp, matched: list[Stamp]) -> tuple[Stamp, list[Stamp]]:
    """Return (M*, D) for a non-independent relation; `matched` is in time order."""
    if relation is Relation.OSN:
        return new, matched
    if relation is Relation.EQV:
        # All matches state the same thing: the earliest anchor stays, the duplicates and the new record go.
        return matched[0], [*matched[1:], new]
    if relation is Relation.NSO:
        # Two specifics that both entail the new generality are not redundant with each other (DESIGN 4.2).
        return matched[0], [new]
    # CON: the state affirmed last is current, so a late arrival never displaces a newer state (DESIGN 4.1). In a
    # chronological stream that is always the new record, as in Table 1.
    ordered = in_time_order([*matched, new], affirmed=True)
    return ordered[-1], ordered[:-1]
