"""int8 linear layers for ONNX Runtime, with one activation scale a token.

`onnxruntime.quantization.quantize_dynamic` scales the activations of a whole batch together, so that a pair's answer
depends on what else is in the batch, and one outlier coarsens all. Here every token has its own scale, as in LLM.int8()
(Dettmers et al. 2022): a pair gets the same answer in any batch. `roam.onnx_ranges` chooses the form of each input, and
weights are rounded by GPTQ where that is affordable (`roam.rounding`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roam.onnx_ranges import (
    LEVELS,
    SMALLEST,
    WIDE,
    WIDE_LEVELS,
    Array,
    Features,
    Form,
    Seen,
    best_form,
    linear_nodes,
    near_weights,
    watch,
)
from roam.rounding import column_scales, compensated_levels, nearest_levels

CONTRIB = "com.microsoft"


def quantise(model: Path, samples: Sequence[Features]) -> int:
    """Replace the linear layers of the fp32 graph in file `model` by int8 ones; returns how many there were.

    `samples` are inputs of the model that show what the layers read. Weights get one scale an output channel.
    Embeddings, norms, biases, attention products and the head (one token a pair) stay fp32.
    """
    import onnx

    document = onnx.load(str(model))
    layers = _Layers(document.graph, watch(model, samples))
    nodes = [new for node in document.graph.node for new in layers.rewrite(node)]
    del document.graph.node[:]
    document.graph.node.extend(nodes)
    layers.replace_weights()
    document.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))
    onnx.save(document, str(model))
    return layers.count


class _Layers:
    """The linear layers of one graph and what takes their place."""

    def __init__(self, graph: Any, seen: dict[str, Seen]) -> None:
        from onnx import numpy_helper

        self._graph, self._seen = graph, seen
        self._constants: list[Any] = []
        self._forms: dict[str, Form] = {}
        linear = linear_nodes(graph)
        self.count = len(linear)
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._matrices = {node.output[0]: numpy_helper.to_array(tensors[node.input[1]]) for node in linear}
        self._readers: dict[str, list[str]] = {}
        for node in linear:
            self._readers.setdefault(node.input[0], []).append(node.output[0])
        for name, value in (("zero", np.uint8(0)), ("middle", np.uint8(128)), ("one", np.float32(1)),
                            ("half", np.float32(127)), ("whole", np.float32(255)), ("smallest", np.float32(SMALLEST)),
                            ("columns", np.array([1])), ("start", np.array([0])), ("end", np.array([-1]))):  # fmt: skip
            self._constant(f"int8_{name}", np.asarray(value))

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self._constants.append(numpy_helper.from_array(value, name))
        return name

    def rewrite(self, node: Any) -> list[Any]:
        """The nodes that stand in for `node`: itself, unless it is a linear layer."""
        if node.output[0] not in self._matrices:
            return [node]
        name, output = node.input[0], node.output[0]
        rows = []
        if name not in self._forms:  # query, key and value share theirs
            readers = [self._matrices[reader] for reader in self._readers[name]]
            self._forms[name] = best_form(self._seen[name], readers)
            rows = self._quantise_rows(name, self._forms[name])
        return [*rows, *self._multiply(name, output, self._forms[name])]

    def _quantise_rows(self, name: str, form: Form) -> list[Any]:
        """Activations of shape (..., width) as uint8 rows {name}_q with scales {name}_scale, of shape (rows, 1)."""
        from onnx import TensorProto, helper

        node, shifted = helper.make_node, form.low is not None
        factors = 1 / form.smooth
        factors[form.far] = 0  # what stays in fp32 is not to coarsen the rest
        even = self._constant(f"{name}_even", factors)
        shape = self._constant(f"{name}_rows_shape", np.array([-1, len(factors)]))
        nodes = [node("Mul", [name, even], [f"{name}_evened"])]
        if form.low is not None:
            shift = self._constant(f"{name}_shift", -form.low * factors)
            nodes += [node("Add", [f"{name}_evened", shift], [f"{name}_shifted"])]
        source = f"{name}_shifted" if shifted else f"{name}_evened"
        nodes += [node("Reshape", [source, shape], [f"{name}_rows"])]
        if not shifted:
            nodes += [node("Abs", [f"{name}_rows"], [f"{name}_sizes"])]
        if len(form.far):
            places = self._constant(f"{name}_far_places", form.far)
            columns = self._constant(f"{name}_far_shape", np.array([-1, len(form.far)]))
            nodes += [node("Gather", [name, places], [f"{name}_far_states"], axis=-1),
                      node("Reshape", [f"{name}_far_states", columns], [f"{name}_far"])]  # fmt: skip
        zero = helper.make_tensor("zero", TensorProto.UINT8, [1], [0 if shifted else 128])
        return [
            *nodes,
            node("ReduceMax", [f"{name}_rows" if shifted else f"{name}_sizes"], [f"{name}_most"], axes=[1], keepdims=0),
            node("Div", [f"{name}_most", "int8_whole" if shifted else "int8_half"], [f"{name}_step"]),
            node("Max", [f"{name}_step", "int8_smallest"], [f"{name}_steps"]),
            node("Shape", [f"{name}_steps"], [f"{name}_count"]),
            node("ConstantOfShape", [f"{name}_count"], [f"{name}_zeros"], value=zero),
            node("QuantizeLinear", [f"{name}_rows", f"{name}_steps", f"{name}_zeros"], [f"{name}_q"], axis=0),
            node("Unsqueeze", [f"{name}_steps", "int8_columns"], [f"{name}_scale"]),
            node("Shape", [name], [f"{name}_shape"]),
            node("Slice", [f"{name}_shape", "int8_start", "int8_end"], [f"{name}_lead"]),
        ]

    def _multiply(self, name: str, output: str, form: Form) -> list[Any]:
        """Quantised rows times the quantised matrix, scaled back and in the activations' shape."""
        from onnx import helper

        node, shifted = helper.make_node, form.low is not None
        whole, scales = self._whole(name, output, form)
        wide = whole.shape[0] > WIDE
        self._constant(f"{output}_weight", (whole + 128).astype(np.uint8) if wide else whole.astype(np.int8))
        self._constant(f"{output}_scale", scales)
        self._constant(f"{output}_width", np.array([whole.shape[1]]))
        factors = [f"{name}_q", f"{output}_weight", "int8_one", f"{output}_scale",
                   "int8_zero" if shifted else "int8_middle"]  # fmt: skip
        if wide:
            factors += [self._constant(f"{output}_middle", np.full(whole.shape[1], 128, dtype=np.uint8))]
        nodes = [
            node("MatMulIntegerToFloat", factors, [f"{output}_product"], domain=CONTRIB),
            node("Mul", [f"{output}_product", f"{name}_scale"], [f"{output}_scaled"]),
        ]
        product = f"{output}_scaled"
        if form.low is not None:  # what the shift of the activations took away
            taken = (form.low / form.smooth) @ (whole * scales)
            self._constant(f"{output}_taken", taken.astype(np.float32))
            nodes += [node("Add", [product, f"{output}_taken"], [f"{output}_back"])]
            product = f"{output}_back"
        if len(form.far):
            self._constant(f"{output}_far_weight", np.ascontiguousarray(self._matrices[output][form.far]))
            nodes += [node("MatMul", [f"{name}_far", f"{output}_far_weight"], [f"{output}_far"]),
                      node("Add", [product, f"{output}_far"], [f"{output}_all"])]  # fmt: skip
            product = f"{output}_all"
        return [
            *nodes,
            node("Concat", [f"{name}_lead", f"{output}_width"], [f"{output}_shape"], axis=0),
            node("Reshape", [product, f"{output}_shape"], [output]),
        ]

    def _whole(self, name: str, output: str, form: Form) -> tuple[Array, Array]:
        """The matrix as whole numbers, shape (width, columns), and the columns' scales."""
        near, seen = near_weights(form, self._matrices[output]), self._seen[name]
        levels = WIDE_LEVELS if len(near) > WIDE else LEVELS
        scales = column_scales(near, levels)
        if seen.outer is None:
            return nearest_levels(near, scales, levels), scales
        factors = 1 / form.smooth
        factors[form.far] = 0
        products = np.asarray(seen.outer / seen.count * factors[:, None] * factors, dtype=np.float32)
        return compensated_levels(near, scales, levels, products), scales

    def replace_weights(self) -> None:
        """Put the new constants in the place of the fp32 matrices that nothing reads any more."""
        read = {name for node in self._graph.node for name in node.input}
        kept = [tensor for tensor in self._graph.initializer if tensor.name in read]
        del self._graph.initializer[:]
        self._graph.initializer.extend([*kept, *self._constants])
