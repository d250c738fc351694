"""Page and picture of the speed benchmark, made of whatever parts have been measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eval.demo_page import table
from scripts.speed.training import OURS, PEER

Results = Mapping[str, Any]


class Level(NamedTuple):
    """One thing that must hold: what was needed and what was measured."""

    what: str
    needed: str
    measured: str
    holds: bool


def levels(results: Results) -> list[Level]:
    """The levels whose parts have been measured."""
    found: list[Level] = []
    if start := results.get("start"):
        found += [_most("`import roam`", start["import_roam"]["median"], 0.3)]
        for name in ("onnx", "onnx-int8"):
            found += [_most(f"{name} model loaded", start[name]["load"]["median"], 1.5)]
    if parity := results.get("parity"):
        for name in ("onnx", "onnx-int8"):
            one = parity[name]
            found += [
                _least(f"{name}: same relation as torch, %", 100 * one["agreement"], 100 * one["limits"]["agreement"]),
                _most(f"{name}: macro-F1 lost, points", 100 * one["f1_loss"], 100 * one["limits"]["f1_loss"], "", 2),
            ]
    if peers := results.get("peers"):
        for size, rates in peers["batches"].items():
            found += [
                _least(f"int8 against {peers['peer']}, batch of {size}, times", rates["onnx-int8"]["times_peer"], 4)
            ]
    if ingest := results.get("ingest"):
        name = f"`add_many` of {ingest['observations']} against one by one in torch, times"
        found += [_least(name, ingest["times"], 8)]
    if training := results.get("training"):
        found += [_least(f"training pairs/s against {PEER}, times", training["times_peer"][PEER], 1.5)]
    if episode := results.get("episode"):
        costs = episode["managers"]
        for name in (one for one in costs if one.startswith("roam")):
            ratio = costs["prompted"]["seconds"] / costs[name]["seconds"]
            found += [_least(f"an episode by prompts against {name}, times", ratio, 300)]
    return found


def _most(what: str, value: float, limit: float, unit: str = " s", digits: int = 3) -> Level:
    return Level(what, f"at most {limit:g}{unit}", f"{value:.{digits}f}{unit}", value <= limit)


def _least(what: str, value: float, limit: float) -> Level:
    return Level(what, f"at least {limit:g}", f"{value:.2f}", value >= limit)


def markdown(results: Results, machine: Mapping[str, Any]) -> str:
    """The page."""
    lines = ["# Speed", "", "Measured by `python scripts/bench_speed.py`, medians, the systems of a table in one run: "
             + ", ".join(f"{name} {value}" for name, value in machine.items()) + ".", ""]  # fmt: skip
    lines += table(
        ["what", "needed", "measured", "holds"],
        [[one.what, one.needed, one.measured, "yes" if one.holds else "no"] for one in levels(results)],
    )
    for name, section in SECTIONS.items():
        if results.get(name):
            lines += ["", *section(results[name])]
    missing = [name for name in (*SECTIONS, "episode") if not results.get(name)]
    lines += ["", "![Rates, training curves and growth](speed.png)"]
    if missing:
        lines += ["", f"Not measured: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def _start(part: Results) -> list[str]:
    rows = [[name, f"{part[name]['median']:.3f}", f"{part[name]['largest']:.3f}"]
            for name in ("python_alone", "import_roam", "roam_help")]  # fmt: skip
    for name in ("onnx", "onnx-int8"):
        rows += [[f"{name}, {key.replace('_', ' ')}", f"{one['median']:.3f}", f"{one['largest']:.3f}"]
                 for key, one in part[name].items()]  # fmt: skip
    return ["## Starting, seconds", "", *table(["", "median", "largest"], rows)]


def _parity(part: Results) -> list[str]:
    rows = [[name, f"{100 * one['agreement']:.2f}", f"{100 * one['macro_f1_adapter']:.2f}",
             f"{100 * one['macro_f1_exported']:.2f}", f"{one['batch_gap']:.5f}", f"{one['megabytes']:.0f}"]
            for name in ("onnx", "onnx-int8") for one in [part[name]]]  # fmt: skip
    header = ["graph", "same relation %", "macro-F1 torch", "macro-F1 graph", "alone against in a batch", "MB"]
    return [f"## Parity on the {part['pairs']} pairs of {part['file']}", "", *table(header, rows)]


def _limit(part: Results) -> list[str]:
    rows = [[name, f"{one['machine_gflops']:.0f}", f"{one['inference_gflops']:.0f}",
             f"{100 * one['share_of_machine']:.1f}", f"{100 * one['padding_share']:.1f}",
             ", ".join(f"{kind} {100 * share:.0f}" for kind, share in one["profile"].items())]
            for name in ("onnx", "onnx-int8") for one in [part[name]]]  # fmt: skip
    header = ["graph", "products alone, GFLOP/s", "inference, GFLOP/s", "share %", "padding %", "where time goes, %"]
    return [f"## The machine's limit ({part['threads']} threads)", "", *table(header, rows)]


def _peers(part: Results) -> list[str]:
    rows = [[size, name, f"{one['pairs_per_second']:.1f}", f"{one['slowest']:.1f} to {one['fastest']:.1f}",
             f"{one['times_peer']:.2f}", f"{100 * part['same_relation_as_torch'][name]:.1f}"]
            for size, rates in part["batches"].items() for name, one in rates.items()]  # fmt: skip
    header = ["batch", "system", "pairs/s", "spread", "times the peer", "same relation as torch %"]
    return ["## Peers: one pass a pair, same weights, same pairs", "", *table(header, rows)]


def _ingest(part: Results) -> list[str]:
    count, many, single, other = (
        part["observations"],
        part["add_many"],
        part["one_by_one_torch"],
        part["mem0_infer_off"],
    )
    rows = [["add_many, int8", f"{many['seconds']:.1f}", f"{many['per_second']:.1f}", str(many["forward_passes"])],
            [f"one by one, torch (mean of {single['timed_adds']})", f"{single['seconds']:.1f}",
             f"{count / single['seconds']:.1f}", "-"]]  # fmt: skip
    if other:
        rows.append(["mem0, infer off, one by one", f"{other['seconds']:.1f}", f"{other['per_second']:.1f}", "-"])
    told = (f"{many['pairs']} pairs were judged and {many['primaries']} facts stayed Primary; "
            f"{100 * single['same_decision']:.0f} % of the single adds were decided alike.")  # fmt: skip
    return [f"## Adding {count} facts", "", *table(["way", "seconds", "facts/s", "passes"], rows), "", told]


def _training(part: Results) -> list[str]:
    rows = [[name, f"{one['pairs_per_second']:.1f}", f"{100 * one['macro_f1']:.1f}",
             f"{one['seconds_to_common_f1']:.0f}", str(one["peak_mb"])]
            for name, one in part["systems"].items()]  # fmt: skip
    header = ["system", "pairs/s", "dev macro-F1 at the end",
              f"seconds to {100 * part['common_macro_f1']:.1f}", "peak MB"]  # fmt: skip
    return [f"## Training on {part['pairs']} pairs, {part['base']}", "", *table(header, rows)]


def _cascade(part: Results) -> list[str]:
    lines = [f"## Cascades, {part['pairs']} pairs"]
    for name, rows in part.items():
        if name == "pairs":
            continue
        cells = [[f"{one['margin']:g}", f"{100 * one['asked_again']:.1f}", f"{100 * one['macro_f1']:.1f}",
                  f"{100 * one['agreement_with_accurate']:.1f}", f"{one['pairs_per_second']:.1f}"]
                 for one in rows]  # fmt: skip
        header = ["margin", "asked again %", "macro-F1", "same as accurate %", "pairs/s"]
        lines += ["", name, "", *table(header, cells)]
    return lines


def _growth(part: Results) -> list[str]:
    lines = ["## How cost grows"]
    for name, rows in part.items():
        header = list(rows[0])
        cells = [[str(row[key]) for key in header] for row in rows]
        lines += ["", name.replace("_", " "), "", *table([key.replace("_", " ") for key in header], cells)]
    return lines


SECTIONS = {"start": _start, "parity": _parity, "limit": _limit, "peers": _peers, "ingest": _ingest,
            "training": _training, "cascade": _cascade, "growth": _growth}  # fmt: skip


def picture(results: Results, path: Path) -> None:
    """Rates beside the peer, training and the curves, as far as they have been measured."""
    from matplotlib.figure import Figure

    from eval.plots import PNG_METADATA

    figure = Figure(figsize=(13, 7), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    for axis, (title, draw, part) in zip(axes, PANELS, strict=True):
        axis.set_title(title, fontsize="medium")
        if results.get(part):
            draw(axis, results[part])
        else:
            axis.set_axis_off()
    figure.savefig(path, dpi=120, metadata=PNG_METADATA)


def _bars(axis: Any, names: Sequence[str], values: Sequence[float]) -> None:
    from eval.plots import BLUE, GREY

    colours = [BLUE if name.startswith(("onnx", OURS)) else GREY for name in names]
    bars = axis.barh(range(len(names)), values, color=colours)
    axis.bar_label(bars, fmt="%.1f", fontsize="small")
    axis.set_yticks(range(len(names)), names, fontsize="small")
    axis.invert_yaxis()
    axis.margins(x=0.15)


def _draw_peers(axis: Any, part: Results) -> None:
    size, rates = list(part["batches"].items())[-1]
    _bars(axis, list(rates), [one["pairs_per_second"] for one in rates.values()])
    axis.set_xlabel(f"pairs/s, batch of {size}")


def _draw_training(axis: Any, part: Results) -> None:
    for name, one in part["systems"].items():
        axis.plot([p["seconds"] for p in one["curve"]], [100 * p["macro_f1"] for p in one["curve"]], "o-", label=name)
    axis.set(xlabel="seconds of training steps", ylabel="dev macro-F1, %")
    axis.legend(fontsize="small")


def _draw_time(axis: Any, part: Results) -> None:
    for name, one in part["systems"].items():
        axis.plot([p["pairs"] for p in one["curve"]], [p["seconds"] for p in one["curve"]], "o-", label=name)
    axis.set(xlabel="training pairs", ylabel="seconds")


def _line(x: str, y: str, name: str) -> Any:
    def draw(axis: Any, part: Results) -> None:
        axis.plot([row[x] for row in part[name]], [row[y] for row in part[name]], "o-")
        axis.set(xlabel=x, ylabel=y.replace("_", " "), xscale="log", ylim=(0, None))

    return draw


PANELS = (
    ("int8 and fp32 beside the peer", _draw_peers, "peers"),
    ("int8 against batch", _line("batch", "pairs_per_second", "pairs_against_batch"), "growth"),
    ("int8 against text length", _line("tokens", "pairs_per_second", "pairs_against_tokens"), "growth"),
    ("searching against the size of a store", _line("size", "searches_per_second", "store"), "growth"),
    ("training: dev macro-F1 against time", _draw_training, "training"),
    ("training: time against data", _draw_time, "training"),
)
