"""Checks of labelled pairs: contradictions, duplicates, missing classes, giveaways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from data.findings import Finding, Place
from data.pairs import LabelledPair, normalise_text
from roam.errors import DataError
from roam.relations import RELATIONS, SWAPPED, Relation

Located = tuple[LabelledPair, Place]

GIVEAWAY_LIMIT = 2.0
"""A single-sided baseline above this many times chance is a finding.

Twice chance is where SNLI's hypothesis-only classifier stands (67 % of three classes, Gururangan et al., 2018).
"""
GIVEAWAY_PAIRS = 3000
"""Larger files are measured on whole groups drawn at random up to this many pairs."""
GIVEAWAY_LEAST = 100
"""Fewer pairs than this say nothing about wording."""


def check_pairs(located: Sequence[Located]) -> Iterator[Finding]:
    """Faults among pairs of one or more files."""
    ordered: dict[tuple[str, str], list[Located]] = {}
    for pair, place in located:
        ordered.setdefault((normalise_text(pair.old), normalise_text(pair.new)), []).append((pair, place))
    for (old, new), rows in ordered.items():
        yield from _same_pair(rows)
        if old == new:
            yield from _identical(rows)
        elif old < new and (new, old) in ordered:
            yield from _swapped(rows, ordered[new, old])
    yield from _same_id(located)


def _same_pair(rows: Sequence[Located]) -> Iterator[Finding]:
    first, _ = rows[0]
    places = tuple(place for _, place in rows)
    labels = list(dict.fromkeys(pair.label for pair, _ in rows))
    if len(labels) > 1:
        yield Finding("two_labels", places, f"{' and '.join(labels)} for {_quote(first)}")
    elif len(rows) > 1:
        yield Finding("duplicate", places, f"{len(rows)} times {labels[0]}: {_quote(first)}")


def _identical(rows: Sequence[Located]) -> Iterator[Finding]:
    for pair, place in rows:
        if pair.label is not Relation.EQV:
            yield Finding("identical_not_eqv", (place,), f"{pair.label} for {_quote(pair)}; a text is EQV to itself")


def _swapped(rows: Sequence[Located], back: Sequence[Located]) -> Iterator[Finding]:
    labels = {pair.label for pair, _ in rows}
    implied = {SWAPPED[pair.label] for pair, _ in back}
    if labels == implied:
        return
    places = tuple(place for _, place in (*rows, *back))
    reverse = "/".join(sorted({pair.label for pair, _ in back}))
    yield Finding(
        "swap_conflict",
        places,
        f"{'/'.join(sorted(labels))} for {_quote(rows[0][0])} but {reverse} the other way round; "
        f"that order implies {'/'.join(sorted(implied))} here",
    )


def _same_id(located: Sequence[Located]) -> Iterator[Finding]:
    places: dict[tuple[str, str], list[Place]] = {}
    for pair, place in located:
        places.setdefault((place.path, pair.id), []).append(place)
    for (_, name), found in places.items():
        if len(found) > 1:
            yield Finding("duplicate_id", tuple(found), f"id {name!r} {len(found)} times")


def missing_classes(path: str, labels: Sequence[Relation], wanted: Sequence[Relation] = RELATIONS) -> list[Finding]:
    """One finding when `path` has no row of some relation of `wanted`."""
    missing = [relation for relation in wanted if relation not in set(labels)]
    if not missing:
        return []
    return [Finding("class_missing", (), f"{path}: no row of {', '.join(missing)} among {len(labels)}")]


def giveaways(path: str, pairs: Sequence[LabelledPair], seed: int = 0) -> tuple[dict[str, object], list[Finding]]:
    """How well OLD alone, NEW alone, overlap alone and length alone predict the label, cross-validated by group.

    Returns a summary (macro-F1 0..1 by baseline, chance, pairs used; or why it was not measured) and a finding for each
    baseline above `GIVEAWAY_LIMIT` times chance. Overlap is reported but is no fault: equal words do speak for EQV.
    """
    try:
        from data.baselines import GIVEAWAYS, cross_validated_baselines, sample_groups
    except ModuleNotFoundError as error:
        raise DataError(f"giveaways need {error.name}: pip install -e .[eval], or pass --no-giveaways") from error

    used = sample_groups(pairs, GIVEAWAY_PAIRS, seed)
    if len(used) < GIVEAWAY_LEAST:
        return {"skipped": f"{len(used)} pairs are too few, at least {GIVEAWAY_LEAST} are needed"}, []
    try:
        scores = cross_validated_baselines(used, seed, GIVEAWAYS)
    except DataError as error:
        return {"skipped": str(error)}, []
    classes = len({pair.label for pair in used})
    # Macro-F1 over the classes that are there: an absent class is a finding of its own.
    macro = {name: _present_macro(result) * len(RELATIONS) / classes for name, result in scores.items()}
    chance = 1 / classes
    summary: dict[str, object] = {
        "pairs": len(used),
        "chance": chance,
        "limit": GIVEAWAY_LIMIT * chance,
        "macro_f1": macro,
    }
    found = [
        Finding("giveaway", (), f"{path}: {name} alone reach macro-F1 {value:.3f}, chance is {chance:.3f}")
        for name, value in macro.items()
        if name != "overlap" and value > GIVEAWAY_LIMIT * chance
    ]
    return summary, found


def _present_macro(result: dict[str, object]) -> float:
    value = result["macro_f1"]
    return value if isinstance(value, float) else 0.0


def _quote(pair: LabelledPair) -> str:
    return f"{pair.old!r} -> {pair.new!r}"
