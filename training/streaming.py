"""Training pairs read while training goes on, for files that memory can't hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from data.pairs import LabelledPair, iter_pairs
from roam.errors import DataError
from training.batches import bucketed

ENCODED_AT_ONCE = 1024


def count_pairs(path: str) -> int:
    """Lines that hold something; `DataError` for a missing or empty file."""
    if not Path(path).is_file():
        raise DataError(f"train file {path!r} does not exist; run `python -m data.build` or set train=FILE")
    with Path(path).open("rb") as stream:
        count = sum(bool(line.strip()) for line in stream)
    if not count:
        raise DataError(f"{path}: no pairs in it; write one JSON object a line with old, new and label")
    return count


def rows(
    path: str, encode: Callable[[Sequence[LabelledPair]], list[dict[str, Any]]], *, buffer: int, batch: int, seed: int,
    held_out: frozenset[str],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Encoded pairs of a JSONL file, over and over, shuffled and bucketed by length within `buffer` pairs.

    Raises `DataError`, with its line, for a bad row and for a pair of a group that dev holds.
    """
    epoch = 0
    while True:
        for number, part in enumerate(_parts(path, buffer, held_out)):
            random.Random(f"{seed}:{epoch}:{number}").shuffle(part)
            found = [
                row for start in range(0, len(part), ENCODED_AT_ONCE)
                for row in encode(part[start : start + ENCODED_AT_ONCE])
            ]  # fmt: skip
            for index in bucketed([row["length"] for row in found], batch, seed, epoch):
                yield found[index]
        epoch += 1


def _parts(path: str, size: int, held_out: frozenset[str]) -> Iterator[list[LabelledPair]]:
    part: list[LabelledPair] = []
    for pair in iter_pairs(path):
        if pair.group in held_out:
            raise DataError(f"{path}, line {pair.line}: group {pair.group!r} is in train and dev; split by group")
        part.append(pair)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def streamed(
    path: str, encode: Callable[[Sequence[LabelledPair]], list[dict[str, Any]]], *, buffer: int, batch: int, seed: int,
    held_out: frozenset[str],
) -> Any:  # fmt: skip
    """`rows` as a torch IterableDataset; each process reads all of it and keeps its part of each batch."""
    from torch.utils.data import IterableDataset

    class Stream(IterableDataset[dict[str, Any]]):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            return rows(path, encode, buffer=buffer, batch=batch, seed=seed, held_out=held_out)

    return Stream()
