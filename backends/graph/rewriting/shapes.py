"""Shape and type of what each operator gives, from those of what it gets. Pure; nodes are in normal form.

What doesn't fit raises a plain Python exception, which the caller translates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.graph.node import Node, Value
from backends.graph.rewriting.normal_form import REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backends.graph.rewriting.operands import Operands

_UINT8, _FLOAT32, _INT32, _INT64 = (np.dtype(kind) for kind in (np.uint8, np.float32, np.int32, np.int64))
_BOOL = np.dtype(np.bool_)


def infer(node: Node, given: Operands) -> tuple[Value, ...]:
    """Return shape and type of each output of a node in normal form."""
    if node.op == "DynamicQuantizeLinear":
        x = given.value(0)
        return Value(x.shape, _UINT8), Value((), _FLOAT32), Value((), _UINT8)
    return (_SHAPES[node.op](node, given),)


def _like(_node: Node, given: Operands) -> Value:
    (_,) = given.values
    return given.value(0)


def _broadcast(dtype: np.dtype[Any] | None = None) -> Callable[[Node, Operands], Value]:
    def shape(_node: Node, given: Operands) -> Value:
        (_, _) = given.values
        a, b = given.value(0), given.value(1)
        return Value(np.broadcast_shapes(a.shape, b.shape), dtype or np.result_type(a.dtype, b.dtype))

    return shape


def _pow_shape(_node: Node, given: Operands) -> Value:
    a, b = given.value(0), given.value(1)
    return Value(np.broadcast_shapes(a.shape, b.shape), a.dtype)


def _where_shape(_node: Node, given: Operands) -> Value:
    chosen, a, b = (given.value(i) for i in range(3))
    if chosen.dtype != _BOOL:
        raise ValueError(f"it chooses by {chosen.dtype}")
    return Value(np.broadcast_shapes(chosen.shape, a.shape, b.shape), np.result_type(a.dtype, b.dtype))


def _matmul_shape(node: Node, given: Operands) -> Value:
    a, b = given.value(0), given.value(1)
    left, right = a.shape, b.shape
    if not left or not right or left[-1] != right[max(-2, -len(right))]:
        raise ValueError(f"shapes {left} and {right}")
    outer = np.broadcast_shapes(left[:-2], right[:-2])
    shape = (*outer, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))
    return Value(shape, _INT32 if node.op == "MatMulInteger" else np.result_type(a.dtype, b.dtype))


def _reshape_shape(node: Node, given: Operands) -> Value:
    x, shape = given.value(0), node.attributes["shape"]
    if math.prod(x.shape) != math.prod(shape):
        raise ValueError(f"{x.shape} can't be given the shape {shape}")
    return Value(shape, x.dtype)


def _gather_shape(node: Node, given: Operands) -> Value:
    x, indices, axis = given.value(0), given.value(1), node.attributes["axis"]
    if not np.issubdtype(indices.dtype, np.integer):
        raise ValueError(f"indices of {indices.dtype}")
    return Value((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _gather_nd_shape(node: Node, given: Operands) -> Value:
    x, indices, batch = given.value(0), given.value(1), node.attributes["batch_dims"]
    depth = indices.shape[-1]
    if batch + depth > len(x.shape) or x.shape[:batch] != indices.shape[:batch]:
        raise ValueError(f"indices of shape {indices.shape} into {x.shape}")
    return Value((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)


def _gather_elements_shape(node: Node, given: Operands) -> Value:
    x, indices, axis = given.value(0), given.value(1), node.attributes["axis"]
    fits = len(x.shape) == len(indices.shape) and all(i == axis or n <= x.shape[i] for i, n in enumerate(indices.shape))
    if not fits or not np.issubdtype(indices.dtype, np.integer):
        raise ValueError(f"indices of shape {indices.shape} and {indices.dtype} into {x.shape} along axis {axis}")
    return Value(indices.shape, x.dtype)


def _arg_shape(node: Node, given: Operands) -> Value:
    shape, axis = given.value(0).shape, node.attributes["axis"]
    if not shape or not shape[axis]:
        raise ValueError(f"the shape {shape} has no numbers along axis {axis}")
    return Value((*shape[:axis], *(1,) * node.attributes["keepdims"], *shape[axis + 1 :]), _INT64)


def _concat_shape(node: Node, given: Operands) -> Value:
    parts, axis = [given.value(i) for i in range(len(given.values))], node.attributes["axis"]
    rests = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
    if len(rests) != 1 or any(len(part.shape) <= axis for part in parts):
        raise ValueError(f"parts of shapes {[part.shape for part in parts]} along axis {axis}")
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Value(tuple(shape), np.result_type(*(part.dtype for part in parts)))


def _slice_shape(node: Node, given: Operands) -> Value:
    a = node.attributes
    lengths = (len(range(*bounds)) for bounds in zip(a["starts"], a["ends"], a["steps"], strict=True))
    return Value(tuple(lengths), given.value(0).dtype)


def _reduce_shape(node: Node, given: Operands) -> Value:
    x, axes = given.value(0), node.attributes["axes"]
    kept = ((i, n) for i, n in enumerate(x.shape) if i not in axes or node.attributes["keepdims"])
    return Value(tuple(1 if i in axes else n for i, n in kept), x.dtype)


def _cast_shape(node: Node, given: Operands) -> Value:
    return Value(given.value(0).shape, np.dtype(node.attributes["to"]))


def _dequantize_shape(node: Node, given: Operands) -> Value:
    x, scale = given.value(0).shape, given.value(1).shape
    if len(scale) > 1 or (scale not in ((), (1,)) and scale[0] != x[node.attributes["axis"]]):
        raise ValueError(f"a scale of shape {scale} for {x} along axis {node.attributes['axis']}")
    return Value(x, _FLOAT32)


def _layer_norm_shape(node: Node, given: Operands) -> Value:
    x, inner = given.value(0), given.value(0).shape[node.attributes["axis"] :]
    for i in range(1, len(given.values)):
        np.broadcast_to(0, given.value(i).shape)
        if np.broadcast_shapes(given.value(i).shape, inner) != inner:
            raise ValueError(f"weights of shape {given.value(i).shape} for {inner}")
    return x


def _is_nan_shape(_node: Node, given: Operands) -> Value:
    return Value(given.value(0).shape, _BOOL)


_SAME = (
    "Abs", "Ceil", "Cos", "CumSum", "Erf", "Exp", "Floor", "Log", "Neg", "Not", "Reciprocal", "Relu", "Sigmoid",
    "Sign", "Sin", "Softmax", "Sqrt", "Tanh",
)  # fmt: skip
_ARITHMETIC = ("Add", "Div", "Max", "Min", "Mod", "Mul", "Sub")
_COMPARISONS = ("And", "Equal", "Greater", "GreaterOrEqual", "Or")
_SHAPES: Mapping[str, Callable[[Node, Operands], Value]] = {
    **dict.fromkeys(_SAME, _like),
    **dict.fromkeys(_ARITHMETIC, _broadcast()),
    **dict.fromkeys(_COMPARISONS, _broadcast(_BOOL)),
    **dict.fromkeys(REDUCTIONS, _reduce_shape),
    "ArgMax": _arg_shape,
    "ArgMin": _arg_shape,
    "Cast": _cast_shape,
    "Concat": _concat_shape,
    "DequantizeLinear": _dequantize_shape,
    "Expand": lambda node, given: Value(node.attributes["shape"], given.value(0).dtype),
    "Gather": _gather_shape,
    "GatherElements": _gather_elements_shape,
    "GatherND": _gather_nd_shape,
    "IsNaN": _is_nan_shape,
    "LayerNormalization": _layer_norm_shape,
    "MatMul": _matmul_shape,
    "MatMulInteger": _matmul_shape,
    "Pow": _pow_shape,
    "Reshape": _reshape_shape,
    "Slice": _slice_shape,
    "Transpose": lambda node, given: Value(
        tuple(given.value(0).shape[i] for i in node.attributes["perm"]), given.value(0).dtype
    ),
    "Where": _where_shape,
}
# Every operator that may be a step of a Program: what a backend's table must hold, besides `DynamicQuantizeLinear`.
LOWERED = frozenset(_SHAPES) | {"DynamicQuantizeLinear"}
