"""The experiments' picture: macro-F1 of every recipe and seed, and macro-F1 against the number of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from eval.experiments_compare import Recipe
from eval.plots import BLUE, GREY, INK, PNG_METADATA

COLOURS = (BLUE, "#d9822b", "#3a8f5c", "#8a5aa8")


def experiments_picture(rows: Sequence[Recipe], sets: Sequence[str], path: Path) -> None:
    """Dots are seeds, bars means; the dashed line is the paper's prompted model on its own pairs."""
    from eval.relation_report import PAPER_TABLE_4

    paper = 100 * PAPER_TABLE_4["macro_f1"]
    figure = Figure(figsize=(11, 1.6 + 0.42 * max(4, len(rows))), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    place = np.arange(len(rows))[::-1]
    for number, name in enumerate(sets):
        colour = COLOURS[number % len(COLOURS)]
        shift = 0.16 * ((len(sets) - 1) / 2 - number)
        for at, row in zip(place, rows, strict=True):
            spread = row.spread(name, "macro_f1")
            if spread is None:
                continue
            seeds = [100 * run.sets[name]["macro_f1"] for run in row.runs if name in run.sets]
            left.plot(seeds, [at + shift] * len(seeds), "o", color=colour, markersize=4, alpha=0.6)
            left.plot([100 * spread.mean], [at + shift], "|", color=colour, markersize=13, markeredgewidth=2.5)
            size = row.runs[0].values["parameters"]["total"] / 1e6
            right.plot([size], [100 * spread.mean], "o", color=colour)
        left.plot([], [], "o", color=colour, label=name)
    for axes in (left, right):
        axes.grid(color=GREY, linewidth=0.4)
        axes.set_axisbelow(True)
    left.axvline(paper, color=INK, linestyle="--", linewidth=1, label="paper's prompted 26B, other pairs")
    right.axhline(paper, color=INK, linestyle="--", linewidth=1)
    left.set(xlabel="macro-F1 (%)", yticks=place)
    left.set_yticklabels([row.label for row in rows], fontsize=8)
    right.set(xlabel="parameters (million)", ylabel="macro-F1 (%)", xscale="log")
    figure.legend(loc="outside upper center", ncols=len(sets) + 1, frameon=False)
    figure.savefig(path, dpi=130, metadata=PNG_METADATA)
