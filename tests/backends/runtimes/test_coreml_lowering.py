"""Each operator's lowering, given constants, is computed by coremltools itself and compared with NumPy's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from coremltools.converters.mil import mil

from backends.errors import CannotServe
from backends.graph.kernels import compute
from backends.graph.node import Node, Value
from backends.graph.rewriting.shapes import LOWERED
from backends.graph.rewriting.specialise import Program
from backends.runtimes.coreml_lowering import OPERATORS, lower

if TYPE_CHECKING:
    from numpy.typing import NDArray

RNG = np.random.default_rng(7)
X = RNG.normal(size=(2, 3, 4)).astype(np.float32)
Y = RNG.normal(size=(3, 1)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
WHOLE = RNG.integers(-5, 5, (2, 3, 4))
TRUTH = X > 0
IDS = np.array([[3, 0, -1], [1, 1, 2]])
BYTES = RNG.integers(0, 255, (4, 5)).astype(np.uint8)
PLACES = np.array([[0, 2], [1, -1], [0, 0]])
SCALES = np.array([0.5, 0.25, 2], np.float32)
ZEROS = np.array([3, -4, 0], np.int8)
NOT_A_NUMBER = np.array([1, np.nan, np.inf], np.float32)

UNARY = ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Relu", "Sigmoid", "Sign", "Sin", "Tanh")
BINARY = ("Add", "Max", "Min", "Mul", "Sub", "Equal", "Greater", "GreaterOrEqual")
REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
# Operator, inputs in order (None is left out), attributes of the normal form.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((op, (X,), {}) for op in UNARY),
    *((op, (POSITIVE,), {}) for op in ("Log", "Reciprocal", "Sqrt")),
    *((op, (X, Y), {}) for op in BINARY),
    *((op, (WHOLE, WHOLE[:1]), {}) for op in BINARY),
    *((op, (X,), {"axes": (0, 2), "keepdims": keep}) for op in REDUCTIONS for keep in (0, 1)),
    ("And", (TRUTH, TRUTH[:1]), {}),
    ("Or", (TRUTH, TRUTH[:1]), {}),
    ("Not", (TRUTH,), {}),
    ("Equal", (TRUTH, TRUTH[:1]), {}),
    ("Neg", (WHOLE,), {}),
    ("Cast", (X,), {"to": "int64"}),
    ("Cast", (WHOLE,), {"to": "float32"}),
    ("Cast", (WHOLE,), {"to": "bool"}),
    ("Cast", (TRUTH,), {"to": "float32"}),
    ("Concat", (X, X[:, :1]), {"axis": 1}),
    ("CumSum", (X,), {"axis": 1, "exclusive": 1, "reverse": 1}),
    ("CumSum", (WHOLE,), {"axis": 2, "exclusive": 0, "reverse": 0}),
    ("DequantizeLinear", (WHOLE.astype(np.int8), np.float32(0.1), np.int8(3)), {"axis": 1}),
    ("DequantizeLinear", (WHOLE.astype(np.int8), SCALES, ZEROS), {"axis": 1}),
    ("DequantizeLinear", (WHOLE.astype(np.int8), np.float32(0.1)), {"axis": 1}),
    ("Div", (X, POSITIVE), {}),
    ("Expand", (Y,), {"shape": (2, 3, 4)}),
    ("Expand", (TRUTH[:, :1],), {"shape": (2, 3, 4)}),
    ("Gather", (X, IDS), {"axis": 2}),
    ("Gather", (TRUTH, np.array(1)), {"axis": 1}),
    ("GatherND", (X, PLACES), {"batch_dims": 0}),
    ("GatherND", (TRUTH, PLACES.reshape(3, 1, 1, 2)), {"batch_dims": 0}),
    ("GatherND", (X, np.array([[[1]], [[-2]]])), {"batch_dims": 1}),
    ("GatherElements", (X, np.array([[[0, -1], [3, 2]]])), {"axis": 2}),
    ("GatherElements", (TRUTH, np.array([[[0, 1, -2, 1]]])), {"axis": 0}),
    *(
        (op, (x,), {"axis": axis, "keepdims": keep, "select_last_index": last})
        for op in ("ArgMax", "ArgMin")
        for x, axis, keep, last in ((X, 1, 1, 0), (WHOLE, 2, 0, 0), (WHOLE, 0, 0, 1), (WHOLE * 0, 2, 1, 1))
    ),
    ("IsNaN", (NOT_A_NUMBER,), {}),
    ("LayerNormalization", (X, X[0, 0], X[0, 1]), {"axis": 2, "epsilon": 1e-12}),
    ("LayerNormalization", (X, X[0], None), {"axis": 1, "epsilon": 1e-5}),
    ("MatMul", (X, X[0].T), {}),
    ("MatMul", (X, X.transpose(0, 2, 1)), {}),
    ("MatMulInteger", (WHOLE.astype(np.int8), BYTES, np.int8(-2), BYTES[0]), {}),
    ("MatMulInteger", (WHOLE.astype(np.int8), BYTES), {}),
    ("Pow", (X, np.float32(2)), {}),
    ("Pow", (POSITIVE, np.float32(0.3)), {}),
    ("Reshape", (X,), {"shape": (6, 4)}),
    ("Reshape", (TRUTH,), {"shape": (2, 1, 3, 4)}),
    ("Slice", (X,), {"starts": (0, 1, 0), "ends": (2, 3, 4), "steps": (1, 1, 2)}),
    ("Slice", (X,), {"starts": (1, 2, 0), "ends": (-1, 0, 4), "steps": (-1, -1, 1)}),
    ("Softmax", (X,), {"axis": 2}),
    ("Softmax", (X,), {"axis": 1}),
    ("Transpose", (X,), {"perm": (2, 0, 1)}),
    ("Where", (TRUTH[:1], X[:, :1], np.float32(-1)), {}),
]


def evaluate(program: Program, feeds: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the program's answer as coremltools computes it from constants."""
    with mil.Function({}):
        constants = {name: mil.Builder.const(val=value.astype(np.int32)) for name, value in feeds.items()}
        return np.asarray(lower(program, constants, mil.Builder).val)


def program_of(node: Node, arrays: dict[str, NDArray[Any]], shape: tuple[int, ...] = ()) -> Program:
    values = dict.fromkeys(node.outputs, Value(shape, np.dtype(np.float32)))
    return Program((node,), arrays, {}, node.outputs[0], values)


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES)
def test_operator_equals_numpy_when_its_inputs_are_constant(
    op: str, inputs: tuple[Any, ...], attributes: dict[str, Any]
) -> None:
    """Each operator gives NumPy's numbers, in its shape and kind."""
    arrays = {f"x{i}": np.asarray(value) for i, value in enumerate(inputs) if value is not None}
    names = tuple(f"x{i}" if value is not None else "" for i, value in enumerate(inputs))
    node = Node(op, names, ("y",), attributes)
    (expected,) = compute(node, [arrays.get(name) for name in names])
    given = evaluate(program_of(node, arrays, expected.shape), {})
    assert given.shape == expected.shape
    assert given.dtype.kind == ("f" if op == "MatMulInteger" else expected.dtype.kind)
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)


def test_table_of_operators_is_complete() -> None:
    """Every operator that a program can hold has a lowering, and every lowering a case here."""
    assert set(OPERATORS) >= LOWERED - {"Mod"}
    assert {op for op, _, _ in CASES} | {"DynamicQuantizeLinear"} == set(OPERATORS)


def test_quantisation_of_activations_is_left_out() -> None:
    """An integer product over quantised activations is the float product with the dequantised weights."""
    steps = (
        Node("DynamicQuantizeLinear", ("x",), ("q", "scale", "zero")),
        Node("MatMulInteger", ("q", "w", "zero", "wz"), ("p",)),
        Node("Cast", ("p",), ("f",), {"to": "float32"}),
        Node("Mul", ("f", "scale"), ("y",)),
    )
    arrays = {"x": X, "w": BYTES, "wz": np.uint8(128)}
    values = dict.fromkeys("qpfy", Value((2, 3, 5), np.dtype(np.float32)))
    given = evaluate(Program(steps, arrays, {}, "y", values), {})  # type: ignore[arg-type]  # scalars of NumPy are arrays
    np.testing.assert_allclose(given, X @ (BYTES.astype(np.float32) - 128), rtol=1e-5)


def test_largest_int64_is_kept_as_the_largest_int32() -> None:
    """A bound beyond int32 is clipped, never wrapped."""
    largest = np.array([np.iinfo(np.int64).max, np.iinfo(np.int64).min])
    node = Node("Max", ("a", "b"), ("y",))
    given = evaluate(program_of(node, {"a": largest, "b": np.array([5, 5])}, (2,)), {})
    assert given.tolist() == [np.iinfo(np.int32).max, 5]


@pytest.mark.parametrize(
    ("node", "named"),
    [
        (Node("Einsum", ("a",), ("y",)), "Einsum"),
        (Node("Div", ("n", "n"), ("y",)), "whole numbers"),
    ],
)
def test_unknown_form_is_refused_by_name(node: Node, named: str) -> None:
    """What has no counterpart is refused, and the message names it."""
    with pytest.raises(CannotServe, match=named):
        evaluate(program_of(node, {"a": X, "n": np.array([[1], [2]])}, (2,)), {})


def test_computed_input_is_refused_when_a_constant_is_needed() -> None:
    """A scale that depends on the model's inputs can't be lowered, and the message names the operator."""
    with mil.Function({"ids": mil.Builder.placeholder(shape=(4,), dtype=mil.types.fp32)}) as main:
        node = Node("LayerNormalization", ("x", "ids"), ("y",), {"axis": 2, "epsilon": 1e-5})
        with pytest.raises(CannotServe, match="LayerNormalization only with a constant input 1"):
            lower(program_of(node, {"x": X}, X.shape), dict(main.inputs), mil.Builder)
