"""Parity of both ONNX precisions with the adapter in torch, on the test pairs: a report, nothing is chosen by it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from roam.adapters import read_card
from roam.onnx_cache import cached_folder, load_cached
from roam.onnx_model import MODEL, PRECISIONS
from roam.relation_model import TorchRelationModel
from scripts.speed.plan import Plan
from training.export_onnx import AGREEMENT_LIMITS, F1_LOSS_LIMIT, measure, read_inputs


def run(plan: Plan) -> dict[str, Any]:
    """Agreement, macro-F1 and largest gaps of each precision, with swaps as the store makes them."""
    card = read_card(plan.adapter)
    inputs = read_inputs(card, plan.parity)
    plain = Remembered(TorchRelationModel.load(plan.adapter, device="cpu"))
    found: dict[str, Any] = {"pairs": len(inputs.pairs), "file": plan.parity.name}
    for precision in PRECISIONS:
        exported = load_cached(plan.adapter, precision)
        size = (cached_folder(card, precision) / MODEL).stat().st_size / 1e6
        parity = measure(plain, exported, inputs, size)  # type: ignore[arg-type]
        limits = {"agreement": AGREEMENT_LIMITS[precision], "f1_loss": F1_LOSS_LIMIT}
        found[precision] = {**asdict(parity), "f1_loss": parity.f1_loss, "limits": limits}
    return found


class Remembered:
    """A classifier that judges each list of pairs once: torch is the slow one here, and is asked twice."""

    def __init__(self, model: TorchRelationModel) -> None:
        self._model = model
        self._known: dict[tuple[object, ...], Any] = {}

    def predict_proba(self, pairs: Any) -> Any:
        """Probabilities, shape (len(pairs), 5)."""
        key = tuple(pairs)
        if key not in self._known:
            self._known[key] = self._model.predict_proba(pairs)
        return self._known[key]
