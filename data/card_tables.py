"""Markdown tables of the data card, from the content of card.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from data.findings import MEANINGS
from roam.relations import RELATIONS

Card = Mapping[str, Any]
LABELS = [relation.value for relation in RELATIONS]
SHOWN_DOMAINS = 15


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; columns after the first are aligned right."""
    lines = [list(header), ["---"] + ["---:"] * (len(header) - 1), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def files(card: Card) -> str:
    return table(
        ("file", "rows", "bytes", "SHA-256"),
        ((f"`{name}`", f"{f['rows']:,}", f"{f['bytes']:,}", f"`{f['sha256']}`") for name, f in card["files"].items()),
    )


def labels(card: Card) -> str:
    test, implied = card["pairs"]["labels"], card["families"]["implied_pairs"]
    fusion = [card["fusion"][name]["relations"] for name in card["fusion"]]
    rows: list[list[object]] = [
        [name, test[name], f"{implied[name]:,}", *(found.get(name, 0) for found in fusion)] for name in LABELS
    ]
    totals = [sum(test.values()), f"{sum(implied.values()):,}", *(sum(found.values()) for found in fusion)]
    rows.append(["**all**", *totals])
    return table(("relation", "843 test pairs", "ordered pairs the families imply", *card["fusion"]), rows)


def domains(card: Card) -> str:
    names = list(card["pairs"]["topics"] | card["families"]["topics"])
    topic_rows = [
        (name, card["pairs"]["topics"].get(name, 0), card["families"]["topics"].get(name, 0)) for name in names
    ]
    by_label = card["pairs"]["domains_by_label"]
    domain_rows = [
        (name, count, *(by_label[label].get(name, 0) for label in LABELS))
        for name, count in list(card["pairs"]["domains"].items())[:SHOWN_DOMAINS]
    ]
    rest = len(card["pairs"]["domains"]) - len(domain_rows)
    return "\n\n".join(
        [
            "By topic (data/topics.py; one row can touch several topics, *any*: domains that can hold anything):",
            table(("topic", "843 test pairs", "families"), topic_rows),
            f"The {len(domain_rows)} most frequent domains of the 843 ({rest} more in card.json; "
            f"the families have {len(card['families']['domains'])} domain names):",
            table(("domain", "all", *LABELS), domain_rows),
        ]
    )


def registers(card: Card) -> str:
    test, slots = card["pairs"]["registers"], card["families"]["registers"]
    names = list(next(iter(test.values())))
    rows = [(f"843, {label}", *_shares(test[label], names)) for label in LABELS]
    rows += [(f"families, {slot}", *_shares(slots[slot], names)) for slot in slots]
    same, total = card["pairs"]["same_register"], sum(card["pairs"]["labels"].values())
    return table(("facts", *names), rows) + f"\n\nOLD and NEW share the register in {same} of the {total} test pairs."


def words(card: Card) -> str:
    rows = [
        (f"843, {label}, {side.upper()}", *_length(card["pairs"]["words"][label][side]))
        for label in LABELS
        for side in ("old", "new")
    ]
    rows += [(f"families, {slot}", *_length(s["words"])) for slot, s in card["families"]["slots"].items()]
    for name, figures in card["fusion"].items():
        rows += [(f"{name}, {part}s", *_length(figures[f"{part}_words"])) for part in ("input", "target")]
    return table(("words", "mean", "median", "5 %", "95 %", "longest"), rows)


def baselines(card: Card) -> str:
    found = card["baselines"]
    crossed = found["cross_validated"]
    parts = [
        f"Cross-validated on the 843 in {crossed['folds']} folds that cut no persona (seed {found['seed']}):",
        _score_table(crossed["scores"]),
    ]
    derived = found["from_families"]
    if derived:
        pairs, digest = derived["train"]["pairs"], derived["train"]["sha256"]
        parts += [
            f"Fitted on the {pairs:,} pairs of `python -m data.build` (train.jsonl `{digest[:16]}`), "
            "tested on the 843; these are the ones to compare a trained adapter with:",
            _score_table(derived["scores"]),
        ]
    return "\n\n".join(parts)


def findings(card: Card) -> str:
    found = card["findings"]
    if not found:
        return "None."
    rows = [
        (f"{kind}: {MEANINGS[kind]}", where, count) for kind, files in found.items() for where, count in files.items()
    ]
    return table(("finding", "files", "count"), rows)


def _score_table(scores: Mapping[str, Any]) -> str:
    rows = [
        (name, f"**{100 * s['macro_f1']:.1f}**", *(f"{100 * s['per_class'][label]['f1']:.1f}" for label in LABELS))
        for name, s in scores.items()
    ]
    return table(("F1, %", "macro", *LABELS), rows)


def _shares(counts: Mapping[str, int], names: Sequence[str]) -> list[str]:
    total = sum(counts.values())
    return [f"{counts[name]:,} ({100 * counts[name] / total:.0f} %)" if total else "0" for name in names]


def _length(figures: Mapping[str, float]) -> list[str]:
    return [f"{figures[name]:g}" if figures else "" for name in ("mean", "median", "p5", "p95", "max")]


SECTIONS: Mapping[str, Callable[[Card], str]] = {
    "files": files,
    "labels": labels,
    "domains": domains,
    "registers": registers,
    "words": words,
    "baselines": baselines,
    "findings": findings,
}
"""Generated sections of data/README.md by the name in their markers."""
