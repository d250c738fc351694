"""Which pairs share a batch: buckets of similar length, the same ones whatever the number of processes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

POOL = 50
"""Batches that are drawn together and sorted by length: enough to waste little padding, few enough to stay random."""


def bucketed(lengths: Sequence[int], batch: int, seed: int, epoch: int) -> list[int]:
    """All indices, once each, so that every `batch` of them in a row have similar lengths; equal seed, equal order.

    Pools of `POOL` batches are drawn at random, sorted by length and cut into batches; the batches then are shuffled.
    Only a last batch that is not full keeps its place at the end.
    """
    draw = random.Random(f"{seed}:{epoch}")
    order = list(range(len(lengths)))
    draw.shuffle(order)
    size = batch * POOL
    pools = (order[start : start + size] for start in range(0, len(order), size))
    batches = []
    rest: list[int] = []
    for pool in pools:
        pool.sort(key=lambda index: lengths[index])
        cut = [pool[start : start + batch] for start in range(0, len(pool), batch)]
        if len(cut[-1]) < batch:  # of the last pool only
            rest = cut.pop()
        batches += cut
    draw.shuffle(batches)
    return [index for part in (*batches, rest) for index in part]


class BucketSampler:
    """A torch sampler over `bucketed`; `set_epoch`, which the data loader calls, draws anew.

    Processes take turns at parts of `batch` (the pairs of a step of all processes), so each step has the same pairs for
    any number of them.
    """

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self.lengths, self.batch, self.seed, self.epoch = list(lengths), batch, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(bucketed(self.lengths, self.batch, self.seed, self.epoch))
