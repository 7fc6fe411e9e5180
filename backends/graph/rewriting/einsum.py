"""Einsum as transposes, reshapes, sums and matrix products, which every backend has. Pure; shapes are known."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from backends.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.graph.rewriting.operands import Operands

    Labels = tuple[str, ...]

_EQUATION = re.compile(r"[A-Za-z.,]*(->[A-Za-z.]*)?")
_AXES = re.compile(r"\.\.\.|[A-Za-z]")


class _Operand(NamedTuple):
    """A value, the labels of its axes, and their lengths."""

    name: str
    labels: Labels
    sizes: tuple[int, ...]

    def only(self, labels: Labels) -> tuple[int, ...]:
        """Return the lengths of these axes."""
        return tuple(self.sizes[self.labels.index(label)] for label in labels)


def einsum(node: Node, given: Operands) -> tuple[Node, ...]:
    """Return the nodes that compute an Einsum, its operands taken from left to right.

    Raises:
        ValueError: the equation doesn't fit its operands, or takes a diagonal, which is not served.
    """
    shapes = [given.value(i).shape for i in range(len(node.inputs))]
    labels, output = _parsed(str(node.attributes["equation"]), [len(shape) for shape in shapes])
    running, *others = (_Operand(*parts) for parts in zip(node.inputs, labels, shapes, strict=True))
    chain = _Chain(node.outputs[0])
    for i, other in enumerate(others):
        wanted = {*output, *(label for later in others[i + 1 :] for label in later.labels)}
        running = chain.product(running, other, wanted)
    chain.transposed(chain.summed(running, {*output}), output)
    if not chain.nodes:
        return (Node("Identity", node.inputs[:1], node.outputs),)
    *first, last = chain.nodes
    return (*first, Node(last.op, last.inputs, node.outputs, last.attributes))


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the labels of each operand's axes and of the output's; those of `...` are numbers, from the last one."""
    text = equation.replace(" ", "")
    if not _EQUATION.fullmatch(text):
        raise ValueError(f"equation {equation!r}")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"equation {equation!r} for {len(ranks)} operands")
    spread = 0
    operands = []
    for term, rank in zip(terms, ranks, strict=True):
        axes = _AXES.findall(term)
        rest = rank - len(axes) + 1 if "..." in axes else 0
        labels = _spread(axes, rest)
        if "".join(axes) != term or rest < 0 or len(labels) != rank or len(set(labels)) < rank:
            raise ValueError(f"equation {equation!r}: {term!r} for {rank} axes, or one of them twice")
        spread = max(spread, rest)
        operands.append(labels)
    once = sorted(label for label in set(left) - set(",.") if left.count(label) == 1)
    axes = _AXES.findall(right) if arrow else ["...", *once]
    output = _spread(axes, spread)
    if (spread and "..." not in axes) or len(set(output)) < len(output) or not {*output} <= {*sum(operands, ())}:
        raise ValueError(f"equation {equation!r}: the output {right!r}")
    return operands, output


def _spread(axes: Sequence[str], rest: int) -> Labels:
    return tuple(
        label for axis in axes for label in ([str(i) for i in range(rest, 0, -1)] if axis == "..." else [axis])
    )


class _Chain:
    """Nodes that are made one after another."""

    def __init__(self, name: str) -> None:
        self.nodes: list[Node] = []
        self._name = name

    def product(self, a: _Operand, b: _Operand, wanted: set[str]) -> _Operand:
        """Return the product of two values, summed over the labels that nobody wants: a batch of matrix products."""
        a, b = self.summed(a, {*wanted, *b.labels}), self.summed(b, {*wanted, *a.labels})
        shared = tuple(label for label in a.labels if label in b.labels)
        batch = tuple(label for label in shared if label in wanted)
        inner = tuple(label for label in shared if label not in wanted)
        left, right = (tuple(label for label in x.labels if label not in y.labels) for x, y in ((a, b), (b, a)))
        for label in shared:
            sizes = {*a.only((label,)), *b.only((label,))}
            if len(sizes) > 1 and not (label.isdigit() and label in batch and 1 in sizes):
                raise ValueError(f"an axis has the lengths {sorted(sizes)}")
        a, b = self.transposed(a, (*batch, *left, *inner)), self.transposed(b, (*batch, *inner, *right))
        rows, columns, depth = (math.prod(x.only(part)) for x, part in ((a, left), (b, right), (a, inner)))
        first = self._reshaped(a.name, a.sizes, (*a.only(batch), rows, depth))
        second = self._reshaped(b.name, b.sizes, (*b.only(batch), depth, columns))
        outer = np.broadcast_shapes(a.only(batch), b.only(batch))
        made = self._emit("MatMul", first, second)
        sizes_of_all = (*outer, *a.only(left), *b.only(right))
        made = self._reshaped(made, (*outer, rows, columns), sizes_of_all)
        return _Operand(made, (*batch, *left, *right), sizes_of_all)

    def summed(self, x: _Operand, wanted: set[str]) -> _Operand:
        """Return a value summed over the axes that nobody wants."""
        axes = tuple(i for i, label in enumerate(x.labels) if label not in wanted)
        if not axes:
            return x
        kept = tuple(label for label in x.labels if label in wanted)
        return _Operand(self._emit("ReduceSum", x.name, axes=axes, keepdims=0), kept, x.only(kept))

    def transposed(self, x: _Operand, labels: Labels) -> _Operand:
        """Return a value with its axes in this order."""
        if labels == x.labels:
            return x
        perm = tuple(x.labels.index(label) for label in labels)
        return _Operand(self._emit("Transpose", x.name, perm=perm), labels, x.only(labels))

    def _reshaped(self, name: str, old: tuple[int, ...], new: tuple[int, ...]) -> str:
        return name if old == new else self._emit("Reshape", name, shape=new)

    def _emit(self, op: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401  (any attribute)
        output = f"{self._name}~{len(self.nodes)}"
        self.nodes.append(Node(op, inputs, (output,), attributes))
        return output
