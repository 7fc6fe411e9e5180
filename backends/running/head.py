"""The modules after the pooling (sentence-transformers' Dense, LayerNorm, Normalize), and the cut to fewer numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidModel
from backends.graph.erf import erf
from backends.running.pooling import l2_normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from backends.base import HeadStep

    Vectors = NDArray[np.float32]

SAFETENSORS = "model.safetensors"
_LAYER_NORM_EPSILON = 1e-5  # PyTorch's own
_SELU = 1.0507009873554805, 1.6732632423543772
_LINEAR_ABOVE = 20  # where PyTorch's Softplus is its argument


def _sigmoid(x: Vectors) -> Vectors:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)), np.float32)


def _elu(x: Vectors) -> Vectors:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _softplus(x: Vectors) -> Vectors:
    return np.where(x > _LINEAR_ABOVE, x, np.log1p(np.exp(np.minimum(x, _LINEAR_ABOVE))))


# By PyTorch's class names, with the arguments that those have when nothing is said.
ACTIVATIONS: Mapping[str, Callable[[Vectors], Vectors]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "ReLU6": lambda x: np.clip(x, 0, 6),
    "LeakyReLU": lambda x: np.where(x > 0, x, np.float32(0.01) * x),
    "GELU": lambda x: np.asarray(0.5 * x * (1 + erf(x / np.float32(np.sqrt(2)))), np.float32),
    "SiLU": lambda x: x * _sigmoid(x),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Sigmoid": _sigmoid,
    "LogSigmoid": lambda x: -_softplus(-x),
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "ELU": _elu,
    "CELU": _elu,
    "SELU": lambda x: np.float32(_SELU[0]) * np.where(x > 0, x, np.float32(_SELU[1]) * np.expm1(np.minimum(x, 0))),
    "Hardtanh": lambda x: np.clip(x, -1, 1),
    "Hardsigmoid": lambda x: np.clip(x / 6 + np.float32(0.5), 0, 1),
    "Hardswish": lambda x: x * np.clip(x / 6 + np.float32(0.5), 0, 1),
    "Tanhshrink": lambda x: x - np.tanh(x),
}


class Head:
    """The steps of a model in memory; whoever calls it gives what the pooling gave. Threads may share it."""

    def __init__(self, steps: tuple[HeadStep, ...], folder: Path) -> None:
        self._steps = [(step, _weights(folder / step.folder / SAFETENSORS) if step.folder else {}) for step in steps]
        for step, weights in self._steps:
            _check(step, weights, folder)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights."""
        return sum(value.nbytes for _, weights in self._steps for value in weights.values())

    def __call__(self, vectors: Vectors) -> Vectors:
        """Return float32[n, dim] of float32[n, width]; each row's answer depends on that row alone."""
        for step, weights in self._steps:
            vectors = _applied(step, weights, vectors)
        return np.ascontiguousarray(vectors, np.float32)


def width(steps: tuple[HeadStep, ...], pooled: int | None) -> int | None:
    """Return the numbers of a vector after the steps, of `pooled` before them; None where that isn't known."""
    for step in steps:
        if step.kind == "truncate":
            pooled = min(pooled or step.size, step.size)
        elif step.size:
            pooled = step.size
    return pooled


def _applied(step: HeadStep, weights: Mapping[str, Vectors], vectors: Vectors) -> Vectors:
    if step.kind == "normalize":
        return l2_normalize(vectors)
    if step.kind == "truncate":
        return vectors[:, : step.size]
    if step.kind == "layer-norm":
        centred = vectors - vectors.mean(axis=1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=1, keepdims=True) + np.float32(_LAYER_NORM_EPSILON))
        return np.asarray(centred / scale * weights["norm.weight"] + weights["norm.bias"], np.float32)
    made = vectors @ weights["linear.weight"].T
    if "linear.bias" in weights:
        made = made + weights["linear.bias"]
    made = np.asarray(ACTIVATIONS[step.activation](made), np.float32)
    if not step.residual:
        return made
    return made + (vectors @ weights["residual.weight"].T if "residual.weight" in weights else vectors)


def _check(step: HeadStep, weights: Mapping[str, Vectors], folder: Path) -> None:
    """Refuse weights that the step lacks, or has no use for."""
    needed, allowed = {
        "dense": ({"linear.weight"}, {"linear.bias"} | ({"residual.weight"} if step.residual else set())),
        "layer-norm": ({"norm.weight", "norm.bias"}, set()),
    }.get(step.kind, (set(), set()))
    if not needed <= weights.keys() <= needed | allowed:
        found = f"{sorted(weights)[:5]} ({len(weights)} in all)"
        raise InvalidModel(
            f"{folder / step.folder / SAFETENSORS} has the weights {found}; a {step.kind} module needs "
            f"{sorted(needed)}" + (f" and may have {sorted(allowed)}" if allowed else "")
        )


def _weights(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError  # noqa: PLC0415  (heavy: only where a model is loaded)
    from safetensors.numpy import load_file  # noqa: PLC0415  (as above)

    try:
        return {name: np.asarray(value, np.float32) for name, value in load_file(path).items()}
    except (OSError, SafetensorError, TypeError, KeyError) as exc:
        raise InvalidModel(f"can't read the weights {path}: {exc}") from exc
