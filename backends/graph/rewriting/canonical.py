"""Rewrite operators into few: what one opset says with an attribute and the next with an input becomes one form.

Only what needs no shape is done here, once for a model; `specialise` does the rest once the shape is known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.graph.rewriting.activations import RULES
from backends.graph.rewriting.convolution import conv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backends.graph.node import Node
    from backends.graph.rewriting.rewriting_graph import Rewriting


def rewrite(to: Rewriting, node: Node) -> None:
    """Rewrite one node of the graph into none, one, or several."""
    node = replace(node, inputs=tuple(to.same.get(name, name) for name in node.inputs))
    rule = _RULES.get(node.op)
    if rule is None:
        to.nodes.append(node)
    else:
        rule(to, node)


def _constant(to: Rewriting, node: Node) -> None:
    (name,) = node.outputs
    (kind,) = node.attributes
    if kind not in _CONSTANTS:
        raise ValueError(f"a constant of kind {kind!r} is not served")
    to.constants[name] = np.asarray(node.attributes[kind], _CONSTANTS[kind])


_CONSTANTS: Mapping[str, Any] = {
    "value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def _alias(to: Rewriting, node: Node) -> None:
    if node.outputs[0] in to.outputs:  # the graph's own outputs keep their names
        to.emit("Identity", node.inputs[0], to=node.outputs[0])
    else:
        to.same[node.outputs[0]] = node.inputs[0]


def _swapped(op: str) -> Callable[[Rewriting, Node], None]:
    def swapped(to: Rewriting, node: Node) -> None:
        left, right = node.inputs
        to.emit(op, right, left, to=node.outputs[0])

    return swapped


def _chain(op: str) -> Callable[[Rewriting, Node], None]:
    def chained(to: Rewriting, node: Node) -> None:
        *first, last = node.inputs
        if not first:
            _alias(to, node)
            return
        running = first[0]
        for name in first[1:]:
            running = to.emit(op, running, name)
        to.emit(op, running, last, to=node.outputs[0])

    return chained


def _clip(to: Rewriting, node: Node) -> None:
    # Before opset 11 the bounds are attributes, and floats.
    bounds = {
        side: to.constant(value, np.float32)
        for side in ("min", "max")
        if (value := node.attributes.get(side)) is not None
    }
    low, high = (*node.inputs[1:], "", "")[:2]
    low, high = low or bounds.get("min", ""), high or bounds.get("max", "")
    running = node.inputs[0]
    if low and high:
        running = to.emit("Max", running, low)
    if low or high:
        to.emit("Min" if high else "Max", running, high or low, to=node.outputs[0])
    else:
        _alias(to, node)


def _gemm(to: Rewriting, node: Node) -> None:
    left, right, *bias = (name for name in node.inputs if name)
    alpha, beta = (node.attributes.get(name, 1.0) for name in ("alpha", "beta"))
    if node.attributes.get("transA", 0):
        left = to.emit("Transpose", left, perm=(1, 0))
    if node.attributes.get("transB", 0):
        right = to.emit("Transpose", right, perm=(1, 0))
    if alpha != 1:
        right = to.emit("Mul", right, to.constant(alpha, np.float32))
    if not bias:
        to.emit("MatMul", left, right, to=node.outputs[0])
        return
    added = bias[0] if beta == 1 else to.emit("Mul", bias[0], to.constant(beta, np.float32))
    to.emit("Add", to.emit("MatMul", left, right), added, to=node.outputs[0])


_RULES: Mapping[str, Callable[[Rewriting, Node], None]] = {
    **RULES,
    "Constant": _constant,
    "Identity": _alias,
    "Less": _swapped("Greater"),
    "LessOrEqual": _swapped("GreaterOrEqual"),
    "Sum": _chain("Add"),
    "Max": _chain("Max"),
    "Min": _chain("Min"),
    "Clip": _clip,
    "Gemm": _gemm,
    "Conv": conv,
}
REWRITTEN = frozenset(_RULES)
