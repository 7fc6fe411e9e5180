"""Find multi-head attention (Vaswani et al. 2017, eq. 1) in a program's steps. Pure.

Exporters split and join the heads with different chains of Reshape and Transpose. What such a chain does is followed
axis by axis: `[rows, length, heads d]` is four axes (row, token, head, d), a Transpose moves, a Reshape groups them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.graph.rewriting.steps import Steps

ROW, TOKEN, HEAD, INNER = range(4)
# A value's layout: for each of its axes, which of the four it is made of, in order; those of length 1 are left out.
Layout = tuple[tuple[int, ...], ...]


def attention(steps: Steps, node: Node) -> Node | None:
    """Match a Reshape that ends as softmax(c q kᵀ + mask) v, its heads joined again."""
    joined = _unjoined(steps, node)
    context = joined and steps.maker(joined, "MatMul")
    if not context:
        return None
    rows, heads, length, inner = steps.values[context.outputs[0]].shape
    weights, empty_are_zero = _guarded(steps, context.inputs[0])
    softmax = steps.maker(weights, "Softmax")
    over_keys = softmax and softmax.attributes["axis"] == 3  # noqa: PLR2004  (the last of four axes)
    if not softmax or not over_keys or steps.values[node.outputs[0]].shape != (rows, length, heads * inner):
        return None
    scores, mask = _masked(steps, softmax.inputs[0])
    factor, product_name = steps.scaled(scores)
    product = steps.maker(product_name, "MatMul")
    if not product or steps.values[product_name].shape != steps.values[weights].shape:
        return None
    sizes = (rows, length, heads, inner)
    q = _split(steps, product.inputs[0], sizes, (ROW, HEAD, TOKEN, INNER))
    k = _split(steps, product.inputs[1], sizes, (ROW, HEAD, INNER, TOKEN))
    v = _split(steps, context.inputs[1], sizes, (ROW, HEAD, TOKEN, INNER))
    if q is None or k is None or v is None or v[1] != 1:
        return None
    attributes = {"heads": heads, "scale": factor * q[1] * k[1], "empty_rows_are_zero": int(empty_are_zero)}
    return Node("vs.Attention", (q[0], k[0], v[0], mask), node.outputs, attributes)


def _unjoined(steps: Steps, node: Node) -> str | None:
    """Return the value [row, head, token, d] that a chain ending in this Reshape joins to [row, token, head d]."""
    chain, name = [node], node.inputs[0]
    while made := steps.maker(name, "Reshape") or steps.maker(name, "Transpose"):
        chain.append(made)
        name = made.inputs[0]
    shape = steps.values[name].shape
    if len(shape) != 4:  # noqa: PLR2004  (row, head, token, d)
        return None
    rows, heads, length, inner = shape
    sizes = (rows, length, heads, inner)
    start = _layout(((ROW,), (HEAD,), (TOKEN,), (INNER,)), sizes)
    wanted = _layout(((ROW,), (TOKEN,), (HEAD, INNER)), sizes)
    return name if _follow(start, chain[::-1], sizes) == wanted else None


def _split(steps: Steps, name: str, sizes: Sequence[int], order: Sequence[int]) -> tuple[str, float] | None:
    """Return the value [row, token, head d] that is split into axes of this order, and the number that scales it."""
    rows, length, heads, inner = sizes
    chain: list[Node] = []
    number, source = steps.scaled(name)
    while steps.values[source].shape != (rows, length, heads * inner):
        made = steps.maker(source, "Reshape") or steps.maker(source, "Transpose")
        if made is None:
            return None
        chain.append(made)
        factor, source = steps.scaled(made.inputs[0])
        number *= factor
    start = _layout(((ROW,), (TOKEN,), (HEAD, INNER)), sizes)
    wanted = _layout(tuple((axis,) for axis in order), sizes)
    return (source, number) if _follow(start, chain[::-1], sizes) == wanted else None


def _layout(axes: Layout, sizes: Sequence[int]) -> Layout:
    return tuple(tuple(axis for axis in group if sizes[axis] > 1) for group in axes)


def _follow(layout: Layout, chain: Sequence[Node], sizes: Sequence[int]) -> Layout | None:
    """Return the layout after a chain of Reshape and Transpose; None if one cuts through an axis."""
    for node in chain:
        if node.op == "Transpose":
            layout = tuple(layout[i] for i in node.attributes["perm"])
            continue
        left = [axis for group in layout for axis in group]
        groups = []
        for length in node.attributes["shape"]:
            group, size = [], 1
            while size < length and left:
                group.append(left.pop(0))
                size *= sizes[group[-1]]
            if size != length:
                return None
            groups.append(tuple(group))
        layout = tuple(groups)
    return layout


def _guarded(steps: Steps, name: str) -> tuple[str, bool]:
    """Return the weights, and whether those that are NaN are replaced by 0."""
    chosen = steps.maker(name, "Where")
    is_nan = chosen and steps.maker(chosen.inputs[0], "IsNaN")
    if chosen and is_nan and is_nan.inputs[0] == chosen.inputs[2] and steps.scalar(chosen.inputs[1]) == 0:
        return chosen.inputs[2], True
    return name, False


def _masked(steps: Steps, name: str) -> tuple[str, str]:
    """Return the scores before a mask is added, and the mask ('' if none is)."""
    total = steps.maker(name, "Add")
    if total:
        for scores, mask in ((total.inputs[0], total.inputs[1]), (total.inputs[1], total.inputs[0])):
            same_shape = steps.values[scores].shape == steps.values[name].shape
            if same_shape and steps.maker(steps.scaled(scores)[1], "MatMul"):
                return scores, mask
    return name, ""
