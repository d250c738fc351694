"""Markdown and CSV of one benchmark's report.json."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eval.relation_report import percent, table

Row = Mapping[str, Any]

COLUMNS = (
    ("any_source", "any source"),
    ("all_source", "all sources"),
    ("gold_recall", "gold recall"),
    ("stated_gold", "gold stated"),
    ("confounder_share", "confounder tokens"),
    ("background_primary", "background Primary"),
    ("confounder_primary", "confounders Primary"),
    ("gold_demoted", "gold demoted"),
)
UPDATE_COLUMNS = (
    ("new_retrievable", "new retrievable"),
    ("new_stated", "new stated"),
    ("new_primary", "new Primary"),
    ("old_demoted", "old demoted"),
    ("bystanders_primary", "bystanders Primary"),
    ("bystanders_kept", "bystanders kept"),
    ("stale_answer", "stale answer"),
)
CHAIN_COLUMNS = (
    ("superseded_demoted", "superseded demoted"),
    ("chains_current", "chains current"),
    ("deleted_demoted", "deleted demoted"),
    ("untouched_primary", "untouched Primary"),
    ("stale_answer", "stale answer"),
)
METRICS = frozenset(key for key, _ in (*COLUMNS, *UPDATE_COLUMNS, *CHAIN_COLUMNS)) | {"units", "tokens"}
COUNTED = ("episodes", "stores", "dialogues", "questions", "updates", "left_out", "uncovered", "unsupported_questions",
           "single_gold")  # fmt: skip


def markdown(report: Row) -> str:
    """One page: the main table, all cells where there are several, paired differences, and what went wrong and why."""
    columns = UPDATE_COLUMNS if report["benchmark"] == "updates" else _present(report, COLUMNS)
    counted = ", ".join(f"{report[key]} {key.replace('_', ' ')}" for key in COUNTED if key in report)
    level = f" N = {report['n']}." if "n" in report else ""
    lines = [
        f"# {report['benchmark'].capitalize()}: {report['data']}",
        "",
        f"{counted}.{level} {report['budget']} tokens of context by the embedder's tokenizer, {report['k']} candidates "
        "a fact. Percent, with 95 % bootstrap intervals; units are views in the context.",
        "",
        *_main_table(report, columns),
        "",
    ]
    if report["benchmark"] == "meme":
        rows = [[name, *_figures(entry["chains"], CHAIN_COLUMNS)] for name, entry in report["managers"].items()]
        lines += ["## Chains, deletions and stale answers", "", *table(["manager", *_titles(CHAIN_COLUMNS)], rows), ""]
    if len(report["cells"]) > len(report["managers"]):
        lines += ["## All settings", "", *_cell_table(report, columns), ""]
    if report["comparisons"]:
        lines += ["## Paired differences in points", "", *_comparison_table(report), ""]
    lines += _answer_section(report)
    return "\n".join([*lines, "## Which decisions", "", *_causes(report)]) + "\n"


def _answer_section(report: Row) -> list[str]:
    """Accuracy by question type, where an LLM answered."""
    answered = {name: entry for name, entry in report["managers"].items() if "accuracy" in entry}
    if not answered:
        return []
    kinds = sorted({kind for entry in answered.values() for kind in entry["accuracy_by_question_type"]})
    rows = [
        [name, percent(entry["accuracy"]), *(percent(entry["accuracy_by_question_type"][kind]) for kind in kinds),
         str(entry["unjudged"])]
        for name, entry in answered.items()
    ]  # fmt: skip
    title = f"## Answer accuracy, answered by {report['answerer']}"
    return [title, "", *table(["manager", "all", *kinds, "unjudged"], rows), ""]


def _present(report: Row, columns: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Columns that say something in this report: no confounder columns where there are no confounders."""
    plain = "n" not in report
    skip = {"confounder_share"} if plain else set()
    entries = list(report["managers"].values())
    return tuple(
        (key, title) for key, title in columns if key not in skip and any(entry[key] is not None for entry in entries)
    )


def _titles(columns: Sequence[tuple[str, str]]) -> list[str]:
    return [title for _, title in columns]


def _figures(entry: Row, columns: Sequence[tuple[str, str]]) -> list[str]:
    """Share and interval of each column."""
    cells = []
    for key, _ in columns:
        limits = entry["intervals"].get(key)
        spread = "" if limits is None else f" ({percent(limits[0])} to {percent(limits[1])})"
        cells.append(percent(entry[key]) + spread)
    return cells


def _main_table(report: Row, columns: Sequence[tuple[str, str]]) -> list[str]:
    has_units = report["benchmark"] != "updates"
    rows = []
    for name, entry in report["managers"].items():
        for kind, part in (("", entry), *entry.get("by_type", {}).items()):
            label = name if not kind else f"{name}, Type {kind}" if kind in ("I", "II") else f"{name}, {kind}"
            units = [str(part["episodes"]), f"{part['units']:.1f}"] if has_units else []
            rows.append([label, *_figures(part, columns), *units])
    return table(["manager", *_titles(columns), *(["episodes", "units"] if has_units else [])], rows)


def _cell_table(report: Row, columns: Sequence[tuple[str, str]]) -> list[str]:
    header = ["manager", *(["N"] if "n" in report else []), "budget", *_titles(columns)]
    return table(
        header,
        [
            [cell["manager"], *([str(cell["n"])] if "n" in report else []), str(cell["budget"]),
             *(percent(cell[key]) for key, _ in columns)]
            for cell in report["cells"]
        ],
    )  # fmt: skip


def _comparison_table(report: Row) -> list[str]:
    """The reference against each other method at the report's own setting."""
    rows = []
    for pair in report["comparisons"]:
        if pair["budget"] != report["budget"] or pair.get("n") != report.get("n"):
            continue
        for metric, found in pair["differences"].items():
            low, high = found["interval"]
            rows.append([f"{pair['manager']} − {pair['other']}", metric, f"{100 * found['difference']:+.1f}",
                         f"{100 * low:+.1f} to {100 * high:+.1f}"])  # fmt: skip
    return table(["pair", "measure", "difference", "95 % interval"], rows)


def _causes(report: Row) -> list[str]:
    """Per method: by which relation background was lost, and what became of gold, or how missed updates were judged."""
    lines = []
    for name, entry in report["managers"].items():
        if "background_merged_by" in entry and "n" in report:
            kept, total = entry["counts"]["background_primary"]
            causes = _list(entry["background_merged_by"])
            lines.append(f"- {name}: {total - kept} of {total} background memories became Evidence ({causes}).")
        for key, what in (
            ("gold_fates", "gold facts"),
            ("confounders_left_judged", "confounders that stayed Primary were judged at their arrival"),
            ("old_stayed_judged", "old facts that stayed were judged"),
            ("bystanders_lost_by", "bystanders lost by"),
            ("superseded_stayed_judged", "replaced or deleted facts that stayed were judged"),
        ):
            if key in entry:
                lines.append(f"- {name}: {what}: {_list(entry[key])}.")
    return lines


def _list(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def csv_tables(report: Row) -> dict[str, str]:
    """{"cells": ..., "comparisons": ...}: every figure with its interval, one a line."""
    return {
        "cells": _csv(("manager", "n", "budget", "type", "measure", "value", "low", "high"), _cell_lines(report)),
        "comparisons": _csv(
            ("manager", "other", "n", "budget", "measure", "difference", "low", "high"),
            (
                (pair["manager"], pair["other"], pair.get("n", ""), pair["budget"], metric, found["difference"],
                 *found["interval"])
                for pair in report["comparisons"] for metric, found in pair["differences"].items()
            ),
        ),
    }  # fmt: skip


def _cell_lines(report: Row) -> Iterator[tuple[Any, ...]]:
    for cell in report["cells"]:
        parts = [
            ("all", cell),
            *cell.get("by_type", {}).items(),
            *([("chains", cell["chains"])] if "chains" in cell else []),
        ]
        for kind, part in parts:
            for metric in sorted(METRICS & part.keys()):
                if part[metric] is not None:
                    low, high = part["intervals"][metric]
                    yield (cell["manager"], cell.get("n", ""), cell["budget"], kind, metric, part[metric], low, high)


def _csv(header: Sequence[str], lines: Iterator[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return out.getvalue()
