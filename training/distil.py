"""Training pairs from teachers: `python -m training.distil CANDIDATES --teacher T [--teacher T ...] --out DIR`.

Candidates (from `data.personamem`, or any JSONL with id, old, new, group) lose their duplicates, every teacher gives
its opinion, the mean opinion becomes the soft label, and pairs on which the teachers are at odds go to review.
Confident learning (`data.confident`) then takes out pairs whose label a cross-validated student contradicts: a lexical
one by default, or the recipe that is to be trained. Train with `soft_labels=0.5`, say, to learn from the opinions too.

A teacher is MODEL@URL (an LLM), an adapter folder or "pretrained", or a file of opinions (JSONL: id and probs or label,
as `data.label_batch` writes). DIR gets train.jsonl, dev.jsonl, review.jsonl, suspected.jsonl, opinions of each teacher,
card.json and README.md.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data.confident import confident_joint, group_folds, lexical_probabilities, suspected
from data.held_out import refuse_test_rows
from data.label import label_all, per_class, read_candidates
from data.label_sets import is_complete, split_personas
from data.pairs import LabelledPair, file_sha256, write_pairs
from data.personamem import Candidate
from data.soft_labels import (
    Opinions,
    agreements,
    columns_of,
    deduplicate,
    merge_opinions,
    opinion_lines,
    read_opinions,
)
from eval.provenance import versions
from roam.arguments import ArgumentParser
from roam.errors import DataError, InputError, RoamError
from roam.llm import LLMClient, ReplyCache, Unanswered
from roam.llm.settings import parse_endpoint
from roam.managers import adapter_folder
from roam.prompted.relation_model import PromptedRelationModel
from roam.records import Pair
from roam.relations import INDEX, RELATIONS, Relation
from roam.writing import write_lines
from training.config import RelationConfig, load_config
from training.distil_card import write_card_files

JUDGED_AT_ONCE = 512


class Teacher(NamedTuple):
    """What a teacher said, and what it is, for the card."""

    opinions: Opinions
    what: dict[str, Any]


def ask(teacher: str, found: Sequence[Candidate], out: Path) -> Teacher:
    """A teacher's opinions on the candidates. Raises `InputError`, `AdapterError`, `DataError` or `LLMError`."""
    if Path(teacher).is_file():
        return Teacher(
            read_opinions(Path(teacher), found), {"file": Path(teacher).name, "sha256": file_sha256(teacher)}
        )
    if "@http" in teacher:
        with ReplyCache(out / "llm.sqlite") as cache:
            client = LLMClient(parse_endpoint(teacher), cache=cache)
            labels = label_all(PromptedRelationModel(client), found, client.settings.model)
        return Teacher(votes(labels), {"model": client.settings.model, "cost": dict(client.usage.as_dict())})
    from roam.backends import load_relation_model

    model = load_relation_model(adapter_folder(teacher))
    return Teacher(judged(model, found, teacher), {"adapter": model.digest})


def votes(labels: Sequence[Any]) -> Opinions:
    """Labels as opinions: 1 for what was said."""
    out = np.full((len(labels), len(RELATIONS)), np.nan)
    for row, label in zip(out, labels, strict=True):
        if not isinstance(label, Unanswered):
            row[:] = 0.0
            row[INDEX[label]] = 1.0
    return out


def judged(model: Any, found: Sequence[Candidate] | Sequence[LabelledPair], name: str) -> Opinions:
    """A relation model's probabilities, shape (len(found), 5), with a progress bar."""
    from tqdm import tqdm

    out = np.zeros((len(found), len(RELATIONS)))
    with tqdm(total=len(found), desc=name, unit="pair", disable=None) as bar:
        for start in range(0, len(found), JUDGED_AT_ONCE):
            part = found[start : start + JUDGED_AT_ONCE]
            out[start : start + len(part)] = model.predict_proba([Pair(one.old, one.new) for one in part])
            bar.update(len(part))
    return out


def crossfitted(pairs: Sequence[LabelledPair], recipe: RelationConfig, folds: int, seed: int) -> Opinions:
    """Probabilities of each pair by a student of `recipe` that saw no pair of its group; one training run a fold."""
    from roam.relation_model import TorchRelationModel
    from training.relation import train

    out = np.zeros((len(pairs), len(RELATIONS)))
    for number, (learn, held) in enumerate(group_folds(pairs, folds, seed)):
        with tempfile.TemporaryDirectory() as scratch:
            # The held-out fold chooses nothing: checkpoints and calibration have pairs of their own.
            part, dev = split_personas([pairs[row] for row in learn], 0.15, seed)
            write_pairs(Path(scratch) / "train.jsonl", part)
            write_pairs(Path(scratch) / "dev.jsonl", dev)
            print(f"fold {number + 1} of {folds}: {len(part)} pairs to learn from, {len(held)} to judge", flush=True)
            done = train(
                replace(recipe, train=f"{scratch}/train.jsonl", dev=f"{scratch}/dev.jsonl", out=f"{scratch}/run")
            )
            model = TorchRelationModel.load(done.adapter)
            out[held] = judged(model, [pairs[row] for row in held], f"fold {number + 1}")
    return out


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Label, merge, filter and split as the arguments say; returns what card.json says."""
    given = read_candidates(args.candidates)
    found = deduplicate(given)
    refuse_test_rows(args.candidates, [LabelledPair(c.id, c.old, c.new, Relation.IND, c.group) for c in found.kept])
    student = None if args.student == "lexical" else load_config(RelationConfig, args.student)  # before teachers cost
    weights = dict(zip(args.teacher, args.weight or [1.0] * len(args.teacher), strict=True))
    args.out.mkdir(parents=True, exist_ok=True)
    teachers = {name: ask(name, found.kept, args.out) for name in args.teacher}
    opinions = {name: teacher.opinions for name, teacher in teachers.items()}
    merged = merge_opinions(found.kept, opinions, weights, args.least)
    if not is_complete(merged.pairs):
        absent = sorted({str(relation) for relation in RELATIONS} - {str(pair.label) for pair in merged.pairs})
        raise DataError(f"no pair of {', '.join(absent)} is left: label more candidates, or lower --least")
    if student is None:
        probabilities = lexical_probabilities(merged.pairs, args.folds, args.seed)
    else:
        probabilities = crossfitted(merged.pairs, student, args.folds, args.seed)
    labels = columns_of(merged.pairs)
    wrong = suspected(labels, probabilities) if args.filter else np.zeros(len(labels), dtype=bool)
    kept = [pair for pair, out in zip(merged.pairs, wrong, strict=True) if not out]
    train, dev = split_personas(kept, args.dev_share, args.seed)
    card = {
        "candidates": {"file": args.candidates.name, "sha256": file_sha256(args.candidates), "given": len(given),
                       "repeated": found.repeated, "identical": found.identical, "judged": len(found.kept)},
        "teachers": {name: {**teacher.what, "weight": weights[name],
                            "answered": int((~np.isnan(teacher.opinions[:, 0])).sum())}
                     for name, teacher in teachers.items()},
        "agreement": agreements(opinions), "least": args.least, "to_review": len(merged.review),
        "student": args.student, "folds": args.folds, "suspected": int(wrong.sum()),
        "confident_joint": confident_joint(labels, probabilities).tolist(), "labels": [str(r) for r in RELATIONS],
        "train": {"pairs": len(train), "groups": len({p.group for p in train}), "per_class": per_class(train)},
        "dev": {"pairs": len(dev), "groups": len({p.group for p in dev}), "per_class": per_class(dev)},
        "seed": args.seed, "versions": versions(),
    }  # fmt: skip
    doubted = [
        {"id": pair.id, "old": pair.old, "new": pair.new, "label": str(pair.label),
         "student": {str(r): round(float(p), 3) for r, p in zip(RELATIONS, row, strict=True)}}
        for pair, row, out in zip(merged.pairs, probabilities, wrong, strict=True) if out
    ]  # fmt: skip
    for name, part in (("train", train), ("dev", dev)):
        write_pairs(args.out / f"{name}.jsonl", part)
    for name, rows in (("review", merged.review), ("suspected", doubted)):
        write_lines(args.out / f"{name}.jsonl", [json.dumps(row, ensure_ascii=False) for row in rows])
    for number, teacher in enumerate(teachers.values(), start=1):
        write_lines(args.out / f"opinions-{number}.jsonl", opinion_lines(found.kept, teacher.opinions))
    write_card_files(args.out, card)
    return card


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m training.distil",
        description="Soft labels from several teachers, without duplicates and without labels that are probably wrong.",
        epilog="example: python -m training.distil candidates.jsonl --teacher qwen.jsonl --teacher pretrained "
        "--weight 2 --weight 1 --out runs/distilled",
    )
    option = parser.add_argument
    option("candidates", type=Path, help="candidate pairs (JSONL: id, old, new, group)")
    option("--teacher", action="append", required=True, help="MODEL@URL, an adapter folder, 'pretrained', or a file of "
           "opinions (repeatable)")  # fmt: skip
    option("--weight", action="append", type=float, help="weight of each teacher, in their order")
    option("--least", type=float, default=0.5, help="mean probability that makes a label (default: %(default)s)")
    option("--student", default="lexical", metavar="RECIPE", help="who contradicts labels: 'lexical', or a recipe to "
           "train in each fold (default: %(default)s)")  # fmt: skip
    option("--folds", type=int, default=5, help="parts of the cross-validation (default: %(default)s)")
    option("--no-filter", dest="filter", action="store_false", help="keep pairs with suspected labels")
    option("--dev-share", type=float, default=0.1, help="share of the pairs for dev (default: %(default)s)")
    option("--seed", type=int, default=0)
    option("--out", type=Path, required=True, help="folder for the files")
    args = parser.parse_args(argv)
    if len(set(args.teacher)) != len(args.teacher):
        parser.error("a teacher is there twice: give it a --weight instead")
    if not all(name.strip() for name in args.teacher):
        parser.error("a --teacher is empty: give MODEL@URL, an adapter folder, 'pretrained', or a file of opinions")
    if args.weight is not None and not (
        len(args.weight) == len(args.teacher) and all(0 < weight < math.inf for weight in args.weight)
    ):
        parser.error(f"{len(args.weight)} weights for {len(args.teacher)} teachers: give each one, above 0")
    if not 0 <= args.least <= 1 or not 0 < args.dev_share < 1 or args.folds < 2:
        parser.error("--least lies in 0..1, --dev-share between them, and --folds is 2 or more")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Distil; 2 on bad input, with one line on standard error."""
    args = parse_args(argv)
    try:
        card = run(args)
    except OSError as error:
        print(f"error: {InputError(f'--out {args.out}: {error.strerror}')}", file=sys.stderr)
        return 2
    except RoamError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(json.dumps({key: card[key] for key in ("candidates", "to_review", "suspected", "train", "dev")}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
