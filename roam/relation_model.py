"""The distilled relation model: a pair classifier with a LoRA adapter (paper equation 4), and its torch form."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roam.adapters import PROBE_TOLERANCE, AdapterCard, read_card
from roam.bases import resolve_base
from roam.errors import AdapterError
from roam.pair_encoding import Features, PairEncoder, close_pairs
from roam.quantisation import placement
from roam.records import Pair
from roam.relations import INDEX, RELATIONS, SWAPPED, Relation

SWAPPED_COLUMNS = [INDEX[SWAPPED[relation]] for relation in RELATIONS]
BATCH_TOKENS = 4096
BF16_GAP = 0.1
"""Largest change of a probe's probabilities that arithmetic in bf16 may make."""


class CalibratedClassifier(ABC):
    """Five-way relation classifier over (OLD, NEW): what becomes of its logits, wherever they come from.

    Safe to share between threads for reading.
    """

    probe_tolerance = PROBE_TOLERANCE

    def __init__(self, card: AdapterCard, digest: str) -> None:
        self.card = card
        self.digest = digest
        self.thresholds: Mapping[Relation, float] = card.relation_thresholds()
        self._columns = [card.labels.index(relation.value) for relation in RELATIONS]

    @abstractmethod
    def _forward(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Logits in the order given, shape (len(pairs), 5), columns in `RELATIONS` order."""

    def verify_probes(self, where: str) -> None:
        """Raise `AdapterError` unless the stored probe pairs get the stored probabilities."""
        probes = self.card.probes
        if not probes:
            raise AdapterError(f"{where}: roam.json holds no probes, so the adapter can't be verified; retrain it")
        expected = np.array([[probe.probabilities[name] for name in RELATIONS] for probe in probes], dtype=np.float32)
        found = self.predict_proba([Pair(probe.old, probe.new) for probe in probes])
        gap = float(np.abs(found - expected).max())
        if not gap <= self.probe_tolerance:
            raise AdapterError(
                f"{where}: probe pairs get other probabilities than when it was saved (largest gap {gap:.3f}, allowed "
                f"{self.probe_tolerance}): the base, the head or the label order is not the one it was trained with"
            )

    def predict_logits(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Logits, shape (len(pairs), 5), columns in `RELATIONS` order.

        Doubtful pairs (the two most probable relations closer than the card's `swap_margin`) are judged in the swapped
        order as well; that answer is mapped back (OSN and NSO change places) and averaged in.
        """
        logits = self._forward(pairs)
        ranked = np.sort(softmax(logits), axis=1)
        doubtful = np.flatnonzero(ranked[:, -1] - ranked[:, -2] < self.card.swap_margin).tolist()
        if doubtful:
            swapped = self._forward([Pair(pairs[index].new, pairs[index].old) for index in doubtful])
            logits[doubtful] = (logits[doubtful] + swapped[:, SWAPPED_COLUMNS]) / 2
        return logits

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Calibrated probabilities, shape (len(pairs), 5), columns in `RELATIONS` order."""
        return calibrated(self.predict_logits(pairs), self.card)


class PairClassifier(CalibratedClassifier):
    """A classifier that runs in this process: all but the pass through the network."""

    batch_tokens = BATCH_TOKENS

    def __init__(self, encoder: PairEncoder, card: AdapterCard, digest: str) -> None:
        super().__init__(card, digest)
        self.encoder = encoder

    @abstractmethod
    def network(self, features: Features) -> NDArray[np.float32]:
        """Logits of one padded batch, shape (batch, 5), columns in the order of the card's labels."""

    def _forward(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        out = np.zeros((len(pairs), len(RELATIONS)), dtype=np.float32)
        encoded = self.encoder.encode(pairs)
        for chunk in length_batches([len(encoding) for encoding in encoded], self.batch_tokens):
            out[chunk] = self.network(self.encoder.batch([encoded[index] for index in chunk]))[:, self._columns]
        return out


class TorchRelationModel(PairClassifier):
    """The classifier in torch, on the processor or a GPU."""

    def __init__(self, model: Any, tokenizer: Any, card: AdapterCard) -> None:
        super().__init__(PairEncoder.of(tokenizer, card.max_length), card, card.digest)
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.bf16 = False

    @classmethod
    def load(
        cls, folder: str | Path, *, base: str | Path | None = None, device: str | None = None, bf16: bool = False
    ) -> TorchRelationModel:
        """Load an adapter folder and verify it: labels, base content hash, adapter weights and probe answers.

        `base` overrides where the base weights are looked for (a folder, say); their hash must still be the right one.
        With `bf16` it then multiplies in bf16, which GPUs do several times faster. Raises `AdapterError` or
        `BaseModelError`.
        """
        loaded = cls.assemble(Path(folder), read_card(Path(folder)), base=base, device=device)
        loaded.verify_probes(str(folder))
        if bf16:
            loaded.use_bf16(str(folder))
        return loaded

    def use_bf16(self, where: str) -> None:
        """Multiply in bf16 from here on; norms, softmax and the weights themselves stay fp32.

        Raises `AdapterError` if that changes the answers to the probes by more than rounding.
        """
        probes = [Pair(probe.old, probe.new) for probe in self.card.probes]
        before = self.predict_proba(probes)
        self.bf16 = True
        gap = float(np.abs(self.predict_proba(probes) - before).max())
        if not gap <= BF16_GAP:
            raise AdapterError(
                f"{where}: in bf16 probe pairs get other probabilities than in fp32 (largest gap {gap:.3f}, allowed "
                f"{BF16_GAP}): use the torch backend, which runs in fp32"
            )
        self.digest = f"{self.card.digest}-bf16"

    @classmethod
    def assemble(
        cls, folder: Path, card: AdapterCard, *, base: str | Path | None = None, device: str | None = None
    ) -> TorchRelationModel:
        """The model of an adapter folder under `card`, its answers not yet verified: for what writes a card."""
        import torch
        from peft import PeftModel
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        if card.kind != "relation":
            raise AdapterError(f"{folder} is a {card.kind!r} adapter; a relation adapter is needed here")
        resolved = resolve_base(base or card.base, expected_hash=card.base_hash)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
        close_pairs(tokenizer)
        with quiet_loading():
            backbone = AutoModelForSequenceClassification.from_pretrained(
                resolved.path, num_labels=len(card.labels), dtype=torch.float32, use_safetensors=True,
                ignore_mismatched_sizes=True,  # a base with a head of its own (NLI): the adapter brings another
                **placement(card.quantisation, device),
            )  # fmt: skip
            backbone.config.pad_token_id = tokenizer.pad_token_id  # decoders classify by the last token that is not it
            model = PeftModel.from_pretrained(backbone, str(folder))
            if not card.quantisation:  # merged into 4-bit codes, it would answer otherwise than it was trained to
                model = model.merge_and_unload().to(device)
        return cls(model, tokenizer, card)

    def network(self, features: Features) -> NDArray[np.float32]:
        """Logits of one padded batch, shape (batch, 5), columns in the order of the card's labels."""
        import torch

        device = next(self.model.parameters()).device
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
            logits = self.model(**{name: torch.from_numpy(ids).to(device) for name, ids in features.items()}).logits
            return np.asarray(logits.float().cpu().numpy())


def calibrated(logits: NDArray[np.float32], card: AdapterCard) -> NDArray[np.float32]:
    """Probabilities of logits, shape (n, 5), by the card's temperature and class biases."""
    bias = np.array([card.bias.get(relation.value, 0.0) for relation in RELATIONS], dtype=np.float32)
    return softmax(logits / np.float32(card.temperature) + bias)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Row-wise softmax."""
    exponent = np.exp(logits - logits.max(axis=1, keepdims=True)) if len(logits) else logits
    total = exponent.sum(axis=1, keepdims=True)
    return np.asarray(exponent / total, dtype=np.float32) if len(logits) else logits


def length_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices grouped into batches of similar length with at most `budget` padded tokens (always at least one item)."""
    order = sorted(range(len(lengths)), key=lambda index: (lengths[index], index))
    batches: list[list[int]] = []
    current: list[int] = []
    for index in order:
        if current and (len(current) + 1) * lengths[index] > budget:
            batches.append(current)
            current = []
        current.append(index)
    if current:
        batches.append(current)
    return batches


class quiet_loading:  # noqa: N801 - reads as a statement: `with quiet_loading():`
    """Hides transformers' report of head weights that are missing from a base (the adapter brings them), and the
    notices of deprecation that peft and transformers give each other."""

    def __enter__(self) -> None:
        from transformers.utils import logging as hf_logging

        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore", FutureWarning)
        self._level = hf_logging.get_verbosity()
        self._bar = hf_logging.is_progress_bar_enabled()
        hf_logging.set_verbosity_error()
        hf_logging.disable_progress_bar()

    def __exit__(self, *exc: object) -> None:
        from transformers.utils import logging as hf_logging

        self._warnings.__exit__(None, None, None)
        hf_logging.set_verbosity(self._level)
        if self._bar:
            hf_logging.enable_progress_bar()
