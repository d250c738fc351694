"""The speed of everything, side by side: `python scripts/bench_speed.py --out reports/speed`.

Parts, in this order: start (import, loading), peers (CrossEncoder), parity (ONNX against torch on the test pairs),
limit (the machine's matrix rate, profile), ingest (`add_many` against one by one; mem0), training (beside
CrossEncoderTrainer), growth (curves), cascade (fast before accurate) and episode (a prompted LLM). A part that
DIR/parts/ holds already is not measured again, so a run that was stopped goes on where it was. Writes DIR/speed.json,
speed.md and speed.png after each part. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python scripts/bench_speed.py` finds the repository's packages

from eval.overhead_report import machine  # noqa: E402
from eval.provenance import output_folder, versions, write_json  # noqa: E402
from roam.adapters import read_card  # noqa: E402
from roam.errors import InputError, RoamError  # noqa: E402
from roam.managers import adapter_folder  # noqa: E402
from roam.onnx_model import session_threads  # noqa: E402
from scripts.speed.plan import TINY, Plan, Sizes  # noqa: E402
from scripts.speed.refused import refused  # noqa: E402
from scripts.speed.report import levels, markdown, picture  # noqa: E402

KEPT = ROOT / "scripts" / "speed" / "results"
"""Where --keep puts the page, so that it comes with the project."""
PARTS = ("start", "peers", "parity", "limit", "ingest", "training", "growth", "cascade", "episode")


def part_of(name: str) -> Callable[[Plan], dict[str, Any] | None]:
    """The function that measures a part; its libraries are loaded with it."""
    found: Callable[[Plan], dict[str, Any] | None] = import_module(f"scripts.speed.{name}").run
    return found


def measure(names: Sequence[str], plan: Plan, out: Path, kept: Mapping[str, str], *, again: bool) -> dict[str, Any]:
    """Measure the parts that are not there yet and write the report after each; returns the report.

    `kept` says what the figures are of; parts of another adapter or size are measured anew.
    """
    folder = output_folder(out / "parts")
    results: dict[str, Any] = {}
    report: dict[str, Any] = {}
    for name in PARTS:
        path = folder / f"{name}.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if before.get("of") != dict(kept):
            before = {}
        if name in names and (again or not before):
            started = time.perf_counter()
            figures = part_of(name)(plan)
            before = {"of": dict(kept), "seconds": round(time.perf_counter() - started, 1), "figures": figures}
            if figures is not None:
                write_json(path, before)
            print(f"{name}: {before['seconds']:.0f} s" if figures else f"{name}: left out", file=sys.stderr, flush=True)
        if before.get("figures"):
            results[name] = before["figures"]
        report = write(out, results, kept)
    return report


def write(out: Path, results: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    """Write speed.json, speed.md and speed.png; returns what the first one says."""
    on = machine(session_threads())
    shown = {"processor": on["processor"], "cores": on["cores_available"], "threads": session_threads(), **kept}
    report = {
        "of": dict(kept),
        "machine": shown,
        "versions": versions(),
        "levels": [one._asdict() for one in levels(results)],
        "parts": dict(results),
    }
    write_json(out / "speed.json", report)
    (out / "speed.md").write_text(markdown(results, shown), encoding="utf-8")
    picture(results, out / "speed.png")
    return report


def keep(out: Path, folder: Path) -> None:
    """Copy the report's three files to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("speed.json", "speed.md", "speed.png"):
        shutil.copyfile(out / name, folder / name)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python scripts/bench_speed.py --out reports/speed --fast runs/fast/adapter",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the report")
    parser.add_argument("--parts", help=f"of {','.join(PARTS)}, parted by commas (default: all)")
    parser.add_argument("--again", action="store_true", help="measure parts anew that DIR holds already")
    parser.add_argument("--keep", action="store_true", help=f"also copy the report to {KEPT.relative_to(ROOT)}")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes: shows that all parts run, nothing more")
    parser.add_argument("--adapter", default="pretrained", help="'pretrained' or a folder (default: %(default)s)")
    parser.add_argument("--fast", help="an adapter on a smaller base, for the cascade")
    parser.add_argument(
        "--base", default="all-MiniLM-L6-v2", help="what the training part trains (default: %(default)s)"
    )
    parser.add_argument("--pairs", type=Path, default=ROOT / "data" / "derived" / "dev.jsonl",
                        help="held-out pairs with labels (default: what data.build wrote)")  # fmt: skip
    parser.add_argument("--train", type=Path, default=ROOT / "data" / "derived" / "train.jsonl",
                        help="pairs of the training part (default: what data.build wrote)")  # fmt: skip
    parser.add_argument("--parity", type=Path, default=ROOT / "data" / "relation_test_843.jsonl",
                        help="pairs of the parity part (default: the 843 test pairs)")  # fmt: skip
    parser.add_argument("--gguf", type=Path, help="LLM of the episode part, which is left out without")
    parser.add_argument("--server-python", help="Python that has llama-cpp-python[server]")
    parser.add_argument("--mem0-python", help="Python that has mem0ai; mem0 is left out without")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the page; 2 on bad input, with one line on standard error."""
    args = parse_args(argv)
    try:
        names = PARTS if args.parts is None else tuple(args.parts.split(","))
        for name in names:
            if name not in PARTS:
                raise InputError(f"--parts {name!r} does not exist; parts are: {', '.join(PARTS)}")
        adapter = adapter_folder(args.adapter)
        kept = {"adapter": read_card(adapter).digest, "size": "tiny" if args.tiny else "full"}
        out = output_folder(args.out)
        with tempfile.TemporaryDirectory() as scratch:
            plan = Plan(
                adapter=adapter, pairs=args.pairs, train=args.train, parity=args.parity,
                sizes=TINY if args.tiny else Sizes(), scratch=Path(scratch), base=args.base,
                fast=None if args.fast is None else adapter_folder(args.fast), gguf=args.gguf,
                server_python=args.server_python, mem0_python=args.mem0_python,
            )  # fmt: skip
            measure(names, plan, out, kept, again=args.again)
        if args.keep:
            keep(out, KEPT)
    except (RoamError, ModuleNotFoundError) as error:
        return refused("bench_speed", error)
    print((out / "speed.md").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
