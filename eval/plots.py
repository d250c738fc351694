"""Pictures of the reports, drawn off screen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, GREY, INK = "#2f6db3", "#b8bec6", "#1f2933"
# matplotlib writes its version and the date into the file otherwise, and equal pictures would differ.
PNG_METADATA: dict[str, Any] = {"Software": None}


def _figure(width: float, height: float) -> Figure:
    # The object interface needs no pyplot, hence no display and no global state.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=130, metadata=PNG_METADATA)


def confusion_picture(report: Mapping[str, Any], path: Path) -> None:
    """Counts by gold (rows) and predicted relation (columns), shaded by share of the row."""
    counts = np.array(report["confusion"], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    figure = _figure(5, 4.4)
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        colour = "white" if shares[row, column] > 0.55 else INK
        axes.text(column, row, f"{count:.0f}", ha="center", va="center", color=colour)
    ticks = range(len(report["labels"]))
    axes.set(xticks=ticks, yticks=ticks, xlabel="predicted", ylabel="gold")
    axes.set_xticklabels(report["labels"])
    axes.set_yticklabels(report["labels"])
    axes.set_title(f"{report['pairs']} pairs, accuracy {100 * report['accuracy']:.1f} %")
    _save(figure, path)


def per_class_picture(report: Mapping[str, Any], path: Path) -> None:
    """F1 of each relation with its interval, beside the paper's Table 4."""
    names = [*report["labels"], "macro"]
    ours = [report["per_class"][name]["f1"] for name in report["labels"]] + [report["macro_f1"]]
    limits = [report["intervals"]["per_class"][name]["f1"] for name in report["labels"]]
    limits.append(report["intervals"]["macro_f1"])
    paper = [report["paper"]["per_class"][name]["f1"] for name in report["labels"]] + [report["paper"]["macro_f1"]]
    place = np.arange(len(names))
    # Percentile intervals of a small class may miss the point by a rounding error; a bar has no negative length.
    spread = [[max(0.0, y - low) for y, (low, _) in zip(ours, limits, strict=True)],
              [max(0.0, high - y) for y, (_, high) in zip(ours, limits, strict=True)]]  # fmt: skip
    figure = _figure(6.4, 3.8)
    axes = figure.subplots()
    axes.bar(place - 0.2, np.array(ours) * 100, 0.4, color=BLUE, label="this model")
    axes.errorbar(place - 0.2, np.array(ours) * 100, np.array(spread) * 100, fmt="none", ecolor=INK, capsize=3)
    axes.bar(place + 0.2, np.array(paper) * 100, 0.4, color=GREY, label="paper, prompted 26B, other pairs")
    axes.set(xticks=place, ylabel="F1 (%)", ylim=(0, 100))
    axes.set_xticklabels(names)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    _save(figure, path)


def reliability_picture(report: Mapping[str, Any], path: Path) -> None:
    """Accuracy against confidence in equal-mass bins; the diagonal is perfect calibration."""
    bins = report["calibration"]["bins"]
    confidence = [part["confidence"] for part in bins]
    figure = _figure(4.6, 4.2)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", label="perfect")
    axes.plot(confidence, [part["accuracy"] for part in bins], color=BLUE, marker="o", label="this model")
    axes.set(xlabel="probability of the predicted relation", ylabel="share correct", xlim=(0, 1), ylim=(0, 1.02))
    axes.set_title(f"calibration error {100 * report['ece']:.1f} %")
    axes.legend(loc="upper left")
    _save(figure, path)


def risk_coverage_picture(report: Mapping[str, Any], path: Path) -> None:
    """Error rate among the most confident pairs against the share of pairs answered; flat and low is best."""
    points = report["risk_coverage"]["points"]
    figure = _figure(4.6, 4.2)
    axes = figure.subplots()
    axes.plot([100 * p["coverage"] for p in points], [100 * p["risk"] for p in points], color=BLUE, marker="o")
    axes.set(xlabel="pairs answered, most confident first (%)", ylabel="wrong among them (%)", xlim=(0, 102))
    axes.set_ylim(bottom=0)
    axes.set_title(f"mean risk {100 * report['risk_coverage']['area']:.1f} %")
    _save(figure, path)


def atlas_picture(atlas: Mapping[str, Any], path: Path) -> None:
    """Accuracy of each phenomenon with its interval, worst on top; the line is the accuracy on all pairs."""
    rows = atlas["phenomena"][::-1]
    figure = _figure(8, 1.2 + 0.27 * max(len(rows), 3))
    axes = figure.subplots()
    for place, row in enumerate(rows):
        low, high = row["interval"]
        axes.plot([100 * low, 100 * high], [place, place], color=GREY, linewidth=4, solid_capstyle="round")
        axes.plot([100 * row["accuracy"]], [place], "o", color=BLUE)
    axes.axvline(100 * atlas["accuracy"], color=INK, linestyle="--", linewidth=1)
    axes.set(yticks=range(len(rows)), xlabel="accuracy (%)")
    axes.set_yticklabels([f"{row['title']} ({row['pairs']})" for row in rows], fontsize=8)
    axes.set_title(f"{atlas['model']} on {atlas['data']}: {atlas['errors']} errors in {atlas['pairs']} pairs")
    _save(figure, path)


def relation_pictures(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the pictures of a relation report into `folder` and return their paths."""
    drawn = []
    for name, draw in (
        ("confusion", confusion_picture),
        ("per_class", per_class_picture),
        ("reliability", reliability_picture),
        ("risk_coverage", risk_coverage_picture),
    ):
        path = folder / f"{name}.png"
        draw(report, path)
        drawn.append(path)
    return drawn
