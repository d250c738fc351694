"""Labels by teachers: `python -m data.label CANDIDATES --teacher MODEL@URL --out DIR` (paper section 3.5.3).

The paper drew its 843 pairs from PersonaMem-v2, had an LLM label candidates, and stratified them over the relations.
This is that protocol for anyone with the data and an endpoint: one or two teachers label candidate pairs (from
`data.personamem`, or any JSONL with `id, old, new, group`) with the prompt that the prompted manager uses. Pairs on
which they agree are kept; the others, and those without a usable answer, go to a file for a person to decide. A
balanced set is drawn from what is kept and split by persona. Answers are cached, so a run that was stopped goes on.

`--given FILE` takes labelled pairs of somebody else instead, such as the paper's own: their size and balance are
checked against what the paper says, and the report tells whose set it is.

More teachers, soft labels and a filter for wrong ones: `training.distil`. Hundreds of thousands of candidates by batch
files: `data.label_batch`.

DIR gets labelled.jsonl, review.jsonl, train.jsonl, test.jsonl (the balanced set), report.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.label_sets import PAPER_PAIRS, Labelled, balanced, check_given, is_complete, split_personas
from data.pairs import LabelledPair, file_sha256, write_pairs
from data.personamem import Candidate
from data.rows import Problem, check_text, raise_problems, read_jsonl, read_source
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError
from roam.llm import LLMClient, ReplyCache, Unanswered
from roam.llm.settings import parse_endpoint
from roam.prompted.relation_model import PromptedRelationModel
from roam.records import Pair
from roam.relations import RELATIONS, Relation
from roam.writing import write_lines

CHUNK = 32  # pairs between two moves of the progress bar


def read_candidates(path: Path) -> list[Candidate]:
    """Candidate pairs of a JSONL file; `DataError` names the first bad lines and counts all of them."""
    rows, problems = read_jsonl(path, read_source(path))
    found: list[Candidate] = []
    for row in rows:
        values = row.values
        faults = [fault for name in ("id", "old", "new", "group") if (fault := check_text(values.get(name), name))]
        problems += [Problem(str(path), row.line, "schema", fault) for fault in faults]
        if not faults:
            texts = {name: str(values[name]).strip() for name in ("id", "old", "new", "group")}
            found.append(Candidate(**texts, source=str(values.get("source") or "given")))
    raise_problems(path, problems, strict=True)
    twice = [name for name, count in Counter(candidate.id for candidate in found).items() if count > 1]
    if twice or not found:
        what = f"id {twice[0]!r} is there twice" if twice else "no candidate pair"
        raise DataError(f"{path}: {what}; write one JSON object a line with id, old, new and group (the persona)")
    return found


def label_all(model: PromptedRelationModel, found: Sequence[Candidate], name: str) -> list[Relation | Unanswered]:
    """One teacher's relation of each candidate, or why there is none. Raises `LLMError`."""
    from tqdm import tqdm

    labels: list[Relation | Unanswered] = []
    with tqdm(total=len(found), desc=name, unit="pair", disable=None) as bar:
        for start in range(0, len(found), CHUNK):
            part = found[start : start + CHUNK]
            labels += model.label([Pair(candidate.old, candidate.new) for candidate in part])
            bar.update(len(part))
    return labels


def merge(found: Sequence[Candidate], by_teacher: Mapping[str, Sequence[Relation | Unanswered]]) -> Labelled:
    """What the teachers agree on, and what a person must look at."""
    kept: list[LabelledPair] = []
    review: list[dict[str, Any]] = []
    for place, candidate in enumerate(found):
        said = {name: labels[place] for name, labels in by_teacher.items()}
        relations = {label for label in said.values() if not isinstance(label, Unanswered)}
        if len(relations) == 1 and not any(isinstance(label, Unanswered) for label in said.values()):
            [label] = relations
            kept.append(
                LabelledPair(
                    candidate.id, candidate.old, candidate.new, label, candidate.group, source=candidate.source
                )
            )
            continue
        review.append(
            {"id": candidate.id, "old": candidate.old, "new": candidate.new, "group": candidate.group,
             "source": candidate.source,
             "said": {name: f"no answer: {label.reason}" if isinstance(label, Unanswered) else str(label)
                      for name, label in said.items()}}
        )  # fmt: skip
    return Labelled(kept, review)


def agreement(by_teacher: Mapping[str, Sequence[Relation | Unanswered]]) -> dict[str, Any] | None:
    """Share of equal labels and Cohen's kappa over the pairs that both teachers labelled; None for one teacher."""
    if len(by_teacher) < 2:
        return None
    from sklearn.metrics import cohen_kappa_score

    one, two = by_teacher.values()
    both = [(str(a), str(b)) for a, b in zip(one, two, strict=True)
            if not isinstance(a, Unanswered) and not isinstance(b, Unanswered)]  # fmt: skip
    if not both:
        return {"pairs": 0, "share": None, "kappa": None}
    first, second = zip(*both, strict=True)
    # With one class only, chance explains everything and kappa is 0/0.
    kappa = None if len({*first, *second}) == 1 else float(cohen_kappa_score(first, second))
    return {"pairs": len(both), "share": sum(a == b for a, b in both) / len(both), "kappa": kappa}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Label, keep, balance and split as the parsed arguments say; returns what report.json says."""
    found = read_candidates(args.candidates)
    args.out.mkdir(parents=True, exist_ok=True)
    with ReplyCache(args.cache or args.out / "llm.sqlite") as cache:
        teachers = {text: LLMClient(parse_endpoint(text), cache=cache) for text in args.teacher}
        by_teacher = {
            text: label_all(PromptedRelationModel(client), found, client.settings.model)
            for text, client in teachers.items()
        }
    labelled = merge(found, by_teacher)
    report: dict[str, Any] = {
        "whose": f"labelled here by {' and '.join(c.settings.model for c in teachers.values())}, candidates from "
        f"{args.candidates.name}; not the paper's {PAPER_PAIRS} pairs, and not verified by a person",
        "candidates": len(found),
        "candidates_sha256": file_sha256(args.candidates),
        "kept": len(labelled.pairs),
        "to_review": len(labelled.review),
        "per_class": per_class(labelled.pairs),
        "agreement": agreement(by_teacher),
        "seed": args.seed,
        "teachers": {text: dict(client.usage.as_dict()) for text, client in teachers.items()},
    }
    write_pairs(args.out / "labelled.jsonl", labelled.pairs)
    write_lines(args.out / "review.jsonl", (json.dumps(row, ensure_ascii=False) for row in labelled.review))
    if is_complete(labelled.pairs):
        chosen = balanced(labelled.pairs, args.per_class, args.seed)
        train, test = split_personas(chosen, args.test_share, args.seed)
        for name, part in (("train", train), ("test", test)):
            write_pairs(args.out / f"{name}.jsonl", part)
            report[name] = {"pairs": len(part), "personas": len({p.group for p in part}), "per_class": per_class(part)}
    else:
        absent = [str(r) for r in RELATIONS if not report["per_class"][str(r)]]
        report["not_balanced"] = f"no pair of {', '.join(absent)} was kept: label more candidates"
    return report


def per_class(pairs: Sequence[LabelledPair]) -> dict[str, int]:
    """Pairs by relation, all five of them."""
    counts = Counter(pair.label for pair in pairs)
    return {str(relation): counts[relation] for relation in RELATIONS}


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m data.label",
        description="Have one or two LLMs label candidate pairs; keep what they agree on; balance; split by persona.",
        epilog="examples: python -m data.label candidates.jsonl --teacher qwen3-8b@http://127.0.0.1:8000/v1 "
        "--out labels; python -m data.label --given the_843.jsonl --out labels",
    )
    parser.add_argument("candidates", nargs="?", type=Path, help="candidate pairs (JSONL: id, old, new, group)")
    parser.add_argument("--given", type=Path, metavar="FILE", help="check labelled pairs that the paper is said to use")
    parser.add_argument("--teacher", action="append", default=[], metavar="MODEL@URL",
                        help="an LLM that labels; give it twice for two teachers (key: $ROAM_LLM_KEY)")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("--cache", type=Path, help="SQLite file of answers (default: OUT/llm.sqlite)")
    parser.add_argument("--per-class", type=int, help="pairs a relation (default: as many as the rarest has)")
    parser.add_argument(
        "--test-share", type=float, default=0.5, help="share of the set for test (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if (args.candidates is None) == (args.given is None):
        parser.error("give either candidates, or labelled pairs with --given")
    if args.candidates and len(args.teacher) not in (1, 2):
        parser.error(f"{len(args.teacher)} teachers: give one or two, as --teacher MODEL@URL")
    if len(set(args.teacher)) != len(args.teacher):
        parser.error("the two teachers are the same: agreement would mean nothing")
    if args.per_class is not None and args.per_class < 1:
        parser.error(f"--per-class is {args.per_class}: use 1 or more")
    if not 0 <= args.test_share <= 1:
        parser.error(f"--test-share is {args.test_share}: use a share between 0 and 1")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Label or check; 2 on bad input or a set that is not as the paper says, with one line on standard error."""
    args = parse_args(argv)
    try:
        report = run(args) if args.given is None else check_given(args.given)
        args.out.mkdir(parents=True, exist_ok=True)
        write_lines(args.out / "report.json", [json.dumps(report, indent=2, ensure_ascii=False)])
        if report.get("faults"):
            raise DataError(f"{args.given}: {'; '.join(report['faults'])} (report: {args.out / 'report.json'})")
    except OSError as error:
        print(f"data.label: --out {args.out}: {error.strerror}; give a folder that can be written", file=sys.stderr)
        return 2
    except RoamError as error:
        print(f"data.label: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(json.dumps(report, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
