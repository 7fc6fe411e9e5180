"""The fused steps (`fuse`) in NumPy, for speed: in place where they may, and in blocks that stay in the cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.graph.erf import horner
from backends.graph.kernels import exact_product, quantize

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Bytes of a block: with its scratch it fits a core's second-level cache, where the passes over it find it again.
BLOCK_NBYTES = 1 << 18
# For `gelu`; highest power first.
_FITTED = (2.96547205e-6, -8.86767702e-6, -3.99117998e-4, 5.31700812e-3, -3.67011726e-2, -3.18185002e-1, -7.97900379e-1)
_TAIL = tuple(np.float32(c) for c in _FITTED)
_TAIL_LIMIT = np.float32(6)
_LOG_2 = np.float32(math.log(2))


def gelu(x: NDArray[np.float32], out: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return x Φ(x) in `out`, contiguous, which may be `x`; to 3e-7.

    x Φ(x) = max(x, 0) - s Φ(-s) with s = |x|, and log Φ(-s) = -log 2 + s P(s): P was fitted by weighted least squares
    on [0, 6], beyond which s Φ(-s) is below 1e-8. One exponential and no division: a third of the time of `erf`.
    """
    flat, into = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    step = BLOCK_NBYTES // 16
    scratch = np.empty((2, min(step, flat.size)), np.float32)
    for start in range(0, flat.size, step):
        part = flat[start : start + step]
        size, tail = scratch[:, : part.size]
        np.abs(part, out=size)
        np.minimum(size, _TAIL_LIMIT, out=size)
        horner(_TAIL, size, tail)
        tail *= size
        tail -= _LOG_2
        np.exp(tail, out=tail)
        tail *= size
        made = np.maximum(part, 0, out=into[start : start + step])
        made -= tail
    return out


def layer_norm(
    x: NDArray[np.float32],
    scale: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    epsilon: float,
    out: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the layer norm over the last axis in `out`, contiguous, which may be `x`."""
    width = x.shape[-1]
    rows, into = x.reshape(-1, width), out.reshape(-1, width)
    step = max(1, BLOCK_NBYTES // (4 * width))
    for start in range(0, len(rows), step):
        part, made = rows[start : start + step], into[start : start + step]
        np.subtract(part, part.mean(axis=1, keepdims=True), out=made)
        variance = np.einsum("ij,ij->i", made, made) / np.float32(width)
        made *= (1 / np.sqrt(variance + np.float32(epsilon)))[:, None]
        made *= scale
        if bias is not None:
            made += bias
    return out


def linear(
    x: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Return x[…, k] · weight[k, n] + bias[n], as one matrix product."""
    made = np.matmul(x.reshape(-1, x.shape[-1]), weight)
    if bias is not None:
        made += bias
    return np.asarray(made.reshape(*x.shape[:-1], weight.shape[-1]))


def quantised_linear(
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    scale: NDArray[np.float32],
    bias: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return x · weight scale + bias with x quantised to 8 bits by itself row by row, so that no row sees another.

    `weight` float32[k, n] holds whole numbers, its zero point taken off; the product of whole numbers is exact.
    """
    rows = x.reshape(-1, x.shape[-1])
    quantised, row_scale, zero = quantize(rows, axis=1)
    centred = quantised.astype(np.float32)
    centred -= zero.astype(np.float32)
    made = exact_product(centred, weight).astype(np.float32)
    made *= row_scale
    made *= scale
    if bias is not None:
        made += bias
    return np.asarray(made.reshape(*x.shape[:-1], weight.shape[-1]))


def attention(
    q: NDArray[np.float32],
    k: NDArray[np.float32],
    v: NDArray[np.float32],
    mask: NDArray[Any] | None,
    *,
    heads: int,
    scale: float,
    empty_rows_are_zero: bool,
) -> NDArray[np.float32]:
    """Return softmax(scale q kᵀ + mask) v per head, float32[rows, length, heads d], a few rows at a time.

    The softmax's division comes after the product with v, where there is less to divide.
    """
    rows, length, width = q.shape
    split = (rows, length, heads, width // heads)
    made = np.empty(q.shape, np.float32)
    queries, values, context = (part.reshape(split).transpose(0, 2, 1, 3) for part in (q, v, made))
    keys = k.reshape(split).transpose(0, 2, 3, 1)
    masks = None if mask is None else np.broadcast_to(mask, (rows, *np.broadcast_shapes(mask.shape, (1, 1, 1, 1))[1:]))
    step = max(1, BLOCK_NBYTES // (4 * heads * length * length))
    for start in range(0, rows, step):
        block = slice(start, start + step)
        scores = np.matmul(queries[block], keys[block])
        scores *= np.float32(scale)
        if masks is not None:
            scores += masks[block]
        highest = scores.max(axis=-1, keepdims=True)
        if empty_rows_are_zero:  # -inf less -inf is no number
            np.maximum(highest, np.finfo(np.float32).min, out=highest)
        scores -= highest
        np.exp(scores, out=scores)
        sums = scores.sum(axis=-1, keepdims=True)
        if empty_rows_are_zero:
            sums[sums == 0] = 1
        np.matmul(scores, values[block], out=context[block])
        context[block] /= sums
    return made
