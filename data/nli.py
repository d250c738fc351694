"""Pairs from natural language inference sets: `python -m data.nli FILE ... --out FILE`.

An NLI label speaks of one direction only, so it leaves relations open (`also` of data/pairs.py): with the premise as
OLD, entailment is NSO or EQV, neutral is IND or OSN, contradiction is CON. Monotonicity sets (HELP, MoNLI and their
like) change one word or phrase to a wider or narrower one: there entailment is NSO and neutral the other direction, OSN
(`--strict`). Half of the pairs change places, so that both directions are learned. The sets keep their licences; none
is kept here.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from data.pairs import ALIASES, LabelledPair, file_sha256, with_groups, write_pairs
from data.rows import Problem, Row, raise_problems, read_rows
from roam.arguments import ArgumentParser
from roam.errors import ConfigError, RoamError
from roam.relations import SWAPPED, Relation

NO_MAJORITY = "-"
"""Label of examples without a majority among their annotators (SNLI, MNLI); they are left out."""
NAMES: Mapping[str, str] = {
    "entailment": "entailment", "neutral": "neutral", "contradiction": "contradiction",
    "0": "entailment", "1": "neutral", "2": "contradiction",
}  # fmt: skip
"""Labels as files write them, by name or by the number that the hub's copies use."""
OPEN: Mapping[str, tuple[Relation, ...]] = {
    "entailment": (Relation.NSO, Relation.EQV),
    "neutral": (Relation.IND, Relation.OSN),
    "contradiction": (Relation.CON,),
}
STRICT: Mapping[str, tuple[Relation, ...]] = {
    "entailment": (Relation.NSO,), "neutral": (Relation.OSN,), "contradiction": (Relation.CON,),
}  # fmt: skip
OLD = (*ALIASES["old"], "ori_sentence")
NEW = (*ALIASES["new"], "new_sentence")
LABEL = ALIASES["label"]


def read_nli(path: Path, *, strict: bool) -> list[LabelledPair]:
    """The examples of a CSV, TSV or JSONL file as pairs; `DataError` names the first bad lines."""
    rows, problems = read_rows(path, [frozenset(OLD), frozenset(NEW), frozenset(LABEL)])
    source = "-".join((*path.absolute().parts[-2:-1], path.stem))  # many sets call their files train and dev
    pairs = []
    for row in rows:
        old, new, label = (_first(row, names) for names in (OLD, NEW, LABEL))
        if label == NO_MAJORITY:
            continue
        if not old or not new or label not in NAMES:
            wanted = "premise, hypothesis and a label of entailment, neutral, contradiction"
            problems.append(Problem(str(path), row.line, "schema", f"label is {label!r}; a row needs {wanted}"))
            continue
        found = (STRICT if strict else OPEN)[NAMES[label]]
        pairs.append(LabelledPair(
            f"{source}:{row.line}", old, new, found[0], "", source=source, also=found[1:]
        ))  # fmt: skip
    raise_problems(path, problems, strict=True)
    return pairs


def _first(row: Row, names: Sequence[str]) -> str:
    return next((" ".join(str(row.values[name]).split()) for name in names if row.values.get(name) is not None), "")


def choose(pairs: Sequence[LabelledPair], limit: int, words: int, draw: random.Random) -> list[LabelledPair]:
    """At most `limit` pairs with texts of at most `words` words, the labels taking equal parts as far as they reach."""
    by_label: dict[Relation, list[LabelledPair]] = {}
    for pair in pairs:
        if max(len(pair.old.split()), len(pair.new.split())) <= words and pair.old != pair.new:
            by_label.setdefault(pair.label, []).append(pair)
    for found in by_label.values():
        draw.shuffle(found)
    chosen: list[LabelledPair] = []
    for place, found in enumerate(sorted(by_label.values(), key=len)):  # what a rare label lacks, the others fill
        chosen += found[: (limit - len(chosen)) // (len(by_label) - place)]
    return chosen


def swapped(pairs: Sequence[LabelledPair], draw: random.Random) -> Iterator[LabelledPair]:
    """Each pair, half of them with OLD and NEW in each other's place."""
    for pair in pairs:
        yield pair if draw.random() < 0.5 else replace(
            pair, old=pair.new, new=pair.old, label=SWAPPED[pair.label], also=tuple(SWAPPED[one] for one in pair.also)
        )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m data.nli",
        description="Turn natural language inference sets into labelled pairs for intermediate training.",
        epilog="example: python -m data.nli snli_dev.csv mnli_dev.csv --strict help.tsv --out data/derived/nli.jsonl",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="CSV, TSV or JSONL with three-way labels")
    parser.add_argument("--strict", nargs="+", type=Path, default=[], metavar="FILE",
                        help="sets that widen or narrow a phrase: neutral is entailment the other way")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, default=6000, help="pairs of a file at most (default: %(default)s)")
    parser.add_argument("--words", type=int, default=40, help="words of a text at most (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    args = parser.parse_args(argv)
    try:
        if not (args.files or args.strict):
            raise ConfigError("no file given; name an NLI set, see --help")
        draw = random.Random(args.seed)
        pairs = [
            pair for strict, paths in ((False, args.files), (True, args.strict)) for path in paths
            for pair in swapped(choose(read_nli(path, strict=strict), args.each, args.words, draw), draw)
        ]  # fmt: skip
        draw.shuffle(pairs)
        write_pairs(args.out, with_groups(pairs))
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    counts = Counter("/".join((pair.label, *pair.also)) for pair in pairs)
    print(f"{args.out}: {len(pairs)} pairs, {file_sha256(args.out)[:12]}; {dict(sorted(counts.items()))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
