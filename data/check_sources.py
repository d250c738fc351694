"""Checks of family files and of fusion files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from data.build import ordered_pairs
from data.families import SLOTS, Family
from data.findings import Finding, Place
from data.fusion import FusionExample
from data.pairs import normalise_text
from roam.relations import Relation

# What a fuser writes itself (FUSION.md): counts, the words of the safety net, the marker of the current value.
_WRITTEN = re.compile(r"once|twice|\w+ times|previously|now|->|\(?current\b.*", re.IGNORECASE)


def check_families(located: Sequence[tuple[Family, Place]]) -> Iterator[Finding]:
    """Texts in slots that exclude each other, texts twice in a slot, pairs that two families label, slots empty.

    A text may stand in several families: data.build keeps them on one side of the split and never pairs them as
    independent. A pair of texts that stands in two families must get one label from both.
    """
    for family, place in located:
        slots: dict[str, str] = {}
        for slot, texts in family.slots().items():
            for text in texts:
                key = normalise_text(text)
                if key in slots:
                    yield _repeated(family, place, text, slots[key], slot)
                    continue
                slots[key] = slot
    yield from _conflicts_between(located)
    for slot in SLOTS:
        if located and not any(family.slots()[slot] for family, _ in located):
            yield Finding("class_missing", (), f"{located[0][1].path}: slot {slot} is empty in every family")


def _conflicts_between(located: Sequence[tuple[Family, Place]]) -> Iterator[Finding]:
    holders = Counter(key for family, _ in located for key in {normalise_text(text) for text in family.texts()})
    labels: dict[tuple[str, str], tuple[Relation, Family, Place]] = {}
    for family, place in located:
        for relation, pairs in ordered_pairs(family).items():
            for old, new in pairs:
                key = normalise_text(old), normalise_text(new)
                if holders[key[0]] < 2 or holders[key[1]] < 2 or key[0] == key[1]:
                    continue
                first, other, where = labels.setdefault(key, (relation, family, place))
                if first is not relation and other is not family:
                    found = f"{first} in family {other.family} and {relation} in {family.family}"
                    yield Finding("family_conflict", (where, place), f"{old!r} -> {new!r} is {found}")


def _repeated(family: Family, place: Place, text: str, first: str, second: str) -> Finding:
    # base and eqv mean the same; in any other two slots one text would have two relations to base.
    if first == second or {first, second} == {"base", "eqv"}:
        return Finding("duplicate", (place,), f"family {family.family}: {text!r} twice ({first}, {second})")
    return Finding("slot_conflict", (place,), f"family {family.family}: {text!r} in {first} and in {second}")


def check_fusion(located: Sequence[tuple[FusionExample, Place]]) -> Iterator[Finding]:
    """must_keep and must_not against target and inputs, the line convention, duplicates, two targets."""
    seen: dict[tuple[object, ...], tuple[FusionExample, Place]] = {}
    ids: dict[tuple[str, str], Place] = {}
    for example, place in located:
        yield from _check_substrings(example, place)
        yield from _check_line(example, place)
        key = (example.relation, tuple((normalise_text(item.text), item.time) for item in example.inputs))
        if key in seen:
            other, where = seen[key]
            same = other.target == example.target
            message = f"{other.id} and {example.id} have the same inputs" + ("" if same else " and two targets")
            yield Finding("duplicate" if same else "two_targets", (where, place), message)
        seen.setdefault(key, (example, place))
        if (place.path, example.id) in ids:
            yield Finding("duplicate_id", (ids[place.path, example.id], place), f"id {example.id!r} twice")
        ids.setdefault((place.path, example.id), place)


def _check_substrings(example: FusionExample, place: Place) -> Iterator[Finding]:
    for text in example.must_keep:
        if text not in example.target:
            yield Finding("keep_not_in_target", (place,), f"{example.id}: {text!r} is not in {example.target!r}")
        elif not any(text in item.text for item in example.inputs) and not _WRITTEN.search(text):
            yield Finding(
                "keep_not_in_input", (place,), f"{example.id}: {text!r} is in no input; nothing may be invented"
            )
    for text in example.must_not:
        if text in example.target:
            yield Finding("forbidden_in_target", (place,), f"{example.id}: {text!r} is in {example.target!r}")


def _check_line(example: FusionExample, place: Place) -> Iterator[Finding]:
    target = example.target
    faults = []
    if "\n" in target:
        faults.append("more than one line")
    if not target.isascii():
        foreign = sorted({character for character in target if not character.isascii()})
        faults.append(f"characters outside ASCII: {' '.join(foreign)}")
    if target[:1].islower():
        faults.append("no capital at the start")
    if not target.endswith((".", ")", "!", "?")):
        faults.append("no period at the end")
    if faults:
        yield Finding("convention", (place,), f"{example.id}: {', '.join(faults)}: {target!r}")
