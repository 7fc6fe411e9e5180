"""What each operator computes, in jax.numpy: the table that a program is lowered with.

Kernels take a node in normal form (`normal_form`), or a fused one (`fuse`), and its inputs. Whole numbers are int32.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array

    from backends.graph.node import Node

    Kernel = Callable[..., Any]

# Sums are always float32, and a float32 product is one on an accelerator too (its default there is fewer bits).
_FLOAT_SUMS: Mapping[str, Any] = {"preferred_element_type": jnp.float32, "precision": lax.Precision.HIGHEST}
_TINY = float(np.finfo(np.float32).tiny)
# Scores that are made at once. XLA's kernel library allocates them anew each time, and beyond some 16 MB the C library
# takes every page from the system and gives it back, which doubled the time of 384 tokens and more. Whole rows are
# cut off first: parts of a row's queries are slower.
_SCORES = 3 << 20
_LOWEST = -1e30  # stands for -inf in a mask: as good as that beside any score, and no NaN where a whole row is masked
_INTEGERS = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


def kernels(product_type: Any) -> Mapping[str, Kernel]:  # noqa: ANN401  (a NumPy or JAX type)
    """Return the table, for products of float values that are rounded to `product_type` first.

    A constant right side has that type already; every other product rounds both of its sides.
    """
    return {
        **_KERNELS,
        "MatMul": partial(_matmul, product_type),
        "vs.Attention": partial(_attention, product_type),
        "vs.Linear": lambda node, x, weight, bias: _matmul(product_type, node, x, weight) + bias,
    }


def narrow(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that stands for this one here: nothing is wider than 32 bits."""
    return np.dtype(_INTEGERS.get(dtype.name, dtype))


def _matmul(product_type: Any, _node: Node, a: Array, b: Array) -> Array:  # noqa: ANN401  (as above)
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return jnp.matmul(a, b)
    return jnp.matmul(a.astype(product_type), b.astype(product_type), **_FLOAT_SUMS)


def _attention(product_type: Any, node: Node, *operands: Any) -> Array:  # noqa: ANN401  (arrays; the mask may be None)
    """Vaswani et al. 2017, eq. 1. Rounded before the heads are moved: half the bytes; divided after the product."""
    q, k, v, mask = operands
    rows, length, _ = q.shape
    heads = node.attributes["heads"]

    def split(x: Array) -> Array:
        return x.astype(product_type).reshape(rows, -1, heads, x.shape[2] // heads).transpose(0, 2, 1, 3)

    q, k, v = split(q * node.attributes["scale"]), split(k), split(v)
    scores = heads * length * k.shape[2]  # of one row
    count, size = max(1, _SCORES // scores), -(-length // -(-scores // _SCORES))
    contexts = []
    for first in range(0, rows, count):
        at = slice(first, first + count)
        queries = (slice(start, start + size) for start in range(0, length, size))
        parts = [_attend(q[at, :, some], k[at], v[at], _part(mask, at, some)) for some in queries]
        contexts.append(jnp.concatenate(parts, axis=2))
    context = jnp.concatenate(contexts)
    if mask is not None and node.attributes["empty_rows_are_zero"]:
        context = jnp.where(jnp.isneginf(mask.max(axis=-1, keepdims=True)), 0, context)
    return context.transpose(0, 2, 1, 3).reshape(rows, length, -1)


def _attend(q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    """Return float32[rows, heads, queries, d], of float[rows, heads, …, d] each.

    Written as XLA's processor back end recognises it whole: both sides of the first product contract their last axis,
    and nothing but the mask stands between the products.
    """
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, **_FLOAT_SUMS)
    if mask is not None:
        scores = scores + jnp.maximum(mask, _LOWEST)
    weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
    total = weights.sum(axis=-1, keepdims=True)
    return jnp.einsum("bhqk,bhkd->bhqd", weights.astype(q.dtype), v, **_FLOAT_SUMS) / total


def _part(mask: Array | None, rows: slice, queries: slice) -> Array | None:
    """Return the part of a mask for these rows and queries, where it has one for each."""
    if mask is None:
        return None
    at = [rows, slice(None), queries, slice(None)][4 - mask.ndim :]
    return mask[tuple(part if size > 1 else slice(None) for part, size in zip(at, mask.shape, strict=True))]


def _quantised_matmul(
    _node: Node, x: Array, weight: Array, scale: Array, zero: Array | None, bias: Array | None
) -> Array:
    """Multiply 8-bit integers; x is rounded row by row, so that a row's answer doesn't depend on the others.

    With x ≈ a r, r the row's step: x (w - z) ≈ r (a w - z Σa).
    """
    step = jnp.maximum(jnp.abs(x).max(axis=-1, keepdims=True), _TINY) / 127
    rounded = jnp.round(x / step).astype(jnp.int8)
    product = jnp.matmul(rounded, weight, preferred_element_type=jnp.int32)
    if zero is not None:
        product = product - rounded.sum(axis=-1, keepdims=True, dtype=jnp.int32) * zero.astype(jnp.int32)
    y = product.astype(jnp.float32) * (step * scale)
    return y if bias is None else y + bias


def _dynamic_quantize(_node: Node, x: Array) -> tuple[Array, Array, Array]:
    """Quantise as ONNX does, but row by row; scale and zero point keep the last axis, with length 1."""
    low, high = (jnp.minimum(x.min(-1, keepdims=True), 0), jnp.maximum(x.max(-1, keepdims=True), 0))
    scale = (high - low) / 255
    scale = jnp.where(scale == 0, 1, scale)
    zero = jnp.clip(jnp.round(-low / scale), 0, 255)
    rounded = jnp.clip(jnp.round(x / scale) + zero, 0, 255)
    return rounded.astype(jnp.uint8), scale, zero.astype(jnp.uint8)


def _matmul_integer(_node: Node, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    a, b = (x.astype(jnp.int32) for x in (a, b))
    if a_zero is not None:
        a = a - (a_zero[:, None] if a_zero.ndim == 1 and a_zero.size > 1 else a_zero).astype(jnp.int32)
    return jnp.matmul(a, b if b_zero is None else b - b_zero.astype(jnp.int32))


def _dequantize(node: Node, x: Array, scale: Array, zero: Array | None = None) -> Array:
    shape = [1] * x.ndim if scale.ndim < 2 else list(scale.shape)  # noqa: PLR2004  (one number, or one along an axis)
    if scale.ndim == 1 and scale.size > 1:
        shape[node.attributes["axis"]] = scale.size
    y = x.astype(jnp.float32)
    if zero is not None:
        y = y - zero.astype(jnp.float32).reshape(shape)
    return y * scale.reshape(shape)


def _divide(_node: Node, a: Array, b: Array) -> Array:
    return lax.div(*jnp.broadcast_arrays(a, b)) if jnp.issubdtype(jnp.result_type(a, b), jnp.integer) else a / b


def _power(_node: Node, a: Array, b: Array) -> Array:
    return jnp.power(a, b).astype(a.dtype)


def _gather(node: Node, data: Array, indices: Array) -> Array:
    # An id that is out of range gives NaN (of whole numbers: the lowest), which the caller refuses.
    return jnp.take(data, indices, axis=node.attributes["axis"], mode="fill")


def _gather_elements(node: Node, data: Array, indices: Array) -> Array:
    axis = node.attributes["axis"]
    within = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))
    return jnp.take_along_axis(data[within], indices, axis, mode="fill")


def _arg(function: Callable[..., Array]) -> Kernel:
    def kernel(node: Node, x: Array) -> Array:
        a = node.attributes
        axis, last = a["axis"], a["select_last_index"]
        found = function(jnp.flip(x, axis) if last else x, axis=axis, keepdims=bool(a["keepdims"]))
        return (x.shape[axis] - 1 - found if last else found).astype(jnp.int32)

    return kernel


def _gather_nd(node: Node, data: Array, indices: Array) -> Array:
    def gather(x: Array, at: Array) -> Array:
        return x.at[tuple(jnp.moveaxis(at, -1, 0))].get(mode="fill")

    for _ in range(node.attributes["batch_dims"]):
        gather = jax.vmap(gather)
    return gather(data, indices)


def _slice(node: Node, x: Array) -> Array:
    a = node.attributes
    bounds = zip(a["starts"], a["ends"], a["steps"], strict=True)
    return x[tuple(slice(start, None if end < 0 else end, step) for start, end, step in bounds)]


def _reduce(function: Callable[..., Array]) -> Kernel:
    def kernel(node: Node, x: Array) -> Array:
        return function(x, axis=node.attributes["axes"], keepdims=bool(node.attributes["keepdims"])).astype(x.dtype)

    return kernel


def _layer_norm(node: Node, x: Array, scale: Array, bias: Array | None = None) -> Array:
    """Ba, Kiros & Hinton 2016, over the axes from `axis` on. In two passes: one loses bits where the mean is large."""
    axes = tuple(range(node.attributes["axis"], x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = jnp.square(centred).mean(axis=axes, keepdims=True)
    y = centred * lax.rsqrt(variance + node.attributes["epsilon"]) * scale
    return y if bias is None else y + bias


def _cumsum(node: Node, x: Array) -> Array:
    axis, reverse = node.attributes["axis"], bool(node.attributes["reverse"])
    total = lax.cumsum(x, axis=axis, reverse=reverse)
    return total - x if node.attributes["exclusive"] else total


def _modulo(node: Node, a: Array, b: Array) -> Array:
    return (jnp.fmod if node.attributes.get("fmod", 0) else jnp.mod)(a, b)


def _plain(function: Callable[..., Array]) -> Kernel:
    return lambda _node, *inputs: function(*inputs)


_PLAIN: Mapping[str, Callable[..., Array]] = {
    "Abs": jnp.abs, "Add": jnp.add, "And": jnp.logical_and, "Ceil": jnp.ceil, "Cos": jnp.cos,
    "Equal": jnp.equal, "Erf": lax.erf, "Exp": jnp.exp, "Floor": jnp.floor, "Greater": jnp.greater,
    "GreaterOrEqual": jnp.greater_equal, "Identity": jnp.asarray, "IsNaN": jnp.isnan, "Log": jnp.log,
    "Max": jnp.maximum, "Min": jnp.minimum, "Mul": jnp.multiply, "Neg": jnp.negative, "Not": jnp.logical_not,
    "Or": jnp.logical_or, "Reciprocal": jnp.reciprocal, "Relu": jax.nn.relu, "Sigmoid": jax.nn.sigmoid,
    "Sign": jnp.sign, "Sin": jnp.sin, "Sqrt": jnp.sqrt, "Sub": jnp.subtract, "Tanh": jnp.tanh,
    "Where": jnp.where,
}  # fmt: skip
_KERNELS: Mapping[str, Kernel] = {
    "ArgMax": _arg(jnp.argmax),
    "ArgMin": _arg(jnp.argmin),
    "Cast": lambda node, x: x.astype(narrow(np.dtype(node.attributes["to"]))),
    "Concat": lambda node, *parts: jnp.concatenate(parts, axis=node.attributes["axis"]),
    "CumSum": _cumsum,
    "DequantizeLinear": _dequantize,
    "Div": _divide,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Expand": lambda node, x: jnp.broadcast_to(x, node.attributes["shape"]),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "LayerNormalization": _layer_norm,
    "MatMulInteger": _matmul_integer,
    "Mod": _modulo,
    "Pow": _power,
    "ReduceMax": _reduce(jnp.max),
    "ReduceMean": _reduce(jnp.mean),
    "ReduceMin": _reduce(jnp.min),
    "ReduceSum": _reduce(jnp.sum),
    "Reshape": lambda node, x: x.reshape(node.attributes["shape"]),
    "Slice": _slice,
    "Softmax": lambda node, x: jax.nn.softmax(x, axis=node.attributes["axis"]),
    "Transpose": lambda node, x: x.transpose(node.attributes["perm"]),
    "vs.Gelu": lambda _node, x: 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5))),  # jax.nn's is slower by half
    "vs.QuantisedMatMul": _quantised_matmul,
    **{op: _plain(function) for op, function in _PLAIN.items()},
}
