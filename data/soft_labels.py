"""Several teachers' opinions on the same candidates: duplicates out, opinions averaged, doubtful pairs set aside."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.pairs import LabelledPair, normalise_text
from data.personamem import Candidate
from data.rows import Problem, raise_problems, read_jsonl, read_source
from roam.errors import DataError
from roam.relations import INDEX, RELATIONS, parse_relation

Opinions = NDArray[np.float64]
"""A teacher's probabilities, shape (candidates, 5), columns in `RELATIONS` order; rows of NaN where it said nothing."""

_WORDS: Final = re.compile(r"\w+")


class Deduplicated(NamedTuple):
    """Candidates that differ in words, and how many were left out."""

    kept: list[Candidate]
    repeated: int
    """Same two texts as an earlier candidate."""
    identical: int
    """OLD and NEW are the same text: such facts are recognised without a model."""


class Merged(NamedTuple):
    """Pairs with a soft label, and rows for a person to decide."""

    pairs: list[LabelledPair]
    review: list[dict[str, Any]]


def deduplicate(found: Sequence[Candidate]) -> Deduplicated:
    """Leave out candidates that repeat an earlier one but for case, spaces or punctuation, and pairs of equal texts."""
    seen: set[tuple[str, str]] = set()
    kept, repeated, identical = [], 0, 0
    for candidate in found:
        old, new = (" ".join(_WORDS.findall(normalise_text(text))) for text in (candidate.old, candidate.new))
        if old == new:
            identical += 1
        elif (old, new) in seen:
            repeated += 1
        else:
            seen.add((old, new))
            kept.append(candidate)
    return Deduplicated(kept, repeated, identical)


def read_opinions(path: Path, found: Sequence[Candidate]) -> Opinions:
    """A teacher's file (JSONL: id and `probs` by relation, or `label`) for `found`; ids that lack are unanswered.

    `DataError` names bad lines; a file that knows none of the candidates is refused.
    """
    rows, problems = read_jsonl(path, read_source(path))
    places = {candidate.id: place for place, candidate in enumerate(found)}
    out = np.full((len(found), len(RELATIONS)), np.nan)
    known = 0
    for row in rows:
        place = places.get(str(row.values.get("id")))
        if place is None:
            continue
        known += 1
        try:
            out[place] = _opinion(row.values)
        except (DataError, ValueError) as error:
            problems.append(Problem(str(path), row.line, "schema", str(error)))
    raise_problems(path, problems, strict=True)
    if not known:
        raise DataError(f"{path}: none of its ids is a candidate's; give the file made from these candidates")
    return out


def _opinion(values: Mapping[str, object]) -> list[float]:
    probs, label = values.get("probs"), values.get("label")
    if probs is None and label is None:
        return [float("nan")] * len(RELATIONS)  # asked, and no usable answer came
    if probs is None:
        return [float(relation is parse_relation(label)) for relation in RELATIONS]
    if not isinstance(probs, Mapping) or set(probs) != {str(relation) for relation in RELATIONS}:
        raise DataError(f"probs is {probs!r}; give a number for each of {', '.join(RELATIONS)}")
    numbers = [float(probs[str(relation)]) for relation in RELATIONS]
    if min(numbers) < 0 or abs(sum(numbers) - 1) > 1e-2:
        raise DataError(f"probs must lie in 0..1 and sum to 1, got {numbers}")
    return numbers


def combine(by_teacher: Mapping[str, Opinions], weights: Mapping[str, float]) -> tuple[Opinions, NDArray[np.int64]]:
    """(mean opinion, how many teachers answered), each teacher counting by its weight; NaN rows where none did."""
    stack = np.stack(list(by_teacher.values()))
    shares = np.array([weights[name] for name in by_teacher])[:, None] * ~np.isnan(stack[:, :, 0])
    total = shares.sum(axis=0)
    mean = (np.nan_to_num(stack) * shares[:, :, None]).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(total[:, None] > 0, mean / total[:, None], np.nan)
    return mean, (shares > 0).sum(axis=0)


def merge_opinions(
    found: Sequence[Candidate], by_teacher: Mapping[str, Opinions], weights: Mapping[str, float], least: float
) -> Merged:
    """Pairs whose most probable relation has at least `least`, by all teachers; the others go to review."""
    mean, answered = combine(by_teacher, weights)
    pairs: list[LabelledPair] = []
    review: list[dict[str, Any]] = []
    for place, candidate in enumerate(found):
        row = mean[place]
        if answered[place] == len(by_teacher) and row.max() >= least:
            probs = dict(zip(RELATIONS, (row / row.sum()).tolist(), strict=True))
            pairs.append(
                LabelledPair(
                    candidate.id, candidate.old, candidate.new, RELATIONS[int(row.argmax())], candidate.group,
                    source=candidate.source, probs=probs,
                )
            )  # fmt: skip
        else:
            review.append(
                {"id": candidate.id, "old": candidate.old, "new": candidate.new, "group": candidate.group,
                 "source": candidate.source,
                 "said": {name: said(opinions[place]) for name, opinions in by_teacher.items()}}
            )  # fmt: skip
    return Merged(pairs, review)


def said(row: NDArray[np.float64]) -> dict[str, float] | str:
    """One opinion in a form for people."""
    if np.isnan(row).any():
        return "no answer"
    return {str(relation): round(float(p), 3) for relation, p in zip(RELATIONS, row, strict=True) if p >= 5e-4}


def agreements(by_teacher: Mapping[str, Opinions]) -> list[dict[str, Any]]:
    """Share of equal relations and Cohen's kappa of each two teachers, over the pairs that both answered."""
    from sklearn.metrics import cohen_kappa_score

    names = list(by_teacher)
    table = []
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            both = ~np.isnan(by_teacher[one][:, 0]) & ~np.isnan(by_teacher[other][:, 0])
            first, second = (by_teacher[name][both].argmax(axis=1) for name in (one, other))
            single = len({*first.tolist(), *second.tolist()}) < 2  # chance explains all of it: 0/0
            table.append(
                {"teachers": [one, other], "pairs": int(both.sum()),
                 "share": float((first == second).mean()) if both.any() else None,
                 "kappa": None if single else round(float(cohen_kappa_score(first, second)), 4)}
            )  # fmt: skip
    return table


def columns_of(pairs: Sequence[LabelledPair]) -> NDArray[np.int64]:
    """The column of each pair's label."""
    return np.array([INDEX[pair.label] for pair in pairs], dtype=np.int64)


def opinion_lines(found: Sequence[Candidate], opinions: Opinions) -> list[str]:
    """One teacher's file: id and probs a line, null where it had no answer."""
    return [
        json.dumps({"id": candidate.id, "probs": None if np.isnan(row).any() else
                    {str(relation): round(float(p), 6) for relation, p in zip(RELATIONS, row, strict=True)}})
        for candidate, row in zip(found, opinions, strict=True)
    ]  # fmt: skip
