"""A graph for one shape: shape arithmetic is evaluated, constants are folded, and what no answer needs is dropped."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidModel
from backends.graph.node import Node, Value
from backends.graph.rewriting import folding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from backends.graph.graph import Graph

__all__ = ["Node", "Program", "Value", "specialise"]

# Tables that depend on the shape (positions, masks of ones): more than that is computed at each run instead.
_FOLDING_NBYTES = 1 << 23


@dataclass(frozen=True, slots=True)
class Program:
    """What to run for batches of one shape: steps in order, in normal form (`normal_form`), with ONNX meaning.

    `constants` are the graph's own weights, and small tables that depend on the shape; none is writable. `values` has
    the shape and type of every name in it. `output` is the name of the answer.
    """

    steps: tuple[Node, ...]
    constants: Mapping[str, NDArray[Any]]
    inputs: Mapping[str, Value]
    output: str
    values: Mapping[str, Value]


def specialise(graph: Graph, *, rows: int, length: int, output: str) -> Program:
    """Return the graph's program for batches of int64[rows, length] that gives `output`.

    Raises:
        InvalidModel: the graph can't take this shape, or what must be known beforehand depends on the data.
    """
    known: dict[str, NDArray[Any]] = dict(graph.weights)
    values = {name: Value(array.shape, array.dtype) for name, array in known.items()}
    inputs = {name: Value((rows, length), np.dtype(np.int64)) for name in graph.inputs}
    values |= inputs
    fold = folding.Folding(known, values, opset=graph.opset, budget_nbytes=_FOLDING_NBYTES)
    with np.errstate(all="ignore"):
        for node in _needed(graph.nodes, output):
            try:
                fold.specialise(node)
            except folding.MALFORMED as exc:
                raise folding.translate(f"{graph.path} at {rows} x {length}", node, exc) from exc
    answer = fold.same.get(output, output)
    if answer not in values:
        raise InvalidModel(f"{graph.path} has no output {output!r}")
    return pruned(tuple(fold.steps), known, inputs, answer, values)


def pruned(
    steps: tuple[Node, ...],
    constants: Mapping[str, NDArray[Any]],
    inputs: Mapping[str, Value],
    output: str,
    values: Mapping[str, Value],
) -> Program:
    """Return a program of those steps and constants that the output needs."""
    kept = _needed(steps, output)
    used = {output, *inputs, *(name for node in kept for name in node.inputs)}
    made = {name for node in kept for name in node.outputs}
    return Program(
        steps=kept,
        constants=MappingProxyType({name: constants[name] for name in used if name in constants}),
        inputs=MappingProxyType(dict(inputs)),
        output=output,
        values=MappingProxyType({name: values[name] for name in (*used, *made) if name}),
    )


def _needed(nodes: tuple[Node, ...], output: str) -> tuple[Node, ...]:
    wanted, kept = {output}, []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return tuple(reversed(kept))
