"""Report of a relation adapter on labelled pairs: `python -m eval.relation`.

Writes report.json, report.md, three pictures and predictions.jsonl. The same adapter, pairs and seed give the same
report.json byte for byte; what differs from run to run (seconds) is in timings.json.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from data.pairs import LabelledPair, file_sha256, normalise_text, read_pairs
from data.rows import raise_problems, read_jsonl, read_source
from eval import bootstrap, metrics
from eval.metrics import IntArray
from eval.plots import relation_pictures
from eval.provenance import check_output, output_folder, versions, write_json, write_jsonl
from eval.relation_report import build_report, markdown, round_floats, scores
from eval.zero_shot import zero_shot_scores
from roam.arguments import ArgumentParser
from roam.errors import DataError, InputError, RoamError
from roam.interfaces import Embedder, RelationModel
from roam.records import Pair
from roam.relations import RELATIONS, parse_relation

CHUNK_BATCHES = 4
BASELINE_PAIRS = 8000
"""Training pairs the baselines see at most: more of them change their figures by less than the intervals' width."""


def predict(model: RelationModel, pairs: Sequence[Pair], batch_size: int, description: str) -> NDArray[np.float64]:
    """Probabilities of all pairs in the given order, shape (len(pairs), 5), with a progress bar.

    Pairs are handed over sorted by length, because a batch costs as much as its longest pair.
    """
    order = sorted(range(len(pairs)), key=lambda row: (len(pairs[row].old) + len(pairs[row].new), row))
    out = np.zeros((len(pairs), len(RELATIONS)))
    step = batch_size * CHUNK_BATCHES
    with tqdm(total=len(pairs), desc=description, unit="pair", disable=None) as bar:
        for start in range(0, len(order), step):
            rows = order[start : start + step]
            out[rows] = model.predict_proba([pairs[row] for row in rows])
            bar.update(len(rows))
    return out


def bundled_training_pairs(test: Sequence[LabelledPair]) -> list[LabelledPair]:
    """Training pairs of the bundled families that share no text with `test`: what the baselines learn from.

    Cross-family independents are drawn at random here, so that no embedder is needed.
    """
    from data.build import ROOT, Mix, build_split, split_families
    from data.families import read_families

    families, _ = split_families(read_families(ROOT / "families.jsonl"))
    held = frozenset(normalise_text(text) for pair in test for text in (pair.old, pair.new))
    return build_split(families, Mix(), None, random.Random(0), "T", held)


def baselines(
    train: Sequence[LabelledPair],
    test: Sequence[LabelledPair],
    predicted: IntArray,
    peers: Mapping[str, Path],
    seed: int,
    embedder: Embedder | None,
) -> dict[str, dict[str, Any]]:
    """Scores on `test` of the majority, lexical and (with an embedder) zero-shot baselines, and of `peers`.

    A peer (name -> predictions.jsonl), another adapter or a prompted model, also gets `difference`: macro-F1 of
    `predicted` minus its own, with the paired interval.
    """
    from data.baselines import lexical_baselines, sample_groups

    table: dict[str, dict[str, Any]] = {}
    for name, row in lexical_baselines(sample_groups(train, BASELINE_PAIRS, seed), test, seed).items():
        table[name] = dict(row)
    gold = metrics.columns([pair.label for pair in test])
    if embedder is not None:
        table["zero-shot rules"] = zero_shot_scores([Pair(p.old, p.new) for p in test], gold, embedder)
    for name, path in peers.items():
        guess = read_predictions(path, test)
        score = scores(gold, guess)
        table[name] = {key: score[key] for key in ("macro_f1", "accuracy", "per_class", "merge_error_rate")}
        groups = [pair.group for pair in test]
        table[name]["difference"] = bootstrap.paired_difference(gold, predicted, guess, groups, seed)
    return table


def read_predictions(path: Path, test: Sequence[LabelledPair]) -> IntArray:
    """Predicted columns for `test` from a predictions.jsonl ({id, pred} a line) by id; `DataError` if a pair lacks."""
    rows, problems = read_jsonl(path, read_source(path))
    raise_problems(path, problems, strict=True)
    found = {str(row.values.get("id")): row.values.get("pred") for row in rows}
    missing = [pair.id for pair in test if found.get(pair.id) is None]
    if missing:
        raise DataError(f"{path}: no pred for {len(missing)} of {len(test)} pairs, the first {missing[0]!r}; "
                        "predict the same pair file")  # fmt: skip
    return metrics.columns([parse_relation(found[pair.id]) for pair in test])


def prediction_rows(pairs: Sequence[LabelledPair], probabilities: NDArray[np.float64]) -> list[dict[str, Any]]:
    """One {id, gold, pred, probs} a pair; ids only, since a measured file may not be ours to copy."""
    predicted = metrics.decide(probabilities)
    return [
        {
            "id": pair.id,
            "gold": str(pair.label),
            "pred": str(RELATIONS[column]),
            "probs": {str(relation): round(float(p), 6) for relation, p in zip(RELATIONS, row, strict=True)},
        }
        for pair, column, row in zip(pairs, predicted.tolist(), probabilities, strict=True)
    ]


def evaluate(
    model: RelationModel,
    pairs_path: Path,
    out: Path,
    *,
    name: str,
    config: Path | None = None,
    train_path: Path | None = None,
    peers: Mapping[str, Path] | None = None,
    batch_size: int = 64,
    seed: int = 0,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """Measure `model` on a pair file, write all files into `out` and return what report.json says."""
    pairs = read_pairs(pairs_path)
    train = read_pairs(train_path) if train_path else bundled_training_pairs(pairs)
    output_folder(out)
    started = time.perf_counter()
    probabilities = predict(model, [Pair(p.old, p.new) for p in pairs], batch_size, "pairs")
    swapped = predict(model, [Pair(p.new, p.old) for p in pairs], batch_size, "swapped pairs")
    seconds = time.perf_counter() - started
    report: dict[str, Any] = {"model": name, "data": pairs_path.name, "seed": seed}
    report |= build_report(pairs, probabilities, swapped, model.thresholds, seed)
    report["baselines"] = round_floats(
        baselines(train, pairs, metrics.decide(probabilities), peers or {}, seed, embedder)
    )
    report["baselines_trained_on"] = train_path.name if train_path else "pairs derived from data/families.jsonl"
    report["hashes"] = {
        "pairs": file_sha256(pairs_path),
        "train": file_sha256(train_path) if train_path else None,
        "model": model.digest,
        "config": file_sha256(config) if config else None,
    }
    report["versions"] = versions()
    write_json(out / "report.json", report)
    (out / "report.md").write_text(markdown(report), encoding="utf-8")
    write_jsonl(out / "predictions.jsonl", prediction_rows(pairs, probabilities))
    write_json(out / "timings.json", {"seconds": seconds, "pairs_per_second": 2 * len(pairs) / seconds})
    relation_pictures(report, out)
    return report


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m eval.relation",
        description="Per-class precision, recall and F1 of a relation adapter, with intervals, calibration, swap "
        "consistency and wrong merges, beside baselines and the paper's Table 4.",
        epilog="example: python -m eval.relation --pairs data/relation_test_843.jsonl --out out/843",
    )
    parser.add_argument(
        "--adapter", default="pretrained", help="'pretrained' or an adapter folder (default: %(default)s)"
    )
    parser.add_argument("--base", help="folder of the base weights, when they are not where the adapter says")
    parser.add_argument("--pairs", type=Path, required=True, help="labelled pairs, JSONL or CSV")
    parser.add_argument("--out", type=Path, required=True, help="folder for the report")
    parser.add_argument("--train", type=Path, help="pairs the baselines learn from (default: the bundled families)")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=FILE",
                        help="predictions.jsonl of another model on the same pairs (repeatable)")  # fmt: skip
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="seed of the intervals and baselines")
    args = parser.parse_args(argv)
    if args.batch_size < 1:
        parser.error(f"--batch-size is {args.batch_size}: use 1 or more")
    return args


def parse_peers(values: Sequence[str]) -> dict[str, Path]:
    """{name: path} of NAME=FILE values."""
    peers = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not (name and separator and path):
            raise InputError(f"--peer {value!r}: write NAME=FILE, such as zero-shot=out/zero/predictions.jsonl")
        peers[name] = Path(path)
    return peers


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        from roam.embedders import load_embedder
        from roam.managers import adapter_folder, load_manager

        check_output(args.out)
        read_pairs(args.pairs)  # a bad file should not cost the loading of a model
        model = load_manager(args.adapter, base=args.base).relation_model
        report = evaluate(
            model,
            args.pairs,
            args.out,
            name=Path(args.adapter).name,
            config=adapter_folder(args.adapter) / "roam.json",
            train_path=args.train,
            peers=parse_peers(args.peer),
            batch_size=args.batch_size,
            seed=args.seed,
            embedder=load_embedder(),
        )
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    low, high = report["intervals"]["macro_f1"]
    print(f"macro-F1 {report['macro_f1']:.3f} ({low:.3f} to {high:.3f}), accuracy {report['accuracy']:.3f}, "
          f"{report['pairs']} pairs; {args.out / 'report.md'}")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
