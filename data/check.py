"""Check data files: schema, labels, contradictions, leaks and giveaways.

Exit code 0: clean; 1: findings; 2: a file cannot be read or wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TypeVar

from data.check_pairs import check_pairs, giveaways, missing_classes
from data.check_sources import check_families, check_fusion
from data.families import Family, scan_families
from data.findings import MEANINGS, Finding, Place, by_kind
from data.fusion import FUSED_RELATIONS, FusionExample, scan_fusion
from data.pairs import TEXT_GROUP, LabelledPair, file_sha256, normalise_text, scan_pairs
from data.rows import Problem, is_csv, read_jsonl, read_source
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError
from roam.relations import RELATIONS

KINDS = ("pairs", "families", "fusion")
Record = TypeVar("Record", LabelledPair, Family, FusionExample)


@dataclass
class CheckedFile:
    """One file as it was read: its records with their places, what is shown of it, and its texts and groups by line."""

    path: str
    kind: str
    sha256: str
    pairs: list[tuple[LabelledPair, Place]] = field(default_factory=list)
    families: list[tuple[Family, Place]] = field(default_factory=list)
    fusion: list[tuple[FusionExample, Place]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    giveaways: dict[str, object] | None = None

    @property
    def rows(self) -> int:
        return len(self.pairs) + len(self.families) + len(self.fusion)

    def labels(self) -> dict[str, int]:
        counts = Counter([pair.label for pair, _ in self.pairs] + [example.relation for example, _ in self.fusion])
        return {relation.value: counts[relation] for relation in RELATIONS if counts[relation]}

    def texts(self) -> dict[str, Place]:
        """Normalised texts and the first line of each."""
        found = [(text, place) for pair, place in self.pairs for text in (pair.old, pair.new)]
        found += [(text, place) for family, place in self.families for text in family.texts()]
        found += [(item.text, place) for example, place in self.fusion for item in example.inputs]
        found += [(example.target, place) for example, place in self.fusion]
        return _first_places((normalise_text(text), place) for text, place in found)

    def groups(self) -> dict[str, Place]:
        """Groups given in the file and the first line of each; those the reader made up from texts are left out."""
        named = [(pair.group, place) for pair, place in self.pairs if not pair.group.startswith(TEXT_GROUP)]
        return _first_places(named + [(family.family, place) for family, place in self.families])


@dataclass(frozen=True)
class Report:
    """Everything that was found in a set of files."""

    files: Sequence[CheckedFile]
    findings: Sequence[Finding]

    def to_json(self) -> dict[str, object]:
        return {
            "clean": not self.findings,
            "files": [
                {
                    "path": file.path,
                    "kind": file.kind,
                    "sha256": file.sha256,
                    "rows": file.rows,
                    "labels": file.labels(),
                    "giveaways": file.giveaways,
                }
                for file in self.files
            ],
            "counts": {kind: len(found) for kind, found in by_kind(self.findings).items()},
            "findings": [finding.to_json() for found in by_kind(self.findings).values() for finding in found],
        }

    def to_text(self, examples: int = 3) -> str:
        lines = [line for file in self.files for line in _file_lines(file)]
        for kind, found in by_kind(self.findings).items():
            lines += ["", f"{len(found)} {kind}: {MEANINGS[kind]}"]
            lines += [f"  {finding}" for finding in found[:examples]]
            if len(found) > examples:
                lines.append(f"  ... and {len(found) - examples} more (--examples N or --json shows them)")
        total = len(self.findings)
        lines += ["", f"{total} finding{'s' if total != 1 else ''}." if total else "Clean: nothing found."]
        return "\n".join(lines)


def check_files(
    paths: Sequence[str | Path],
    test_paths: Sequence[str | Path] = (),
    *,
    kind: str = "auto",
    with_giveaways: bool = True,
    seed: int = 0,
) -> Report:
    """Check each file by itself, and all of them for what splits must not share.

    Several files are taken as splits of one set (train, dev, test): no group and no text may stand in two of them.
    `DataError` when a file cannot be read at all or is given twice.
    """
    everything = [str(path) for path in (*paths, *test_paths)]
    twice = [path for path, count in Counter(str(Path(path).resolve()) for path in everything).items() if count > 1]
    if twice:
        raise DataError(f"{twice[0]} is given twice; every file shares all its texts with itself")
    files = [_read(path, kind) for path in everything]
    findings = [finding for file in files for finding in file.findings]
    findings += check_pairs([row for file in files for row in file.pairs])
    for file in files:
        findings += _check_alone(file)
        if file.kind == "pairs" and with_giveaways:
            file.giveaways, found = giveaways(file.path, [pair for pair, _ in file.pairs], seed)
            findings += found
    for first, second in combinations(files, 2):
        findings += _shared(first, second)
    return Report(files, findings)


def _check_alone(file: CheckedFile) -> Iterable[Finding]:
    yield from check_families(file.families)
    yield from check_fusion(file.fusion)
    if file.kind == "pairs":
        yield from missing_classes(file.path, [pair.label for pair, _ in file.pairs])
    if file.kind == "fusion":
        wanted = [relation for relation in RELATIONS if relation in FUSED_RELATIONS]
        yield from missing_classes(file.path, [example.relation for example, _ in file.fusion], wanted)


def _shared(first: CheckedFile, second: CheckedFile) -> Iterable[Finding]:
    for kind, name, ours, theirs in (
        ("group_cut", "group", first.groups(), second.groups()),
        ("shared_text", "text", first.texts(), second.texts()),
    ):
        for value in filter(theirs.__contains__, ours):  # in file order: same files, same report
            yield Finding(kind, (ours[value], theirs[value]), f"{name} {value!r} in both")


def _read(path: str, kind: str) -> CheckedFile:
    kind = _detect(path) if kind == "auto" else kind
    file = CheckedFile(path, kind, file_sha256(path))
    if kind == "pairs":
        file.pairs, problems = _locate(path, scan_pairs)
    elif kind == "families":
        file.families, problems = _locate(path, scan_families)
    else:
        file.fusion, problems = _locate(path, scan_fusion)
    file.findings = [Finding(p.kind, (Place(p.path, p.line),), p.message) for p in problems]
    if not file.rows and not problems:
        raise DataError(f"{path}: nothing in it to check")
    return file


def _locate(
    path: str, scan: Callable[[str], tuple[list[Record], list[Problem]]]
) -> tuple[list[tuple[Record, Place]], list[Problem]]:
    records, problems = scan(path)
    return [(record, Place(path, record.line or 0)) for record in records], problems


def _detect(path: str) -> str:
    """The kind of a file by the keys of its first readable object; CSV files hold pairs."""
    text = read_source(path)
    rows = [] if is_csv(path, text) else read_jsonl(path, text)[0]
    keys: Mapping[str, object] = rows[0].values if rows else {}
    if "base" in keys:
        return "families"
    return "fusion" if "inputs" in keys or "target" in keys else "pairs"


def _first_places(items: Iterable[tuple[str, Place]]) -> dict[str, Place]:
    out: dict[str, Place] = {}
    for name, place in items:
        out.setdefault(name, place)
    return out


def _file_lines(file: CheckedFile) -> list[str]:
    labels = "  ".join(f"{name} {count}" for name, count in file.labels().items())
    lines = [f"{file.path}: {file.kind}, {file.rows} readable rows  {labels}".rstrip()]
    if file.giveaways is None:
        return lines
    scores = file.giveaways.get("macro_f1")
    if isinstance(scores, Mapping):
        shown = "  ".join(f"{name} {value:.3f}" for name, value in scores.items())
        lines.append(f"  macro-F1 of one feature alone (chance {file.giveaways['chance']:.3f}): {shown}")
    else:
        lines.append(f"  giveaways not measured: {file.giveaways['skipped']}")
    return lines


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m data.check",
        description="Check pair, family and fusion files. Several files are taken as splits of one set.",
        epilog="example: python -m data.check data/derived/train.jsonl data/derived/dev.jsonl "
        "--test data/relation_test_843.jsonl",
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="JSONL or CSV pairs, JSONL families or fusion examples"
    )
    parser.add_argument("--test", nargs="+", action="extend", default=[], metavar="FILE",
                        help="held-out files, checked too; no FILE may share a text with them")  # fmt: skip
    parser.add_argument(
        "--kind", choices=("auto", *KINDS), default="auto", help="what the files hold (default: by keys)"
    )
    parser.add_argument(
        "--no-giveaways", action="store_true", help="skip the bag-of-words measures (needs no scikit-learn)"
    )
    parser.add_argument("--examples", type=int, default=3, help="findings of each kind that are shown (default 3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the cross-validation folds (default 0)")
    parser.add_argument("--json", action="store_true", help="print all findings as JSON")
    args = parser.parse_args(argv)
    if args.examples < 0:
        parser.error(f"--examples is {args.examples}; use 0 or more")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        report = check_files(
            args.files, args.test, kind=args.kind, with_giveaways=not args.no_giveaways, seed=args.seed
        )
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report.to_json(), indent=2, ensure_ascii=False) if args.json else report.to_text(args.examples))
    return 1 if report.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
