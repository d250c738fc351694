"""Page and picture of the overhead report, with the paper's Table 10 beside ours."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.paper_values import TABLE_10
from eval.plots import BLUE, GREY, INK, PNG_METADATA
from eval.relation_report import percent, table

LEVEL = 100.0
"""How many times cheaper than prompted ROAM, in seconds an episode, the distilled manager is meant to be."""
DISTILLED, PROMPTED = "roam", "prompted"


def machine(threads: int) -> dict[str, Any]:
    """The machine of a run, as far as it decides seconds."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": platform.system(),
        "processor": _processor(),
        "cores_available": cores,
        "classifier_threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "server_threads": threads,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def ratios(report: Mapping[str, Any]) -> dict[str, float]:
    """How many times longer prompted ROAM takes than each form of the distilled manager, by measure and manager."""
    managers = report["managers"]
    if PROMPTED not in managers:
        return {}
    return {
        f"{what} of {name}": managers[PROMPTED][key] / managers[name][key]
        for key, what in (("seconds", "seconds"), ("cpu_seconds", "processor seconds"))
        for name in (DISTILLED, f"{DISTILLED}, batched")
        if name in managers and managers[PROMPTED][key] is not None
    }


def markdown(report: Mapping[str, Any]) -> str:
    """One page: the table, the ratio, agreement with gold labels, and how it was measured."""
    lines = [
        "# Cost of memory management",
        "",
        f"Means over {report['episodes']} episodes of {report['data']} at N = {report['n']}, {report['k']} candidates "
        f"a fact, in one run on one machine ({report['machine']['processor']}, {report['machine']['cores_available']} "
        f"core(s) available, {report['machine']['classifier_threads']} thread(s) for the classifier, "
        f"{report['machine']['server_threads']} for the LLM server). LLM: {report['llm'] or 'none'}.",
        "",
        *_cost_table(report),
        "",
        "Calls include failed ones. Shared prefix: the longest beginning of a prompt that an earlier prompt of that "
        "manager had too, one convention for all, in tokens of the server; a server that keeps only its last prompt "
        "reuses less. The paper's columns: its Table 10, 470 episodes of LongMemEval Controlled, other models and "
        "machines. Extraction, answering and judging are left out, as there.",
        "",
    ]
    lines += [f"- Not measured: {name}; {why}." for name, why in report["not_measured"].items()]
    for name, ratio in ratios(report).items():
        level = "reached" if ratio >= LEVEL else "not reached"
        lines.append(f"- Prompted ROAM takes {ratio:.0f} times the {name} (level {LEVEL:.0f}: {level}).")
    if report["not_measured"] or ratios(report):
        lines.append("")
    return "\n".join([*lines, *_agreement(report)]) + "\n"


def _cost_table(report: Mapping[str, Any]) -> list[str]:
    managers = report["managers"]
    header = ["an episode", *managers, *(f"paper: {name}" for name in TABLE_10)]
    rows = [
        ["facts in", *(f"{m['facts']:.1f}" for m in managers.values()), *("–" for _ in TABLE_10)],
        ["texts left", *(f"{m['units']:.1f}" for m in managers.values()), *("–" for _ in TABLE_10)],
    ]
    for key, title, form in (
        ("llm_calls", "LLM calls", _number),
        ("given_up", "questions without a usable answer", _number),
        ("forward_passes", "forward passes of the classifier", _number),
        ("input_tokens", "input tokens", _thousands),
        ("input_after_reuse", "input tokens after prefix reuse", _thousands),
        ("shared_share", "shared prefix", percent),
        ("output_tokens", "output tokens", _thousands),
    ):
        ours = ["–" if m[key] is None else form(m[key]) for m in managers.values()]
        paper = [form(values[key]) if key in values else "–" for values in TABLE_10.values()]
        rows.append([title, *ours, *paper])
    seconds = [f"{m['seconds']:.2f} ({m['seconds_interval'][0]:.2f} to {m['seconds_interval'][1]:.2f})"
               for m in managers.values()]  # fmt: skip
    rows.append(["seconds", *seconds, *("–" for _ in TABLE_10)])
    cpu = ["–" if m["cpu_seconds"] is None else f"{m['cpu_seconds']:.2f}" for m in managers.values()]
    rows.append(["processor seconds, server included", *cpu, *("–" for _ in TABLE_10)])
    return table(header, rows)


def _number(value: float) -> str:
    return f"{value:.1f}"


def _thousands(value: float) -> str:
    return f"{value / 1000:.2f}k"


def _agreement(report: Mapping[str, Any]) -> list[str]:
    found = report["agreement"]
    if not found["models"]:
        return []
    relations = sorted({name for entry in found["models"].values() for name in entry["by_relation"]})
    rows = [
        [name, percent(entry["accuracy"]), *(percent(entry["by_relation"][r]) for r in relations),
         f"{1000 * entry['seconds_per_pair']:.0f}"]
        for name, entry in found["models"].items()
    ]  # fmt: skip
    return [
        f"Agreement with the gold labels of {found['pairs']} pairs of {found['file']}, in percent:",
        "",
        *table(["model", "all", *relations, "ms a pair"], rows),
    ]


def overhead_picture(report: Mapping[str, Any], path: Path) -> None:
    """Seconds, LLM calls and tokens an episode by manager, on logarithmic axes; the paper's in grey."""
    from matplotlib.figure import Figure

    managers = report["managers"]
    ours, paper = list(managers), [f"paper: {name}" for name in TABLE_10]
    figure = Figure(figsize=(11, 1.4 + 0.4 * (len(ours) + len(paper))), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    labels = [*ours, *paper][::-1]
    for axes, key, title in zip(
        panels, ("seconds", "llm_calls", "input_after_reuse"),
        ("seconds", "LLM calls", "input tokens after prefix reuse"), strict=True,
    ):  # fmt: skip
        values = [*(managers[name][key] for name in ours), *(TABLE_10[name].get(key) for name in TABLE_10)][::-1]
        _bars(axes, values, ["paper" in label for label in labels])
        axes.set_xlabel(f"{title} an episode")
    panels[0].set(yticks=range(len(labels)))
    panels[0].set_yticklabels(labels)
    figure.suptitle(f"{report['episodes']} episodes, N = {report['n']}, LLM: {report['llm'] or 'none'}")
    figure.savefig(path, dpi=130, metadata=PNG_METADATA)


def _bars(axes: Any, values: Sequence[float | None], grey: Sequence[bool]) -> None:
    shown = [value for value in values if value]
    if shown:
        axes.set_xscale("log")
        axes.set_xlim(min(shown) / 2, max(shown) * 6)
    for place, (value, is_paper) in enumerate(zip(values, grey, strict=True)):
        if value:
            axes.barh(place, value, color=GREY if is_paper else BLUE)
            axes.text(value * 1.1, place, f"{value:,.3g}" if value < 100 else f"{value:,.0f}", va="center", color=INK)
        elif value is not None and shown:
            axes.text(min(shown) / 1.8, place, "0", va="center", color=INK)
