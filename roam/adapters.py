"""The adapter folder: LoRA weights, tokenizer and `roam.json`, which says all that loading must verify.

PEFT's own files name neither the labels nor the weights they were trained on: a permuted label map, or another base of
the same shape, would load without a word. `roam.json` holds the labels in order, the base's content hash and a few
probe pairs with the probabilities they must get; a folder that does not keep its word is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from roam.errors import AdapterError
from roam.relations import RELATIONS, Relation
from roam.writing import write_at_once

CARD = "roam.json"
WEIGHTS = "adapter_model.safetensors"  # as PEFT names it
FORMAT = 1
PAIR_TEMPLATE = "old-new/1"
"""Version of how a pair is laid out: the tokenizer's own two-segment form, OLD first."""
PROBE_TOLERANCE = 0.02  # calibrated probability; covers fp32 on other machines, not other weights


@dataclass(frozen=True)
class Probe:
    """A pair and the probabilities the adapter gave it when it was saved, by relation name.

    By name, because in the order of the card's labels a permuted list would agree with itself.
    """

    old: str
    new: str
    probabilities: Mapping[str, float]


@dataclass(frozen=True)
class AdapterCard:
    """Contents of `roam.json`."""

    kind: str
    labels: tuple[str, ...]
    base: str
    base_hash: str
    template: str = PAIR_TEMPLATE
    max_length: int = 128
    swap_margin: float = 0.0
    """Pairs whose two most probable relations lie closer than this are judged in both orders and averaged."""
    temperature: float = 1.0
    bias: Mapping[str, float] = field(default_factory=dict)
    """Added to a relation's logit after the temperature: undoes the class shares of the training mix."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    probes: tuple[Probe, ...] = ()
    data_hash: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    weights_hash: str = ""
    quantisation: str = ""
    """How the base's weights are stored while the adapter runs ("nf4"); empty: as they are. Part of what it answers."""
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """Identifies what the adapter answers: weights, base, labels, calibration and thresholds."""
        parts: dict[str, Any] = {
            "base": self.base_hash, "weights": self.weights_hash, "labels": list(self.labels),
            "template": self.template, "temperature": self.temperature,
            "thresholds": dict(sorted(self.thresholds.items())), "max_length": self.max_length,
            "swap_margin": self.swap_margin, "bias": dict(sorted(self.bias.items())),
        }  # fmt: skip
        if self.quantisation:
            parts["quantisation"] = self.quantisation
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def relation_thresholds(self) -> dict[Relation, float]:
        """Thresholds by relation; a relation that the card leaves out counts at any probability."""
        return {relation: float(self.thresholds.get(relation.value, 0.0)) for relation in RELATIONS[1:]}


def weights_hash(folder: Path) -> str:
    """SHA-256 of the adapter's safetensors file."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise AdapterError(f"{folder} has no {WEIGHTS}; give the folder that training saved")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_card(folder: Path, card: AdapterCard) -> None:
    """Write `roam.json` at once: an adapter whose card is cut off can't be loaded."""
    values = asdict(card)
    if not card.quantisation:
        del values["quantisation"]  # versions before this key refuse cards that have it
    write_at_once(folder / CARD, json.dumps(values, indent=2, sort_keys=True) + "\n")


def read_card(folder: Path) -> AdapterCard:
    """Read `roam.json` and check it and the weights beside it; raises `AdapterError` with what to do."""
    card = parse_card(folder)
    if weights_hash(folder) != card.weights_hash:
        raise AdapterError(f"{folder}: adapter weights differ from the ones {CARD} was written for; restore the folder")
    return card


def parse_card(folder: Path) -> AdapterCard:
    """Read and check `roam.json` alone: an exported model keeps it without the adapter's weights."""
    path = folder / CARD
    if not path.is_file():
        raise AdapterError(f"{folder} has no {CARD}; give an adapter folder that `python -m training.relation` saved")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AdapterError(f"{path} is not JSON ({error}); restore it from the run that made it") from None
    unknown = set(raw) - set(AdapterCard.__dataclass_fields__)
    if raw.get("format") != FORMAT or unknown:
        raise AdapterError(
            f"{path} has format {raw.get('format')!r} and unknown keys {sorted(unknown)}; this version reads format "
            f"{FORMAT}: upgrade roam-distilled or retrain"
        )
    missing = {"kind", "labels", "base", "base_hash", "weights_hash"} - set(raw)
    if missing:
        raise AdapterError(f"{path} lacks {sorted(missing)}; retrain or restore the file")
    raw["labels"] = tuple(raw["labels"])
    raw["probes"] = tuple(Probe(p["old"], p["new"], p["probabilities"]) for p in raw.get("probes", ()))
    card = AdapterCard(**raw)
    if card.kind == "relation":
        check_labels(card.labels, where=str(path))
    return card


def check_labels(labels: Sequence[str], *, where: str) -> None:
    """The five relations, each once, in any order (columns are mapped by name)."""
    if sorted(labels) != sorted(relation.value for relation in RELATIONS):
        raise AdapterError(f"{where}: labels {list(labels)} are not the five relations {[r.value for r in RELATIONS]}")
