"""Normal form: one way to say each operator, whatever the opset. Pure.

Operands that must be known before anything runs (shapes, axes, bounds) become attributes. What doesn't fit raises a
plain Python exception, which the caller translates.

| in normal form | inputs | attributes (axes count from the front) |
| --- | --- | --- |
| Reshape, Expand | x | `shape` (also for Flatten, Squeeze, Unsqueeze) |
| Slice | x | `starts`, `ends`, `steps`: one of each per axis, as `range` takes them (also for Split) |
| Transpose | x | `perm` |
| Concat, Gather, GatherElements, Softmax | as ONNX | `axis` |
| ArgMax, ArgMin | x | `axis`, `keepdims`, `select_last_index` |
| GatherND | x, indices | `batch_dims` |
| ReduceMax, ReduceMean, ReduceMin, ReduceSum | x | `axes`, `keepdims` |
| LayerNormalization | x, scale, bias or none | `axis`, `epsilon` |
| CumSum | x | `axis`, `exclusive`, `reverse` |
| Cast | x | `to`, a NumPy name |
| DequantizeLinear | x, scale, zero point or none | `axis` |

What isn't here becomes several of these (`placement`, `einsum`); a node `Constant` holds an array that it needs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.graph.node import Node
from backends.graph.reading.understood import CASTS
from backends.graph.rewriting.einsum import einsum
from backends.graph.rewriting.placement import Chain, pad, scatter_nd, tile, trilu

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backends.graph.rewriting.operands import Operands


_FLATTENING_SOFTMAX = 13  # before this opset softmax runs over all axes from `axis` on


def normalise(node: Node, given: Operands) -> tuple[Node, ...]:
    """Return the node in normal form: several nodes where one becomes a chain."""
    rule = _NORMAL.get(node.op)
    return rule(node, given) if rule else (node,)


def _axis(axis: Any, rank: int, *, beyond: int = 0) -> int:  # noqa: ANN401  (whatever the file says)
    found = int(axis)
    if not -rank <= found < rank + beyond:
        raise ValueError(f"axis {found} of a value with {rank} axes")
    return found + rank if found < 0 else found


def _axes(node: Node, given: Operands, at: int) -> tuple[int, ...] | None:
    """Return the axes of a node, an attribute before opset 13 (18 for most reductions) and an input since."""
    axes = node.attributes.get("axes")
    if axes is not None and len(given.values) > at:
        raise ValueError("its axes are given twice, as an attribute and as an input")
    return given.numbers(at) if axes is None else tuple(int(axis) for axis in axes)


def _reshaped(node: Node, shape: Sequence[int]) -> tuple[Node, ...]:
    return (Node("Reshape", node.inputs[:1], node.outputs, {"shape": tuple(int(n) for n in shape)}),)


def _reshape(node: Node, given: Operands) -> tuple[Node, ...]:
    old, wanted = given.value(0).shape, list(given.numbers(1) or ())
    if not node.attributes.get("allowzero", 0):
        wanted = [old[i] if n == 0 else n for i, n in enumerate(wanted)]
    if wanted.count(-1) > 1 or min(wanted, default=0) < -1:
        raise ValueError(f"shape {wanted}")
    if -1 in wanted:
        rest = math.prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = math.prod(old) // rest
    return _reshaped(node, wanted)


def _flatten(node: Node, given: Operands) -> tuple[Node, ...]:
    shape = given.value(0).shape
    axis = _axis(node.attributes.get("axis", 1), len(shape), beyond=1)
    return _reshaped(node, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def _squeeze(node: Node, given: Operands) -> tuple[Node, ...]:
    shape, asked = given.value(0).shape, _axes(node, given, 1)
    gone = {i for i, n in enumerate(shape) if n == 1} if asked is None else {_axis(a, len(shape)) for a in asked}
    if any(shape[i] != 1 for i in gone):
        raise ValueError(f"axes {sorted(gone)} of the shape {shape} can't be squeezed")
    return _reshaped(node, [n for i, n in enumerate(shape) if i not in gone])


def _unsqueeze(node: Node, given: Operands) -> tuple[Node, ...]:
    shape, asked = list(given.value(0).shape), _axes(node, given, 1) or ()
    rank = len(shape) + len(asked)
    new = sorted({_axis(axis, rank) for axis in asked})
    if len(new) != len(asked):
        raise ValueError(f"axes {asked} name one twice")
    for axis in new:
        shape.insert(axis, 1)
    return _reshaped(node, shape)


def _expand(node: Node, given: Operands) -> tuple[Node, ...]:
    shape = np.broadcast_shapes(given.value(0).shape, given.numbers(1) or ())
    return (Node("Expand", node.inputs[:1], node.outputs, {"shape": shape}),)


def _slice(node: Node, given: Operands) -> tuple[Node, ...]:
    shape = given.value(0).shape
    if "starts" in node.attributes:  # opset 9 and before
        starts, ends = (tuple(map(int, node.attributes[name])) for name in ("starts", "ends"))
        axes, steps = node.attributes.get("axes"), None
    else:
        starts, ends = given.numbers(1) or (), given.numbers(2) or ()
        axes, steps = given.numbers(3), given.numbers(4)
    axes = tuple(range(len(starts))) if axes is None else axes
    bounds = [(0, n, 1) for n in shape]
    for axis, start, end, step in zip(axes, starts, ends, steps or (1,) * len(starts), strict=True):
        at = _axis(axis, len(shape))
        bounds[at] = _bounds(start, end, step, shape[at])
    starts, ends, steps = zip(*bounds, strict=True)
    return (Node("Slice", node.inputs[:1], node.outputs, {"starts": starts, "ends": ends, "steps": steps}),)


def _bounds(start: int, end: int, step: int, n: int) -> tuple[int, int, int]:
    """Return the bounds of a slice as the standard clamps them: going backwards, no start lies before the first."""
    start, end = start + n * (start < 0), end + n * (end < 0)
    last = n if step > 0 else max(n - 1, 0)
    return min(max(start, 0), last), min(max(end, 0 if step > 0 else -1), last), step


def _split(node: Node, given: Operands) -> tuple[Node, ...]:
    shape, asked = given.value(0).shape, node.attributes.get("split")
    axis = _axis(node.attributes.get("axis", 0), len(shape))
    if node.attributes.get("num_outputs", len(node.outputs)) != len(node.outputs):
        raise ValueError(f"num_outputs={node.attributes['num_outputs']}, and {len(node.outputs)} are taken")
    sizes = given.numbers(1) if asked is None else tuple(int(n) for n in asked)
    if sizes is None:
        even = -(-shape[axis] // len(node.outputs))  # the last part is the smaller one
        sizes = tuple(max(0, min(even, shape[axis] - i * even)) for i in range(len(node.outputs)))
    if sum(sizes) != shape[axis] or len(sizes) != len(node.outputs) or min(sizes, default=0) < 0:
        raise ValueError(f"parts of {sizes} of an axis of length {shape[axis]}")
    made, start = [], 0
    for output, size in zip(node.outputs, sizes, strict=True):
        starts, ends = [0] * len(shape), list(shape)
        starts[axis], ends[axis] = start, start + size
        start += size
        bounds = {"starts": tuple(starts), "ends": tuple(ends), "steps": (1,) * len(shape)}
        made.append(Node("Slice", node.inputs[:1], (output,), bounds))
    return tuple(made)


def _transpose(node: Node, given: Operands) -> tuple[Node, ...]:
    rank = len(given.value(0).shape)
    perm = tuple(int(i) for i in node.attributes.get("perm", range(rank)[::-1]))
    if sorted(perm) != list(range(rank)):
        raise ValueError(f"axes {perm} are no order of {rank} axes")
    return (replace(node, attributes={"perm": perm}),)


def _reduce(node: Node, given: Operands) -> tuple[Node, ...]:
    rank, asked = len(given.value(0).shape), _axes(node, given, 1)
    if not asked and node.attributes.get("noop_with_empty_axes", 0):
        return (Node("Identity", node.inputs[:1], node.outputs),)
    axes = tuple(sorted({_axis(axis, rank) for axis in asked})) if asked else tuple(range(rank))
    keep = int(node.attributes.get("keepdims", 1))
    return (Node(node.op, node.inputs[:1], node.outputs, {"axes": axes, "keepdims": keep}),)


def _softmax(node: Node, given: Operands) -> tuple[Node, ...]:
    shape, flattens = given.value(0).shape, given.opset < _FLATTENING_SOFTMAX
    axis = _axis(node.attributes.get("axis", 1 if flattens else -1), len(shape))
    if not flattens or axis == len(shape) - 1:
        return (replace(node, attributes={"axis": axis}),)
    flat, soft = (f"{node.outputs[0]}~{step}" for step in ("flat", "soft"))
    return (
        Node("Reshape", node.inputs, (flat,), {"shape": (math.prod(shape[:axis]), math.prod(shape[axis:]))}),
        Node("Softmax", (flat,), (soft,), {"axis": 1}),
        Node("Reshape", (soft,), node.outputs, {"shape": shape}),
    )


def _with_axis(default: int, **others: Any) -> Callable[[Node, Operands], tuple[Node, ...]]:  # noqa: ANN401
    """Make `axis` count from the front, and give the other attributes their defaults."""

    def rule(node: Node, given: Operands) -> tuple[Node, ...]:
        axis = _axis(node.attributes.get("axis", default), max(1, len(given.value(0).shape)))
        kept = {name: type(value)(node.attributes.get(name, value)) for name, value in others.items()}
        return (replace(node, attributes={"axis": axis, **kept}),)

    return rule


def _layer_norm(node: Node, given: Operands) -> tuple[Node, ...]:
    if any(node.outputs[1:]):
        raise ValueError("its mean and deviation are asked for, which are not served")
    return _with_axis(-1, epsilon=1e-5)(replace(node, outputs=node.outputs[:1]), given)


def _rms_norm(node: Node, given: Operands) -> tuple[Node, ...]:
    """Zhang & Sennrich 2019: x / sqrt(mean(x²) + epsilon), scaled, over the axes from `axis` on."""
    rank = len(given.value(0).shape)
    axes = tuple(range(_axis(node.attributes.get("axis", -1), rank), rank))
    x, scale = node.inputs
    chain = Chain(node)
    epsilon = chain.constant(np.array(node.attributes.get("epsilon", 1e-5), np.float32))
    mean = chain.emit("ReduceMean", chain.emit("Mul", x, x), axes=axes, keepdims=1)
    root = chain.emit("Sqrt", chain.emit("Add", mean, epsilon))
    return chain.ending_with(chain.emit("Mul", chain.emit("Div", x, root), scale))


def _arg(node: Node, given: Operands) -> tuple[Node, ...]:
    flags = {"keepdims": 1, "select_last_index": 0}
    attributes = {name: int(node.attributes.get(name, default)) for name, default in flags.items()}
    attributes["axis"] = _axis(node.attributes.get("axis", 0), len(given.value(0).shape))
    return (replace(node, attributes=attributes),)


def _cumsum(node: Node, given: Operands) -> tuple[Node, ...]:
    (axis,) = given.numbers(1) or ()
    attributes = {name: int(node.attributes.get(name, 0)) for name in ("exclusive", "reverse")}
    attributes["axis"] = _axis(axis, len(given.value(0).shape))
    return (Node("CumSum", node.inputs[:1], node.outputs, attributes),)


def _cast(node: Node, given: Operands) -> tuple[Node, ...]:
    to = CASTS[node.attributes["to"]]
    if given.value(0).dtype == to:
        return (Node("Identity", node.inputs, node.outputs),)
    return (Node("Cast", node.inputs, node.outputs, {"to": to}),)


def _dropout(node: Node, given: Operands) -> tuple[Node, ...]:
    if len(given.values) > 2 and given.values[2] is not None:  # noqa: PLR2004  (training_mode is the third input)
        trains = given.known[2]
        if trains is None or trains.any():
            raise ValueError("training_mode is on, or depends on the data")
    # Its second output, what was kept, isn't made: whoever takes it is refused.
    return (Node("Identity", node.inputs[:1], node.outputs[:1]),)


REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
_NORMAL: Mapping[str, Callable[[Node, Operands], tuple[Node, ...]]] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Cast": _cast,
    "Concat": _with_axis(0),
    "CumSum": _cumsum,
    "DequantizeLinear": _with_axis(1),
    "Dropout": _dropout,
    "Einsum": einsum,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _with_axis(0),
    "GatherElements": _with_axis(0),
    "GatherND": lambda node, _: (replace(node, attributes={"batch_dims": int(node.attributes.get("batch_dims", 0))}),),
    "LayerNormalization": _layer_norm,
    "Pad": pad,
    "RMSNormalization": _rms_norm,
    "Reshape": _reshape,
    "ScatterND": scatter_nd,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": tile,
    "Transpose": _transpose,
    "Trilu": trilu,
    "Unsqueeze": _unsqueeze,
    **dict.fromkeys(REDUCTIONS, _reduce),
}
NORMALISED = frozenset(_NORMAL)
