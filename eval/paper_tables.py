"""The paper's Tables 2, 3, 5, 6, 7, 9 and Figures 3, 4, ours beside the paper's: `python -m eval.paper_tables`.

Takes the output folders of `python -m eval.benchmark` runs and writes tables.md, table_N.csv, figure_3.png and
figure_4.png. What was not run is left out, never guessed.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval import paper_values
from eval.methods import NO_FUSION, POLICIES
from eval.provenance import check_output, output_folder
from eval.relation_report import table
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError

BUDGET = 256
"""Tokens of context in all of the paper's tables."""
MEASURES = {"stated_gold": "gold stated", "gold_recall": "gold-source recall", "all_source": "all-source coverage"}
RUNS = ("controlled", "longmemeval", "meme")
Cell = float | None
Reports = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table: labelled rows of percentages, ours first, then the paper's."""

    number: int
    title: str
    columns: tuple[str, ...]
    ours: tuple[tuple[str, tuple[Cell, ...]], ...]
    paper: tuple[tuple[str, tuple[Cell, ...]], ...]
    note: str

    def markdown(self) -> list[str]:
        rows = [[name, *map(_percent, cells)] for name, cells in self.ours]
        rows += [[f"paper: {name}", *map(_percent, cells)] for name, cells in self.paper]
        return [f"## Table {self.number}: {self.title}", "", *table(["", *self.columns], rows), "", self.note, ""]

    def rows(self) -> list[tuple[str, ...]]:
        """Lines of the CSV file."""
        lines = [("source", "method", *self.columns)]
        for source, part in (("here", self.ours), ("paper", self.paper)):
            lines += [(source, name, *("" if c is None else f"{c:.2f}" for c in cells)) for name, cells in part]
        return lines


def _percent(value: Cell) -> str:
    return "–" if value is None else f"{value:.1f}"


def build_tables(reports: Reports, measure: str) -> list[PaperTable]:
    """Every table that the given reports allow; `measure` stands where the paper has answer accuracy."""
    tables = []
    if "controlled" in reports:
        tables += [table_2(reports, measure), table_3(reports, measure), table_5(reports), table_9(reports)]
    for number, name, what, values in (
        (6, "longmemeval", "LongMemEval question type", paper_values.TABLE_6),
        (7, "meme", "MEME-Post question type", paper_values.TABLE_7),
    ):
        if name in reports:
            tables.append(_by_type(number, what, reports[name], measure, values))
    return sorted(tables, key=lambda found: found.number)


def table_2(reports: Reports, measure: str) -> PaperTable:
    columns = (*paper_values.LEVELS, "LongMemEval", "MEME-Post")
    ours = []
    for name in reports["controlled"]["managers"]:
        cells: list[Cell] = [_value(reports["controlled"], measure, name, n=int(n)) for n in paper_values.LEVELS]
        cells += [_value(reports.get(run), measure, name) for run in ("longmemeval", "meme")]
        ours.append((name, tuple(cells)))
    return PaperTable(
        2, f"{MEASURES[measure]} at {BUDGET} tokens by number of confounders", _headed(columns), tuple(ours),
        _flat(paper_values.TABLE_2, columns),
        f"Here: {MEASURES[measure]}, no answer model. Paper: answer accuracy. The two are different measures.",
    )  # fmt: skip


def table_3(reports: Reports, measure: str) -> PaperTable:
    report = reports["controlled"]
    ours = tuple(
        (name, tuple(_value(report, measure, name, n=int(n)) for n in paper_values.LEVELS))
        for name in paper_values.TABLE_3
        if name in report["managers"]
    )
    paper = tuple((name, tuple(line.values())) for name, line in paper_values.TABLE_3.items())
    return PaperTable(
        3, "relation and fusion ablations", _headed(paper_values.LEVELS), ours, paper,
        f"Here: {MEASURES[measure]}. Paper: answer accuracy with Qwen3.5-9B as manager.",
    )  # fmt: skip


def table_5(reports: Reports) -> PaperTable:
    report = reports["controlled"]
    columns = ("any_source", "all_source", "gold_recall", "confounder_share", "stated_gold", "background_primary")
    ours = tuple((name, tuple(_value(report, column, name, n=8) for column in columns)) for name in report["managers"])
    paper = tuple((name, tuple(line.get(column) for column in columns)) for name, line in paper_values.TABLE_5.items())
    return PaperTable(
        5, f"retrieval diagnostics, N = 8, {BUDGET} tokens", columns, ours, paper,
        "The same measures (equations 10-12, F.2); stated gold and background Primary are not in the paper.",
    )  # fmt: skip


def table_9(reports: Reports) -> PaperTable:
    report = reports["controlled"]
    kinds = ("I", "II")
    ours = tuple(
        (name, tuple(_value(report, "gold_recall", name, n=8, kind=kind) for kind in kinds))
        for name in report["managers"]
    )
    return PaperTable(
        9, f"gold-source recall by confounder type, N = 8, {BUDGET} tokens", ("Type I", "Type II"), ours,
        _flat(paper_values.TABLE_9, kinds), "The same measure.",
    )  # fmt: skip


def _by_type(
    number: int,
    what: str,
    report: Mapping[str, Any],
    measure: str,
    values: Mapping[str, Mapping[str, paper_values.Line]],
) -> PaperTable:
    kinds = tuple(next(iter(next(iter(values.values())).values())))
    ours = tuple(
        (name, tuple(_value(report, measure, name, kind=kind) for kind in kinds)) for name in report["managers"]
    )
    return PaperTable(
        number, f"by {what}, {BUDGET} tokens", kinds, ours, _flat(values, kinds),
        f"Here: {MEASURES[measure]}, no answer model. Paper: answer accuracy. The two are different measures.",
    )  # fmt: skip


def _flat(
    values: Mapping[str, Mapping[str, paper_values.Line]], columns: Sequence[str]
) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    return tuple(
        (f"{method}, {model}", tuple(line.get(column) for column in columns))
        for model, methods in values.items()
        for method, line in methods.items()
    )


def _headed(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"N={column}" if column.isdigit() else column for column in columns)


def find_cell(report: Mapping[str, Any], name: str, budget: int, n: int | None) -> Mapping[str, Any] | None:
    """The cell of a report for one method, budget and (controlled) number of confounders; None when it was not run."""
    for cell in report["cells"]:
        if cell["manager"] == name and cell["budget"] == budget and cell.get("n") == n:
            return dict(cell)
    return None


def _value(
    report: Mapping[str, Any] | None, measure: str, name: str, *, n: int | None = None, kind: str | None = None
) -> Cell:
    cell = None if report is None else find_cell(report, name, BUDGET, n)
    part = cell if cell is None or kind is None else cell["by_type"].get(kind)
    return None if part is None or part[measure] is None else 100 * float(part[measure])


def plain_names(names: Sequence[str]) -> list[str]:
    """Adapters under the full policy: what Figure 3 puts side by side."""
    options = {*POLICIES, NO_FUSION}
    return [
        n for n in names if n != "append" and not n.startswith("newest-wins") and n.rpartition(":")[2] not in options
    ]


def differences(reports: Reports) -> list[str]:
    """What differs from the paper's setting, in words, from what the reports say."""
    lines = ["## What differs from the paper", ""]
    embedders = sorted({str(report["hashes"]["embedder"]) for report in reports.values()})
    lines.append(f"- Encoder and tokenizer of the budget: {', '.join(embedders)}; the paper's are Qwen3-Embedding-0.6B "
                 "and Qwen3-8B's tokenizer.")  # fmt: skip
    lines.append("- Managers: relation adapters and rules for fusion, no prompted model. Mem0 and EverMemOS-style were "
                 "not run here; newest-wins is a plain deduplication baseline instead.")  # fmt: skip
    lines.append(
        "- No answer model and no judge: where the paper has answer accuracy, the share of gold facts is given."
    )
    sizes = {"controlled": "470 episodes", "longmemeval": "500 questions over full histories", "meme": "694 questions"}
    for name, report in reports.items():
        count = report.get("episodes", report.get("questions"))
        what = "episodes" if "episodes" in report else "questions"
        lines.append(f"- {name}: {count} {what} of {report['data']} here; {sizes[name]} in the paper.")
    if "longmemeval" in reports:
        lines.append("- LongMemEval facts are whole turns here, not extracted atoms.")
    return [*lines, ""]


def read_reports(folders: Mapping[str, Path | None]) -> dict[str, Mapping[str, Any]]:
    """report.json of each folder that is given; `DataError` when it is missing or of another benchmark."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, folder in folders.items():
        if folder is None:
            continue
        try:
            report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"--{name} {folder}: no report.json to read ({error}); run eval.benchmark {name}"
            ) from error
        if report.get("benchmark") != name or not report.get("cells"):
            raise DataError(f"--{name} {folder}: a report of {report.get('benchmark')!r}; give one of {name!r}")
        found[name] = report
    if not found:
        raise DataError("no report given: use --controlled, --longmemeval or --meme with a folder of eval.benchmark")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m eval.paper_tables",
        description="Tables 2, 3, 5, 6, 7, 9 and Figures 3, 4 beside the paper's values, from benchmark runs.",
        epilog="example: python -m eval.paper_tables --controlled reports/controlled --meme reports/meme --out out",
    )
    for name in RUNS:
        parser.add_argument(f"--{name}", type=Path, help=f"output folder of `python -m eval.benchmark {name}`")
    parser.add_argument("--measure", choices=MEASURES, default="stated_gold",
                        help="what stands where the paper has answer accuracy (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables and figures")
    args = parser.parse_args(argv)
    try:
        check_output(args.out)
        reports = read_reports({name: getattr(args, name) for name in RUNS})
        out = output_folder(args.out)
        pictures = _write(reports, args.measure, out)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{out / 'tables.md'} and {len(pictures)} figures")
    return 0


def _write(reports: Reports, measure: str, out: Path) -> list[Path]:
    from eval.paper_figures import budget_figure, scale_figure

    tables = build_tables(reports, measure)
    lines = [f"# The paper's tables, {MEASURES[measure]} in the place of accuracy", "", *differences(reports)]
    for found in tables:
        lines += found.markdown()
        with (out / f"table_{found.number}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(found.rows())
    pictures = []
    draw: Sequence[tuple[str, Callable[[Mapping[str, Any], str, Path], None]]]
    draw = (("figure_3.png", scale_figure), ("figure_4.png", budget_figure)) if "controlled" in reports else ()
    for name, make in draw:
        make(reports["controlled"], measure, out / name)
        pictures.append(out / name)
        lines += [f"![{name}]({name})", ""]
    (out / "tables.md").write_text("\n".join(lines), encoding="utf-8")
    return pictures


if __name__ == "__main__":
    raise SystemExit(main())
