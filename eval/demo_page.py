"""The page of `python -m eval.demo`: Markdown whose tables are also readable on a terminal, and its picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.demo_data import Outcome
from eval.plots import BLUE, GREY, PNG_METADATA

WIDTH = 68  # characters of a view in the table of questions; the whole is in demo.json


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A Markdown table padded so that its columns line up; the first column is left-aligned, numbers right."""
    cells = [[str(cell).replace("|", "/") for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    numeric = [all(_is_number(str(row[column])) for row in rows) for column in range(len(header))]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("| " + " | ".join(padded) + " |")
    rule = ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, numeric, strict=True)]
    return [lines[0], "| " + " | ".join(rule) + " |", *lines[1:]]


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "", 1).replace("-", "", 1).isdigit()


def percent(share: float) -> str:
    """A share in percent with one decimal."""
    return f"{100 * share:.1f}"


def render(page: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = [
        _relations(page),
        _store(page),
        _agreement(page),
        _chains(page),
        _questions(page),
        _cost(page),
        _files(page),
    ]
    return "\n".join(
        [f"# ROAM on {page['after']['observations']} dated facts", ""] + [line for part in parts for line in part]
    )


def _relations(page: Mapping[str, Any]) -> list[str]:
    report = page["relation_report"]
    low, high = page["macro_interval"]
    rows = [
        [name, *(percent(score[key]) for key in ("precision", "recall", "f1")), score["support"]]
        for name, score in report["per_class"].items()
    ]
    return [
        f"## Relations: adapter {page['adapter']} on {report['data']} ({report['pairs']} pairs)",
        "",
        *table(["class", "precision", "recall", "F1", "support"], rows),
        "",
        f"Macro-F1 {percent(report['macro_f1'])} (95 % interval {percent(low)} to {percent(high)}), "
        f"accuracy {percent(report['accuracy'])}.",
        "",
    ]


def _store(page: Mapping[str, Any]) -> list[str]:
    before, after = page["before"], page["after"]
    rows = [
        [label, before[key], after[key]]
        for label, key in (
            ("observations kept", "observations"),
            ("Primaries (what retrieval can return)", "primaries"),
            ("Evidence (kept for history)", "evidence"),
            ("tokens of all Primary views", "tokens"),
            (f"of {after['outdated']} outdated facts, still Primary", "outdated_primaries"),
        )
    ]
    return [
        f"## Store: {page['users']} users, {page['first_day']} to {page['last_day']}",
        "",
        *table(["", "append-all", "managed"], rows),
        "",
    ]


def _agreement(page: Mapping[str, Any]) -> list[str]:
    found = page["agreement"]
    rows = [
        [name, *(counts[str(outcome)] for outcome in Outcome), sum(counts.values())]
        for name, counts in found["by_relation"].items()
    ]
    merges = found["wrong_merges_of_independent"]
    listed = ", ".join(f"{count} as {name}" for name, count in sorted(merges.items())) or "none"
    return [
        "## Decisions beside the notes in the stream",
        "",
        *table(["expected", *map(str, Outcome), "facts"], rows),
        "",
        f"{found['right']} of {found['facts']} as noted; independent facts merged: {listed}; "
        f"pairs left for review: {page['cost']['to_review']}.",
        "",
    ]


def _chains(page: Mapping[str, Any]) -> list[str]:
    lines = [f"- {chain['user']}: {chain['view']} [{len(chain['members'])} facts]" for chain in page["chains"]]
    return ["## Some histories", "", *(lines or ["- none: no conflict was found"]), ""]


def _questions(page: Mapping[str, Any]) -> list[str]:
    found, before = page["questions"], page["questions_before"]
    rows = [
        [row["question"], "yes" if row["found"] else "no", "yes" if row["stale"] else "no", _cut(row["first"])]
        for row in found
    ]
    return [
        f"## Questions, {page['budget']} tokens of context each (at most {max(row['tokens'] for row in found)} used)",
        "",
        *table(["question", "found", "stale", "first view"], rows),
        "",
        f"found: the context holds the answer, {_count(found, 'found')} (append-all {_count(before, 'found')}).",
        "stale: an outdated state is among the hits as if current, "
        f"{_count(found, 'stale')} (append-all {_count(before, 'stale')}).",
        "",
    ]


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _count(rows: Sequence[Mapping[str, Any]], key: str) -> str:
    return f"{sum(bool(row[key]) for row in rows)} of {len(rows)}"


def _cost(page: Mapping[str, Any]) -> list[str]:
    spent = page["cost"]
    return [
        "## Cost of the write path",
        "",
        f"Here: {spent['forward_passes']} forward passes over {spent['pairs_classified']} pairs, "
        f"{spent['seconds']:.1f} s ({spent['facts_per_second']:.1f} facts/s, "
        f"models loaded in {spent['load_seconds']:.1f} s), {spent['llm_calls']} LLM calls.",
        f"Prompted protocol, same decisions: {spent['prompted_calls']} LLM calls = "
        f"{spent['prompted_relation_calls']} relation calls (one a retrieved candidate) + "
        f"{spent['prompted_fusion_calls']} fusion calls (one a non-independent update).",
        "",
    ]


def _files(page: Mapping[str, Any]) -> list[str]:
    files = page["files"]
    return [
        "## Files",
        "",
        f"- relation report: {files['report']}/report.md, report.json and pictures",
        f"- this page: {files['page']}, with demo.json and demo.png beside it",
        f"- the store: {files['store']} (try `roam list --db {files['store']} --user tamsin`)",
        "",
    ]


def picture(page: Mapping[str, Any], path: Path) -> None:
    """Retrievable texts over the stream beside append-all, and outcomes by expected relation."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    arrivals = np.arange(1, len(page["growth"]) + 1)
    left.plot(arrivals, arrivals, color=GREY, label="append-all")
    left.plot(arrivals, page["growth"], color=BLUE, label="managed")
    left.set(xlabel="facts added", ylabel="texts that retrieval can return")
    left.legend(frameon=False)
    table_ = page["agreement"]["by_relation"]
    base = np.zeros(len(table_))
    for outcome, colour in zip(Outcome, (BLUE, "#8fb3dd", "#c8553d", GREY), strict=True):
        counts = np.array([row[str(outcome)] for row in table_.values()], dtype=float)
        shares = counts / np.maximum([sum(row.values()) for row in table_.values()], 1) * 100
        right.bar(list(table_), shares, bottom=base, color=colour, label=str(outcome))
        base = base + shares
    right.set(ylabel="share of facts (%)", ylim=(0, 100))
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False, fontsize="small")
    figure.savefig(path, dpi=130, metadata=PNG_METADATA)
