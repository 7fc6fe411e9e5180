"""Programs for a shape: shape arithmetic is gone, what is left is what NumPy itself would do, whatever the shapes."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from small_graphs import as_data, model, programs, run

from backends.errors import InvalidModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

N = helper.make_node
FEEDS = {"input_ids": np.zeros((1, 1), np.int64)}
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def values(shape: list[int]) -> NDArray[np.float32]:
    """Return numbers that tell their places."""
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def applied(node: Any, x: NDArray[np.float32], **constants: Any) -> NDArray[Any]:
    """Return what a graph of one operator over data gives."""
    made = model([*as_data("x", x.dtype, 17), node], {"x": x, **constants})
    with TemporaryDirectory() as folder:
        plain, fused = programs(Path(folder) / "m.onnx", made, 1, 1)
    np.testing.assert_array_equal(run(plain, FEEDS), run(fused, FEEDS))
    return run(plain, FEEDS)


@given(st.data())
def test_values_are_broadcast_as_numpy_does_when_shapes_differ(data: Any) -> None:
    """Any two shapes that NumPy broadcasts give what NumPy gives."""
    shape = data.draw(SHAPES)
    other = [n if data.draw(st.booleans()) else 1 for n in shape[data.draw(st.integers(0, len(shape))) :]]
    x, y = values(shape), values(other)
    np.testing.assert_array_equal(applied(N("Sub", ["x.data", "o"], ["y"]), x, o=y), x - y)
    expanded = applied(N("Expand", ["x.data", "o"], ["y"]), y, o=np.array(shape))
    np.testing.assert_array_equal(expanded, np.broadcast_to(y, shape))


@given(st.data())
def test_values_keep_their_order_when_reshaped(data: Any) -> None:
    """Any order of factors, one of them left to be found, is a shape; zeros keep an axis."""
    shape = data.draw(SHAPES)
    wanted = list(data.draw(st.permutations([n for n in shape if n > 1] or [1])))
    unknown = data.draw(st.integers(0, len(wanted) - 1))
    asked = [-1 if i == unknown else n for i, n in enumerate(wanted)]
    x = values(shape)
    node = N("Reshape", ["x.data", "o"], ["y"])
    np.testing.assert_array_equal(applied(node, x, o=np.array(asked)), x.reshape(wanted))
    np.testing.assert_array_equal(applied(node, x, o=np.zeros(len(shape), np.int64)), x)


def sliced(start: int, end: int, step: int, n: int) -> list[int]:
    """Return the positions of a slice. Going backwards, a start before the first is the first, unlike in Python."""
    start, end = start + n * (start < 0), end + n * (end < 0)
    if step > 0:
        return list(range(min(max(start, 0), n), min(max(end, 0), n), step))
    return list(range(min(max(start, 0), n - 1), min(max(end, -1), n - 1), step))


@given(st.data())
def test_parts_are_the_standards_when_sliced_from_anywhere_to_anywhere(data: Any) -> None:
    """Starts, ends and steps of any sign, beyond the ends too, mean what the standard says, as in ONNX Runtime."""
    shape = data.draw(SHAPES)
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    bounds = [
        (data.draw(st.integers(-6, 6)), data.draw(st.integers(-6, 6)), data.draw(st.sampled_from([1, 2, -1, -2])))
        for _ in axes
    ]
    wanted = [list(range(n)) for n in shape]
    for axis, bound in zip(axes, bounds, strict=True):
        wanted[axis] = sliced(*bound, shape[axis])
    starts, ends, steps = (np.array(column) for column in zip(*bounds, strict=True))
    x = values(shape)
    found = applied(N("Slice", ["x.data", "a", "b", "c", "d"], ["y"]), x, a=starts, b=ends, c=np.array(axes), d=steps)
    np.testing.assert_array_equal(found, x[np.ix_(*wanted)])


@given(st.data())
def test_rows_are_numpys_when_gathered_by_any_indices(data: Any) -> None:
    """Indices of any shape, negative ones too, along any axis."""
    shape = data.draw(SHAPES)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    indices = np.array(data.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4)))
    x = values(shape)
    node = N("Gather", ["x.data", "o"], ["y"], axis=axis)
    np.testing.assert_array_equal(applied(node, x, o=indices[:, None]), np.take(x, indices[:, None], axis=axis))


BAD: dict[str, tuple[Any, dict[str, Any]]] = {
    "more than there is": (N("Reshape", ["x.data", "o"], ["y"]), {"o": np.array([7])}),
    "two unknown": (N("Reshape", ["x.data", "o"], ["y"]), {"o": np.array([-1, -1])}),
    "a shape of floats": (N("Reshape", ["x.data", "o"], ["y"]), {"o": np.float32([6])}),
    "a shape out of the data": (N("Reshape", ["x.data", "input_ids"], ["y"]), {}),
    "shapes apart": (N("Add", ["x.data", "o"], ["y"]), {"o": np.ones(4, np.float32)}),
    "no such axis": (N("Concat", ["x.data", "x.data"], ["y"], axis=2), {}),
    "parts apart": (N("Concat", ["x.data", "o"], ["y"], axis=0), {"o": np.ones((1, 4), np.float32)}),
    "inner lengths apart": (N("MatMul", ["x.data", "o"], ["y"]), {"o": np.ones((2, 2), np.float32)}),
    "not of length 1": (N("Squeeze", ["x.data", "o"], ["y"]), {"o": np.array([0])}),
    "an axis twice": (N("Unsqueeze", ["x.data", "o"], ["y"]), {"o": np.array([0, 0])}),
    "a choice by numbers": (N("Where", ["x.data", "x.data", "x.data"], ["y"]), {}),
    "indices of floats": (N("Gather", ["x.data", "x.data"], ["y"]), {}),
    "too few operands": (N("Add", ["x.data"], ["y"]), {}),
    "too many operands": (N("Exp", ["x.data", "x.data"], ["y"]), {}),
    "an operand left out": (N("MatMul", ["x.data", ""], ["y"]), {}),
    "petabytes": (N("Expand", ["x.data", "o"], ["y"]), {"o": np.array([1 << 40, 2, 3])}),
    "a step of 0": (N("Slice", ["x.data", "o", "p", "o", "o"], ["y"]), {"o": np.array([0]), "p": np.array([1])}),
    "an endless range": (
        N("Range", ["o", "p", "q"], ["y"]),
        {"o": np.array(0), "p": np.array(1 << 60), "q": np.array(1)},
    ),
    "no step": (N("Range", ["o", "p", "o"], ["y"]), {"o": np.array(0), "p": np.array(9)}),
}


@pytest.mark.parametrize(("node", "constants"), BAD.values(), ids=BAD)
def test_graph_is_refused_by_operator_when_shapes_do_not_fit(
    tmp_path: Path, node: Any, constants: dict[str, Any]
) -> None:
    """What can't be computed for any data is an invalid model, named by its operator, before anything runs."""
    x = values([2, 3])
    made = model([*as_data("x", x.dtype, 17), node], {"x": x, **constants})
    with pytest.raises(InvalidModel, match=rf"(operator|uses) {node.op_type} "):
        programs(tmp_path / "m.onnx", made, 1, 1)


def test_only_what_the_answer_needs_is_left_when_specialised(tmp_path: Path) -> None:
    """Shape arithmetic is evaluated, dead steps and unused weights are dropped, and inputs are all declared."""
    nodes = [
        N("Shape", ["input_ids"], ["s"]),
        N("Gather", ["s", "one"], ["length"]),
        N("Range", ["zero", "length", "one"], ["positions"]),
        N("Cast", ["positions"], ["p"], to=TensorProto.FLOAT),
        N("Cast", ["input_ids"], ["x"], to=TensorProto.FLOAT),
        N("Add", ["x", "p"], ["y"]),
        N("Exp", ["unused"], ["u"]),
        N("Mul", ["u", "x"], ["dead"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "unused": np.ones(3, np.float32)}
    made = model(nodes, constants, inputs=("input_ids", "attention_mask"))
    plain, _ = programs(tmp_path / "m.onnx", made, 2, 5)
    assert [node.op for node in plain.steps] == ["Cast", "Add"]
    assert list(plain.constants) == ["p"]
    assert plain.inputs.keys() == {"input_ids", "attention_mask"}
    ids = np.arange(10).reshape(2, 5)
    np.testing.assert_array_equal(run(plain, {"input_ids": ids, "attention_mask": ids}), ids + np.arange(5))
