"""ONNX models of adapters, kept on the user's machine: the wheel holds the adapter alone (10 MB, not 440).

Built once, by `roam pull` or at the first pair; the folder's name holds the adapter's digest and the export's version.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from roam.adapters import AdapterCard, read_card
from roam.bases import cache_dir
from roam.errors import ExportError
from roam.onnx_model import OnnxRelationModel, onnx_digest
from roam.relation_model import TorchRelationModel

log = logging.getLogger(__name__)


def load_cached(adapter: Path, precision: str, *, base: str | Path | None = None) -> OnnxRelationModel:
    """The adapter's graph from the cache, built first where it is missing, damaged or foreign.

    Raises `ExportError` (it can't be built or kept), `AdapterError` or `BaseModelError`.
    """
    card = read_card(adapter)
    target = cached_folder(card, precision)
    if target.exists():
        try:
            return OnnxRelationModel.load(target, card=card)
        except ExportError as error:
            log.warning("%s; building it anew", error)
    from roam.onnx_build import build

    log.info("building the %s model of %s: about a minute, once", precision, adapter)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            new = Path(scratch) / "new"
            new.mkdir()
            build(adapter, TorchRelationModel.load(adapter, base=base, device="cpu"), new, precision)
            replace_folder(new, target, Path(scratch) / "old")
    except OSError as error:
        raise ExportError(
            f"the ONNX model can't be kept in {target.parent} ({error.strerror or error}): set ROAM_CACHE to a folder "
            "with room that can be written, or use the torch backend"
        ) from None
    return OnnxRelationModel.load(target, card=card)


def cached_folder(card: AdapterCard, precision: str) -> Path:
    """Where the cache keeps an adapter's graph."""
    return cache_dir() / "onnx" / onnx_digest(card, precision)


def replace_folder(new: Path, target: Path, old: Path) -> None:
    """Put `new` in the place of `target` (which goes to `old`) by renaming; another process's folder is as good."""
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
    except OSError:
        if not target.exists():
            raise
