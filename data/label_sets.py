"""Sets drawn from labelled pairs: balanced over the relations, split by persona, and checked against the paper's."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from data.pairs import LabelledPair, file_sha256, read_pairs
from roam.errors import DataError
from roam.relations import RELATIONS, Relation

PAPER_PAIRS: Final = 843
"""Size of the paper's relation diagnostic (section 3.5.3 and appendix D)."""
BALANCE_SLACK: Final = 0.05
"""How far a class may be from a fifth of an "approximately balanced" set."""
OWN_SET: Final = Path(__file__).parent / "relation_test_843.jsonl"


class Labelled(NamedTuple):
    """Pairs with a label that counts, and rows for a person to decide."""

    pairs: list[LabelledPair]
    review: list[dict[str, Any]]


def is_complete(pairs: Sequence[LabelledPair]) -> bool:
    """Whether each of the five relations occurs."""
    return {pair.label for pair in pairs} == set(RELATIONS)


def balanced(pairs: Sequence[LabelledPair], per_class: int | None, seed: int) -> list[LabelledPair]:
    """As many pairs of each relation, in the order of the input; equal seed, equal choice.

    `per_class` None takes as many as the rarest relation has; `DataError` when it asks for more. Personas take turns,
    so that none of them fills a class.
    """
    by_class: dict[Relation, list[LabelledPair]] = {relation: [] for relation in RELATIONS}
    for pair in pairs:
        by_class[pair.label].append(pair)
    least = min(len(found) for found in by_class.values())
    wanted = least if per_class is None else per_class
    if wanted > least:
        rarest = min(RELATIONS, key=lambda relation: len(by_class[relation]))
        raise DataError(f"--per-class is {wanted}, but there are only {least} pairs of {rarest}: label more candidates")
    chosen = {pair.id for found in by_class.values() for pair in _in_turns(found, seed)[:wanted]}
    return [pair for pair in pairs if pair.id in chosen]


def _in_turns(pairs: Sequence[LabelledPair], seed: int) -> list[LabelledPair]:
    """The pairs of shuffled personas in rounds: one of each, then a second one of each, and so on."""
    draw = random.Random(seed)
    by_persona: dict[str, list[LabelledPair]] = defaultdict(list)
    for pair in pairs:
        by_persona[pair.group].append(pair)
    personas = sorted(by_persona)
    draw.shuffle(personas)
    for persona in personas:
        draw.shuffle(by_persona[persona])
    rounds = [(number, place, pair) for place, persona in enumerate(personas)
              for number, pair in enumerate(by_persona[persona])]  # fmt: skip
    return [pair for _, _, pair in sorted(rounds, key=lambda entry: entry[:2])]


def split_personas(
    pairs: Sequence[LabelledPair], test_share: float, seed: int
) -> tuple[list[LabelledPair], list[LabelledPair]]:
    """(train, test): whole personas go to test until it holds `test_share` of the pairs."""
    sizes = Counter(pair.group for pair in pairs)
    personas = sorted(sizes)
    random.Random(seed).shuffle(personas)
    test: set[str] = set()
    held = 0
    for persona in personas:
        if held + sizes[persona] / 2 <= test_share * len(pairs):  # closest to the share that whole personas allow
            test.add(persona)
            held += sizes[persona]
    return [p for p in pairs if p.group not in test], [p for p in pairs if p.group in test]


def check_given(path: Path) -> dict[str, Any]:
    """Report on labelled pairs that are said to be the paper's: whose they are, size, balance, and what is not so."""
    pairs = read_pairs(path)
    counts: Mapping[Relation, int] = Counter(pair.label for pair in pairs)
    digest = file_sha256(path)
    own = OWN_SET.is_file() and digest == file_sha256(OWN_SET)
    faults = []
    if len(pairs) != PAPER_PAIRS:
        faults.append(f"{len(pairs)} pairs, and the paper has {PAPER_PAIRS}")
    for relation in RELATIONS:
        share = counts.get(relation, 0) / len(pairs)
        if abs(share - 1 / len(RELATIONS)) > BALANCE_SLACK:
            faults.append(f"{share:.1%} of the pairs are {relation}, and the paper's set is about balanced")
    return {
        "whose": f"this project's own pairs ({OWN_SET.name}), not the paper's"
        if own
        else f"given as the paper's pairs in {path.name}; that they are cannot be told from the file",
        "pairs": len(pairs),
        "per_class": {str(relation): counts.get(relation, 0) for relation in RELATIONS},
        "sha256": digest,
        "faults": faults,
    }
