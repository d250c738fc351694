"""The adapter's model card (README.md beside the weights): what it is for and how often it is wrong.

`python -m training.card ADAPTER REPORT [REPORT ...]` rewrites it with the figures of evaluation reports.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval import calibration, metrics
from eval.relation_report import percent, round_floats, scores, table
from roam.adapters import AdapterCard, read_card, write_card
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError
from roam.relations import RELATIONS, Relation


def relation_metrics(
    probabilities: NDArray[np.float32], labels: NDArray[np.int64], thresholds: Mapping[Relation, float]
) -> dict[str, Any]:
    """Measures for the card: of the most probable relation, and of the one that counts at the thresholds."""
    plain = scores(labels, metrics.decide(probabilities))
    plain["ece"] = calibration.expected_calibration_error(labels, probabilities)
    plain["pairs"] = len(labels)
    plain["at_thresholds"] = scores(labels, metrics.decide(probabilities, thresholds))
    rounded: dict[str, Any] = round_floats(plain)
    return rounded


def _origin(card: AdapterCard) -> str:
    """The seed of a trained adapter, or the adapters that it is the average of."""
    parts = card.metrics.get("average of")
    return f"mean of the weights of {' and '.join(map(str, parts))}" if parts else f"seed {card.metrics.get('seed')}"


def write_model_card(folder: Path, card: AdapterCard) -> None:
    """Write README.md from what `roam.json` holds."""
    names = ", ".join(f"`{name}` {digest[:16]}" for name, digest in card.data_hash.items())
    lines = [
        "---", f"base_model: {card.base}", "library_name: peft", "license: apache-2.0", "tags: [roam, lora]", "---", "",
        "# ROAM relation adapter", "",
        "Classifies the relation of a NEW fact about a user to an OLD one: independent (IND), equivalent (EQV), old "
        "subsumed by new (OSN), new subsumed by old (NSO), conflict (CON). LoRA weights and head; the base comes from "
        "its own source and is checked by content hash.", "",
        f"- Base: `{card.base}` (content hash {card.base_hash[:16]})",
        f"- Trained on: {names}; {_origin(card)}",
        f"- Temperature: {card.temperature:.3f}; class biases "
        + (", ".join(f"{name} {value:+.2f}" for name, value in card.bias.items()) or "none")
        + f"; longest input {card.max_length} tokens",
        "- Thresholds, below which a relation counts as IND and is listed for review: "
        + ", ".join(f"{name} {limit:.2f}" for name, limit in card.thresholds.items()),
        f"- Digest: `{card.digest}`", "",
        "English facts of one sentence, as an extractor writes them. Not for facts of several people in one text, for "
        "long passages, or as the only ground of a decision about a person.", "",
    ]  # fmt: skip
    for name, measured in card.metrics.items():
        if isinstance(measured, Mapping) and "per_class" in measured:
            lines += _section(name, measured)
    lines += ["## Versions", "", ", ".join(f"{name} {number}" for name, number in card.versions.items()), ""]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _section(name: str, measured: Mapping[str, Any]) -> list[str]:
    rows = [
        [relation, *(percent(score[key]) for key in ("precision", "recall", "f1")), str(score["support"])]
        for relation, score in measured["per_class"].items()
    ]
    labels = [relation.value for relation in RELATIONS]
    confusion = [[gold, *map(str, counts)] for gold, counts in zip(labels, measured["confusion"], strict=True)]
    stored = measured["at_thresholds"]
    extra = f", swap consistency {percent(measured['swap_consistency'])}" if "swap_consistency" in measured else ""
    return [
        f"## Measured on {name}", "",
        f"{measured['pairs']} pairs: macro-F1 {percent(measured['macro_f1'])}, accuracy {percent(measured['accuracy'])}"
        f", ECE {percent(measured['ece'])}{extra}.", "",
        *table(["relation", "precision", "recall", "F1", "pairs"], rows), "",
        f"**Merge error rate** (independent pairs merged or superseded): {percent(measured['merge_error_rate'])} by "
        f"the most probable relation, {percent(stored['merge_error_rate'])} at the thresholds the store uses (macro-F1 "
        f"there {percent(stored['macro_f1'])}).", "",
        "Confusion (rows gold, columns predicted):", "",
        *table(["", *labels], confusion), "",
    ]  # fmt: skip


KEPT = ("pairs", "macro_f1", "accuracy", "per_class", "confusion", "merge_error_rate", "false_demotion_rate", "ece",
        "swap_consistency", "at_thresholds", "hashes")  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m training.card",
        description="Put evaluation reports' figures on an adapter's card.",
        epilog="example: python -m training.card runs/relation-minilm/adapter test=reports/relation/report.json",
    )
    parser.add_argument("adapter", type=Path)
    parser.add_argument("reports", nargs="+", metavar="NAME=report.json")
    args = parser.parse_args(argv)
    try:
        card = read_card(args.adapter)
        added = dict(_read_report(item) for item in args.reports)
        card = replace(card, metrics={**card.metrics, **added})
        write_card(args.adapter, card)
        write_model_card(args.adapter, card)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _read_report(item: str) -> tuple[str, dict[str, Any]]:
    name, sep, path = item.partition("=")
    if not sep or not Path(path).is_file():
        raise DataError(f"{item!r} is not NAME=report.json; example: test=reports/relation/report.json")
    report = json.loads(Path(path).read_text(encoding="utf-8"))
    return name, {key: report[key] for key in KEPT if key in report}


if __name__ == "__main__":
    raise SystemExit(main())
