"""Derive fusion examples from the fact families: `python -m data.fusion_build`.

Writes `fusion_train.jsonl` and `fusion_build.json` (seed, counts, refusals, hashes) to `data/derived/`, apart from the
hand-written files. Families of dev (as `data.build` splits them) are left out, and every example that holds a text of
the files under test or of the hand-written training file.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from data.build import DERIVED, DEV_SHARE, ROOT, add_split_arguments, split_families
from data.families import Family, read_families
from data.fusion import FusionExample
from data.fusion_rules import Shares, can_trail, derive, finish
from data.held_out import TEST_FILES, texts_under_test
from data.pairs import file_sha256, normalise_text
from data.topics import topics, unrelated
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError
from roam.fusion import GuardReason
from roam.writing import write_at_once

HELD: tuple[Path, ...] = (*TEST_FILES, ROOT / "fusion_train.jsonl")
_TRIES = 20


def tail_source(families: Sequence[Family]) -> Callable[[Family, random.Random], str | None]:
    """A drawer of base facts of families whose topics can't meet those of the family asked for."""
    pool = [family for family in families if topics(family.domain) and can_trail(family.base)]

    def draw(family: Family, rng: random.Random) -> str | None:
        for _ in range(_TRIES if pool else 0):
            other = pool[rng.randrange(len(pool))]
            if unrelated(family.domain, other.domain):
                return other.base
        return None

    return draw


def build(
    families_path: Path, held_paths: Sequence[Path], out: Path, *, seed: int = 0, split_seed: int = 0,
    dev_share: float = DEV_SHARE, limit: int | None = None, shares: Shares | None = None,
) -> Mapping[str, object]:  # fmt: skip
    """Write the file of examples and return what `fusion_build.json` says. Raises `DataError`."""
    shares = shares or Shares()
    train, dev = split_families(read_families(families_path), dev_share, split_seed)
    held = texts_under_test(held_paths) | {normalise_text(text) for family in dev for text in family.texts()}
    rng = random.Random(seed)
    drafts = [
        draft
        for draft in tqdm(derive(train, tail_source(train), rng, shares), desc="drafts", unit="draft", disable=None)
        if not any(normalise_text(text) in held for text in (*draft.used, *(item.text for item in draft.inputs)))
    ]
    rng.shuffle(drafts)
    examples: list[FusionExample] = []
    refused: Counter[GuardReason] = Counter()
    for draft in tqdm(drafts, desc="examples", unit="draft", disable=None):
        if limit is not None and len(examples) == limit:
            break
        made = finish(draft, f"R{len(examples):05d}")
        if isinstance(made, GuardReason):
            refused[made] += 1
        elif normalise_text(made.target) not in held:
            examples.append(made)
    if not examples:
        raise DataError(f"{families_path}: no example could be derived; use more families, or fewer held files")
    return write(examples, out, {
        "seed": seed, "split_seed": split_seed, "dev_share": dev_share, "shares": asdict(shares),
        "families": {"train": len(train), "left_out": len(dev)}, "drafts": len(drafts),
        "refused": {reason.name: count for reason, count in sorted(refused.items())},
        "inputs": {path.name: file_sha256(path) for path in (families_path, *held_paths)},
    })  # fmt: skip


def write(examples: Sequence[FusionExample], out: Path, about: Mapping[str, object]) -> Mapping[str, object]:
    """Write examples and summary at once; raises `DataError` for a folder that cannot be written."""
    path = out / "fusion_train.jsonl"
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_at_once(path, "".join(json.dumps(record(example)) + "\n" for example in examples))
    except OSError as error:
        raise DataError(f"--out {out}: {error.strerror}; give a folder that can be written") from error
    summary = {
        **about,
        "examples": len(examples),
        "relations": dict(sorted(Counter(example.relation.value for example in examples).items())),
        "tags": dict(sorted(Counter(tag for example in examples for tag in example.tags).items())),
        "outputs": {path.name: file_sha256(path)},
    }
    write_at_once(out / "fusion_build.json", json.dumps(summary, indent=2) + "\n")
    return summary


def record(example: FusionExample) -> dict[str, object]:
    """An example as a line of a fusion file."""
    return {
        "id": example.id, "relation": example.relation.value, "inputs": [item._asdict() for item in example.inputs],
        "target": example.target, "must_keep": list(example.must_keep), "must_not": list(example.must_not),
        "tags": list(example.tags),
    }  # fmt: skip


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m data.fusion_build",
        description="Derive fusion examples from the fact families, apart from the hand-written ones.",
        epilog="example: python -m data.fusion_build --seed 0 --out data/derived",
    )
    add_split_arguments(parser)
    parser.add_argument("--held", type=Path, nargs="*", default=list(HELD),
                        help="pair or fusion files whose texts must not stand in an example")  # fmt: skip
    parser.add_argument("--out", type=Path, default=DERIVED)
    parser.add_argument("--seed", type=int, default=0, help="which facts are drawn, and their dates")
    parser.add_argument("--limit", type=int, help="stop at this many examples")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        summary = build(
            args.families, args.held, args.out, seed=args.seed, split_seed=args.split_seed, dev_share=args.dev_share,
            limit=args.limit,
        )  # fmt: skip
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(summary, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
