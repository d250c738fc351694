"""Fill the README's tables from result files: `python -m eval.readme`, so that no figure is typed by hand.

`eval/results/ADAPTER/NAME.json` are the reports that the evaluation programs wrote, kept with the project (they hold
ids and figures, no other people's texts). `python -m eval.readme --keep ADAPTER NAME=report.json ...` adds one,
`--check` says whether the README is up to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.demo_page import table
from eval.paper_values import TABLE_10
from eval.relation_report import percent
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"
EXPERIMENTS = "experiments"  # eval.experiments makes the table of these
README = ROOT.parent / "README.md"
DROPPED = ("worst_errors", "risk_coverage", "by_domain", "calibration")  # long, and not needed for a table

Results = Mapping[str, Mapping[str, Any]]


def read_results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """{adapter: {name: report}} of all kept files."""
    out: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*/*.json")):
        if path.parent.name != EXPERIMENTS:
            out.setdefault(path.parent.name, {})[path.stem] = json.loads(path.read_text(encoding="utf-8"))
    return out


def keep(adapter: str, items: Sequence[str], folder: Path = RESULTS) -> None:
    """Copy reports (NAME=FILE) into the results, without their long lists."""
    for item in items:
        name, separator, source = item.partition("=")
        if not separator or not Path(source).is_file():
            raise DataError(f"{item!r} is not NAME=FILE; example: test=reports/run/relation/report.json")
        report = json.loads(Path(source).read_text(encoding="utf-8"))
        target = folder / adapter / f"{name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = {key: value for key, value in report.items() if key not in DROPPED}
        target.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def relations_table(results: Results) -> list[str]:
    """Macro-F1 of each adapter on each pair file."""
    rows = []
    for adapter, reports in results.items():
        test = reports.get("test")
        if test is None:
            continue
        cells = [_macro(reports.get(name)) for name in ("test", "dev", "real_dev")]
        lowest, score = min(test["per_class"].items(), key=lambda entry: entry[1]["f1"])
        rows.append([adapter, *cells, f"{percent(score['f1'])} ({lowest})", percent(test["swap_consistency"]),
                     percent(test["ece"])])  # fmt: skip
    header = ["adapter", "843 authored pairs", "held-out families", "natural pairs", "lowest class, 843", "swap", "ECE"]
    return table(header, rows)


def _macro(report: Mapping[str, Any] | None) -> str:
    if report is None:
        return "-"
    low, high = report["intervals"]["macro_f1"]
    return f"{percent(report['macro_f1'])} ({percent(low)} to {percent(high)})"


def classes_table(results: Results) -> list[str]:
    """Per-class F1 on the 843 pairs beside the baselines and the paper's Table 4."""
    rows = []
    for adapter, reports in results.items():
        if "test" in reports:
            rows.append([adapter, *_classes(reports["test"])])
    reference = next(reports["test"] for reports in results.values() if "test" in reports)
    rows += [[name, *_classes(row)] for name, row in reference["baselines"].items()]
    rows.append(["paper's prompted 26B (its own pairs)", *_classes(reference["paper"])])
    return table(["model", "macro-F1", "IND", "EQV", "OSN", "NSO", "CON"], rows)


def _classes(report: Mapping[str, Any]) -> list[str]:
    scores = report["per_class"]
    return [percent(report["macro_f1"]), *(percent(scores[name]["f1"]) for name in ("IND", "EQV", "OSN", "NSO", "CON"))]


STORE_ROWS = (
    ("background still Primary, Type I", "I", "background_primary"),
    ("gold demoted by another fact, Type I", "I", "gold_demoted"),
    ("gold-source recall", None, "gold_recall"),
    ("stated gold", None, "stated_gold"),
    ("confounder-token share", None, "confounder_share"),
)


def store_table(results: Results) -> list[str]:
    """Controlled episodes at both budgets: the shipped adapter beside append-all."""
    rows = []
    for budget in (128, 256):
        report = results.get("pretrained", {}).get(f"controlled_{budget}")
        if report is None:
            continue
        for label, kind, key in STORE_ROWS:
            cells = [_measure(report["managers"][name], kind, key) for name in ("roam", "append")]
            rows.append([f"{label}, {budget} tokens", *cells])
    return table(["controlled dev episodes", "pretrained", "append-all"], rows)


def _measure(entry: Mapping[str, Any], kind: str | None, key: str) -> str:
    value = (entry["by_type"][kind] if kind else entry)[key]
    return "-" if value is None else percent(value)


def false_table(results: Results) -> list[str]:
    """False relations between facts that are independent."""
    rows = []
    for adapter, reports in results.items():
        for name, label in (
            ("cross_topic", "random cross-topic pairs"),
            ("near", "hard near misses, held-out families"),
        ):
            found = reports.get("false_conflict", {}).get(name)
            if found:
                acting = found["at_thresholds"]
                rows.append([adapter, f"{label} ({found['pairs']})", percent(acting["false_con"]),
                             percent(acting["merge_error"])])  # fmt: skip
    return table(["adapter", "pairs", "false CON %", "any false relation %"], rows)


def cost_table(results: Results) -> list[str]:
    """The bundled stream: passes and seconds beside the prompted protocol's calls."""
    rows = []
    for adapter, reports in results.items():
        demo = reports.get("demo")
        if demo:
            spent, found = demo["cost"], demo["agreement"]
            rows.append([adapter, f"{found['right']} of {found['facts']}", *_answers(demo["questions"]),
                         spent["forward_passes"], f"{spent['seconds']:.0f}", spent["llm_calls"],
                         spent["prompted_calls"]])  # fmt: skip
    if demo := next((reports["demo"] for reports in results.values() if "demo" in reports), None):
        rows.append(["append-all", "-", *_answers(demo["questions_before"]), 0, "-", 0, "-"])
    header = ["adapter", "decisions as noted", "questions answered", "with an outdated hit", "forward passes",
              "seconds", "LLM calls", "LLM calls, prompted"]  # fmt: skip
    return table(header, rows)


def _answers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{sum(row[key] for row in rows)} of {len(rows)}" for key in ("found", "stale")]


def overhead_table(results: Results) -> list[str]:
    """Cost of management an episode by manager, the paper's Table 10 below."""
    report = results.get("pretrained", {}).get("overhead")
    rows = []
    for name, entry in ({} if report is None else report["managers"]).items():
        processor = "-" if entry["cpu_seconds"] is None else f"{entry['cpu_seconds']:.2f}"
        rows.append([name, _figure(entry["llm_calls"]), _figure(entry["forward_passes"]), *_tokens(entry),
                     f"{entry['seconds']:.2f}", processor])  # fmt: skip
    if rows:
        rows += [[f"paper: {name}", _figure(entry["llm_calls"]), "-", *_tokens(entry), "-", "-"]
                 for name, entry in TABLE_10.items()]  # fmt: skip
    header = ["manager", "LLM calls", "forward passes", "input tokens", "after prefix reuse", "output tokens",
              "shared prefix %", "seconds", "processor seconds"]  # fmt: skip
    return table(header, rows)


def _figure(value: float) -> str:
    return f"{value:.1f}"


def _tokens(entry: Mapping[str, Any]) -> list[str]:
    share = entry["shared_share"]
    total = entry.get("input_tokens")  # the paper gives it after reuse only
    return ["-" if total is None else f"{total:.0f}", f"{entry['input_after_reuse']:.0f}",
            f"{entry['output_tokens']:.0f}", "-" if share is None else percent(share)]  # fmt: skip


TABLES: dict[str, Callable[[Results], list[str]]] = {
    "relations": relations_table, "classes": classes_table, "store": store_table, "false": false_table,
    "cost": cost_table, "overhead": overhead_table,
}  # fmt: skip


def fill(text: str, results: Results) -> str:
    """Return the README with every marked table made anew."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise DataError(
                f"README.md has no place for the table {name!r}: add <!-- table: {name} --> and <!-- end -->"
            )
        lines = make(results)
        body = "\n".join([*(lines if len(lines) > 2 else ["Not measured yet."]), ""])
        text = pattern.sub(lambda match, body=body: f"{match[1]}{body}{match[2]}", text)  # type: ignore[misc]
    return text


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m eval.readme",
        description="Fill the README's tables from eval/results/.",
        epilog="example: python -m eval.readme --keep pretrained test=reports/accurate/report.json",
    )
    parser.add_argument("--keep", nargs="+", metavar="ADAPTER NAME=FILE", help="first add reports to the results")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 when the README is out of date"
    )
    args = parser.parse_args(argv)
    try:
        if args.keep:
            keep(args.keep[0], args.keep[1:])
        old = README.read_text(encoding="utf-8")
        new = fill(old, read_results())
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.check:
        print("README.md is up to date" if new == old else "README.md is out of date: run python -m eval.readme")
        return int(new != old)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
