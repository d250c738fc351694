"""What runs the relation model: ONNX Runtime on a processor, torch in bf16 on a GPU, or what the caller asks for."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from roam.adapters import AdapterCard, parse_card, read_card
from roam.bases import cache_dir, resolve_base
from roam.errors import AdapterError, ExportError, InputError
from roam.onnx_cache import cached_folder, load_cached
from roam.onnx_model import MANIFEST, PRECISIONS, OnnxRelationModel, onnx_digest, read_manifest
from roam.relation_model import PairClassifier, TorchRelationModel

log = logging.getLogger(__name__)

AUTO, TORCH, BF16 = "auto", "torch", "torch-bf16"
BACKENDS = (AUTO, TORCH, BF16, *PRECISIONS)
ON_PROCESSOR = "onnx"
"""What "auto" runs on a processor: int8 once the shipped adapter's parity report keeps the limits of the export."""
VARIABLE = "ROAM_BACKEND"


@dataclass(frozen=True)
class Plan:
    """What will run an adapter, and why; made without loading anything."""

    card: AdapterCard
    backend: str
    reason: str
    expected: bool = True
    """False when `auto` can't have its first choice."""

    @property
    def digest(self) -> str:
        """Digest of the model that this plan loads."""
        if self.backend == BF16:
            return f"{self.card.digest}-bf16"
        return self.card.digest if self.backend == TORCH else onnx_digest(self.card, self.backend)


def requested_backend(name: str | None) -> str:
    """`name`, else $ROAM_BACKEND, else "auto"; raises `InputError` for one that does not exist."""
    wanted = name or os.environ.get(VARIABLE) or AUTO
    if wanted not in BACKENDS:
        raise InputError(
            f"backend {wanted!r} does not exist; backends (--backend or {VARIABLE}): {', '.join(BACKENDS)}"
        )
    return wanted


def plan_backend(folder: Path, name: str | None = None) -> Plan:
    """Choose what runs the adapter, or the exported model, in `folder`."""
    wanted = requested_backend(name)
    if (folder / MANIFEST).is_file():
        card, kept = parse_card(folder), read_manifest(folder).precision
        if wanted not in (AUTO, kept):
            raise InputError(f"{folder} holds an exported {kept} model: it can't run as {wanted!r}; give the adapter")
        return Plan(card, kept, "the folder holds an exported model")
    card = read_card(folder)
    if card.kind != "relation":
        raise AdapterError(f"{folder} is a {card.kind!r} adapter; a relation adapter is needed here")
    if wanted != AUTO:
        return Plan(card, wanted, "asked for")
    if gpu_available():
        return Plan(card, BF16, "there is a GPU")
    hindrance = onnx_hindrance(card)
    if hindrance:
        return Plan(card, TORCH, hindrance, expected=False)
    return Plan(card, ON_PROCESSOR, "the default on a processor")


def load_relation_model(folder: Path, *, base: str | Path | None = None, backend: str | None = None) -> PairClassifier:
    """Load the relation model in `folder` on the backend chosen by name, by $ROAM_BACKEND or, for "auto", by what is
    here. When "auto" has to run torch without a GPU, the reason is logged as a warning.

    Raises `InputError`, `AdapterError`, `BaseModelError` or, for an ONNX backend that was asked for, `ExportError`.
    """
    plan = plan_backend(folder, backend)
    if base is not None and plan.backend not in (TORCH, BF16):
        resolve_base(base, expected_hash=plan.card.base_hash)  # a kept graph would not look at it
    if (folder / MANIFEST).is_file():
        return OnnxRelationModel.load(folder)
    if plan.backend in PRECISIONS:
        try:
            return load_cached(folder, plan.backend, base=base)
        except ExportError as error:
            if requested_backend(backend) != AUTO:
                raise
            plan = Plan(plan.card, TORCH, str(error), expected=False)
    bf16 = plan.backend == BF16
    if bf16 and requested_backend(backend) == AUTO and not fast_bf16():
        bf16, plan = False, Plan(plan.card, TORCH, "the GPU has no arithmetic in bf16", expected=False)
    log.log(logging.INFO if plan.expected else logging.WARNING, "relation model on torch: %s", plan.reason)
    return TorchRelationModel.load(folder, base=base, bf16=bf16)


def fast_bf16() -> bool:
    """Whether the GPU multiplies in bf16 itself (NVIDIA's from Ampere on); asked once torch is to be loaded anyway."""
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False))


def onnx_hindrance(card: AdapterCard) -> str:
    """Why the default graph of an adapter can be neither read from the cache nor built; empty when it can."""
    if importlib.util.find_spec("onnxruntime") is None:
        return "onnxruntime is not installed: pip install 'roam-distilled[models]'"
    if card.quantisation:
        return f"the adapter runs on a {card.quantisation} base, which ONNX has no graph for"
    if cached_folder(card, ON_PROCESSOR).is_dir():
        return ""
    if importlib.util.find_spec("onnx") is None:
        return "the ONNX model is not built yet and onnx is not installed: pip install 'roam-distilled[models]'"
    present = next(folder for folder in (cache_dir(), *cache_dir().absolute().parents) if folder.exists())
    if not os.access(present, os.W_OK):
        return f"the ONNX model is not built yet and {present} can't be written: set ROAM_CACHE to a folder that can"
    return ""


def gpu_available() -> bool:
    """Whether torch would find a CUDA device; asked of the driver unless torch is loaded, which takes seconds."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return bool(torch.cuda.is_available())
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"}:
        return False
    try:
        if importlib.metadata.version("torch").endswith("+cpu"):
            return False
        driver = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except (importlib.metadata.PackageNotFoundError, OSError):
        return False
    count = ctypes.c_uint(0)
    # NVML rather than CUDA: it leaves nothing behind that would break a later fork.
    if driver.nvmlInit_v2() or driver.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return False
    driver.nvmlShutdown()
    return count.value > 0
