"""A convolution along tokens, as products: for each place of the kernel a slice of the data times a matrix of weights.

Weights are cut once, when the model is loaded, and every backend multiplies matrices well. One axis only: text has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from backends.graph.node import Node
    from backends.graph.rewriting.rewriting_graph import Rewriting

_TO_THE_END = np.iinfo(np.int64).max


def conv(to: Rewriting, node: Node) -> None:
    """Rewrite Conv of [rows, channels, length] with weights [out, channels / group, kernel].

    Output place t is Σ_k W_k x[stride t + dilation k - pad]: a slice of the padded data for each k.
    """
    x, weight, *bias = (name for name in node.inputs if name)
    a = node.attributes
    shape = to.shapes.get(weight)
    (taps,) = a.get("kernel_shape") or (shape or ())[2:] or (None,)
    if shape is None or len(shape) != 3 or taps != shape[2]:  # noqa: PLR2004  (out, in, kernel)
        raise ValueError(
            f"its weights have the shape {shape}, its kernel is {a.get('kernel_shape')}: one axis is served"
        )
    (dilation,), (stride,), groups = a.get("dilations", (1,)), a.get("strides", (1,)), int(a.get("group", 1))
    x = _padded(to, x, node, (taps - 1) * dilation, stride)
    if groups > 1:  # 0 keeps an axis
        x = to.emit("Reshape", x, to.constant([0, groups, shape[1], -1]))
    axis = to.constant([-1])
    total = ""
    for k in range(taps):
        after = (taps - 1 - k) * dilation
        bounds = (to.constant([k * dilation]), to.constant([-after or _TO_THE_END]), axis, to.constant([stride]))
        matrix = to.emit("Gather", weight, to.constant(k), axis=2)
        if groups > 1:
            matrix = to.emit("Reshape", matrix, to.constant([groups, -1, shape[1]]))
        made = to.emit("MatMul", matrix, to.emit("Slice", x, *bounds))
        total = to.emit("Add", total, made) if total else made
    if groups > 1:
        total = to.emit("Reshape", total, to.constant([0, shape[0], -1]))
    column = to.emit("Unsqueeze", bias[0], to.constant([1])) if bias else to.constant(0, np.float32)
    to.emit("Add", total, column, to=node.outputs[0])


def _padded(to: Rewriting, x: str, node: Node, reach: int, stride: int) -> str:
    """Return the data with zeros before and behind, as many as the node says; `reach` is the kernel's length less 1."""
    kind = node.attributes.get("auto_pad", "NOTSET")
    before, after = node.attributes.get("pads", (0, 0))
    if kind in {"SAME_UPPER", "SAME_LOWER"}:
        if stride != 1:
            raise ValueError(f"auto_pad={kind} with strides of {stride} is not served")
        before, after = (reach // 2, reach - reach // 2) if kind == "SAME_UPPER" else (reach - reach // 2, reach // 2)
    elif kind == "VALID":
        before = after = 0
    if not before and not after:
        return x
    return to.emit("Pad", x, to.constant([0, 0, before, 0, 0, after]))
