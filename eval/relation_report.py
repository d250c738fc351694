"""The relation report of DESIGN section 6: one dictionary of measures, and its Markdown page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data.pairs import LabelledPair
from eval import bootstrap, calibration, metrics
from eval.metrics import FloatArray, IntArray
from roam.relations import INDEX, RELATIONS, Relation

PAPER_TABLE_4: dict[str, Any] = {
    "source": "ROAM paper, Table 4: Gemma-4-26B-A4B-it prompted, 843 PersonaMem-v2 pairs that are not public",
    "macro_f1": 0.815,
    "macro_precision": 0.824,
    "macro_recall": 0.825,
    "per_class": {
        "IND": {"precision": 0.655, "recall": 0.965, "f1": 0.780},
        "EQV": {"precision": 0.972, "recall": 0.893, "f1": 0.931},
        "OSN": {"precision": 0.854, "recall": 0.685, "f1": 0.760},
        "NSO": {"precision": 0.657, "recall": 0.734, "f1": 0.693},
        "CON": {"precision": 0.980, "recall": 0.849, "f1": 0.910},
    },
}
WORST_ERRORS = 25
THRESHOLDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)


def scores(gold: IntArray, predicted: IntArray) -> dict[str, Any]:
    """The measures that need only predictions: per class, macro, accuracy, confusion, wrong merges and demotions."""
    demotion = metrics.false_demotion(gold, predicted)
    return {
        "macro_f1": metrics.macro_f1(gold, predicted),
        "accuracy": metrics.accuracy(gold, predicted),
        "per_class": metrics.per_class(gold, predicted),
        "confusion": metrics.confusion(gold, predicted).tolist(),
        "merge_error_rate": metrics.merge_error_rate(gold, predicted),
        "false_demotion_rate": demotion["ind"],
        "false_demotion": demotion,
    }


def build_report(
    pairs: Sequence[LabelledPair],
    probabilities: FloatArray,
    probabilities_swapped: FloatArray,
    thresholds: Mapping[Relation, float],
    seed: int,
) -> dict[str, Any]:
    """Return all measures of one model on `pairs`.

    `probabilities` and `probabilities_swapped` have shape (len(pairs), 5): for (old, new) and for (new, old). The
    headline figures take the most probable relation, as the paper's Table 4 does; `at_thresholds` repeats them for the
    relation that the store would act on. Shares are in 0..1, rounded to six places.
    """
    gold = metrics.columns([pair.label for pair in pairs])
    calibration.check_probabilities(gold, probabilities)
    predicted = metrics.decide(probabilities)
    predicted_swapped = metrics.decide(probabilities_swapped)
    groups = [pair.group for pair in pairs]
    group = bootstrap.group_index(groups, len(pairs))
    consistent = metrics.swap_consistent(predicted, predicted_swapped)
    wrong = predicted != gold
    independent = gold == INDEX[Relation.IND]
    intervals = bootstrap.relation_intervals(gold, predicted, groups, seed)
    intervals["swap_consistency"] = bootstrap.share_interval(consistent, np.ones_like(consistent), group, seed)
    intervals["merge_error_rate"] = bootstrap.share_interval(wrong & independent, independent, group, seed)
    intervals["method"] = (
        f"{bootstrap.REPLICATES} bootstrap replicates over {int(group.max()) + 1} groups, "
        f"{bootstrap.LEVEL:.0%} percentile, seed {seed}"
    )
    report: dict[str, Any] = {
        "pairs": len(pairs),
        "groups": int(group.max()) + 1,
        "labels": [str(r) for r in RELATIONS],
    }
    report |= scores(gold, predicted)
    report["absent_classes"] = [name for name, score in report["per_class"].items() if not score["support"]]
    report["intervals"] = intervals
    report["ece"] = calibration.expected_calibration_error(gold, probabilities)
    report["calibration"] = {
        "ece_equal_mass": report["ece"],
        "ece_equal_width": calibration.expected_calibration_error(gold, probabilities, "equal_width"),
        "bins": calibration.reliability(gold, probabilities),
        **calibration.proper_scores(gold, probabilities),
    }
    report["risk_coverage"] = calibration.risk_coverage(gold, probabilities)
    report["risk_coverage"]["by_threshold"] = threshold_curve(gold, probabilities)
    report["swap_consistency"] = float(consistent.mean())
    at_thresholds = metrics.decide(probabilities, thresholds)
    report["thresholds"] = {str(relation): float(value) for relation, value in thresholds.items()}
    report["at_thresholds"] = scores(gold, at_thresholds) | {"abstained": float((at_thresholds != predicted).mean())}
    report["by_domain"] = by_domain(pairs, gold, predicted)
    report["worst_errors"] = worst_errors(pairs, gold, predicted, probabilities)
    report["paper"] = PAPER_TABLE_4
    rounded: dict[str, Any] = round_floats(report)
    return rounded


def threshold_curve(gold: IntArray, probabilities: FloatArray) -> list[dict[str, float | None]]:
    """What one threshold for all relations but IND would buy.

    A row each of `THRESHOLDS`: `false_demotion`, the share of gold-IND pairs of which the store would hide a fact, and
    `found`, the share of the other pairs whose relation it would still act on rightly.
    """
    rows: list[dict[str, float | None]] = []
    related = gold != INDEX[Relation.IND]
    for limit in THRESHOLDS:
        predicted = metrics.decide(probabilities, dict.fromkeys(RELATIONS, limit))
        rows.append(
            {
                "threshold": limit,
                "false_demotion": metrics.merge_error_rate(gold, predicted),
                "found": metrics.share(predicted == gold, related),
            }
        )
    return rows


def by_domain(pairs: Sequence[LabelledPair], gold: IntArray, predicted: IntArray) -> dict[str, dict[str, Any]]:
    """Accuracy, merge error rate and support of each domain; pairs without one are left out.

    Macro-F1 is not given here: most domains lack a class, which would make the figures incomparable.
    """
    names = np.array([pair.domain or "" for pair in pairs])
    rows = {}
    for name in sorted(set(names.tolist()) - {""}):
        chosen = names == name
        rows[name] = {
            "support": int(chosen.sum()),
            "accuracy": metrics.accuracy(gold[chosen], predicted[chosen]),
            "merge_error_rate": metrics.merge_error_rate(gold[chosen], predicted[chosen]),
        }
    return rows


def worst_errors(
    pairs: Sequence[LabelledPair], gold: IntArray, predicted: IntArray, probabilities: FloatArray
) -> list[dict[str, Any]]:
    """The most confident wrong predictions, most confident first: {id, line, gold, predicted, probability}."""
    wrong = np.flatnonzero(gold != predicted)
    confidence = np.asarray(probabilities, dtype=np.float64)[wrong, predicted[wrong]]
    ranked = wrong[np.argsort(-confidence, kind="stable")][:WORST_ERRORS]
    return [
        {
            "id": pairs[row].id,
            "line": pairs[row].line,
            "gold": str(RELATIONS[gold[row]]),
            "predicted": str(RELATIONS[predicted[row]]),
            "probability": float(probabilities[row, predicted[row]]),
        }
        for row in ranked.tolist()
    ]


def round_floats(value: Any, places: int = 6) -> Any:
    """`value` with every float in it rounded: the last bits depend on the machine's summation order."""
    if isinstance(value, Mapping):
        return {key: round_floats(item, places) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [round_floats(item, places) for item in value]
    return round(float(value), places) if isinstance(value, float | np.floating) else value


def percent(value: float | None) -> str:
    """One decimal, or a dash for a share over nothing."""
    return "–" if value is None else f"{100 * value:.1f}"


def markdown(report: Mapping[str, Any]) -> str:
    """The report as one page of Markdown; figures in percent."""
    low, high = report["intervals"]["macro_f1"]
    lines = [
        f"# Relation report: {report['model']} on {report['data']}",
        "",
        f"Macro-F1 **{percent(report['macro_f1'])}** (95 % interval {percent(low)} to {percent(high)}), accuracy "
        f"{percent(report['accuracy'])}, {report['pairs']} pairs in {report['groups']} groups.",
        "",
        *_class_table(report),
        "",
        *_comparison_table(report),
        "",
        *_store_table(report),
        "",
        *_risk_tables(report),
        "",
        "## Confusion (rows: gold, columns: predicted)",
        "",
        *table(["", *report["labels"]], [[f"**{name}**", *map(str, row)] for name, row in
                                          zip(report["labels"], report["confusion"], strict=True)]),
        "",
        "![confusion](confusion.png) ![per class](per_class.png) ![reliability](reliability.png) "
        "![risk and coverage](risk_coverage.png)",
        "",
        *_footer(report),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table, figures to the right."""
    align = ["---", *["---:"] * (len(header) - 1)]
    return ["| " + " | ".join(row) + " |" for row in (header, align, *rows)]


def _class_table(report: Mapping[str, Any]) -> list[str]:
    rows = []
    for name in report["labels"]:
        score, paper = report["per_class"][name], report["paper"]["per_class"][name]
        low, high = report["intervals"]["per_class"][name]["f1"]
        rows.append(
            [name, *(percent(score[key]) for key in ("precision", "recall", "f1")),
             f"{percent(low)} to {percent(high)}", str(score["support"]),
             *(percent(paper[key]) for key in ("precision", "recall", "f1"))]
        )  # fmt: skip
    header = ["class", "P", "R", "F1", "F1, 95 %", "support", "paper P", "paper R", "paper F1"]
    note = f"Paper: {report['paper']['source']}; other pairs, so the columns are a yardstick, not a contest."
    absent = report["absent_classes"]
    warning = [f"No gold pair of {', '.join(absent)}: counted as F1 0 in the macro average.", ""] if absent else []
    return ["## Per class", "", *table(header, rows), "", *warning, note]


def _comparison_table(report: Mapping[str, Any]) -> list[str]:
    rows = [[report["model"], percent(report["macro_f1"]), percent(report["accuracy"]), ""]]
    for name, row in report["baselines"].items():
        gap = row.get("difference")
        text = (
            f"{percent(gap['macro_f1'])} ({percent(gap['interval'][0])} to {percent(gap['interval'][1])})"
            if gap
            else ""
        )
        rows.append([name, percent(row["macro_f1"]), percent(row["accuracy"]), text])
    rows.append(["paper's prompted Gemma-4-26B (other pairs)", percent(report["paper"]["macro_f1"]), "", ""])
    return ["## Beside baselines", "", *table(["model", "macro-F1", "accuracy", "ours minus it (95 %)"], rows)]


def _store_table(report: Mapping[str, Any]) -> list[str]:
    acting = report["at_thresholds"]
    wanted = (
        ("macro-F1", ("macro_f1",)),
        ("false demotion: gold IND, yet one of the two is hidden", ("false_demotion_rate",)),
        ("of gold IND, the stored fact is hidden (CON, OSN)", ("false_demotion", "ind_old_hidden")),
        ("of gold IND, the new fact is hidden (EQV, NSO)", ("false_demotion", "ind_new_hidden")),
        ("stored fact wrongly hidden, gold IND or NSO", ("false_demotion", "old")),
        ("new fact wrongly hidden, gold IND, OSN or CON", ("false_demotion", "new")),
    )
    rows = [[label, percent(_pick(report, keys)), percent(_pick(acting, keys))] for label, keys in wanted]
    limits = ", ".join(f"{name} {value:g}" for name, value in report["thresholds"].items()) or "none"
    return [
        "## What the store would do",
        "",
        *table(["", "most probable relation", "after thresholds"], rows),
        "",
        f"Thresholds: {limits}. Below them a pair counts as IND ({percent(acting['abstained'])} % of the pairs). Swap "
        f"consistency {percent(report['swap_consistency'])} %. Calibration error (15 equal-mass bins) "
        f"{percent(report['ece'])} %, equal-width {percent(report['calibration']['ece_equal_width'])} %.",
    ]


def _risk_tables(report: Mapping[str, Any]) -> list[str]:
    curve = report["risk_coverage"]
    points = [point for point in curve["points"] if point["coverage"] in (0.5, 0.7, 0.8, 0.9, 1.0)]
    limits = [[f"{row['threshold']:g}", percent(row["false_demotion"]), percent(row["found"])]
              for row in curve["by_threshold"]]  # fmt: skip
    return [
        "## Risk and coverage",
        "",
        "Wrong among the most confident pairs of a share: "
        + ", ".join(f"{100 * p['coverage']:.0f} %: {percent(p['risk'])}" for p in points)
        + f"; mean over all shares {percent(curve['area'])} %.",
        "",
        *table(["one threshold for all", "false demotion, gold IND", "other pairs found"], limits),
    ]


def _pick(report: Mapping[str, Any], keys: Sequence[str]) -> Any:
    value: Any = report
    for key in keys:
        value = value[key]
    return value


def _footer(report: Mapping[str, Any]) -> list[str]:
    hashes = ", ".join(f"{name} `{str(value)[:16]}`" for name, value in report["hashes"].items() if value)
    versions = ", ".join(f"{name} {value}" for name, value in report["versions"].items())
    return [f"Intervals: {report['intervals']['method']}. Seed {report['seed']}.", "", f"Hashes: {hashes}.", "",
            f"Versions: {versions}."]  # fmt: skip
