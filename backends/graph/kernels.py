"""What each operator computes, in NumPy: folds constants and shape arithmetic, and is the NumPy backend's base.

Every kernel takes a node in normal form (`specialise`) and its inputs, and returns its outputs. Meanings are those of
the ONNX operator specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backends.graph.erf import erf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from backends.graph.node import Node

    Kernel = Callable[..., NDArray[Any]]


def compute(node: Node, inputs: list[NDArray[Any] | None]) -> tuple[NDArray[Any], ...]:
    """Return a node's outputs; inputs that are left out are None."""
    if node.op == "DynamicQuantizeLinear":
        return quantize(_present(inputs[0]))
    return (np.asarray(KERNELS[node.op](node, *inputs)),)


def quantize(x: NDArray[np.float32], axis: int | None = None) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any]]:
    """Return uint8 values, scale and zero point; over everything as ONNX has it, or over one axis, kept as length 1.

    DynamicQuantizeLinear of the ONNX specification: the range always holds 0, so that padding is exact.
    """
    low = np.minimum(x.min(axis=axis, keepdims=axis is not None), np.float32(0))
    high = np.maximum(x.max(axis=axis, keepdims=axis is not None), np.float32(0))
    scale = np.asarray((high - low) / np.float32(255), np.float32)
    scale = np.where(scale == 0, np.float32(1), scale)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    quantized = np.clip(np.rint(x / scale) + zero, 0, 255)
    return quantized.astype(np.uint8), np.asarray(scale, np.float32), np.asarray(zero, np.uint8)


def matmul_integer(
    left: NDArray[Any], right: NDArray[Any], left_zero: NDArray[Any] | None, right_zero: NDArray[Any] | None
) -> NDArray[np.int32]:
    """Return the exact product of 8-bit matrices less their zero points; see `exact_product`."""
    a = left.astype(np.float32)
    b = right.astype(np.float32)
    if left_zero is not None:  # one for all, or one for each row
        a -= left_zero.astype(np.float32).reshape(-1, 1) if left_zero.ndim == 1 else left_zero.astype(np.float32)
    if right_zero is not None:  # one for all, or one for each column
        b -= right_zero.astype(np.float32)
    return exact_product(a, b).astype(np.int32)


def exact_product(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the product of matrices of whole numbers up to 255, exactly, through float32 matrix products.

    float32 holds every whole number up to 2**24, so 258 products of 255 x 255 add up exactly in any order; longer sums
    are cut into such parts, and these are added in float64.
    """
    part = 258
    total: NDArray[np.float64] = np.matmul(left[..., :part], right[..., :part, :]).astype(np.float64)
    for start in range(part, left.shape[-1], part):
        total += np.matmul(left[..., start : start + part], right[..., start : start + part, :])
    return total


def _present(value: NDArray[Any] | None) -> NDArray[Any]:
    if value is None:
        raise ValueError("an input that is needed is left out")
    return value


def _unary(function: Callable[..., Any]) -> Kernel:
    return lambda _node, x: np.asarray(function(x)).astype(x.dtype, copy=False)


def _binary(function: Callable[..., Any]) -> Kernel:
    return lambda _node, a, b: np.asarray(function(a, b))


def _divide(_node: Node, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    if np.issubdtype(np.result_type(a, b), np.integer):  # ONNX rounds to zero, NumPy down
        return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)), np.result_type(a, b))
    return np.asarray(a / b)


def _power(_node: Node, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    if b.size == 1 and float(b.reshape(())) == 2:  # noqa: PLR2004  (a square; half the time of a power)
        return np.broadcast_to(a * a, np.broadcast_shapes(a.shape, b.shape))
    return np.asarray(np.power(a, b)).astype(a.dtype, copy=False)


def _cast(node: Node, x: NDArray[Any]) -> NDArray[Any]:
    return x.astype(np.dtype(node.attributes["to"]), copy=False)


def _clip_index(indices: NDArray[Any], length: int) -> NDArray[Any]:
    return np.where(indices < 0, indices + length, indices)


def _gather(node: Node, data: NDArray[Any], indices: NDArray[Any]) -> NDArray[Any]:
    axis = node.attributes["axis"]
    return np.take(data, _clip_index(indices, data.shape[axis]), axis=axis, mode="raise")


def _gather_nd(node: Node, data: NDArray[Any], indices: NDArray[Any]) -> NDArray[Any]:
    batch = node.attributes["batch_dims"]
    grid = np.ogrid[tuple(slice(n) for n in data.shape[:batch])]
    ahead = indices.ndim - 1 - batch
    chosen = [g.reshape(g.shape + (1,) * ahead) for g in grid]
    return np.asarray(data[(*chosen, *np.moveaxis(indices, -1, 0))])


def _gather_elements(node: Node, data: NDArray[Any], indices: NDArray[Any]) -> NDArray[Any]:
    axis = node.attributes["axis"]
    within = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))
    return np.take_along_axis(data[within], _clip_index(indices, data.shape[axis]), axis)


def _arg(function: Callable[..., Any]) -> Kernel:
    def kernel(node: Node, x: NDArray[Any]) -> NDArray[Any]:
        a = node.attributes
        axis, last = a["axis"], a["select_last_index"]
        found = np.asarray(function(np.flip(x, axis) if last else x, axis=axis, keepdims=bool(a["keepdims"])))
        return (x.shape[axis] - 1 - found if last else found).astype(np.int64)

    return kernel


def _nonzero(_node: Node, x: NDArray[Any]) -> NDArray[Any]:
    return np.stack(np.nonzero(x)) if x.ndim else np.zeros((0, int(x != 0)), np.int64)


def _slice(node: Node, x: NDArray[Any]) -> NDArray[Any]:
    a = node.attributes
    bounds = zip(a["starts"], a["ends"], a["steps"], strict=True)
    return np.asarray(x[tuple(slice(start, None if end < 0 else end, step) for start, end, step in bounds)])


def _concat(node: Node, *parts: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate(parts, axis=node.attributes["axis"])


def _reduce(function: Callable[..., Any]) -> Kernel:
    def kernel(node: Node, x: NDArray[Any]) -> NDArray[Any]:
        a = node.attributes
        return np.asarray(function(x, axis=a["axes"], keepdims=bool(a["keepdims"]))).astype(x.dtype, copy=False)

    return kernel


def _softmax(node: Node, x: NDArray[Any]) -> NDArray[Any]:
    axis = node.attributes["axis"]
    y = x - x.max(axis=axis, keepdims=True)
    np.exp(y, out=y)
    return np.asarray(y / y.sum(axis=axis, keepdims=True))


def _layer_norm(node: Node, x: NDArray[Any], scale: NDArray[Any], bias: NDArray[Any] | None = None) -> NDArray[Any]:
    """Ba, Kiros & Hinton 2016, over the axes from `axis` on."""
    axes = tuple(range(node.attributes["axis"], x.ndim))
    y = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(y).mean(axis=axes, keepdims=True)
    y /= np.sqrt(variance + np.float32(node.attributes["epsilon"]))
    y *= scale
    return np.asarray(y if bias is None else y + bias)


def _cumsum(node: Node, x: NDArray[Any]) -> NDArray[Any]:
    axis, reverse = node.attributes["axis"], node.attributes["reverse"]
    y = np.flip(x, axis) if reverse else x
    total = np.cumsum(y, axis=axis, dtype=x.dtype)
    if node.attributes["exclusive"]:
        total = total - y
    return np.flip(total, axis) if reverse else total


def _dequantize(node: Node, x: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any] | None = None) -> NDArray[Any]:
    shape = [1] * x.ndim
    if scale.ndim == 1 and scale.size > 1:
        shape[node.attributes["axis"]] = scale.size
    elif scale.ndim > 1:
        shape = list(scale.shape)
    y = x.astype(np.float32)
    if zero is not None:
        y -= zero.astype(np.float32).reshape(shape)
    return y * scale.astype(np.float32).reshape(shape)


def _matmul_integer(
    _node: Node,
    a: NDArray[Any],
    b: NDArray[Any],
    a_zero: NDArray[Any] | None = None,
    b_zero: NDArray[Any] | None = None,
) -> NDArray[Any]:
    return matmul_integer(a, b, a_zero, b_zero)


def _range(_node: Node, start: NDArray[Any], limit: NDArray[Any], delta: NDArray[Any]) -> NDArray[Any]:
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)


def _constant_of_shape(node: Node, shape: NDArray[Any]) -> NDArray[Any]:
    value = np.asarray(node.attributes.get("value", np.zeros(1, np.float32)))
    return np.broadcast_to(value.reshape(()), tuple(shape.tolist()))


def _modulo(node: Node, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.asarray((np.fmod if node.attributes.get("fmod", 0) else np.mod)(a, b))


KERNELS: Mapping[str, Kernel] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "ArgMax": _arg(np.argmax),
    "ArgMin": _arg(np.argmin),
    "Cast": _cast,
    "Ceil": _unary(np.ceil),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Cos": _unary(np.cos),
    "CumSum": _cumsum,
    "DequantizeLinear": _dequantize,
    "Div": _divide,
    "Equal": _binary(np.equal),
    "Erf": _unary(erf),
    "Exp": _unary(np.exp),
    "Expand": lambda node, x: np.broadcast_to(x, node.attributes["shape"]),
    "Floor": _unary(np.floor),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Identity": lambda _node, x: x,
    "IsNaN": lambda _node, x: np.isnan(x),
    "LayerNormalization": _layer_norm,
    "Log": _unary(np.log),
    "MatMul": _binary(np.matmul),
    "MatMulInteger": _matmul_integer,
    "Max": _binary(np.maximum),
    "Min": _binary(np.minimum),
    "Mod": _modulo,
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "NonZero": _nonzero,
    "Not": lambda _node, x: np.logical_not(x),
    "Or": _binary(np.logical_or),
    "Pow": _power,
    "Range": _range,
    "Reciprocal": _unary(np.reciprocal),
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "ReduceMin": _reduce(np.min),
    "ReduceSum": _reduce(np.sum),
    "Relu": _unary(lambda x: np.maximum(x, 0)),
    "Reshape": lambda node, x: x.reshape(node.attributes["shape"]),
    "Sigmoid": _unary(lambda x: 1 / (1 + np.exp(-x))),
    "Sign": _unary(np.sign),
    "Sin": _unary(np.sin),
    "Slice": _slice,
    "Softmax": _softmax,
    "Sqrt": _unary(np.sqrt),
    "Sub": _binary(np.subtract),
    "Tanh": _unary(np.tanh),
    "Transpose": lambda node, x: x.transpose(node.attributes["perm"]),
    "Where": lambda _node, chosen, a, b: np.asarray(np.where(chosen, a, b)),
}
