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
from eval.provenance import check_output, output_folder, versions, write_json, write_jsonl
from roam.arguments import ArgumentParser
from roam.errors import RoamError
from roam.fusion import DeterministicFuser, GuardedFuser, GuardReason
from roam.interfaces import Fuser, RelationModel
from roam.records import FusionRequest

BATCH: Final = 32


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
    """A fuser under test; with `guarded`, the guarded column says what a store would show of it.

    The guard asks `relation_model`, when there is one, whether a view entails its inputs.
    """

    fuser: Fuser
    guarded: bool = False
    relation_model: RelationModel | None = None


class _Given:
    """The views that a fuser gave already, handed out in order."""

    def __init__(self, name: str, views: Sequence[str]) -> None:
        self.name, self._left = name, iter(views)

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        return [next(self._left) for _ in requests]


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
) -> tuple[dict[str, Any], dict[str, list[str]], dict[str, float]]:
    """The report of one system, its views and the seconds a view, each by variant ("raw", "guarded")."""
    requests = [request_of(example) for example in examples]
    raw, taken = fuse_all(system.fuser, requests)
    views, seconds = {"raw": raw}, {"raw": taken}
    report: dict[str, Any] = {"guarded": None, "fallback_rate": None, "fallback_reasons": {}}
    if system.guarded:
        guard = GuardedFuser(_Given(system.fuser.name, raw), system.relation_model)
        views["guarded"], checking = fuse_all(guard, requests)
        seconds["guarded"] = taken + checking
        report["fallback_rate"] = round(guard.reasons.total() / len(requests), 6)
        report["fallback_reasons"] = {
            reason.name: round(guard.reasons[reason] / len(requests), 6)
            for reason in GuardReason
            if guard.reasons[reason]
        }
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
        report["fusers"][name], views, taken = measure(system, examples, seed)
        seconds |= {f"{name} ({variant})": value for variant, value in taken.items()}
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


def load_systems(names: Sequence[str], adapters: Sequence[str], relation: str) -> list[System]:
    """The rule fusers and baselines raw, the adapters also guarded. Raises `AdapterError` or `BaseModelError`."""
    systems = [System(FUSERS[name]()) for name in names]
    if adapters:
        from roam.fusion.model import LoadedFuser
        from roam.managers import SHIPPED_FUSER, adapter_folder, load_manager

        model = None if relation == "none" else load_manager(relation).relation_model
        for name in adapters:
            folder = SHIPPED_FUSER if name == "pretrained" else adapter_folder(name)
            systems.append(System(LoadedFuser.load(folder), guarded=True, relation_model=model))
    return systems


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m eval.fusion",
        description="How faithful fused views are: exact match, chrF, strings that must be kept, strings that must not "
        "appear, by relation and tag; for adapters also behind the guard, with its fallbacks by reason.",
        epilog="example: python -m eval.fusion --examples data/fusion_test.jsonl --adapter runs/fuser/adapter "
        "--out out/fusion",
    )
    parser.add_argument("--examples", type=Path, required=True, help="fusion examples, JSONL")
    parser.add_argument("--out", type=Path, required=True, help="folder for the report")
    parser.add_argument(
        "--fuser", action="append", choices=sorted(FUSERS), help="rules and baselines, repeatable (default: all)"
    )
    parser.add_argument(
        "--adapter", action="append", default=[], metavar="DIR", help="fuser adapter ('pretrained': the shipped one)"
    )
    parser.add_argument(
        "--relation", default="pretrained", metavar="DIR", help="relation adapter that the guard asks, or 'none'"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the intervals")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    names = list(dict.fromkeys(args.fuser or FUSERS))
    try:
        check_output(args.out)
        systems = load_systems(names, list(dict.fromkeys(args.adapter)), args.relation)
        report = evaluate(systems, args.examples, args.out, seed=args.seed)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, fuser in report["fusers"].items():
        for variant in ("raw", "guarded"):
            if (part := fuser[variant]) is not None:
                print(
                    f"{name} ({variant}): exact {part['exact']:.3f}, chrF {part['chrf']:.3f}, keeps all "
                    f"{part['keep_rate']:.3f}, violates {part['violation_rate']:.3f}"
                )
    print(f"{report['examples']} examples; {args.out / 'report.md'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
