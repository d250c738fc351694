"""Figures 3 and 4 of the paper on our runs, with the paper's stated values beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval import paper_values
from eval.paper_tables import BUDGET, MEASURES, find_cell, plain_names
from eval.plots import BLUE, GREY, INK, PNG_METADATA

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = (0, 4, 8)
"""N in both figures."""
COLOURS = (BLUE, "#d9822b", "#3a8f5c", "#8a5aa8", "#c0504d", "#6b7280", "#17a2b8")


def scale_figure(report: Mapping[str, Any], measure: str, path: Path) -> None:
    """Figure 3: one point an adapter under the full policy, one panel a number of confounders."""
    names = plain_names(list(report["managers"]))
    panels = _panels(report)
    figure, axes = _figure(len(panels))
    for axis, n in zip(axes, panels, strict=True):
        found = enumerate(_point(report, name, BUDGET, n, measure) for name in names)
        ours = {place: value for place, value in found if value is not None}
        axis.plot(list(ours), list(ours.values()), "o-", color=BLUE, label=f"here: {MEASURES[measure]}")
        stated = {name: line[str(n)] for name, line in paper_values.FIGURE_3.items() if str(n) in line}
        for name, value in stated.items():
            axis.axhline(value, color=GREY, linestyle="--", linewidth=1)
            axis.annotate(f"paper: {name}", (0, value), fontsize=7, color=INK, xycoords=("axes fraction", "data"))
        axis.set(title=f"N = {n}", xticks=range(len(names)), ylim=(0, 102))
        axis.set_xticklabels(names, fontsize=7, rotation=20, ha="right")
    axes[0].set_ylabel(f"{MEASURES[measure]}; paper: accuracy (%)")
    figure.savefig(path, dpi=130, metadata=PNG_METADATA)


def budget_figure(report: Mapping[str, Any], measure: str, path: Path) -> None:
    """Figure 4: lines over the budget, one a method, one panel a number of confounders."""
    panels, names = _panels(report), list(report["managers"])
    budgets = sorted({int(cell["budget"]) for cell in report["cells"]})
    figure, axes = _figure(len(panels))
    for axis, n in zip(axes, panels, strict=True):
        for number, name in enumerate(names):
            points = [(b, value) for b in budgets if (value := _point(report, name, b, n, measure)) is not None]
            axis.plot(*zip(*points, strict=True), "o-", color=COLOURS[number % len(COLOURS)], label=name, markersize=4)
        if n == max(PANELS):
            for name, line in paper_values.FIGURE_4.items():
                style = "--" if name == "ROAM" else ":"
                axis.plot(
                    list(line), list(line.values()), style, color=INK, linewidth=1, label=f"paper: {name}, accuracy"
                )
        axis.set(title=f"N = {n}", xlabel="tokens of context", xticks=budgets, ylim=(0, 102))
    axes[0].set_ylabel(f"{MEASURES[measure]} (%)")
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, dpi=130, metadata=PNG_METADATA)


def _panels(report: Mapping[str, Any]) -> list[int]:
    """The panels of the paper that were run; what was run, when none of them was."""
    levels = sorted({int(cell["n"]) for cell in report["cells"]})
    return [n for n in PANELS if n in levels] or levels


def _figure(panels: int) -> tuple[Any, Sequence[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 3.4 * panels, 3.9), layout="constrained")
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    return figure, list(axes)


def _point(report: Mapping[str, Any], name: str, budget: int, n: int, measure: str) -> float | None:
    cell = find_cell(report, name, budget, n)
    return None if cell is None or cell[measure] is None else 100 * float(cell[measure])
