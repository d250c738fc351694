"""int8 layers: rounding with the inputs in mind, channels kept in fp32, wide inputs; the last layer's one token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from roam import onnx_quantise, onnx_ranges
from roam.onnx_build import export_graph
from roam.onnx_model import open_session
from roam.onnx_prune import prune
from roam.onnx_quantise import quantise
from roam.onnx_ranges import LEVELS, Seen, best_form
from roam.relation_model import TorchRelationModel
from roam.rounding import column_scales, compensated_levels, nearest_levels
from tests.tiny import toy_pairs
from tests.tiny_adapter import save_adapter

Array = NDArray[np.float32]
WIDTH, COLUMNS = 192, 24


def drawn(seed: int, *, far: bool = False, positive: bool = False) -> Array:
    """Correlated rows, as layers see; with `far` two channels are a hundred times the others."""
    draw = np.random.default_rng(seed)
    mix = np.random.default_rng(9).standard_normal((12, WIDTH)) + 0.3 * np.eye(12, WIDTH)
    rows = draw.standard_normal((300, 12)) @ mix + 0.1 * draw.standard_normal((300, WIDTH))
    if far:
        rows[:, [5, 77]] *= 100
    return np.asarray(np.maximum(rows, -0.1) if positive else rows, dtype=np.float32)


def seen(rows: Array) -> Seen:
    return Seen(rows, rows.min(axis=0), rows.max(axis=0), rows.T @ rows, len(rows))


def matrix() -> Array:
    return np.random.default_rng(3).standard_normal((WIDTH, COLUMNS)).astype(np.float32)


@pytest.mark.unit
def test_rounding_makes_up_for_its_errors() -> None:
    rows, weights = drawn(0), matrix()
    scales = column_scales(weights, LEVELS)
    fresh, exact = drawn(1), drawn(1) @ weights

    def error(whole: Array) -> float:
        return float(np.square(fresh @ (whole * scales) - exact).mean())

    plain = nearest_levels(weights, scales, LEVELS)
    better = compensated_levels(weights, scales, LEVELS, rows.T @ rows / np.float32(len(rows)))
    assert error(better) < error(plain) / 3
    for whole in (plain, better):
        assert np.array_equal(whole, np.rint(whole))
        assert np.abs(whole).max() <= LEVELS


@pytest.mark.unit
def test_the_form_fits_the_input() -> None:
    assert best_form(seen(drawn(0, far=True)), [matrix()]).far.tolist() == [5, 77]
    positive = best_form(seen(drawn(0, positive=True)), [matrix()])
    assert positive.low is not None
    assert positive.low.min() == pytest.approx(-0.1)
    signed = best_form(seen(drawn(0)), [matrix()])
    assert signed.low is None
    assert signed.smooth.shape == (WIDTH,)


def one_layer(path: Path) -> None:
    """A graph of one linear layer over states of shape (batch, tokens, width)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, kind: int, *dims: Any) -> Any:
        return helper.make_tensor_value_info(name, kind, dims)

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["states", "matrix"], ["product"]),
         helper.make_node("Identity", ["attention_mask"], ["mask"])], "layer",
        [value("states", TensorProto.FLOAT, "batch", "tokens", WIDTH),
         value("attention_mask", TensorProto.INT64, "batch", "tokens")],
        [value("product", TensorProto.FLOAT, "batch", "tokens", COLUMNS),
         value("mask", TensorProto.INT64, "batch", "tokens")], [numpy_helper.from_array(matrix(), "matrix")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), str(path))


@pytest.mark.unit
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", [{}, {"far": True}, {"positive": True}], ids=["plain", "far", "positive"])
def test_a_layer_answers_nearly_as_in_fp32(
    kind: dict[str, bool], wide: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (onnx_quantise, onnx_ranges):
        monkeypatch.setattr(module, "WIDE", WIDTH - 1 if wide else WIDTH)
    one_layer(tmp_path / "layer.onnx")
    mask = np.ones((10, 30), dtype=np.int64)
    mask[:, 25:] = 0
    states = drawn(0, **kind).reshape(10, 30, WIDTH)
    states[:, 25:] = 1e6  # padding, which must not count
    assert quantise(tmp_path / "layer.onnx", [{"states": states, "attention_mask": mask}]) == 1  # type: ignore[dict-item]
    fresh = drawn(1, **kind).reshape(10, 30, WIDTH)
    found, _ = open_session(tmp_path / "layer.onnx", 1).run(None, {"states": fresh, "attention_mask": mask})
    exact = fresh @ matrix()
    assert 0 < np.square(found - exact).mean() / np.square(exact).mean() < 2e-4


@pytest.mark.integration
@pytest.mark.parametrize("architecture", ["bert", "mpnet"])
def test_the_last_layer_makes_one_token_and_the_same_answers(architecture: str, tmp_path: Path) -> None:
    import onnx

    adapter = save_adapter(tmp_path, architecture, max_length=32)
    plain = TorchRelationModel.load(adapter, device="cpu")
    export_graph(plain, tmp_path / "whole.onnx")
    (tmp_path / "pruned.onnx").write_bytes((tmp_path / "whole.onnx").read_bytes())
    assert prune(tmp_path / "pruned.onnx") == 3  # attention's output and the two of the feed-forward block
    assert prune(tmp_path / "pruned.onnx") == 0  # done already
    onnx.checker.check_model(str(tmp_path / "pruned.onnx"))
    features = plain.encoder.batch(plain.encoder.encode(toy_pairs(9, 4, "x")))  # type: ignore[arg-type]
    answers = [open_session(tmp_path / name, 1).run(None, features)[0] for name in ("whole.onnx", "pruned.onnx")]
    assert np.abs(answers[0] - answers[1]).max() < 1e-5


@pytest.mark.unit
def test_a_graph_without_a_first_token_stays_as_it_is(tmp_path: Path) -> None:
    one_layer(tmp_path / "layer.onnx")
    before = (tmp_path / "layer.onnx").read_bytes()
    assert prune(tmp_path / "layer.onnx") == 0
    assert (tmp_path / "layer.onnx").read_bytes() == before
