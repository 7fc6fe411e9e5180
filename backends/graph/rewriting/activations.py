"""Activations and small reductions, each written as a few operators that every backend has. Needs no shape.

Formulas are those of the ONNX operator specification, in the form that neither overflows nor loses small numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backends.graph.node import Node
    from backends.graph.rewriting.rewriting_graph import Rewriting


def _number(to: Rewriting, value: float) -> str:
    return to.constant(value, np.float32)


def _shifted(to: Rewriting, x: str, scale: float, shift: float) -> str:
    return to.emit("Add", to.emit("Mul", x, _number(to, scale)), _number(to, shift))


def _gelu(to: Rewriting, node: Node) -> None:
    """Hendrycks & Gimpel 2016: x Φ(x), exactly by erf, or by the tanh approximation."""
    (x,) = node.inputs
    one, half = _number(to, 1), _number(to, 0.5)
    if node.attributes.get("approximate", "none") == "tanh":
        cube = to.emit("Mul", to.emit("Mul", to.emit("Mul", x, x), x), _number(to, 0.044715))
        bent = to.emit("Tanh", to.emit("Mul", to.emit("Add", x, cube), _number(to, math.sqrt(2 / math.pi))))
    else:
        bent = to.emit("Erf", to.emit("Div", x, _number(to, math.sqrt(2))))
    to.emit("Mul", to.emit("Mul", x, to.emit("Add", bent, one)), half, to=node.outputs[0])


def _softplus(to: Rewriting, node: Node) -> None:
    _log_of_one_and(to, node.inputs[0], node.outputs[0])


def _log_of_one_and(to: Rewriting, x: str, output: str | None = None) -> str:
    """Return log(1 + exp x) = max(x, 0) + log(1 + exp -|x|)."""
    tail = to.emit("Exp", to.emit("Neg", to.emit("Abs", x)))
    return to.emit("Add", to.emit("Relu", x), to.emit("Log", to.emit("Add", tail, _number(to, 1))), to=output)


def _mish(to: Rewriting, node: Node) -> None:
    x = node.inputs[0]
    to.emit("Mul", x, to.emit("Tanh", _log_of_one_and(to, x)), to=node.outputs[0])


def _swish(to: Rewriting, node: Node) -> None:
    x, alpha = node.inputs[0], float(node.attributes.get("alpha", 1.0))
    scaled = x if alpha == 1 else to.emit("Mul", x, _number(to, alpha))
    to.emit("Mul", x, to.emit("Sigmoid", scaled), to=node.outputs[0])


def _leaky(to: Rewriting, node: Node) -> None:
    x = node.inputs[0]
    below = to.emit("Mul", to.emit("Min", x, _number(to, 0)), _number(to, node.attributes.get("alpha", 0.01)))
    to.emit("Add", to.emit("Relu", x), below, to=node.outputs[0])


def _elu(to: Rewriting, node: Node) -> None:
    x = node.inputs[0]
    below = to.emit("Sub", to.emit("Exp", to.emit("Min", x, _number(to, 0))), _number(to, 1))
    below = to.emit("Mul", below, _number(to, node.attributes.get("alpha", 1.0)))
    to.emit("Add", to.emit("Relu", x), below, to=node.outputs[0])


def _hard_sigmoid(to: Rewriting, x: str, alpha: float, beta: float, output: str | None = None) -> str:
    line = _shifted(to, x, alpha, beta)
    return to.emit("Min", to.emit("Max", line, _number(to, 0)), _number(to, 1), to=output)


def _hard(to: Rewriting, node: Node) -> None:
    a = node.attributes
    _hard_sigmoid(to, node.inputs[0], a.get("alpha", 0.2), a.get("beta", 0.5), node.outputs[0])


def _hard_swish(to: Rewriting, node: Node) -> None:
    x = node.inputs[0]
    to.emit("Mul", x, _hard_sigmoid(to, x, 1 / 6, 0.5), to=node.outputs[0])


def _is_infinite(to: Rewriting, node: Node) -> None:
    found = [
        to.emit("Equal", node.inputs[0], _number(to, value))
        for value, asked in ((math.inf, "detect_positive"), (-math.inf, "detect_negative"))
        if node.attributes.get(asked, 1)
    ]
    if not found:
        raise ValueError("it detects neither infinity")
    to.emit("Or", found[0], found[-1], to=node.outputs[0])


def _xor(to: Rewriting, node: Node) -> None:
    to.emit("Not", to.emit("Equal", *node.inputs), to=node.outputs[0])


def _sum_of(inner: str) -> Callable[[Rewriting, Node], None]:
    def rewrite(to: Rewriting, node: Node) -> None:
        x, *axes = node.inputs
        made = to.emit("Mul", x, x) if inner == "Mul" else to.emit(inner, x)
        to.emit("ReduceSum", made, *axes, to=node.outputs[0], **node.attributes)

    return rewrite


def _reduce_l2(to: Rewriting, node: Node) -> None:
    x, *axes = node.inputs
    total = to.emit("ReduceSum", to.emit("Mul", x, x), *axes, **node.attributes)
    to.emit("Sqrt", total, to=node.outputs[0])


RULES: Mapping[str, Callable[[Rewriting, Node], None]] = {
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard,
    "HardSwish": _hard_swish,
    "IsInf": _is_infinite,
    "LeakyRelu": _leaky,
    "Mish": _mish,
    "ReduceL1": _sum_of("Abs"),
    "ReduceL2": _reduce_l2,
    "ReduceSumSquare": _sum_of("Mul"),
    "Softplus": _softplus,
    "Swish": _swish,
    "Xor": _xor,
}
