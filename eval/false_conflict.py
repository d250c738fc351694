"""How often unrelated facts are taken for a conflict or any other relation: `python -m eval.false_conflict`.

Three sets from the fact families: `cross_topic`, random pairs of facts of families whose topics can't meet;
`cross_topic_held_out`, the same among the dev families alone; and `near`, the hard independents of the dev families,
which share entity or attribute words. A false CON in a store hides a true memory, so these rates matter more there than
macro-F1 does (Fozikio/cortex-engine#82, doobidoo/mcp-memory-service#1027).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data.build import ROOT, ordered_pairs, split_families
from data.families import Family, read_families
from data.pairs import file_sha256
from data.topics import unrelated
from eval import metrics
from eval.bootstrap import share_interval
from eval.provenance import output_folder, versions, write_json
from eval.relation import predict
from eval.relation_report import round_floats
from roam.arguments import ArgumentParser
from roam.errors import DataError, InputError, RoamError
from roam.interfaces import RelationModel
from roam.records import Pair
from roam.relations import INDEX, RELATIONS, Relation

CROSS_TOPIC_PAIRS = 1000


def cross_topic_pairs(families: Sequence[Family], count: int, seed: int) -> list[Pair]:
    """`count` distinct ordered pairs of facts, each of two families of unrelated domains, drawn with `seed`.

    `DataError` when the families can't give that many.
    """
    generator = random.Random(seed)
    facts = [text for family in families for text in family.texts()]
    domains: dict[str, set[str]] = {}
    for family in families:
        for text in family.texts():
            domains.setdefault(text, set()).add(family.domain)
    pairs: dict[Pair, None] = {}
    for _ in range(200 * count):
        if len(pairs) == count:
            break
        old, new = generator.choice(facts), generator.choice(facts)
        # A plain fact may stand in families of several domains.
        if old != new and all(unrelated(one, other) for one in domains[old] for other in domains[new]):
            pairs[Pair(old, new)] = None
    if len(pairs) < count:
        raise DataError(
            f"only {len(pairs)} of {count} cross-topic pairs found: give more families of unrelated domains"
        )
    return list(pairs)


def near_pairs(families: Sequence[Family], count: int, seed: int) -> list[Pair]:
    """At most `count` ordered pairs of a base or reworded fact with a `near` fact of its family, drawn with `seed`.

    Gold is IND by construction.
    """
    pairs = list(dict.fromkeys(Pair(*texts) for family in families for texts in ordered_pairs(family)[Relation.IND]))
    return random.Random(seed).sample(pairs, min(count, len(pairs)))


def false_rates(model: RelationModel, pairs: Sequence[Pair], batch_size: int, name: str, seed: int) -> dict[str, Any]:
    """Rates on pairs that are all independent, for the most probable relation and after the model's thresholds.

    Each is {false_con, merge_error, predicted: {relation: count}, intervals}.
    """
    if not pairs:
        raise DataError(f"no {name} pairs to measure")
    probabilities = predict(model, pairs, batch_size, name)
    report: dict[str, Any] = {"pairs": len(pairs)}
    for kind, thresholds in (("most_probable", None), ("at_thresholds", model.thresholds)):
        predicted = metrics.decide(probabilities, thresholds)
        conflict, merged = predicted == INDEX[Relation.CON], predicted != INDEX[Relation.IND]
        alone, ones = np.arange(len(pairs)), np.ones(len(pairs))
        counts = np.bincount(predicted, minlength=len(RELATIONS)).tolist()
        report[kind] = {
            "false_con": float(conflict.mean()),
            "merge_error": float(merged.mean()),
            "predicted": dict(zip(map(str, RELATIONS), counts, strict=True)),
            "intervals": {
                "false_con": share_interval(conflict, ones, alone, seed),
                "merge_error": share_interval(merged, ones, alone, seed),
            },
        }
    rounded: dict[str, Any] = round_floats(report)
    return rounded


def measure(model: RelationModel, families_path: Path, count: int, batch_size: int, seed: int) -> Mapping[str, Any]:
    """Rates on the three sets, with the hashes of what they came from."""
    families = read_families(families_path)
    dev = split_families(families)[1]
    sets = {
        "cross_topic": cross_topic_pairs(families, count, seed),
        "cross_topic_held_out": cross_topic_pairs(dev, count, seed),
        "near": near_pairs(dev, count, seed),
    }
    return {
        **{name: false_rates(model, pairs, batch_size, name, seed) for name, pairs in sets.items()},
        "seed": seed,
        "hashes": {"families": file_sha256(families_path), "model": model.digest},
        "versions": versions(),
    }


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m eval.false_conflict",
        description="Rate of conflicts and of any merges that a relation adapter sees between unrelated facts.",
        epilog="example: python -m eval.false_conflict --adapter pretrained --out out/false",
    )
    parser.add_argument("--adapter", default="pretrained", help="'pretrained' or an adapter folder")
    parser.add_argument("--families", type=Path, default=ROOT / "families.jsonl")
    parser.add_argument("--count", type=int, default=CROSS_TOPIC_PAIRS, help="cross-topic pairs (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for false_conflict.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        from roam.managers import load_manager

        if args.count < 1 or args.batch_size < 1:
            raise InputError(f"--count {args.count}, --batch-size {args.batch_size}: use 1 or more")
        out = output_folder(args.out) if args.out else None
        model = load_manager(args.adapter).relation_model
        report = measure(model, args.families, args.count, args.batch_size, args.seed)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if out:
        write_json(out / "false_conflict.json", report)
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
