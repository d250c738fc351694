"""Measures of fused views against examples with substring tests, and their report (DESIGN section 6, fusion file)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from data.fusion import FusionExample
from eval import bootstrap
from roam.fusion import GuardReason
from roam.records import FusionRequest
from roam.relations import Relation

MEASURES: Final = ("exact", "chrf", "keep_rate", "violation_rate", "length_ratio")
WORST: Final = 30
CHRF_ORDER: Final = 6
CHRF_BETA: Final = 2.0


@dataclass(frozen=True, slots=True)
class ViewScore:
    """What is measured of one view. `lost` and `violated` are the strings that failed their test."""

    exact: bool
    chrf: float
    lost: tuple[str, ...]
    violated: tuple[str, ...]
    length_ratio: float

    def row(self) -> tuple[float, ...]:
        """The values of `MEASURES`, in that order."""
        return (float(self.exact), self.chrf, float(not self.lost), float(bool(self.violated)), self.length_ratio)


def chrf(hypothesis: str, reference: str) -> float:
    """chrF2 of two strings, 0 to 1 (Popovic 2015): character n-grams up to 6, no white space, recall weighs double.

    Orders for which either string is too short are left out, as sacrebleu does for single sentences.
    """
    left, right = "".join(hypothesis.split()), "".join(reference.split())
    precisions, recalls = [], []
    for order in range(1, CHRF_ORDER + 1):
        found = Counter(left[start : start + order] for start in range(len(left) - order + 1))
        wanted = Counter(right[start : start + order] for start in range(len(right) - order + 1))
        if not found or not wanted:
            continue
        hits = sum((found & wanted).values())
        precisions.append(hits / found.total())
        recalls.append(hits / wanted.total())
    if not precisions:
        return float(left == right)
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    weight = CHRF_BETA**2
    bottom = weight * precision + recall
    return (1 + weight) * precision * recall / bottom if bottom else 0.0


def score_view(example: FusionExample, view: str) -> ViewScore:
    """Measure one view. Keep and violation tests are case-sensitive substring tests."""
    inputs = sum(len(item.text) for item in example.inputs)
    return ViewScore(
        exact=view == example.target,
        chrf=chrf(view, example.target),
        lost=tuple(text for text in example.must_keep if text not in view),
        violated=tuple(text for text in example.must_not if text in view),
        length_ratio=len(view) / max(1, inputs),
    )


def survivor_of(example: FusionExample) -> int:
    """Which input survives under the paper's Table 1: the earliest for EQV and NSO, the latest for OSN and CON.

    An example tagged `out_of_order` has the specific statement at the other end of the time order (OSN, NSO).
    """
    last = len(example.inputs) - 1
    late = "out_of_order" in example.tags
    match example.relation:
        case Relation.OSN:
            return 0 if late else last
        case Relation.NSO:
            return last if late else 0
        case Relation.CON:
            return last
        case _:
            return 0


def request_of(example: FusionExample) -> FusionRequest:
    """The fusion request that an example stands for."""
    return FusionRequest(example.inputs, example.relation, survivor_of(example))


def summarise(scores: Sequence[ViewScore], seed: int | None = None) -> dict[str, Any]:
    """Means of the measures over `scores`, in 0..1; with a seed also the 95 % bootstrap intervals."""
    table = np.array([score.row() for score in scores])
    summary: dict[str, Any] = {"examples": len(scores)}
    summary |= {name: round(float(value), 6) for name, value in zip(MEASURES, table.mean(axis=0), strict=True)}
    if seed is not None:
        weights = bootstrap.resample_weights(len(scores), seed)
        means = weights @ table / len(scores)
        summary["intervals"] = {
            name: [round(bound, 6) for bound in bootstrap.interval(means[:, column])]
            for column, name in enumerate(MEASURES)
        }
    return summary


def grouped(examples: Sequence[FusionExample], scores: Sequence[ViewScore], seed: int) -> dict[str, Any]:
    """Summary of all examples, and of each relation and each tag."""
    by_relation: dict[str, list[ViewScore]] = {}
    by_tag: dict[str, list[ViewScore]] = {}
    for example, score in zip(examples, scores, strict=True):
        by_relation.setdefault(str(example.relation), []).append(score)
        for tag in example.tags:
            by_tag.setdefault(tag, []).append(score)
    report = summarise(scores, seed)
    report["by_relation"] = {name: summarise(by_relation[name], seed) for name in sorted(by_relation)}
    order = sorted(by_tag, key=lambda tag: (-len(by_tag[tag]), tag))
    report["by_tag"] = {tag: summarise(by_tag[tag]) for tag in order}
    return report


def failures(
    examples: Sequence[FusionExample], views: Sequence[str], scores: Sequence[ViewScore]
) -> list[dict[str, Any]]:
    """The first views that lost something or said something forbidden, by id with the strings in question."""
    found = []
    for example, view, score in zip(examples, views, scores, strict=True):
        if score.lost or score.violated:
            found.append(
                {
                    "id": example.id,
                    "relation": str(example.relation),
                    "lost": list(score.lost),
                    "violated": list(score.violated),
                    "view": view,
                }
            )
    return found[:WORST]


_HEADER: Final = "| fuser | relation | examples | exact | chrF | keeps all | violates | length |"
_RULE: Final = "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"


def markdown(report: Mapping[str, Any], seconds: Mapping[str, float]) -> str:
    """The report as a page."""
    lines = [
        "# Fusion report",
        "",
        f"{report['examples']} examples of `{report['data']}`. Exact: the view is the target letter for letter.",
        "Keeps all: every string that must be kept is there. Violates: some forbidden string is there. Length:",
        "characters of the view over those of all inputs. Raw is the fuser alone; guarded is the fuser with its check",
        "and fallback.",
        "",
        _HEADER,
        _RULE,
    ]
    for name, variant, part in _variants(report):
        lines.append(_row(f"{name} ({variant})", "all", part))
        lines.extend(_row("", relation, values) for relation, values in part["by_relation"].items())
    lines += ["", "## Seconds a view", ""]
    lines += [f"- {name}: {value:.6f}" for name, value in seconds.items()]
    lines += ["", "## Fallbacks", ""]
    for name, fuser in report["fusers"].items():
        rate = fuser["fallback_rate"]
        lines.append(f"- {name}: {'no guard' if rate is None else f'{100 * rate:.1f} % of all views'}")
        lines += [
            f"    - {GuardReason[reason].value}: {100 * share:.1f} %"
            for reason, share in sorted(fuser["fallback_reasons"].items(), key=lambda item: -item[1])
        ]
    lines += ["", "![Measures by relation](fusion.png)", ""]
    for name, variant, part in _variants(report):
        lines += [f"## By tag: {name} ({variant}), tags of 5 examples or more", "", _HEADER, _RULE]
        lines += [_row("", tag, values) for tag, values in part["by_tag"].items() if values["examples"] >= 5]
        lines.append("")
    return "\n".join(lines)


def _variants(report: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    return [
        (name, variant, fuser[variant])
        for name, fuser in report["fusers"].items()
        for variant in ("raw", "guarded")
        if fuser[variant] is not None
    ]


def _row(name: str, group: str, values: Mapping[str, Any]) -> str:
    shares = " | ".join(f"{100 * values[key]:.1f} %" for key in ("exact", "chrf", "keep_rate", "violation_rate"))
    return f"| {name} | {group} | {values['examples']} | {shares} | {values['length_ratio']:.2f} |"


def picture(report: Mapping[str, Any], path: Path) -> None:
    """Keep rate, violation rate and exact match by relation, a panel each, a bar a fuser."""
    from matplotlib.figure import Figure

    variants = _variants(report)
    relations = ["all", *next(iter(variants))[2]["by_relation"]]
    place = np.arange(len(relations))
    width = 0.8 / len(variants)
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = (("keep_rate", "keeps all"), ("violation_rate", "violates"), ("exact", "exact"))
    for axes, (measure, title) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for index, (name, variant, part) in enumerate(variants):
            values = [part[measure], *(part["by_relation"][relation][measure] for relation in relations[1:])]
            offset = place + (index - (len(variants) - 1) / 2) * width
            axes.bar(offset, np.array(values) * 100, width, label=f"{name} ({variant})")
        axes.set(xticks=place, ylim=(0, 100), title=title, ylabel="%")
        axes.set_xticklabels(relations)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=130, metadata={"Software": None})
