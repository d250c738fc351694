"""The relation model in ONNX Runtime: what a processor runs by default. Needs neither torch, transformers nor peft."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roam.adapters import AdapterCard, parse_card
from roam.errors import ExportError
from roam.pair_encoding import Features, PairEncoder
from roam.relation_model import PairClassifier

MODEL, TOKENIZER, MANIFEST = "model.onnx", "tokenizer.json", "onnx.json"
EXPORT_VERSION = 2
"""Version of how graphs are made; a change of the graph or of its quantisation gets a new number."""
PRECISIONS = ("onnx", "onnx-int8")
BATCH_TOKENS = 1024  # activations of a batch of this size stay in a processor's cache; fuller ones are no faster


@dataclass(frozen=True)
class OnnxManifest:
    """Contents of `onnx.json`: what the graph beside it was made from, and the hashes of the files."""

    precision: str
    adapter: str
    """Digest of the adapter's card."""
    inputs: tuple[str, ...]
    pad_id: int
    files: Mapping[str, str]
    """SHA-256 of the graph and of the tokenizer."""
    versions: Mapping[str, str] = field(default_factory=dict)
    version: int = EXPORT_VERSION


def onnx_digest(card: AdapterCard, precision: str) -> str:
    """Identifies the answers of an adapter's graph: they differ from torch's, and between precisions, by rounding."""
    return f"{card.digest}-{precision}-v{EXPORT_VERSION}"


def session_threads() -> int:
    """Threads of a session: OMP_NUM_THREADS, as torch reads it, else the processors this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class OnnxRelationModel(PairClassifier):
    """The classifier as an ONNX graph, fp32 or int8."""

    batch_tokens = BATCH_TOKENS

    def __init__(self, session: Any, encoder: PairEncoder, card: AdapterCard, precision: str) -> None:
        super().__init__(encoder, card, onnx_digest(card, precision))
        self.precision = precision
        self._session = session

    @classmethod
    def load(
        cls, folder: str | Path, *, card: AdapterCard | None = None, threads: int | None = None
    ) -> OnnxRelationModel:
        """Load an exported folder; `card` is the adapter it must have been made from (default: the one it keeps).

        The files' hashes are checked, not the probes again: the graph answered them when it was written.
        Raises `ExportError` for a damaged, foreign or outdated folder.
        """
        from tokenizers import Tokenizer

        folder = Path(folder)
        manifest = read_manifest(folder)
        card = card or parse_card(folder)
        if manifest.adapter != card.digest:
            raise ExportError(
                f"{folder} was exported from adapter {manifest.adapter}, not from {card.digest}: export this one"
            )
        for name in (MODEL, TOKENIZER):
            if file_hash(folder / name) != manifest.files.get(name):
                raise ExportError(f"{folder / name} is damaged: its hash is not the one in {MANIFEST}; export it again")
        encoder = PairEncoder(
            Tokenizer.from_file(str(folder / TOKENIZER)), max_length=card.max_length, pad_id=manifest.pad_id,
            inputs=manifest.inputs,
        )  # fmt: skip
        session = open_session(folder / MODEL, threads or session_threads())
        return cls(session, encoder, card, manifest.precision)

    def network(self, features: Features) -> NDArray[np.float32]:
        """Logits of one padded batch, shape (batch, 5), columns in the order of the card's labels."""
        (logits,) = self._session.run(None, dict(features))
        return np.asarray(logits, dtype=np.float32)


def open_session(model: Path, threads: int) -> Any:
    """A session on the processor; raises `ExportError` when this ONNX Runtime can't run the graph."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    onnxruntime.disable_telemetry_events()  # for a program that has imported it before roam could say so
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1  # the graph is a chain: its nodes can't run side by side
    # A pass takes milliseconds, waking a thread microseconds: spinning would only take processors from others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.InvalidProtobuf, errors.NotImplemented,
            errors.RuntimeException) as error:  # fmt: skip
        raise ExportError(
            f"ONNX Runtime {onnxruntime.__version__} can't run {model}: {str(error).splitlines()[0]}; upgrade it or "
            "use the torch backend"
        ) from None


def read_manifest(folder: Path) -> OnnxManifest:
    """Read `onnx.json`; raises `ExportError` for one that is missing, malformed or of another version."""
    path = folder / MANIFEST
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        manifest = OnnxManifest(**{**raw, "inputs": tuple(raw["inputs"])})
    except FileNotFoundError:
        raise ExportError(f"{folder} has no {MANIFEST}: it is no exported model, or its export was cut short") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{path} can't be read ({error}); export the adapter again") from None
    if manifest.version != EXPORT_VERSION or manifest.precision not in PRECISIONS:
        raise ExportError(
            f"{path} has version {manifest.version!r} and precision {manifest.precision!r}; this roam reads version "
            f"{EXPORT_VERSION} of {' and '.join(PRECISIONS)}: export the adapter again"
        )
    return manifest


def write_manifest(folder: Path, manifest: OnnxManifest) -> None:
    """Write `onnx.json`."""
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")


def file_hash(path: Path) -> str:
    """SHA-256 of a file; raises `ExportError` when it can't be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ExportError(f"{path} can't be read ({error.strerror}); export the adapter again") from None
