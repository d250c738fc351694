"""What the linear layers of a graph read, and how those inputs best become 8-bit numbers.

For each input the form is searched whose products differ least from fp32's: how much of the channels' range moves to
the weights (SmoothQuant, Xiao et al. 2023), whether the numbers are signed, and whether the few channels of by far the
largest range stay in fp32 (LLM.int8(), Dettmers et al. 2022).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roam.rounding import column_scales, nearest_levels

Array = NDArray[np.float32]
Features = Mapping[str, NDArray[np.int64]]

WIDE = 1024
"""Inputs with more channels have weights of 8 bits, rounded to the nearest; the others' 7 bits are rounded by GPTQ,
which would take minutes here."""
LEVELS, WIDE_LEVELS = 63, 127
"""Without VNNI instructions a processor adds pairs of products of unsigned and signed numbers in 16 bits, which 8-bit
weights would overflow (255 x 63 x 2 just fits). Of two unsigned factors it does not; narrow inputs take longer so."""
SHARES = ((0.0, 0.0), (0.5, 0.0), (0.5, 0.5), (0.65, 0.35), (0.8, 0.2))
"""Exponents of the channels' ranges in activations and weights; (0.5, 0.5) is SmoothQuant's own choice."""
FAR = 96  # one channel in so many may stay in fp32
FAR_GAIN = 0.75
"""Channels stay in fp32, which takes time, where that leaves at most this share of the error."""
KEPT_ROWS = 256  # of each input, to compare forms on
SMALLEST = 1e-8


@dataclass
class Seen:
    """What was seen of one input: some rows, the channels' ranges, and of narrow ones the sum of outer products."""

    rows: Array
    low: Array
    high: Array
    outer: Array | None
    count: int
    parts: list[Array] = field(default_factory=list)


@dataclass(frozen=True)
class Form:
    """How rows x become whole numbers: (x - low) / smooth, a scale a row; channels in `far` are left out."""

    smooth: Array
    low: Array | None
    """None: signed numbers around zero. Else what is subtracted, so that all are unsigned."""
    far: NDArray[np.int64]

    def even(self, rows: Array) -> Array:
        """Rows before their scale is taken, shape (n, width)."""
        evened = (rows if self.low is None else rows - self.low) / self.smooth
        evened[:, self.far] = 0
        return np.asarray(evened, dtype=np.float32)

    def rounded(self, rows: Array) -> Array:
        """What the whole numbers of `even(rows)` stand for."""
        evened = self.even(rows)
        if self.low is None:
            step = np.maximum(np.abs(evened).max(axis=1, keepdims=True) / 127, SMALLEST)
            return np.asarray(np.rint(evened / step) * step, dtype=np.float32)
        step = np.maximum(evened.max(axis=1, keepdims=True) / 255, SMALLEST)
        return np.asarray(np.clip(np.rint(evened / step), 0, 255) * step, dtype=np.float32)


def linear_nodes(graph: Any) -> list[Any]:
    """The nodes `MatMul(activations, constant matrix)` of a graph."""
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    return [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in matrices]


def watch(model: Path, samples: Sequence[Features]) -> dict[str, Seen]:
    """What each linear layer of the graph in file `model` reads, by the input's name, padding left out."""
    import onnx

    names = list(dict.fromkeys(node.input[0] for node in linear_nodes(onnx.load(str(model)).graph)))
    seen: dict[str, Seen] = {}
    for values in _outputs(model, names, samples):
        for name, rows in zip(names, values, strict=True):
            _add(seen, name, rows, -(-KEPT_ROWS // len(samples)))
    for one in seen.values():
        one.rows = np.concatenate(one.parts)
        one.parts = []
    return seen


def _add(seen: dict[str, Seen], name: str, rows: Array, keep: int) -> None:
    width = rows.shape[1]
    if name not in seen:
        outer = np.zeros((width, width), dtype=np.float32) if width <= WIDE else None
        seen[name] = Seen(rows[:0], rows.min(axis=0), rows.max(axis=0), outer, 0)
    one = seen[name]
    one.low, one.high = np.minimum(one.low, rows.min(axis=0)), np.maximum(one.high, rows.max(axis=0))
    one.count += len(rows)
    if one.outer is not None:
        one.outer += rows.T @ rows
    one.parts.append(rows[:: max(1, len(rows) // keep)][:keep])


def _outputs(model: Path, names: Sequence[str], samples: Sequence[Features]) -> Iterator[list[Array]]:
    """Values of the tensors called `names` for each sample, as rows of tokens that are no padding."""
    import onnx
    import onnxruntime

    document = onnx.load(str(model))
    document.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # keeps every output
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(dir=model.parent) as scratch:  # too large for a message in memory
        onnx.save(document, str(Path(scratch) / model.name))
        session = onnxruntime.InferenceSession(str(Path(scratch) / model.name), options)
        for features in samples:
            real = features["attention_mask"].astype(bool)
            values = session.run(list(names), dict(features))
            yield [one[real] if one.ndim == 3 else one.reshape(-1, one.shape[-1]) for one in values]


def best_form(seen: Seen, readers: Sequence[Array]) -> Form:
    """The form of least error in the products with all `readers`, matrices of shape (width, columns)."""
    weights = np.max([np.abs(matrix).max(axis=1) for matrix in readers], axis=0)
    exact = [seen.rows @ matrix for matrix in readers]
    nothing = np.array([], dtype=np.int64)
    plausible = -seen.low.min() < seen.high.max() / 2  # as behind GELU or ReLU
    forms = []
    for low in (None, np.minimum(seen.low, 0)) if plausible else (None,):
        reach = np.maximum(np.abs(seen.low), np.abs(seen.high)) if low is None else seen.high - low
        for share in SHARES:
            smooth = smoothing(reach, weights, *share)
            form = Form(smooth, low, nothing)
            forms.append((_error(form, seen.rows, readers, exact), form))
            count = len(reach) // FAR
            if count:
                far = Form(smooth, low, np.sort(np.argsort(reach / smooth)[-count:]))
                forms.append((_error(far, seen.rows, readers, exact) / FAR_GAIN, far))
    return min(forms, key=lambda entry: entry[0])[1]


def smoothing(reach: Array, weights: Array, activations_share: float, weights_share: float) -> Array:
    """Divisors of the activations' channels, shape (width,), of geometric mean 1 (SmoothQuant, equation 4)."""
    divisors = np.maximum(reach, 1e-3) ** activations_share / np.maximum(weights, 1e-5) ** weights_share
    return np.asarray(divisors / np.exp(np.log(divisors).mean()), dtype=np.float32)


def near_weights(form: Form, matrix: Array) -> Array:
    """The matrix that the form's numbers are multiplied by; rows of channels that stay in fp32 are zero."""
    near = matrix * form.smooth[:, None]
    near[form.far] = 0
    return np.asarray(near, dtype=np.float32)


def _error(form: Form, rows: Array, readers: Sequence[Array], exact: Sequence[Array]) -> float:
    """Mean over the readers of the products' squared error, as a share of the products' own square."""
    levels = WIDE_LEVELS if rows.shape[1] > WIDE else LEVELS
    rounded, far = form.rounded(rows), rows[:, form.far]
    total = 0.0
    for matrix, product in zip(readers, exact, strict=True):
        near = near_weights(form, matrix)
        scales = column_scales(near, levels)
        whole = nearest_levels(near, scales, levels) * scales
        found = rounded @ whole + far @ matrix[form.far]
        if form.low is not None:
            found += (form.low / form.smooth) @ whole
        total += float(np.square(found - product).mean() / max(float(np.square(product).mean()), SMALLEST))
    return total / len(readers)
