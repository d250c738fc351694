"""Derive labelled pairs from the fact families: `python -m data.build`.

Writes `train.jsonl`, `dev.jsonl` and `build.json` (seed, counts, input hashes) to `data/derived/`. What a family's
slots imply is stated in data/LABELS.md; the split is by family, texts that a test file holds are left out of training,
and facts of families whose topics can't meet (data/topics.py) are independent: some at random, most of them the nearest
neighbours by embedding, because those are what retrieval hands to the classifier in a store.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.families import Family, read_families
from data.held_out import TEST_FILES, texts_under_test
from data.pairs import LabelledPair, file_sha256, normalise_text, write_pairs
from data.register import first_person
from data.topics import topics, unrelated
from roam.arguments import ArgumentParser
from roam.errors import DataError, InputError, RoamError
from roam.interfaces import Embedder
from roam.relations import SWAPPED, Relation
from roam.writing import write_at_once

ROOT = Path(__file__).parent
DERIVED = ROOT / "derived"
DEV_SHARE = 0.06
NEIGHBOUR_DEPTH = 40
# Nearer than this, two facts may bear on each other although their domains' names don't (a tattoo is body and fashion).
NEIGHBOUR_CEILING = 0.62


@dataclass(frozen=True)
class Mix:
    """How many pairs a family gives, by kind; 0 of an absent slot is fine, the rest is taken as it comes."""

    eqv: int = 8
    subsumed: int = 4  # unordered pairs: each gives one OSN and one NSO
    con: int = 7
    near: int = 6
    neighbour: int = 4  # independents of an unrelated family, nearest by embedding
    stranger: int = 1  # independents of an unrelated family, at random
    eqv_reversed: int = 0  # further EQV pairs: those already drawn, the other way round
    first_person: float = 0.1  # share of pairs of which both texts are put into the first person, where rules reach

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 0:
                raise InputError(f"{name} is {value}: give 0 or more pairs a family")
        if not self.first_person <= 1:
            raise InputError(f"first_person is {self.first_person}: give a share between 0 and 1")


DEV_MIX = Mix(eqv=3, subsumed=3, con=3, near=2, neighbour=1, stranger=0)


def ordered_pairs(family: Family) -> dict[Relation, list[tuple[str, str]]]:
    """All (old, new) pairs whose label follows from the family's slots; OSN holds NSO's pairs the other way round."""
    same = [family.base, *family.eqv]
    out: dict[Relation, list[tuple[str, str]]] = {relation: [] for relation in Relation}
    out[Relation.EQV] = [(a, b) for a in same for b in same if a != b]
    broader_first = [(a, b) for a in same for b in family.spec]
    broader_first += [(a, b) for a in family.gen for b in [*same, *family.spec]]
    out[Relation.OSN] = broader_first
    out[Relation.NSO] = [(b, a) for a, b in broader_first]
    out[Relation.CON] = _both([*same, *family.spec], family.con)
    out[Relation.IND] = _both(same, family.near)
    return out


def _both(first: Sequence[str], second: Sequence[str]) -> list[tuple[str, str]]:
    return [pair for a in first for b in second for pair in ((a, b), (b, a))]


def sample_family(family: Family, mix: Mix, rng: random.Random) -> Iterator[tuple[str, str, Relation]]:
    """Pairs of one family as `mix` asks: both orders of subsumptions, one order of what is symmetric."""
    pairs = ordered_pairs(family)
    for relation, count in ((Relation.EQV, mix.eqv), (Relation.CON, mix.con), (Relation.IND, mix.near)):
        seen: set[frozenset[str]] = set()
        for old, new in rng.sample(pairs[relation], len(pairs[relation])):
            if len(seen) < count and frozenset((old, new)) not in seen:
                seen.add(frozenset((old, new)))
                yield old, new, relation
                if relation is Relation.EQV and len(seen) <= mix.eqv_reversed:
                    yield new, old, relation
    for old, new in rng.sample(pairs[Relation.OSN], min(mix.subsumed, len(pairs[Relation.OSN]))):
        yield old, new, Relation.OSN
        yield new, old, SWAPPED[Relation.OSN]


@dataclass(frozen=True)
class Fact:
    text: str
    family: int


def representative_facts(families: Sequence[Family], rng: random.Random) -> list[Fact]:
    """A few facts of each family, from every kind of slot: the pool in which neighbours are looked for."""
    facts = []
    for index, family in enumerate(families):
        texts = [family.base]
        for slot, count in ((family.eqv, 1), (family.spec, 1), (family.gen, 1), (family.con, 1), (family.near, 2)):
            texts += rng.sample(slot, min(count, len(slot)))
        facts += [Fact(text, index) for text in texts]
    return facts


def cross_pairs(
    families: Sequence[Family], mix: Mix, embedder: Embedder | None, rng: random.Random
) -> list[tuple[str, str, int]]:
    """Independent pairs of unrelated families: (old, new, index of the first fact's family).

    Neighbours are drawn from the `NEIGHBOUR_DEPTH` nearest unrelated facts of each anchor. Without an embedder (or with
    `mix.neighbour` at 0) they are drawn at random.
    """
    facts = representative_facts(families, rng)
    allowed = _unrelated_matrix(families)
    family_of = np.array([fact.family for fact in facts])
    vectors = embedder.embed([fact.text for fact in facts]) if embedder and mix.neighbour else None
    out = []
    for index, _ in enumerate(families):
        pool = np.flatnonzero(allowed[index, family_of])
        own = np.flatnonzero(family_of == index)
        if not len(pool):
            continue
        similar = vectors @ vectors[own].T if vectors is not None else None
        for draw in range(mix.neighbour + mix.stranger):
            column = draw % len(own)
            anchor = int(own[column])
            nearest = _nearest(similar[:, column], pool) if similar is not None and draw < mix.neighbour else pool[:0]
            if len(nearest):
                # Low ranks are the likelier: a store sees the top ten.
                other = int(nearest[min(int(rng.expovariate(1 / 8)), len(nearest) - 1)])
            else:
                other = int(pool[rng.randrange(len(pool))])
            first, second = (anchor, other) if rng.random() < 0.5 else (other, anchor)
            out.append((facts[first].text, facts[second].text, index))
    return out


def _nearest(similarity: NDArray[np.float32], pool: NDArray[np.intp]) -> NDArray[np.intp]:
    """The members of `pool` nearest below the ceiling, best first, at most `NEIGHBOUR_DEPTH`."""
    # Rounded, so that the last bits of another machine's arithmetic don't reorder neighbours.
    values = np.round(similarity[pool], 4)
    pool, values = pool[values < NEIGHBOUR_CEILING], values[values < NEIGHBOUR_CEILING]
    if len(pool) > NEIGHBOUR_DEPTH:
        least = np.partition(values, -NEIGHBOUR_DEPTH)[-NEIGHBOUR_DEPTH]
        pool, values = pool[values >= least], values[values >= least]
    return pool[np.lexsort((pool, -values))][:NEIGHBOUR_DEPTH]


def _unrelated_matrix(families: Sequence[Family]) -> NDArray[np.bool_]:
    domains = sorted({family.domain for family in families})
    table = np.array([[unrelated(a, b) for b in domains] for a in domains], dtype=bool)
    columns = np.array([domains.index(family.domain) for family in families])
    allowed: NDArray[np.bool_] = table[np.ix_(columns, columns)]
    holders: dict[str, list[int]] = {}
    for index, family in enumerate(families):
        for key in {normalise_text(text) for text in family.texts()}:
            holders.setdefault(key, []).append(index)
    for shared in holders.values():
        allowed[np.ix_(shared, shared)] = False  # a common fact links them, whatever their domains are called
    return allowed


def split_families(
    families: Sequence[Family], dev_share: float = DEV_SHARE, seed: int = 0
) -> tuple[list[Family], list[Family]]:
    """Split by family with a hash of (seed, family id), so that adding families moves none of the others.

    Families that share a text, directly or through others, stay together: they are dev only if the hash says so of all
    of them. So more families can move a family from dev to train but never into dev.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    columns: dict[str, int] = {}
    cells = [(row, columns.setdefault(normalise_text(text), len(columns)))
             for row, family in enumerate(families) for text in family.texts()]  # fmt: skip
    rows, texts = np.array(cells).T
    holds = coo_array((np.ones(len(cells)), (rows, texts)), shape=(len(families), len(columns))).tocsr()
    _, group = connected_components(holds @ holds.T, directed=False)
    digests = [hashlib.sha256(f"{seed}:{family.family}".encode()).digest() for family in families]
    hashed_to_train = [int.from_bytes(digest[:4], "big") / 2**32 >= dev_share for digest in digests]
    train_groups = set(group[np.array(hashed_to_train)].tolist())
    in_train = [number in train_groups for number in group.tolist()]
    return (
        [family for family, kept in zip(families, in_train, strict=True) if kept],
        [family for family, kept in zip(families, in_train, strict=True) if not kept],
    )


def build_split(
    families: Sequence[Family], mix: Mix, embedder: Embedder | None, rng: random.Random, prefix: str,
    held: frozenset[str],
) -> list[LabelledPair]:  # fmt: skip
    """Labelled pairs of one split, shuffled; an ordered pair appears once, the family's own label first.

    Pairs of which a text is in `held` (normalised) are left out.
    """
    rows = [
        (old, new, relation, family) for family in families for old, new, relation in sample_family(family, mix, rng)
    ]
    crossed = cross_pairs(families, mix, embedder, rng)
    rows += [(old, new, Relation.IND, families[index]) for old, new, index in crossed]
    unique: dict[tuple[str, str], tuple[str, str, Relation, Family]] = {}
    for row in rows:
        unique.setdefault((normalise_text(row[0]), normalise_text(row[1])), row)
    shuffled = list(unique.values())
    taken = set(unique)
    rng.shuffle(shuffled)
    pairs = []
    for number, (old, new, relation, family) in enumerate(shuffled):
        if normalise_text(old) in held or normalise_text(new) in held:
            continue
        if mix.first_person and rng.random() < mix.first_person:
            first, second = spoken(old, new, rng)
            keys = normalise_text(first), normalise_text(second)
            # Said by its subject, a fact can become a held one, and two pairs or the two texts of one the same.
            if keys[0] != keys[1] and keys not in taken and not any(k in held or f"{k}." in held for k in keys):
                taken.add(keys)
                old, new = first, second
        pairs.append(LabelledPair(f"{prefix}{number:06d}", old, new, relation, family.family, family.domain))
    return pairs


def spoken(old: str, new: str, rng: random.Random) -> tuple[str, str]:
    """Both texts in the first person, half of the time without final full stops; unchanged where the rules fail."""
    first, second = first_person(old), first_person(new)
    if first is None or second is None:
        return old, new
    return (first, second) if rng.random() < 0.5 else (first.rstrip("."), second.rstrip("."))


def build(
    families_path: Path,
    test_paths: Sequence[Path],
    out: Path,
    *,
    seed: int = 0,
    split_seed: int = 0,
    dev_share: float = DEV_SHARE,
    mix: Mix | None = None,
    embedder: Embedder | None = None,
    only: str = "",
) -> Mapping[str, object]:
    """Write the split files and return what `build.json` says.

    `only` is a regular expression that the ids of the families drawn for training start with; all are split.
    """
    mix = mix or Mix()
    families = read_families(families_path)
    train_families, dev_families = split_families(families, dev_share, split_seed)
    train_families = [family for family in train_families if re.match(only, family.family)]
    if only and not train_families:
        raise DataError(f"--only {only!r} begins the id of no training family of {families_path}; ids look like "
                        f"{families[0].family!r}")  # fmt: skip
    if not train_families or not dev_families:
        raise DataError(f"{families_path}: a split is empty with dev_share={dev_share}; use more families")
    held = texts_under_test(test_paths)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"--out {out}: {error.strerror}; give a folder that can be written") from error
    held_dev = held | {normalise_text(text) for family in dev_families for text in family.texts()}
    dev = build_split(dev_families, DEV_MIX, embedder, random.Random(split_seed + 1), "D", held)
    train = build_split(train_families, mix, embedder, random.Random(seed), "T", held_dev)
    write_pairs(out / "train.jsonl", train)
    write_pairs(out / "dev.jsonl", dev)
    summary = {
        "seed": seed,
        "split_seed": split_seed,
        "mix": asdict(mix),
        "only": only,
        "dev_share": dev_share,
        "families": {"train": len(train_families), "dev": len(dev_families)},
        "unpaired_across": sum(not topics(family.domain) for family in families),
        "labels": {name: dict(sorted(Counter(p.label for p in split).items())) for name, split in
                   (("train", train), ("dev", dev))},
        "neighbours": embedder.digest if embedder else None,
        "inputs": {path.name: file_sha256(path) for path in [families_path, *test_paths]},
        "outputs": {name: file_sha256(out / name) for name in ("train.jsonl", "dev.jsonl")},
    }  # fmt: skip
    write_at_once(out / "build.json", json.dumps(summary, indent=2) + "\n")
    return summary


def add_split_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of all programs that draw from the families: which file, and which of its families are dev."""
    parser.add_argument("--families", type=Path, default=ROOT / "families.jsonl")
    parser.add_argument("--split-seed", type=int, default=0,
                        help="which families are dev; leave it when drawing more pairs")  # fmt: skip
    parser.add_argument("--dev-share", type=float, default=DEV_SHARE)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m data.build",
        description="Derive training and dev pairs from the fact families.",
        epilog="example: python -m data.build --seed 0 --out data/derived",
    )
    add_split_arguments(parser)
    parser.add_argument("--test", type=Path, nargs="*", default=list(TEST_FILES),
                        help="pair or fusion files whose texts must not be trained on")  # fmt: skip
    parser.add_argument("--out", type=Path, default=DERIVED)
    parser.add_argument("--seed", type=int, default=0, help="which pairs of the families are drawn")
    parser.add_argument("--only", type=_pattern, default="", metavar="REGEX",
                        help="draw training pairs from families whose id starts so; all are split")  # fmt: skip
    parser.add_argument("--no-neighbours", action="store_true",
                        help="draw cross-family independents at random, without an embedder")  # fmt: skip
    for name, value in asdict(Mix()).items():
        unit = "share of pairs" if isinstance(value, float) else "pairs a family"
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, dest=name, type=type(value), default=value, help=f"{unit} (default {value})")
    return parser.parse_args(argv)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        mix = Mix(**{name: getattr(args, name) for name in asdict(Mix())})
        embedder = None
        if not args.no_neighbours:
            from roam.embedders import load_embedder

            embedder = load_embedder()
        summary = build(
            args.families, args.test, args.out, seed=args.seed, split_seed=args.split_seed, dev_share=args.dev_share,
            mix=mix, embedder=embedder, only=args.only,
        )  # fmt: skip
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(summary, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
