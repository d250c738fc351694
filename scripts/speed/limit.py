"""How fast this machine multiplies matrices in fp32 and int8, and which share of that inference reaches.

The products are those of the model: a graph with one linear layer, of each of its shapes, on as many rows as a batch
of the runtime has. What inference does with the rest of its time is told by ONNX Runtime's profile.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roam.onnx_cache import cached_folder, load_cached
from roam.onnx_model import BATCH_TOKENS, MODEL, PRECISIONS, OnnxRelationModel, open_session, session_threads
from roam.onnx_quantise import linear_nodes
from roam.records import Pair
from roam.relation_model import length_batches
from scripts.speed.plan import Plan, seconds, spread, unlabelled

SHOWN = 8
"""Kinds of nodes in the profile; the rest is one line."""
Shape = tuple[int, int]


def run(plan: Plan) -> dict[str, Any]:
    """GFLOP/s of products and of inference (two operations a multiply-add of a linear layer), shares, profiles."""
    pairs = unlabelled(plan.pairs, plan.sizes.limit_pairs)
    load_cached(plan.adapter, "onnx")
    shapes = linear_shapes(_graph(plan, "onnx"))
    found: dict[str, Any] = {"threads": session_threads(), "rows": BATCH_TOKENS,
                             "linear_layers": {f"{k} x {n}": count for (k, n), count in shapes.items()}}  # fmt: skip
    for precision in PRECISIONS:
        rate = machine_rate(shapes, precision, plan)
        model = load_cached(plan.adapter, precision)
        tokens = sum(len(encoding) for encoding in model.encoder.encode(pairs))
        spent = seconds(lambda model=model: model._forward(pairs), plan.sizes.repeats)  # type: ignore[misc]
        operations = 2 * tokens * sum(k * n * count for (k, n), count in shapes.items())
        reached = operations / statistics.median(spent) / 1e9
        found[precision] = {
            "machine_gflops": round(rate, 1),
            "inference_gflops": round(reached, 1),
            "share_of_machine": round(reached / rate, 4),
            "tokens_per_second": round(tokens / statistics.median(spent), 1),
            "padding_share": round(padding([len(encoding) for encoding in model.encoder.encode(pairs)]), 4),
            "seconds": spread(spent),
            "profile": profile(model, _graph(plan, precision), pairs, plan.scratch),
        }
    return found


def _graph(plan: Plan, precision: str) -> Path:
    from roam.adapters import read_card

    return cached_folder(read_card(plan.adapter), precision) / MODEL


def linear_shapes(path: Path) -> Counter[Shape]:
    """(width in, width out) of an fp32 graph's linear layers, with how many there are of each."""
    import onnx

    graph = onnx.load(str(path)).graph
    dims = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    return Counter(dims[node.input[1]] for node in linear_nodes(graph))


def machine_rate(shapes: Counter[Shape], precision: str, plan: Plan) -> float:
    """GFLOP/s of the products alone, in the shares in which the model has them."""
    operations = spent = 0.0
    for (k, n), count in shapes.items():
        path = plan.scratch / f"{precision}-{k}-{n}.onnx"
        one_product(path, (k, n), whole=precision == "onnx-int8")
        session = open_session(path, session_threads())
        rows = rows_of(k, whole=precision == "onnx-int8")
        times = seconds(lambda session=session, rows=rows: session.run(None, {"rows": rows}), plan.sizes.repeats)  # type: ignore[misc]
        operations += 2.0 * BATCH_TOKENS * k * n * count
        spent += statistics.median(times) * count
    return operations / spent / 1e9


def rows_of(width: int, *, whole: bool) -> NDArray[Any]:
    """Activations of a full batch, drawn."""
    draw = np.random.default_rng(0)
    if whole:
        return draw.integers(0, 255, size=(BATCH_TOKENS, width), dtype=np.uint8)
    return draw.standard_normal((BATCH_TOKENS, width)).astype(np.float32)


def one_product(path: Path, shape: Shape, *, whole: bool) -> None:
    """Write a graph that multiplies its input `rows` by one constant matrix."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    draw = np.random.default_rng(1)
    matrix = draw.integers(-63, 64, size=shape, dtype=np.int8) if whole else draw.standard_normal(shape)
    weight = numpy_helper.from_array(matrix if whole else matrix.astype(np.float32), "matrix")
    kind, result = (TensorProto.UINT8, TensorProto.INT32) if whole else (TensorProto.FLOAT, TensorProto.FLOAT)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger" if whole else "MatMul", ["rows", "matrix"], ["product"])], "product",
        [helper.make_tensor_value_info("rows", kind, [BATCH_TOKENS, shape[0]])],
        [helper.make_tensor_value_info("product", result, [BATCH_TOKENS, shape[1]])], [weight],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), str(path))


def padding(lengths: list[int]) -> float:
    """Share of the tokens in the runtime's batches that is padding."""
    batches = length_batches(lengths, BATCH_TOKENS)
    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    return 1 - sum(lengths) / padded


def profile(model: OnnxRelationModel, graph: Path, pairs: list[Pair], scratch: Path) -> dict[str, float]:
    """Share of the nodes' time by their kind, largest first."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = session_threads()
    options.enable_profiling = True
    options.log_severity_level = 3
    options.profile_file_prefix = str(scratch / "profile")
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    encoded = model.encoder.encode(pairs)
    for chunk in length_batches([len(encoding) for encoding in encoded], BATCH_TOKENS):
        session.run(None, model.encoder.batch([encoded[index] for index in chunk]))
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    spent: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            spent[event["args"]["op_name"]] += event["dur"]
    total = sum(spent.values())
    shares = {name: round(time / total, 4) for name, time in spent.most_common(SHOWN)}
    return shares | {"all others": round(1 - sum(shares.values()), 4)}
