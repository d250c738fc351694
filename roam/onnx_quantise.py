"""int8 linear layers for ONNX Runtime, with one activation scale a token.

`onnxruntime.quantization.quantize_dynamic` scales the activations of a whole batch together, so that a pair's answer
depends on what else is in the batch, and one outlier coarsens all. Here every token has its own scale, as in LLM.int8()
(Dettmers et al. 2022): a pair gets the same answer in any batch. Channels of unlike range are evened out between
activations and weights (SmoothQuant, Xiao et al. 2023), and GELU's outputs, hardly ever below zero, take all 8 bits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WEIGHT_LEVELS = 63
"""Weights take 7 bits: without VNNI instructions a processor adds pairs of products in 16 bits, which 8 would overflow
(255 x 63 x 2 just fits)."""
SMOOTHING = 0.5
"""Share of the channels' ranges that moves from activations to weights (SmoothQuant's alpha)."""
GELU_LOW = 0.17
"""GELU never goes below -0.17."""
SMALLEST = 1e-8  # scale of a row or a channel that is all zero
CONTRIB = "com.microsoft"

Features = Mapping[str, NDArray[np.int64]]


def quantise(model: Path, samples: Sequence[Features]) -> int:
    """Replace the linear layers of the fp32 graph in file `model` by int8 ones; returns how many there were.

    `samples` are inputs of the model that show the activations' ranges by channel. Weights get one scale an output
    channel. Embeddings, norms, biases, attention products and the head (one token a pair) stay fp32.
    """
    import onnx

    document = onnx.load(str(model))
    layers = _Layers(document.graph, samples_ranges(model, samples))
    nodes = [new for node in document.graph.node for new in layers.rewrite(node)]
    del document.graph.node[:]
    document.graph.node.extend(nodes)
    layers.replace_weights()
    document.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))
    onnx.save(document, str(model))
    return layers.count


def linear_nodes(graph: Any) -> list[Any]:
    """The nodes `MatMul(activations, constant matrix)` of a graph."""
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    return [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in matrices]


def samples_ranges(model: Path, samples: Sequence[Features]) -> dict[str, NDArray[np.float32]]:
    """Largest magnitude by channel of what each linear layer of the graph in file `model` reads, over `samples`."""
    import onnx
    import onnxruntime

    document = onnx.load(str(model))
    names = list(dict.fromkeys(node.input[0] for node in linear_nodes(document.graph)))
    document.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # keeps every output
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(dir=model.parent) as scratch:  # too large for a message in memory
        onnx.save(document, str(Path(scratch) / model.name))
        session = onnxruntime.InferenceSession(str(Path(scratch) / model.name), options)
        ranges: dict[str, NDArray[np.float32]] = {}
        for features in samples:
            for name, values in zip(names, session.run(names, dict(features)), strict=True):
                most = np.abs(values.reshape(-1, values.shape[-1])).max(axis=0)
                ranges[name] = np.maximum(ranges.get(name, most), most)
    return ranges


class _Layers:
    """The linear layers of one graph and what takes their place."""

    def __init__(self, graph: Any, ranges: Mapping[str, NDArray[np.float32]]) -> None:
        from onnx import numpy_helper

        self._graph = graph
        self._constants: list[Any] = []
        self._prepared: set[str] = set()
        linear = linear_nodes(graph)
        self.count = len(linear)
        self._linear = {node.output[0] for node in linear}
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._matrices = {node.output[0]: numpy_helper.to_array(tensors[node.input[1]]) for node in linear}
        made_by = {output: node for node in graph.node for output in node.output}
        self._after_gelu = {node.input[0] for node in linear if _is_gelu(made_by.get(node.input[0]), made_by)}
        self._smooth = {}
        for name in dict.fromkeys(node.input[0] for node in linear):
            readers = [self._matrices[node.output[0]] for node in linear if node.input[0] == name]
            self._smooth[name] = smoothing(ranges[name], readers)
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
        if node.output[0] not in self._linear:
            return [node]
        name, output = node.input[0], node.output[0]
        rows = [] if name in self._prepared else self._quantise_rows(name)  # query, key and value share theirs
        self._prepared.add(name)
        return [*rows, *self._multiply(name, output)]

    def _quantise_rows(self, name: str) -> list[Any]:
        """Activations of shape (..., width) as uint8 rows {name}_q with scales {name}_scale, of shape (rows, 1)."""
        from onnx import TensorProto, helper

        node, smooth, shifted = helper.make_node, self._smooth[name], name in self._after_gelu
        even = self._constant(f"{name}_even", 1 / smooth)
        shape = self._constant(f"{name}_rows_shape", np.array([-1, len(smooth)]))
        nodes = [node("Mul", [name, even], [f"{name}_evened"])]
        if shifted:
            shift = self._constant(f"{name}_shift", GELU_LOW / smooth)
            nodes += [node("Add", [f"{name}_evened", shift], [f"{name}_shifted"])]
        source = f"{name}_shifted" if shifted else f"{name}_evened"
        nodes += [node("Reshape", [source, shape], [f"{name}_rows"])]
        if not shifted:
            nodes += [node("Abs", [f"{name}_rows"], [f"{name}_sizes"])]
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

    def _multiply(self, name: str, output: str) -> list[Any]:
        """Quantised rows times the quantised matrix, scaled back and in the activations' shape."""
        from onnx import helper

        node, shifted = helper.make_node, name in self._after_gelu
        matrix = self._matrices[output] * self._smooth[name][:, None]
        scale = (np.maximum(np.abs(matrix).max(axis=0), SMALLEST) / WEIGHT_LEVELS).astype(np.float32)
        whole = np.rint(matrix / scale).astype(np.int8)
        self._constant(f"{output}_weight", whole)
        self._constant(f"{output}_scale", scale)
        self._constant(f"{output}_width", np.array([whole.shape[1]]))
        product, nodes = f"{output}_scaled", []
        if shifted:  # what the shift of the activations added
            added = (GELU_LOW / self._smooth[name]) @ (whole * scale)
            self._constant(f"{output}_added", added.astype(np.float32))
            product, nodes = f"{output}_back", [node("Sub", [product, f"{output}_added"], [f"{output}_back"])]
        return [
            node("MatMulIntegerToFloat", [f"{name}_q", f"{output}_weight", "int8_one", f"{output}_scale",
                                          "int8_zero" if shifted else "int8_middle"], [f"{output}_product"],
                 domain=CONTRIB),
            node("Mul", [f"{output}_product", f"{name}_scale"], [f"{output}_scaled"]),
            *nodes,
            node("Concat", [f"{name}_lead", f"{output}_width"], [f"{output}_shape"], axis=0),
            node("Reshape", [product, f"{output}_shape"], [output]),
        ]  # fmt: skip

    def replace_weights(self) -> None:
        """Put the new constants in the place of the fp32 matrices that nothing reads any more."""
        read = {name for node in self._graph.node for name in node.input}
        kept = [tensor for tensor in self._graph.initializer if tensor.name in read]
        del self._graph.initializer[:]
        self._graph.initializer.extend([*kept, *self._constants])


def smoothing(most: NDArray[np.float32], readers: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Divisors of the activations' channels, shape (width,), of geometric mean 1 (SmoothQuant, equation 4)."""
    weights = np.max([np.abs(matrix).max(axis=1) for matrix in readers], axis=0)
    divisors = np.maximum(most, 1e-3) ** SMOOTHING / np.maximum(weights, 1e-5) ** (1 - SMOOTHING)
    return np.asarray(divisors / np.exp(np.log(divisors).mean()), dtype=np.float32)


def _is_gelu(node: Any, made_by: Mapping[str, Any]) -> bool:
    """Whether a node is the end of GELU as it is traced: x * (1 + erf(x / sqrt 2)) * 0.5, factors in any order."""
    for _ in range(3):
        if node is None or node.op_type != "Mul":
            return False
        inner = [made_by[name] for name in node.input if name in made_by]
        if any(one.op_type == "Add" and any(made_by[i].op_type == "Erf" for i in one.input if i in made_by)
               for one in inner):  # fmt: skip
            return True
        node = next((one for one in inner if one.op_type == "Mul"), None)
    return False
