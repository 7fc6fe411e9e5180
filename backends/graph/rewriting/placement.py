"""Where values are put, in normal form: padding, repetition, triangles, and scattering to places that are known. Pure.

Each becomes slices, gathers and concatenations, so that no backend needs a kernel of its own for it. Constants that it
takes are nodes `Constant` with an array as `value`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from backends.graph.rewriting.operands import Operands


class Chain:
    """Nodes, each of one output, that are made one after another; the last one gives the output of a node."""

    def __init__(self, node: Node) -> None:
        self._nodes: list[Node] = []
        self._node = node

    def emit(self, op: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401  (any attribute)
        """Append a node and return the name of its output."""
        output = f"{self._node.outputs[0]}~{len(self._nodes)}"
        self._nodes.append(Node(op, inputs, (output,), attributes))
        return output

    def constant(self, value: NDArray[Any]) -> str:
        """Append a constant and return its name."""
        return self.emit("Constant", value=value)

    def reshaped(self, name: str, old: Sequence[int], new: Sequence[int]) -> str:
        """Return a value in another shape."""
        return name if tuple(old) == tuple(new) else self.emit("Reshape", name, shape=tuple(new))

    def ending_with(self, name: str) -> tuple[Node, ...]:
        """Return the nodes, of which the last gives `name`, under the name of the node that they stand for."""
        return (*self._nodes, Node("Identity", (name,), self._node.outputs))


def tile(node: Node, given: Operands) -> tuple[Node, ...]:
    """Repeat along axes: [n] to [1, n], expanded to [times, n], joined to [times n]."""
    shape, times = given.value(0).shape, given.numbers(1) or ()
    if len(times) != len(shape) or min(times, default=0) < 0:
        raise ValueError(f"repeats {times} of the shape {shape}")
    apart, repeated = [], []
    for n, t in zip(shape, times, strict=True):
        apart += [n] if n == 1 or t == 1 else [1, n]
        repeated += [n * t] if n == 1 or t == 1 else [t, n]
    chain = Chain(node)
    name = chain.reshaped(node.inputs[0], shape, apart)
    if repeated != apart:
        name = chain.emit("Expand", name, shape=tuple(repeated))
    return chain.ending_with(chain.reshaped(name, repeated, [n * t for n, t in zip(shape, times, strict=True)]))


def pad(node: Node, given: Operands) -> tuple[Node, ...]:
    """Pad (crop, where negative) with one number, or with the value's own: mirrored, repeated, from its other end."""
    x, mode = given.value(0), node.attributes.get("mode", "constant")
    pads = node.attributes.get("pads") or given.numbers(1) or ()
    axes = given.numbers(3) if len(given.values) > 3 else None  # noqa: PLR2004  (axes are the fourth input)
    rank = len(x.shape)
    within = axes is None or all(-rank <= axis < rank for axis in axes)
    axes = tuple(range(rank)) if axes is None else tuple(axis % rank for axis in axes)
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes) or not within:
        raise ValueError(f"pads {pads} of the axes {axes} of the shape {x.shape}")
    amounts = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    chain, shape = Chain(node), list(x.shape)
    name = node.inputs[0]
    if min(pads, default=0) < 0:
        if mode != "constant":
            raise ValueError(f"negative pads {pads} in mode {mode!r}")
        cut = [amounts.get(axis, (0, 0)) for axis in range(len(shape))]
        starts = tuple(min(max(0, -before), n) for (before, _), n in zip(cut, shape, strict=True))
        ends = tuple(max(start, n + min(0, after)) for (_, after), n, start in zip(cut, shape, starts, strict=True))
        name = chain.emit("Slice", name, starts=starts, ends=ends, steps=(1,) * len(shape))
        shape = [end - start for start, end in zip(starts, ends, strict=True)]
    filling = _filling(node, given) if mode == "constant" else None
    for axis, (before, after) in amounts.items():
        before, after = max(0, before), max(0, after)  # noqa: PLW2901  (what was cut off is done)
        if before or after:
            name = _padded(chain, (name, shape), axis, (before, after), mode if filling is None else filling)
            shape[axis] += before + after
    return chain.ending_with(name)


def _filling(node: Node, given: Operands) -> NDArray[Any]:
    if len(given.values) > 2 and given.values[2] is not None:  # noqa: PLR2004  (the value is the third input)
        if given.known[2] is None:
            raise ValueError("the number that it pads with depends on the data, and must be known beforehand")
        return given.known[2].reshape(()).astype(given.value(0).dtype)
    return np.asarray(node.attributes.get("value", 0), given.value(0).dtype)


def _padded(
    chain: Chain, x: tuple[str, Sequence[int]], axis: int, amounts: tuple[int, int], how: NDArray[Any] | str
) -> str:
    """Return a value, given by name and shape, padded along one axis: with a number, or in a mode of NumPy's."""
    name, shape = x
    if isinstance(how, str):
        mode: Any = how
        places = np.pad(np.arange(shape[axis]), amounts, mode)
        return chain.emit("Gather", name, chain.constant(places), axis=axis)
    blocks = [np.broadcast_to(how, (*shape[:axis], amount, *shape[axis + 1 :])) for amount in amounts]
    first, last = ([chain.constant(block)] if block.shape[axis] else [] for block in blocks)
    return chain.emit("Concat", *first, name, *last, axis=axis)


def trilu(node: Node, given: Operands) -> tuple[Node, ...]:
    """Keep the upper or the lower triangle of the last two axes, with zeros in place of the rest."""
    x = given.value(0)
    k = (given.numbers(1) or (0,))[0] if len(given.values) > 1 else 0
    rows, columns = x.shape[-2:]
    mask = np.tri(rows, columns, k if not node.attributes.get("upper", 1) else k - 1, np.bool_)
    chain = Chain(node)
    kept, zero = chain.constant(mask), chain.constant(np.zeros((), x.dtype))
    sides = (zero, node.inputs[0]) if node.attributes.get("upper", 1) else (node.inputs[0], zero)
    return chain.ending_with(chain.emit("Where", kept, *sides))


def scatter_nd(node: Node, given: Operands) -> tuple[Node, ...]:
    """Put rows at places that are known: data and rows one after the other, and from these each place's own."""
    data, updates, indices = given.value(0), given.value(2), given.known[1]
    if indices is None:
        raise ValueError("the places that it writes to depend on the data, and must be known beforehand")
    depth = indices.shape[-1]
    outer, rest = data.shape[:depth], data.shape[depth:]
    if depth > len(data.shape) or updates.shape != (*indices.shape[:-1], *rest):
        raise ValueError(f"updates of shape {updates.shape} at places of shape {indices.shape} of {data.shape}")
    sizes, places = np.array(outer, np.int64), indices.reshape(-1, depth)
    if np.any((places < -sizes) | (places >= sizes)):
        raise ValueError(f"places {places.min()} to {places.max()} of the shape {data.shape}")
    count, added = math.prod(outer), len(places)
    order = np.arange(count)
    order[np.ravel_multi_index(tuple((places % np.maximum(sizes, 1)).T), outer)] = count + np.arange(added)
    chain = Chain(node)
    rows = chain.reshaped(node.inputs[2], updates.shape, (added, *rest))
    if np.all(order >= count):
        order -= count
    else:
        rows = chain.emit("Concat", chain.reshaped(node.inputs[0], data.shape, (count, *rest)), rows, axis=0)
    if not np.array_equal(order, np.arange(len(order))) or len(order) != added:
        rows = chain.emit("Gather", rows, chain.constant(order), axis=0)
    return chain.ending_with(chain.reshaped(rows, (count, *rest), data.shape))
