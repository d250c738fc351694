"""Calibrate an adapter anew, without training: `python -m training.calibrate ADAPTER`.

Temperature, class biases, acceptance thresholds (DESIGN section 4.5) and probes come from dev pairs and are written to
`roam.json`; the weights stay as they are. Use it with the traffic or the costs of a deployment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from data.held_out import refuse_test_rows
from data.pairs import read_pairs
from roam.adapters import write_card
from roam.arguments import ArgumentParser
from roam.errors import InputError, RoamError
from roam.policy import check_thresholds
from roam.relation_model import TorchRelationModel
from training.card import write_model_card
from training.saving import calibrate


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m training.calibrate",
        description="Find temperature, biases and thresholds of an adapter on dev pairs and write them to its card.",
        epilog="example: python -m training.calibrate runs/relation-cpu/adapter --false-merge-cost 9",
    )
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--dev", default="data/derived/dev.jsonl", help="labelled pairs (default: %(default)s)")
    parser.add_argument("--base", help="folder of the base weights, when they are not where the adapter says")
    parser.add_argument("--swap-margin", type=float, help="judge pairs below this margin in both orders")
    parser.add_argument("--false-merge-cost", type=float, default=4.0,
                        help="cost of a false relation against 1 for a missed one (default: %(default)s)")  # fmt: skip
    parser.add_argument("--threshold", action="append", default=[], metavar="RELATION=P",
                        help="set a threshold by hand (repeatable)")  # fmt: skip
    args = parser.parse_args(argv)
    try:
        fixed = dict(_threshold(item) for item in args.threshold)
        pairs = read_pairs(args.dev)
        refuse_test_rows(args.dev, pairs)
        model = TorchRelationModel.load(args.adapter, base=args.base)
        if args.swap_margin is not None:
            model.card = replace(model.card, swap_margin=args.swap_margin)
        card = calibrate(model, pairs, args.false_merge_cost, fixed)
        write_card(args.adapter, card)
        write_model_card(args.adapter, card)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = {"temperature": card.temperature, "bias": dict(card.bias), "thresholds": dict(card.thresholds)}
    print(json.dumps(found, indent=2))
    return 0


def _threshold(item: str) -> tuple[str, float]:
    name, _, number = item.partition("=")
    try:
        value = float(number)
    except ValueError:
        raise InputError(f"--threshold {item!r} is not RELATION=PROBABILITY; example: CON=0.9") from None
    ((relation, checked),) = check_thresholds({name: value}).items()
    return relation.value, checked


if __name__ == "__main__":
    raise SystemExit(main())
