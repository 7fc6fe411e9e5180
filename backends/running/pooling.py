"""Turn a model's token vectors into one vector per text, in float32 NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from backends.base import POOLING_MODES
from backends.errors import InferenceError, InvalidModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import ModelSpec, Pooling, TokenBatch


def answer(raw: NDArray[np.float32], batch: TokenBatch, spec: ModelSpec) -> NDArray[np.float32]:
    """Return what `LoadedModel.infer` gives, from what the graph gave for the batch: the same for every backend.

    Raises:
        InvalidModel: a cross-encoder gave another number of scores than there are pairs.
        InferenceError: some numbers are NaN or infinite.
    """
    if spec.task == "cross-encode":
        if raw.size != len(batch.input_ids):
            raise InvalidModel(f"model {spec.name!r} gave {raw.shape} for {batch.shape[0]} pairs: not one label")
        return require_finite(raw.reshape(-1), spec.name)
    vectors = pool(raw, batch.attention_mask, spec.pooling, prompt=batch.prompt)
    require_finite(vectors, spec.name)
    return l2_normalize(vectors) if spec.normalize else vectors


def pool(
    hidden: NDArray[np.float32], mask: NDArray[np.int64], pooling: Pooling, *, prompt: int = 0
) -> NDArray[np.float32]:
    """Reduce float32[n, length, dim] over the tokens whose mask is 1, to float32[n, dim] for each mode of the pooling.

    Of the tokens but the first `prompt`: `cls` takes the first, `last` the last, `mean` the mean, `max` the largest of
    each number, `weightedmean` the mean weighted by position (from 1, the prompt's counted), `mean_sqrt_len` the sum
    over the root of their number. Several modes, joined by "+", stand one after the other. Padding is on the right.
    `none` is for graphs that pool themselves: the input is float32[n, dim] and returned as it is. A row of nothing but
    prompt is zero where the mode is a mean.
    """
    if pooling == "none":
        return hidden
    kept = mask if not prompt else mask * (np.arange(mask.shape[1]) >= prompt)
    parts = [_pooled(hidden, kept, mode) for mode in pooling.split("+")]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _pooled(hidden: NDArray[np.float32], mask: NDArray[np.int64], mode: str) -> NDArray[np.float32]:
    rows = np.arange(len(hidden))
    if mode == "cls":
        return np.asarray(hidden[rows, mask.argmax(axis=1)])
    if mode == "last":
        found = mask.max(axis=1) > 0
        last = np.where(found, mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1), 0)
        return np.asarray(hidden[rows, last] * found[:, None], np.float32)
    if mode == "max":
        return np.asarray(np.where(mask[:, :, None] > 0, hidden, -np.inf).max(axis=1), np.float32)
    if mode not in {"mean", "mean_sqrt_len", "weightedmean"}:
        raise InvalidModel(f"pooling {mode!r} isn't known: there are {', '.join(POOLING_MODES)}")
    weights = mask.astype(np.float32)
    if mode == "weightedmean":
        weights *= np.arange(1, mask.shape[1] + 1, dtype=np.float32)
    # A masked product rather than np.where: one matrix product per row, no copy of `hidden`.
    sums = np.matmul(weights[:, None, :], hidden)[:, 0]
    counts = np.maximum(weights.sum(axis=1, keepdims=True), np.float32(1))
    return np.asarray(sums / (np.sqrt(counts) if mode == "mean_sqrt_len" else counts), np.float32)


def l2_normalize(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return float32[n, dim] with rows of length 1; a zero row stays zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1
    return np.asarray(vectors / norms, np.float32)


def require_finite(values: NDArray[np.float32], model: str) -> NDArray[np.float32]:
    """Return `values` (float32[n] or float32[n, dim]) if every number in them is finite.

    Raises:
        InferenceError: some are NaN or infinite; the message names the rows of the batch.
    """
    finite = np.isfinite(values) if values.ndim == 1 else np.isfinite(values).all(axis=1)
    if not finite.all():
        rows = np.flatnonzero(~finite).tolist()
        raise InferenceError(
            f"model {model!r} returned NaN or infinite values for rows {rows} of a batch of {len(values)}: "
            "check the model's files, or try another backend"
        )
    return values
