"""Every operator, over the opsets that say it differently, gives what the `onnx` package's own evaluator gives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from operator_cases import CASES, I64, RUNTIME_CASES, Use, X
from small_graphs import as_data, model, programs, reference, run

from backends.errors import InvalidModel
from backends.graph.erf import erf
from backends.graph.graph import SUPPORTED
from backends.graph.kernels import KERNELS, exact_product, quantize
from backends.graph.rewriting.canonical import REWRITTEN
from backends.graph.rewriting.folding import ONLY_KNOWN
from backends.graph.rewriting.shapes import LOWERED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("use", CASES, ids=lambda use: f"{use.op} {use.opset} {use.attributes}")
def test_operator_gives_what_the_specification_says_when_folded_or_run(
    tmp_path: Path, use: Use, *, known: bool
) -> None:
    """Applied to constants it folds, applied to data it runs: both give what the reference evaluator computes."""
    op, weights, opset, x, attributes = use
    names = [f"w{i}" if not isinstance(w, str) else "" for i, w in enumerate(weights)]
    constants = {"x": np.asarray(x)} | {name: w for name, w in zip(names, weights, strict=True) if name}
    outputs = ["y", "y2"][: 2 if op == "Split" else 1]
    nodes = [] if known else as_data("x", constants["x"].dtype, opset)
    nodes.append(helper.make_node(op, ["x" if known else "x.data", *names], outputs, **attributes))
    made = model(nodes, constants, opset=opset)
    expected = reference(made, {"input_ids": np.zeros((1, 1), I64)})
    if op in ONLY_KNOWN - {"Shape", "Size"} and not known:
        with pytest.raises(InvalidModel, match="depends on the data"):
            programs(tmp_path / "m.onnx", made, 1, 1)
        return
    plain, fused = programs(tmp_path / "m.onnx", made, 1, 1)
    assert bool(plain.steps) != (known or op in ONLY_KNOWN)
    for program in (plain, fused):
        answer = run(program, {"input_ids": np.zeros((1, 1), I64)})
        assert (answer.shape, answer.dtype) == (expected.shape, expected.dtype)
        assert (answer.shape, answer.dtype) == (
            program.values[program.output].shape,
            program.values[program.output].dtype,
        )
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use", RUNTIME_CASES, ids=lambda use: f"{use.op} {use.opset} {use.attributes}")
def test_operator_gives_what_onnx_runtime_gives_when_the_reference_does_not(tmp_path: Path, use: Use) -> None:
    """Softmax before opset 13 (the value is a matrix), negative pads, fewer indices than data."""
    op, weights, opset, x, attributes = use
    constants = {"x": x} | {f"w{i}": w for i, w in enumerate(weights)}
    node = helper.make_node(op, ["x.data", *list(constants)[1:]], ["y"], **attributes)
    made = model([*as_data("x", x.dtype, opset), node], constants, opset=opset)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"input_ids": np.zeros((1, 1), I64)}
    for program in programs(tmp_path / "m.onnx", made, 1, 1):
        np.testing.assert_allclose(run(program, feeds), session.run(None, feeds)[0], atol=1e-6)


def test_count_is_known_when_only_the_shape_is(tmp_path: Path) -> None:
    """Size gives the number of elements, a scalar, without any data."""
    plain, _ = programs(tmp_path / "m.onnx", model([helper.make_node("Size", ["input_ids"], ["y"])], {}), 3, 5)
    assert plain.constants[plain.output].shape == ()
    assert plain.constants[plain.output] == 15


def test_every_operator_is_tested_when_it_is_supported() -> None:
    """The list above leaves no operator out, and every step that may be left has a kernel."""
    tested = {use.op for use in CASES} | {"Constant", "DynamicQuantizeLinear", "Size"}
    assert tested == SUPPORTED
    assert LOWERED - {"DynamicQuantizeLinear"} <= KERNELS.keys()
    assert KERNELS.keys() <= SUPPORTED
    assert REWRITTEN <= SUPPORTED


def test_quantised_values_are_the_specifications_when_quantised_over_everything(tmp_path: Path) -> None:
    """DynamicQuantizeLinear of data gives the reference evaluator's integers, scale and zero point."""
    for x in (X, np.abs(X), -np.abs(X), np.zeros_like(X)):
        for output, name in enumerate(("y", "s", "z")):
            nodes = [*as_data("x", x.dtype, 17), helper.make_node("DynamicQuantizeLinear", ["x.data"], ["y", "s", "z"])]
            made = model(nodes, {"x": x}, output=name)
            plain, _ = programs(tmp_path / "m.onnx", made, 1, 1)
            feeds = {"input_ids": np.zeros((1, 1), I64)}
            if np.any(x):
                np.testing.assert_allclose(run(plain, feeds), reference(made, feeds), atol=1e-7)
            assert np.isfinite(run(plain, feeds)).all(), output


@given(st.integers(1, 2000), st.integers(0, 2**32 - 1))
def test_product_of_bytes_is_exact_when_it_is_long(length: int, seed: int) -> None:
    """Products of 8-bit matrices through float32 are the integers' own, however many are added."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-255, 256, (2, length)), rng.choice([-255, 255, 127], (length, 3))
    product = exact_product(a.astype(np.float32), b.astype(np.float32))
    np.testing.assert_array_equal(product, a @ b)
    extreme = exact_product(np.full((1, length), 255, np.float32), np.full((length, 1), 255, np.float32))
    assert extreme[0, 0] == 255 * 255 * length


def test_rows_do_not_see_each_other_when_they_are_quantised_by_themselves() -> None:
    """Quantised along an axis, a row gives the same integers alone as beside others."""
    values, scale, zero = quantize(X[0], axis=1)
    for row in range(len(X[0])):
        alone = quantize(X[0][row : row + 1], axis=1)
        np.testing.assert_array_equal(values[row], alone[0][0])
        assert (scale[row], zero[row]) == (alone[1][0], alone[2][0])
    np.testing.assert_allclose((values.astype(np.float32) - zero) * scale, X[0], atol=float(scale.max()) / 2 + 1e-6)


def test_error_function_is_within_one_ten_millionth_when_asked_anywhere() -> None:
    """Erf in float32 against the C library's, over everything where it changes, and at its ends."""
    x = np.concatenate([np.linspace(-5, 5, 200_001), np.logspace(-30, 0, 1000)]).astype(np.float32)
    expected = np.array([math.erf(value) for value in x.tolist()])
    assert np.abs(erf(x) - expected).max() < 1e-7
    np.testing.assert_array_equal(erf(np.float32([np.inf, -np.inf, 0, 9, -1e30])), [1, -1, 0, 1, -1])
    assert np.isnan(erf(np.float32([np.nan])))[0]
    np.testing.assert_array_equal(erf(x.copy(), out=x.copy()), erf(x))
