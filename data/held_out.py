"""What nothing may be trained, calibrated or chosen on: the texts of the project's test files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from data.fusion import FusionExample, read_fusion
from data.pairs import LabelledPair, normalise_text, read_pairs
from roam.errors import InputError

TEST_FILES = tuple(Path(__file__).parent / name for name in ("relation_test_843.jsonl", "fusion_test.jsonl"))
CHANCE = 0.01
"""Share of rows that may hold a text under test: short facts ("Has a dog.") are written more than once."""


def texts_under_test(paths: Sequence[Path]) -> frozenset[str]:
    """Normalised texts of pair files, and of fusion files (told by `fusion` in the name); `DataError` for others."""
    rows: list[LabelledPair | FusionExample] = []
    for path in paths:
        rows += read_fusion(path) if "fusion" in path.name else read_pairs(path)
    return frozenset(normalise_text(text) for row in rows for text in texts_of(row))


def texts_of(row: LabelledPair | FusionExample) -> tuple[str, ...]:
    """All texts of a pair, or of a fusion example."""
    return (row.old, row.new) if isinstance(row, LabelledPair) else (row.target, *(item.text for item in row.inputs))


def refuse_test_rows(path: str | Path, rows: Iterable[LabelledPair | FusionExample]) -> None:
    """`InputError` when the rows of `path` are of the test set: one is wholly, or more than `CHANCE` of them partly."""
    held = texts_under_test(TEST_FILES)
    total = partly = wholly = 0
    for row in rows:
        known = [normalise_text(text) in held for text in texts_of(row)]
        total, partly, wholly = total + 1, partly + any(known), wholly + all(known)
    if wholly or partly > CHANCE * total:
        names = " or ".join(name.name for name in TEST_FILES)
        raise InputError(
            f"{path}: {partly} of {total} rows hold texts of the test set ({names}), {wholly} of them nothing else; a "
            "model must not learn from what it is tested on: leave these rows out, or take what `python -m data.build` "
            "and `python -m data.fusion_build` draw without them"
        )
