"""The data card of distilled pairs: where they come from, who labelled them, and what was left out on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roam.writing import write_at_once


def write_card_files(folder: Path, card: Mapping[str, Any]) -> None:
    """Write card.json and the same for people, README.md."""
    write_at_once(folder / "card.json", json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    write_at_once(folder / "README.md", "\n".join(lines(card)) + "\n")


def lines(card: Mapping[str, Any]) -> list[str]:
    """The card in Markdown."""
    source, labels = card["candidates"], card["labels"]
    steps = [
        ("candidates given", source["given"]),
        ("repeat an earlier one", -source["repeated"]),
        ("OLD and NEW are the same text", -source["identical"]),
        (f"no agreement at {card['least']:g}, or a teacher without an answer: review.jsonl", -card["to_review"]),
        ("label contradicted: suspected.jsonl", -card["suspected"]),
        ("train.jsonl", card["train"]["pairs"]),
        ("dev.jsonl", card["dev"]["pairs"]),
    ]
    return [
        "# Distilled relation pairs", "",
        "Labelled by the models below, not by people, and checked by no person. The terms of the teachers and of the "
        "candidates' source decide what these pairs may be used for.", "",
        f"- Candidates: `{source['file']}` {source['sha256'][:16]}",
        *(f"- Teacher `{name}`: weight {what['weight']:g}, {what['answered']} answers" for name, what in
          card["teachers"].items()),
        *(f"- `{row['teachers'][0]}` and `{row['teachers'][1]}` agree on {shown(row['share'])} of {row['pairs']} "
          f"pairs, kappa {shown(row['kappa'])}" for row in card["agreement"]),
        f"- Contradicted by: {card['student']} in {card['folds']} folds, by group; seed {card['seed']}", "",
        "| step | pairs |", "| --- | ---: |", *(f"| {name} | {count} |" for name, count in steps), "",
        "| | " + " | ".join(labels) + " |", "| --- |" + " ---: |" * len(labels),
        *(f"| {part} | " + " | ".join(str(card[part]["per_class"][name]) for name in labels) + " |"
          for part in ("train", "dev")), "",
        "Confident joint (rows: label, columns: class that a student without the pair is confident of)", "",
        "| | " + " | ".join(labels) + " |", "| --- |" + " ---: |" * len(labels),
        *(f"| {name} | " + " | ".join(map(str, row)) + " |"
          for name, row in zip(labels, card["confident_joint"], strict=True)),
    ]  # fmt: skip


def shown(value: float | None) -> str:
    """Two digits, or a dash where there is nothing to measure."""
    return "-" if value is None else f"{value:.2f}"
