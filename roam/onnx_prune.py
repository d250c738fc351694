"""The last layer for one token: a classifier reads the first token's state alone, so the others' need not be made.

Everything behind the last attention works token by token. Taking the first token before it, not after it, changes no
answer and saves most of one layer: an eighth of the linear layers' work in six layers, a sixteenth in twelve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TOKENWISE = ("Add", "Sub", "Mul", "Div", "Pow", "Erf", "Tanh", "Relu", "Sigmoid", "Cast", "Identity")
"""Elementwise operations: one token's result depends on that token alone, as long as nothing else is broadcast."""
TOKENS = 1
"""Axis of the tokens in a layer's states, shape (batch, tokens, width)."""


def prune(model: Path) -> int:
    """Rewrite the graph in file `model` so that its last layer makes the first token only; returns how many linear
    layers that concerns. A graph of another form (mean pooling, say) stays as it is.
    """
    import onnx

    document = onnx.load(str(model))
    graph = document.graph
    constant = _constants(graph)
    picks = [node for node in graph.node if _picks_one(node, constant)]
    if len(picks) != 1:
        return 0
    cone = _cone(graph, picks[0], constant)
    narrowed: int = sum(node.op_type == "MatMul" for node in cone)
    if not narrowed:
        return 0
    _narrow(graph, picks[0], cone, constant)
    onnx.save(document, str(model))
    return narrowed


def _constants(graph: Any) -> Mapping[str, tuple[int, ...]]:
    """Shapes of initializers, of what Constant nodes hold and of other names of them (equal tensors are kept once)."""
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            found[node.output[0]] = tuple(next(a.t.dims for a in node.attribute if a.name == "value"))
        elif node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def _picks_one(node: Any, constant: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a node is states[:, index] with one constant index, which is 0 in all classifiers."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    return node.op_type == "Gather" and axis == TOKENS and constant.get(node.input[1]) == ()


def _cone(graph: Any, pick: Any, constant: Mapping[str, tuple[int, ...]]) -> list[Any]:
    """The nodes that work token by token and whose results nothing but the pick uses, directly or through others."""
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    kept = {output.name for output in graph.output}
    inside = {pick.output[0]}
    cone = []
    for node in reversed(graph.node):
        used = [reader for name in node.output for reader in readers.get(name, [])]
        alone = used and all(reader.output[0] in inside for reader in used) and not kept & set(node.output)
        if alone and _tokenwise(node, constant):
            inside.add(node.output[0])
            cone.append(node)
    return cone


def _tokenwise(node: Any, constant: Mapping[str, tuple[int, ...]]) -> bool:
    changing = [name for name in node.input if name and name not in constant]
    if node.op_type == "MatMul":
        return changing == [node.input[0]] and len(constant[node.input[1]]) == 2
    if node.op_type == "LayerNormalization":
        axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
        return changing == [node.input[0]] and axis == -1 and len(node.output) == 1
    if node.op_type not in TOKENWISE or not changing:
        return False
    return all(len(constant[name]) <= 1 for name in node.input if name in constant)


def _narrow(graph: Any, pick: Any, cone: Sequence[Any], constant: Mapping[str, tuple[int, ...]]) -> None:
    """Pick the first token where the cone begins; its nodes keep their names, with one axis less."""
    from onnx import helper

    made = {name for node in cone for name in node.output}
    first: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        if node.output[0] in made:
            for place, name in enumerate(node.input):
                if not name or name in constant or name in made:
                    continue
                if name not in first:
                    first[name] = f"{name}_first"
                    nodes.append(helper.make_node("Gather", [name, pick.input[1]], [first[name]], axis=TOKENS))
                node.input[place] = first[name]
        picked = node.output[0] == pick.output[0]
        nodes.append(helper.make_node("Identity", [pick.input[0]], list(pick.output)) if picked else node)
    index = next((node for node in nodes if pick.input[1] in node.output), None)  # None: an initializer
    if index is not None:  # the index is a Constant node, which may stand behind the places that now read it
        nodes.remove(index)
        nodes.insert(0, index)
    del graph.node[:]
    graph.node.extend(nodes)
