"""Markdown of the controlled benchmark beside the paper's retrieval diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval.relation_report import percent, table

PAPER_TABLE_5 = {
    "Append": {"any_source": 0.366, "all_source": 0.217, "gold_recall": 0.291, "confounder_share": 0.840},
    "Mem0": {"any_source": 0.813, "all_source": 0.574, "gold_recall": 0.690, "confounder_share": 0.586},
    "EverMemOS-style": {"any_source": 0.355, "all_source": 0.185, "gold_recall": 0.269, "confounder_share": 0.683},
    "ROAM": {"any_source": 0.951, "all_source": 0.738, "gold_recall": 0.846, "confounder_share": 0.471},
}
"""Paper, Table 5: Qwen3.5-9B as manager, N = 8, 256 tokens, 470 LongMemEval episodes with the paper's confounders."""

COLUMNS = (
    ("any_source", "any source"),
    ("all_source", "all sources"),
    ("gold_recall", "gold recall"),
    ("stated_gold", "gold stated"),
    ("confounder_share", "confounder tokens"),
    ("background_primary", "background Primary"),
    ("gold_demoted", "gold demoted"),
)


def controlled_markdown(report: Mapping[str, Any]) -> str:
    """One page of Markdown; shares in percent, units as a mean count."""
    header = ["manager", "episodes", *(title for _, title in COLUMNS), "units"]
    rows = []
    for name, entry in report["managers"].items():
        for kind, part in (("all", entry), *((f"Type {k}", v) for k, v in entry["by_type"].items())):
            figures = [percent(part[key]) for key, _ in COLUMNS]
            rows.append([f"{name}, {kind}", str(part["episodes"]), *figures, f"{part['units']:.1f}"])
    paper = [
        [name, *(percent(row[key]) for key in ("any_source", "all_source", "gold_recall", "confounder_share"))]
        for name, row in PAPER_TABLE_5.items()
    ]
    lines = [
        f"# {report['benchmark'].capitalize()}: {report['data']}",
        "",
        f"{report['episodes']} episodes, {report['budget']} tokens of context counted by the embedder's tokenizer, "
        f"{report['k']} candidates an observation. Percent; units are views in the context.",
        "",
        *table(header, rows),
        "",
        *_merges(report),
        "",
        "The paper's Table 5 (Qwen3.5-9B, its own 470 episodes and tokenizer):",
        "",
        *table(["manager", "any source", "all sources", "gold recall", "confounder tokens"], paper),
    ]
    return "\n".join(lines) + "\n"


def _merges(report: Mapping[str, Any]) -> list[str]:
    """Which relation took background memories out of the Primary set, by manager."""
    lines = []
    for name, entry in report["managers"].items():
        kept, total = entry["counts"]["background_primary"]
        causes = ", ".join(f"{relation} {count}" for relation, count in entry["background_merged_by"].items())
        lines.append(f"- {name}: {total - kept} of {total} background memories became Evidence ({causes or 'none'}).")
    return lines
