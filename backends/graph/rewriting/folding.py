"""Evaluate beforehand what is known beforehand: weights at load, shape arithmetic once the shape is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidModel
from backends.graph.kernels import compute
from backends.graph.node import Node, Value
from backends.graph.rewriting.normal_form import normalise
from backends.graph.rewriting.operands import Operands
from backends.graph.rewriting.shapes import LOWERED, infer

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Operators whose answer must be known beforehand: they give shapes, or shape arithmetic is all they are used for.
ONLY_KNOWN = frozenset({"ConstantOfShape", "Mod", "NonZero", "Range", "Shape", "Size"})
# These give views: folding them takes no memory.
_VIEWS = frozenset({"ConstantOfShape", "Expand", "Slice", "Transpose"})
_MOST_IN_RANGE = 1 << 20
_MOST_NBYTES = 1 << 36


class Folding:
    """A walk over nodes in order. `known` holds contents, `values` shapes, `steps` the nodes that are left to run.

    What folding may add to memory is bounded by `budget_nbytes`; a node that would go beyond is left as a step.
    """

    def __init__(
        self, known: dict[str, NDArray[Any]], values: dict[str, Value], *, opset: int, budget_nbytes: int
    ) -> None:
        self.known = known
        self.values = values
        self.steps: list[Node] = []
        self.same: dict[str, str] = {}
        self._opset = opset
        self._budget = budget_nbytes

    def fold_weights(self, node: Node) -> None:
        """Fold the node if it depends on weights alone; keep it as it is otherwise, since no shapes are known yet."""
        node = self._resolved(node)
        if self._is_known(node):
            self._fold(node)
        else:
            self.steps.append(node)

    def specialise(self, node: Node) -> None:
        """Fold the node if all that it needs is known; keep it in normal form otherwise. Shapes are known."""
        self._fold(self._resolved(node))

    def _resolved(self, node: Node) -> Node:
        return replace(node, inputs=tuple(self.same.get(name, name) for name in node.inputs))

    def _fold(self, node: Node) -> None:
        for part in normalise(node, self._operands(node)):
            self._take(part)

    def _take(self, node: Node) -> None:
        given = self._operands(node)
        if twice := [name for name in node.outputs if name in self.values or name in self.same]:
            raise ValueError(f"it gives {twice}, a name that is given already")
        if node.op == "Constant":  # of the normal form
            self._keep(node, (np.asarray(node.attributes["value"]),))
        elif node.op == "Identity":
            self.same[node.outputs[0]] = node.inputs[0]
        elif node.op in {"Shape", "Size"}:
            self._keep(node, (_shape_of(node, given.value(0)),))
        elif node.op in ONLY_KNOWN:
            if not self._is_known(node):
                raise ValueError("what it gives depends on the data, and must be known beforehand")
            _bound_range(node, given)
            self._keep(node, compute(node, list(given.known)))
        else:
            values = infer(node, given)
            nbytes = sum(math.prod(value.shape) * value.dtype.itemsize for value in values)
            if nbytes > _MOST_NBYTES:
                raise ValueError(f"it gives {nbytes} bytes")
            taken = 0 if node.op in _VIEWS else nbytes
            if self._is_known(node) and taken <= self._budget:
                self._budget -= taken
                self._keep(node, compute(node, list(given.known)))
                return
            self.values.update(zip(node.outputs, values, strict=True))
            self.steps.append(node)

    def _keep(self, node: Node, arrays: tuple[NDArray[Any], ...]) -> None:
        for name, array in zip(node.outputs, arrays, strict=True):
            array.flags.writeable = False
            self.known[name] = array
            self.values[name] = Value(array.shape, array.dtype)

    def _is_known(self, node: Node) -> bool:
        return all(not name or name in self.known for name in node.inputs)

    def _operands(self, node: Node) -> Operands:
        absent = [name for name in node.inputs if name and name not in self.values]
        if absent:
            raise ValueError(f"it takes {absent}, which is not computed here")
        values = [self.values[name] if name else None for name in node.inputs]
        return Operands(values, [self.known.get(name) for name in node.inputs], self._opset)


def translate(path: object, node: Node, exc: Exception) -> InvalidModel:
    """Return the error for a node that could not be read, with its place and the reason."""
    why = str(exc) or type(exc).__name__
    return InvalidModel(f"{path}: operator {node.op} that gives {node.outputs[0] if node.outputs else ''!r}: {why}")


# What malformed nodes raise in the pure rules and in NumPy.
MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError)


def _shape_of(node: Node, value: Value) -> NDArray[np.int64]:
    if node.op == "Size":
        return np.array(math.prod(value.shape), np.int64)
    rank = len(value.shape)
    start, end, _ = slice(node.attributes.get("start", 0), node.attributes.get("end")).indices(rank)
    return np.array(value.shape[start:end], np.int64)


def _bound_range(node: Node, given: Operands) -> None:
    if node.op == "Range":
        start, limit, delta = (float(np.asarray(content).reshape(())) for content in given.known)
        if abs(limit - start) > _MOST_IN_RANGE * abs(delta):
            raise ValueError(f"a range from {start} to {limit} by {delta}")


SUPPORTED = LOWERED | ONLY_KNOWN | {"Identity"}
