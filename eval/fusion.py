"""Report of fusers on fusion examples: `python -m eval.fusion`.

Writes report.json (the same examples, fusers and seed give the same bytes), report.md, fusion.png, views.jsonl (the
views by id) and timings.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from data.fusion import FusionExample, read_fusion
from data.pairs import file_sha256
from eval.fusion_report import failures, grouped, markdown, picture, request_of, score_view
from eval.provenance import output_folder, versions, write_json, write_jsonl
from roam.errors import RoamError
from roam.fusion import DeterministicFuser
from roam.interfaces import Fuser
from roam.records import FusionRequest

BATCH: Final = 32

Guard = Callable[[FusionRequest, str], bool]
"""Tells whether a fused view may be used; a refused one is replaced by the fallback's."""


class NewestFuser:
    """Baseline: the newest input as it is, what a store that overwrites would show."""

    name = "newest"

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """Return the last input of each request."""
        return [request.inputs[-1].text for request in requests]


class ConcatenateFuser:
    """Baseline: all inputs side by side, what a store that only appends would show."""

    name = "concatenate"

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """Return the inputs of each request joined by "; "."""
        return ["; ".join(item.text.rstrip(".") for item in request.inputs) + "." for request in requests]


FUSERS: Final[dict[str, Callable[[], Fuser]]] = {
    "deterministic": DeterministicFuser,
    "newest": NewestFuser,
    "concatenate": ConcatenateFuser,
}


@dataclass(frozen=True, slots=True)
class System:
    """A fuser under test; with a guard, its refused views are replaced by those of `fallback` in the guarded column."""

    fuser: Fuser
    guard: Guard | None = None
    fallback: Fuser | None = None


def fuse_all(fuser: Fuser, requests: Sequence[FusionRequest]) -> tuple[list[str], float]:
    """The views of all requests, and the seconds a view."""
    views: list[str] = []
    started = time.perf_counter()
    with tqdm(total=len(requests), desc=fuser.name, unit="view", disable=None) as bar:
        for start in range(0, len(requests), BATCH):
            batch = requests[start : start + BATCH]
            views.extend(fuser.fuse(batch))
            bar.update(len(batch))
    return views, (time.perf_counter() - started) / max(1, len(requests))


def measure(
    system: System, examples: Sequence[FusionExample], seed: int
) -> tuple[dict[str, Any], dict[str, list[str]], float]:
    """The report of one system, its views ("raw", "guarded") and the seconds a raw view."""
    requests = [request_of(example) for example in examples]
    raw, seconds = fuse_all(system.fuser, requests)
    views = {"raw": raw}
    report: dict[str, Any] = {"guarded": None, "fallback_rate": None}
    if system.guard is not None:
        fallback = system.fallback or DeterministicFuser()
        accepted = [system.guard(request, view) for request, view in zip(requests, raw, strict=True)]
        safe = fallback.fuse(requests)
        views["guarded"] = [a if ok else b for a, b, ok in zip(raw, safe, accepted, strict=True)]
        report["fallback_rate"] = round(1 - sum(accepted) / len(accepted), 6)
    for variant, texts in views.items():
        scores = [score_view(example, view) for example, view in zip(examples, texts, strict=True)]
        report[variant] = grouped(examples, scores, seed) | {"failures": failures(examples, texts, scores)}
    return report, views, seconds


def evaluate(systems: Sequence[System], path: Path, out: Path, *, seed: int = 0) -> dict[str, Any]:
    """Measure `systems` on a fusion file side by side, write all files into `out`, return what report.json says.

    Raises `DataError` for a bad file and `InputError` for a folder that cannot be written.
    """
    examples = read_fusion(path)
    output_folder(out)
    report: dict[str, Any] = {"data": path.name, "examples": len(examples), "seed": seed, "fusers": {}}
    seconds: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    for system in systems:
        name = system.fuser.name
        report["fusers"][name], views, seconds[name] = measure(system, examples, seed)
        rows += [
            {"id": example.id, "fuser": name, "variant": variant, "view": view}
            for variant, texts in views.items()
            for example, view in zip(examples, texts, strict=True)
        ]
    report["hashes"] = {"examples": file_sha256(path)}
    report["versions"] = versions()
    write_json(out / "report.json", report)
    write_jsonl(out / "views.jsonl", rows)
    write_json(out / "timings.json", {"seconds_a_view": seconds})
    (out / "report.md").write_text(markdown(report, seconds), encoding="utf-8")
    picture(report, out / "fusion.png")
    return report


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m eval.fusion",
        description="How faithful fused views are: exact match, chrF, strings that must be kept, strings that must not "
        "appear, by relation and tag.",
        epilog="example: python -m eval.fusion --examples data/fusion_test.jsonl --out out/fusion",
    )
    parser.add_argument("--examples", type=Path, required=True, help="fusion examples, JSONL")
    parser.add_argument("--out", type=Path, required=True, help="folder for the report")
    parser.add_argument(
        "--fuser", action="append", choices=sorted(FUSERS), help="fuser to measure, repeatable (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the intervals")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    names = list(dict.fromkeys(args.fuser or FUSERS))
    try:
        report = evaluate([System(FUSERS[name]()) for name in names], args.examples, args.out, seed=args.seed)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in names:
        raw = report["fusers"][name]["raw"]
        print(
            f"{name}: exact {raw['exact']:.3f}, chrF {raw['chrf']:.3f}, keeps all {raw['keep_rate']:.3f}, "
            f"violates {raw['violation_rate']:.3f}"
        )
    print(f"{report['examples']} examples; {args.out / 'report.md'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
