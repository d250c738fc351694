"""Tiny relation adapters with random weights, saved as training saves one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from roam.adapters import AdapterCard, Probe, weights_hash, write_card
from roam.records import Pair
from roam.relation_model import TorchRelationModel
from roam.relations import RELATIONS
from tests.tiny import save_base
from training.config import RelationConfig
from training.models import load_classifier

PAIRS = [Pair("Ana likes tea", "Ana hates tea"), Pair("Gus likes very strong coffee", "Gus likes coffee")]
LABELS = tuple(relation.value for relation in RELATIONS)


def randomise(model: Any) -> None:
    """LoRA starts at zero; random values stand for a trained adapter."""
    import torch

    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.3)


def save_adapter(folder: Path, architecture: str = "bert", **card_fields: Any) -> Path:
    """A base in `folder`/base and a relation adapter on it in `folder`/adapter, which is returned."""
    base_folder, adapter = save_base(folder / "base", architecture), folder / "adapter"
    model, tokenizer, base = load_classifier(RelationConfig(base=str(base_folder)))
    randomise(model)
    model.save_pretrained(str(adapter))
    tokenizer.save_pretrained(str(adapter))
    card = AdapterCard(kind="relation", labels=LABELS, base=base.name, base_hash=base.content_hash,
                       weights_hash=weights_hash(adapter), **card_fields)  # fmt: skip
    found = TorchRelationModel(model, tokenizer, card).predict_proba(PAIRS)
    probes = tuple(
        Probe(pair.old, pair.new, {name: float(p) for name, p in zip(LABELS, row, strict=True)})
        for pair, row in zip(PAIRS, found, strict=True)
    )
    write_card(adapter, replace(card, probes=probes))
    return adapter
