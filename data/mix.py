"""One training file from parts of several: `python -m data.mix FILE:N ... --out FILE`.

Pairs are drawn at random, a seeded N of each file, or all without a number, and shuffled together.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from data.pairs import LabelledPair, file_sha256, read_pairs, write_pairs
from roam.arguments import ArgumentParser
from roam.errors import ConfigError, DataError, RoamError


def part(source: str) -> tuple[Path, int | None]:
    """`FILE:N` as the file and how many pairs of it; without a number all (None). Raises `ConfigError`."""
    path, colon, number = source.rpartition(":")
    if not colon or not number.isdigit():
        return Path(source), None
    if not int(number):
        raise ConfigError(f"{source}: give 1 or more pairs, or leave the file out")
    return Path(path), int(number)


def drawn(path: Path, count: int | None, draw: random.Random) -> list[LabelledPair]:
    """`count` random pairs of a file, or all of it; `DataError` when it has fewer."""
    pairs = read_pairs(path)
    if count is None:
        return pairs
    if count > len(pairs):
        raise DataError(f"{path} has {len(pairs)} pairs, {count} are asked for; give fewer")
    return draw.sample(pairs, count)


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m data.mix",
        description="Draw pairs from several pair files and shuffle them into one.",
        epilog="example: python -m data.mix derived/train.jsonl:14000 nli.jsonl:9000 --out mixed.jsonl",
    )
    parser.add_argument("files", nargs="+", metavar="FILE:N", help="pairs and how many of them (default: all)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    args = parser.parse_args(argv)
    draw = random.Random(args.seed)
    try:
        pairs = [pair for source in args.files for pair in drawn(*part(source), draw)]
        draw.shuffle(pairs)
        write_pairs(args.out, pairs)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    counts = Counter(str(pair.label) for pair in pairs)
    print(f"{args.out}: {len(pairs)} pairs, {file_sha256(args.out)[:12]}; {dict(sorted(counts.items()))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
