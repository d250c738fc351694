"""ONNX export with a parity report: `python -m training.export ADAPTER --format onnx-int8 --pairs FILE --out DIR`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.pairs import LabelledPair, read_pairs
from eval.metrics import columns, decide, macro_f1
from eval.provenance import write_json
from roam.adapters import AdapterCard, read_card
from roam.errors import AdapterError, DataError, ExportError, InputError
from roam.onnx_build import build
from roam.onnx_model import MODEL, PRECISIONS
from roam.records import Pair
from roam.relation_model import PairClassifier, TorchRelationModel

AGREEMENT_LIMITS = {"onnx": 0.995, "onnx-int8": 0.985}
F1_LOSS_LIMIT = 0.005
STEP = 128
"""Pairs between two movements of the progress bar."""
ALONE = 20
"""Pairs that are also judged one by one, to see whether a pair's answer depends on its batch."""


@dataclass(frozen=True)
class OnnxParity:
    """How an ONNX model answers compared with the adapter in torch, on the same pairs. Shares are in 0..1."""

    pairs: int
    agreement: float
    """Share of pairs with the same predicted relation."""
    macro_f1_adapter: float | None
    """None without --pairs: probes have no gold relation."""
    macro_f1_exported: float | None
    largest_gap: float
    """Between probabilities."""
    batch_gap: float
    """Largest change of a pair's probabilities when it is judged alone instead of in a batch."""
    megabytes: float

    @property
    def f1_loss(self) -> float:
        """Macro-F1 of the adapter minus that of the export; 0 where there are no gold relations."""
        return (self.macro_f1_adapter or 0.0) - (self.macro_f1_exported or 0.0)

    def __str__(self) -> str:
        scores = ""
        if self.macro_f1_adapter is not None and self.macro_f1_exported is not None:
            scores = f"macro-F1 {100 * self.macro_f1_adapter:.2f} -> {100 * self.macro_f1_exported:.2f}, "
        return (
            f"parity on {self.pairs} pairs: {100 * self.agreement:.2f} % agree, {scores}largest gap "
            f"{self.largest_gap:.4f}, alone against in a batch {self.batch_gap:.4f}, {self.megabytes:.0f} MB"
        )


def export_onnx(
    adapter: Path, out: Path, precision: str, *, pairs: Path | None = None, base: str | None = None,
    least_agreement: float | None = None, most_f1_loss: float = F1_LOSS_LIMIT,
) -> OnnxParity:  # fmt: skip
    """Export the relation adapter to the new folder `out` as "onnx" (fp32) or "onnx-int8" and return the parity.

    `least_agreement` defaults to `AGREEMENT_LIMITS`. Below the limits `ExportError` is raised and nothing is left in
    `out`. Also raises `AdapterError`, `BaseModelError`, `DataError`.
    """
    assert precision in PRECISIONS
    card = read_card(adapter)
    if card.kind != "relation":
        raise AdapterError(f"{adapter} is a {card.kind!r} adapter: ONNX export takes relation adapters; use merged")
    require_new(out)
    inputs = read_inputs(card, pairs)
    limit = AGREEMENT_LIMITS[precision] if least_agreement is None else least_agreement
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        folder = Path(scratch) / "onnx"
        folder.mkdir()
        plain = TorchRelationModel.load(adapter, base=base, device="cpu")
        exported = build(adapter, plain, folder, precision)
        parity = measure(plain, exported, inputs, (folder / MODEL).stat().st_size / 1e6)
        if not (parity.agreement >= limit and parity.f1_loss <= most_f1_loss):
            raise ExportError(
                f"the {precision} model is too far from the adapter: {parity}; allowed: agreement from "
                f"{100 * limit:g} %, macro-F1 loss up to {100 * most_f1_loss:g}; nothing was written"
            )
        limits = {"agreement": limit, "f1_loss": most_f1_loss}
        write_json(folder / "export.json", {"format": precision, "adapter": card.digest, "model": exported.digest,
                                            "pairs": str(pairs.name) if pairs else "probes", "limits": limits,
                                            "parity": asdict(parity)})  # fmt: skip
        if out.exists():
            out.rmdir()
        shutil.move(str(folder), str(out))
    return parity


def require_new(out: Path) -> None:
    """Raise `InputError` unless `out` is free or an empty folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {str(out)!r} exists and is not an empty folder; give a new one")


@dataclass(frozen=True)
class Inputs:
    """Pairs to compare on, and the columns of their gold relations (None for probes)."""

    pairs: list[Pair]
    gold: NDArray[np.int64] | None


def read_inputs(card: AdapterCard, path: Path | None) -> Inputs:
    """The pairs of a pair file, else the adapter's probes; raises `DataError` for a file that is missing or empty."""
    if path is None:
        return Inputs([Pair(probe.old, probe.new) for probe in card.probes], None)
    if not path.is_file():
        raise DataError(f"--pairs {str(path)!r} does not exist; give a pair file")
    found: list[LabelledPair] = read_pairs(path)
    if not found:
        raise DataError(f"--pairs {str(path)!r} holds no pairs; give a file with some")
    return Inputs([Pair(pair.old, pair.new) for pair in found], columns([pair.label for pair in found]))


def measure(plain: PairClassifier, exported: PairClassifier, inputs: Inputs, megabytes: float) -> OnnxParity:
    """Parity of two classifiers on the same pairs."""
    before, after = judge(plain, inputs.pairs), judge(exported, inputs.pairs)
    said, says = decide(before), decide(after)
    alone = np.concatenate([exported.predict_proba([pair]) for pair in inputs.pairs[:ALONE]])
    return OnnxParity(
        pairs=len(inputs.pairs),
        agreement=float((said == says).mean()),
        macro_f1_adapter=None if inputs.gold is None else macro_f1(inputs.gold, said),
        macro_f1_exported=None if inputs.gold is None else macro_f1(inputs.gold, says),
        largest_gap=float(np.abs(before - after).max()),
        batch_gap=float(np.abs(alone - after[: len(alone)]).max()),
        megabytes=round(megabytes, 1),
    )


def judge(model: PairClassifier, pairs: Sequence[Pair]) -> NDArray[np.float32]:
    """Probabilities, shape (len(pairs), 5), with a progress bar."""
    from tqdm import tqdm

    parts = [pairs[start : start + STEP] for start in range(0, len(pairs), STEP)]
    bar = tqdm(parts, desc=type(model).__name__, unit=f" x {STEP} pairs", disable=None, leave=False)
    return np.concatenate([model.predict_proba(part) for part in bar])
