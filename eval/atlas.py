"""Error atlas: which phenomena a relation model gets wrong: `python -m eval.atlas`.

Takes the folder that `eval.relation` wrote and the pair file, tags every pair by rules (eval/atlas_tags.py) and counts
errors by phenomenon, the worst first. The next families to write follow from it. Texts are quoted only from pair files
of this project (under data/); of others the report holds ids and counts.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.build import ROOT as DATA
from data.pairs import LabelledPair, file_sha256, read_pairs
from eval import bootstrap, metrics
from eval.atlas_tags import NONE, PHENOMENA, tags
from eval.experiments_record import is_test
from eval.metrics import FloatArray, IntArray
from eval.plots import atlas_picture
from eval.provenance import check_output, output_folder, write_json
from eval.relation import read_predictions
from eval.relation_report import percent, round_floats, table
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError
from roam.relations import RELATIONS

LEAST = 15
"""A phenomenon with fewer pairs is listed apart: its accuracy is mostly chance."""
Mask = NDArray[np.bool_]


def tag_masks(pairs: Sequence[LabelledPair]) -> dict[str, Mask]:
    """Which pairs each phenomenon is in, shape (pairs,) each; phenomena of no pair are left out."""
    found = [tags(pair.old, pair.new) for pair in pairs]
    masks = {name: np.array([name in tagged for tagged in found]) for name in (*PHENOMENA, NONE)}
    return {name: mask for name, mask in masks.items() if mask.any()}


def read_confidence(folder: Path, pairs: Sequence[LabelledPair]) -> FloatArray:
    """Probability of the predicted relation of each pair, shape (pairs,)."""
    lines = (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {row["id"]: max(row["probs"].values()) for row in map(json.loads, lines)}
    return np.array([rows[pair.id] for pair in pairs], dtype=np.float64)


def check_report(folder: Path, pairs_path: Path) -> dict[str, Any]:
    """report.json of `folder`; `DataError` unless it is there and about `pairs_path`."""
    path = folder / "report.json"
    if not path.is_file():
        raise DataError(f"no {path}; write it with `python -m eval.relation --pairs {pairs_path} --out {folder}`")
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if report["hashes"]["pairs"] != file_sha256(pairs_path):
        raise DataError(f"{folder} reports on {report['data']} as it was then, not on {pairs_path}; evaluate that file")
    return report


def phenomenon_row(
    name: str, mask: Mask, gold: IntArray, predicted: IntArray, group: IntArray, seed: int
) -> dict[str, Any]:
    """Counts of one phenomenon.

    `excess` is how many errors there are beyond those that the overall error rate would give: what mending the
    phenomenon is worth. `hides` is how many of the errors would hide a true memory in the store.
    """
    wrong = gold != predicted
    errors = int((wrong & mask).sum())
    turned = Counter(zip(gold[wrong & mask].tolist(), predicted[wrong & mask].tolist(), strict=True))
    interval = bootstrap.share_interval(~wrong & mask, mask, group, seed)
    return {
        "phenomenon": name,
        "title": "none of these" if name == NONE else PHENOMENA[name][0],
        "pairs": int(mask.sum()),
        "accuracy": 1 - errors / int(mask.sum()),
        "interval": interval,
        "errors": errors,
        "excess": errors - float(wrong.mean()) * int(mask.sum()),
        "hides": round((metrics.false_demotion(gold[mask], predicted[mask])["any"] or 0.0) * int(mask.sum())),
        "gold": {str(relation): int((mask & (gold == column)).sum()) for column, relation in enumerate(RELATIONS)},
        "turned": [
            {"gold": str(RELATIONS[left]), "predicted": str(RELATIONS[right]), "count": count}
            for (left, right), count in sorted(turned.items(), key=lambda item: (-item[1], item[0]))
        ],
    }


def error_list(
    mask: Mask, pairs: Sequence[LabelledPair], gold: IntArray, predicted: IntArray, confidence: FloatArray,
    count: int, quote: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    """The most confident errors of a phenomenon; with texts only when `quote`."""
    wrong = np.flatnonzero((gold != predicted) & mask)
    ranked = wrong[np.argsort(-confidence[wrong], kind="stable")][:count]
    return [
        {
            "id": pairs[at].id,
            "gold": str(pairs[at].label),
            "predicted": str(RELATIONS[predicted[at]]),
            "probability": float(confidence[at]),
            **({"old": pairs[at].old, "new": pairs[at].new} if quote else {}),
        }
        for at in ranked.tolist()
    ]


def build_atlas(report_folder: Path, pairs_path: Path, examples: int, seed: int, least: int = LEAST) -> dict[str, Any]:
    """The atlas as one dictionary: `phenomena` worst accuracy first, `few` those with less than `least` pairs."""
    report = check_report(report_folder, pairs_path)
    pairs = read_pairs(pairs_path)
    gold = metrics.columns([pair.label for pair in pairs])
    predicted = read_predictions(report_folder / "predictions.jsonl", pairs)
    confidence = read_confidence(report_folder, pairs)
    group = bootstrap.group_index([pair.group for pair in pairs], len(pairs))
    quote = pairs_path.resolve().is_relative_to(DATA)
    rows = []
    for name, mask in tag_masks(pairs).items():
        row = phenomenon_row(name, mask, gold, predicted, group, seed)
        rows.append(row | {"examples": error_list(mask, pairs, gold, predicted, confidence, examples, quote)})
    rows.sort(key=lambda row: (row["accuracy"], -row["errors"], row["phenomenon"]))
    atlas = {
        "model": report["model"], "data": pairs_path.name, "test_set": is_test(pairs_path), "quoted": quote,
        "pairs": len(pairs), "accuracy": metrics.accuracy(gold, predicted), "errors": int((gold != predicted).sum()),
        "seed": seed, "least": least, "hashes": report["hashes"],
        "phenomena": [row for row in rows if row["pairs"] >= least],
        "few": [row for row in rows if row["pairs"] < least],
    }  # fmt: skip
    rounded: dict[str, Any] = round_floats(atlas)
    return rounded


def markdown(atlas: dict[str, Any]) -> str:
    """The atlas as a page; figures in percent."""
    lines = [
        f"# Error atlas: {atlas['model']} on {atlas['data']}",
        "",
        f"{atlas['errors']} errors in {atlas['pairs']} pairs, accuracy {percent(atlas['accuracy'])}. A pair has as "
        "many tags as rules hold (eval/atlas_tags.py), so rows overlap. Excess: errors beyond those at the overall "
        "rate. Hides: errors that would hide a true memory.",
        "",
    ]  # fmt: skip
    if atlas["test_set"]:
        lines += ["These are test pairs: read this to describe a settled model, not to choose data or a recipe.", ""]
    header = ["what the texts differ in", "pairs", "accuracy", "95 %", "errors", "excess", "hides", "gold → predicted"]
    for title, rows in (("Worst first", atlas["phenomena"]), (f"Fewer than {atlas['least']} pairs", atlas["few"])):
        if rows:
            lines += [f"## {title}", "", *table(header, [_cells(row) for row in rows]), ""]
    lines += ["![accuracy by phenomenon](atlas.png)", ""]
    if atlas["quoted"]:
        lines += ["## Most confident errors", ""]
        for row in atlas["phenomena"]:
            if row["examples"]:
                lines += [f"**{row['title']}**", "", *(_example(entry) for entry in row["examples"]), ""]
    else:
        lines += [
            "The pair file is not this project's, so no text of it is quoted; atlas.json has the errors' ids.",
            "",
        ]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> list[str]:
    span = f"{percent(row['interval'][0])} to {percent(row['interval'][1])}"
    turned = ", ".join(f"{item['gold']}→{item['predicted']} {item['count']}" for item in row["turned"][:4])
    return [
        row["title"], str(row["pairs"]), percent(row["accuracy"]), span, str(row["errors"]), f"{row['excess']:+.1f}",
        str(row["hides"]), turned or "–",
    ]  # fmt: skip


def _example(entry: dict[str, Any]) -> str:
    return (f"- {entry['gold']} → {entry['predicted']} ({percent(entry['probability'])} %): "
            f"“{entry['old']}” / “{entry['new']}”")  # fmt: skip


def write_atlas(
    report_folder: Path, pairs_path: Path, out: Path, *, examples: int = 3, seed: int = 0, least: int = LEAST
) -> dict[str, Any]:
    """Write atlas.json, atlas.md and atlas.png into `out` and return the dictionary."""
    check_output(out)
    atlas = build_atlas(report_folder, pairs_path, examples, seed, least)
    output_folder(out)
    write_json(out / "atlas.json", atlas)
    (out / "atlas.md").write_text(markdown(atlas), encoding="utf-8")
    atlas_picture(atlas, out / "atlas.png")
    return atlas


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m eval.atlas",
        description="Count a relation model's errors by phenomenon (negation, numbers, places, other people, ...).",
        epilog="example: python -m eval.atlas --report reports/mine --pairs data/derived/dev.jsonl --out reports/atlas",
    )
    parser.add_argument("--report", type=Path, required=True, help="folder that `python -m eval.relation` wrote")
    parser.add_argument("--pairs", type=Path, required=True, help="the pair file it was measured on")
    parser.add_argument("--out", type=Path, required=True, help="folder for the atlas")
    parser.add_argument("--examples", type=int, default=3, help="errors listed a phenomenon (default: %(default)s)")
    parser.add_argument("--least", type=int, default=LEAST, help="pairs a ranked phenomenon has at least")
    parser.add_argument("--seed", type=int, default=0, help="seed of the intervals")
    args = parser.parse_args(argv)
    if args.examples < 0 or args.least < 1:
        parser.error(f"--examples {args.examples} --least {args.least}: use 0 or more and 1 or more")
    try:
        atlas = write_atlas(args.report, args.pairs, args.out, examples=args.examples, seed=args.seed, least=args.least)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for row in atlas["phenomena"][:8]:
        print(
            f"{row['title']:45} {row['pairs']:5} pairs  accuracy {percent(row['accuracy']):>5}  errors {row['errors']}"
        )
    print(args.out / "atlas.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
