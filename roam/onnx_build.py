"""From an adapter to an ONNX graph: LoRA merged into the base, traced, quantised, checked."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roam.adapters import CARD
from roam.errors import ExportError
from roam.onnx_model import (
    BATCH_TOKENS,
    MODEL,
    TOKENIZER,
    OnnxManifest,
    OnnxRelationModel,
    file_hash,
    write_manifest,
)
from roam.onnx_prune import prune
from roam.onnx_quantise import quantise
from roam.pair_encoding import PairEncoder
from roam.records import Pair
from roam.relation_model import TorchRelationModel, length_batches

log = logging.getLogger(__name__)

OPSET = 17
CALIBRATION = Path(__file__).parent / "calibration.jsonl"
FP32_BYTES = 4
LARGEST_GRAPH = 2**31  # bytes: protobuf's limit
LIBRARIES = ("torch", "transformers", "onnx", "onnxruntime")
PROBE_GAPS = {"onnx": 1e-3, "onnx-int8": 0.25}
"""Largest gap to torch in a probe's probabilities. A lost head, label map or adapter gives far more; whether int8 is
good enough over many pairs is for `python -m training.export` to say."""


def build(adapter: Path, plain: TorchRelationModel, folder: Path, precision: str) -> OnnxRelationModel:
    """Write graph, tokenizer, card and manifest of `plain`, the loaded `adapter`, into an empty `folder`.

    Returns the graph, loaded; raises `ExportError` if it can't be made or its answers to the probes differ.
    """
    from tqdm import tqdm

    if plain.card.quantisation:
        raise ExportError(
            f"{adapter} runs on a {plain.card.quantisation} base, which ONNX has no graph for: export it as merged "
            "with --allow-quantised first, or use the torch backend"
        )
    size = sum(parameter.numel() for parameter in plain.model.parameters()) * FP32_BYTES
    if size > LARGEST_GRAPH:
        raise ExportError(
            f"{adapter} has {size / 1e9:.1f} GB of weights in fp32, and an ONNX file holds 2: use the torch backend, "
            "or a server (roam.served)"
        )
    probes = [Pair(probe.old, probe.new) for probe in plain.card.probes]
    with tqdm(total=3, desc=f"building {precision} (once)", disable=None, leave=False) as bar:
        export_graph(plain, folder / MODEL)
        prune(folder / MODEL)
        inputs = graph_inputs(folder / MODEL)
        bar.update()
        if precision == "onnx-int8":
            quantise(folder / MODEL, samples(plain.encoder, inputs))
        bar.update()
        shutil.copyfile(adapter / CARD, folder / CARD)
        (folder / TOKENIZER).write_text(plain.tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
        manifest = OnnxManifest(
            precision=precision, adapter=plain.card.digest, inputs=inputs, pad_id=plain.encoder.pad_id,
            files={name: file_hash(folder / name) for name in (MODEL, TOKENIZER)},
            versions={name: importlib.metadata.version(name) for name in LIBRARIES},
        )  # fmt: skip
        write_manifest(folder, manifest)
        exported = OnnxRelationModel.load(folder, card=plain.card)
        gap = float(np.abs(exported.predict_proba(probes) - plain.predict_proba(probes)).max())
        bar.update()
    if not gap <= PROBE_GAPS[precision]:
        raise ExportError(
            f"the {precision} model of {adapter} does not answer as the adapter does (largest gap on its probes "
            f"{gap:.3f}, allowed {PROBE_GAPS[precision]}): use another precision, or the torch backend"
        )
    return exported


def samples(encoder: PairEncoder, inputs: Sequence[str]) -> list[dict[str, NDArray[np.int64]]]:
    """Batches of the pairs in calibration.jsonl, which show what layers read; no answer to them is used.

    They are pairs of the project's own fact families, from those that no adapter was trained on.
    """
    lines = CALIBRATION.read_text(encoding="utf-8").splitlines()
    encoded = encoder.encode([Pair(**json.loads(line)) for line in lines])
    batches = length_batches([len(one) for one in encoded], BATCH_TOKENS)
    features = (encoder.batch([encoded[index] for index in batch]) for batch in batches)
    return [{name: ids for name, ids in one.items() if name in inputs} for one in features]


def export_graph(plain: TorchRelationModel, path: Path) -> None:
    """Write the merged model as an fp32 graph from its inputs to `logits`; raises `ExportError` if it can't be traced.

    Batch and token counts are free.
    """
    import torch

    names = list(plain.encoder.inputs)
    features = plain.encoder.batch(plain.encoder.encode([Pair("a", "b"), Pair("one fact", "another, longer fact")]))
    free = {0: "batch", 1: "tokens"}
    network = _logits_only(plain.model, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer warns of every shape it reads; the check of the probes decides
        try:
            torch.onnx.export(
                network, tuple(torch.from_numpy(features[name]) for name in names), str(path), input_names=names,
                output_names=["logits"], dynamic_axes={**dict.fromkeys(names, free), "logits": {0: "batch"}},
                opset_version=OPSET, dynamo=False,
            )  # fmt: skip
        except RuntimeError as error:  # the exporter's own errors are RuntimeErrors too
            raise ExportError(
                f"{type(plain.model).__name__} can't be exported ({str(error).splitlines()[0]}); use the torch backend"
            ) from None
        finally:
            plain.model.eval()  # the exporter may leave dropout switched on


def graph_inputs(path: Path) -> tuple[str, ...]:
    """Names of what a graph takes: less than the tokenizer makes where the network ignores some of it (DeBERTa-v3 has
    no segments), which tracing leaves out."""
    import onnx

    return tuple(entry.name for entry in onnx.load(str(path)).graph.input)


def _logits_only(model: Any, names: Sequence[str]) -> Any:
    """A module that takes the inputs by position and returns the logits alone, as the tracer needs it."""
    import torch

    class LogitsOnly(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *features: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model(**dict(zip(names, features, strict=True))).logits
            return logits

    return LogitsOnly().eval()
