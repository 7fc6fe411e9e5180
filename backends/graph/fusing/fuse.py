"""Find in a program's steps what its authors wrote: layer norms, GELUs, linear layers, attention. Pure.

A chain of small operators that stands for one of these becomes one step, which a backend can run in one go; whatever
is not recognised stays as it is, so a fused program gives the same answer (to rounding) as the one it was made from.

| step | inputs | gives |
| --- | --- | --- |
| `LayerNormalization` | x, scale, bias | as ONNX has it; `axis`, `epsilon` |
| `vs.Gelu` | x | x Φ(x), exact (erf) |
| `vs.Linear` | x[…, k], weight[k, n], bias[n] | x · weight + bias |
| `vs.QuantisedMatMul` | x[…, k], weight 8-bit[k, n], scale[] or [n], zero [] or [n] or '', bias[n] or '' | \
x · (weight - zero) scale + bias, where x is quantised to 8 bits first, or not at all: per row, the answer doesn't \
depend on the batch |
| `vs.Attention` | q, k, v [rows, length, heads d], mask or '' | softmax(`scale` q kᵀ + mask) v per head, \
[rows, length, heads d]; `heads`; `empty_rows_are_zero`: a row whose mask is all -inf gives 0 instead of NaN |
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from backends.graph.fusing.fuse_attention import attention
from backends.graph.node import Node
from backends.graph.rewriting.specialise import Program, pruned
from backends.graph.rewriting.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def fuse(program: Program) -> Program:
    """Return the program with the chains that stand for one thing as one step; see above."""
    steps = Steps(program)
    for step in program.steps:
        node = steps.resolved(step)
        for rule in _RULES.get(node.op, ()):
            fused = rule(steps, node)
            if fused is not None:
                steps.add(fused)
                break
        else:
            steps.add(node)
    # A chain's own steps are still there, in case someone else needs them; what nobody needs is dropped.
    return pruned(tuple(steps.nodes), program.constants, program.inputs, steps.resolve(program.output), program.values)


def _layer_norm(steps: Steps, node: Node) -> Node | None:
    """Match Add(Mul(d / sqrt(mean(d²) + epsilon), scale), bias), where d = x - mean(x) over the last axis."""
    for product, bias in steps.sides(node, "Mul"):
        for quotient, scale in steps.sides(product, "Div"):
            found = _centred(steps, quotient)
            if found is None:
                continue
            x, epsilon = found
            *outer, width = steps.values[x].shape
            axis = len(outer)
            if steps.is_vector(scale, width) and steps.is_vector(bias, width):
                return Node("LayerNormalization", (x, scale, bias), node.outputs, {"axis": axis, "epsilon": epsilon})
    return None


def _centred(steps: Steps, quotient: Node) -> tuple[str, float] | None:
    """Return x and epsilon if the division is (x - mean(x)) / sqrt(mean((x - mean(x))²) + epsilon)."""
    d, deviation = quotient.inputs
    root = steps.maker(deviation, "Sqrt")
    total = root and steps.maker(root.inputs[0], "Add")
    if not total:
        return None
    for variance, epsilon in steps.sides(total, "ReduceMean"):
        x = _mean_free(steps, d)
        eps = steps.scalar(epsilon)
        if x is None or eps is None or not steps.is_over_last(variance):
            continue
        square = steps.maker(variance.inputs[0], "Pow") or steps.maker(variance.inputs[0], "Mul")
        if square and _is_square(steps, square) and _mean_free(steps, square.inputs[0]) == x:
            return x, eps
    return None


def _mean_free(steps: Steps, name: str) -> str | None:
    """Return x if the value is x - mean(x) over the last axis."""
    difference = steps.maker(name, "Sub")
    mean = difference and steps.maker(difference.inputs[1], "ReduceMean")
    if difference and mean and mean.inputs[0] == difference.inputs[0] and steps.is_over_last(mean):
        return difference.inputs[0]
    return None


def _is_square(steps: Steps, node: Node) -> bool:
    left, right = node.inputs
    return left == right if node.op == "Mul" else steps.scalar(right) == 2  # noqa: PLR2004  (a square)


def _gelu(steps: Steps, node: Node) -> Node | None:
    """Match 0.5 x (1 + erf(x / √2)), its factors in any order."""
    factor, parts = _factors(steps, node)
    if not math.isclose(factor, 0.5, rel_tol=1e-6) or len(parts) != 2:  # noqa: PLR2004  (x, and 1 + erf)
        return None
    for x, shifted in (parts, parts[::-1]):
        total = steps.maker(shifted, "Add")
        for curve, one in steps.sides(total, "Erf"):
            scale, inner = steps.scaled(curve.inputs[0], until=x)
            if inner == x and steps.scalar(one) == 1 and math.isclose(scale, math.sqrt(0.5), rel_tol=1e-6):
                return Node("vs.Gelu", (x,), node.outputs)
    return None


def _factors(steps: Steps, node: Node) -> tuple[float, list[str]]:
    """Return a product's number and its other factors, products within it resolved."""
    number, parts = 1.0, []
    for name in node.inputs:
        inner = steps.maker(name, "Mul")
        value = steps.scalar(name)
        if value is not None:
            number *= value
        elif inner and any(steps.scalar(i) is not None or steps.maker(i, "Add") for i in inner.inputs):
            more, others = _factors(steps, inner)
            number *= more
            parts += others
        else:
            parts.append(name)
    return number, parts


def _quantised_matmul(steps: Steps, node: Node) -> Node | None:
    """Match Cast(MatMulInteger(quantised x, weight)) times both scales."""
    for cast, scales in steps.sides(node, "Cast"):
        product, combined = steps.maker(cast.inputs[0], "MatMulInteger"), steps.maker(scales, "Mul")
        quantised = product and steps.maker(product.inputs[0], "DynamicQuantizeLinear")
        if not (product and combined and quantised) or product.inputs[2:3] != quantised.outputs[2:]:
            continue
        weight = product.inputs[1]
        zero = product.inputs[3] if len(product.inputs) > 3 else ""  # noqa: PLR2004  (the weight's zero point)
        if (
            quantised.outputs[1] not in combined.inputs
            or weight not in steps.constants
            or (zero and zero not in steps.constants)
        ):
            continue
        scale = next(name for name in combined.inputs if name != quantised.outputs[1])
        width = steps.values[weight].shape[-1]
        if steps.constants[weight].ndim != 2 or not (steps.is_vector(scale, width) or steps.scalar(scale) is not None):  # noqa: PLR2004  (a matrix)
            continue
        zero = zero if zero and np.any(steps.constants[zero]) else ""
        return Node("vs.QuantisedMatMul", (quantised.inputs[0], weight, scale, zero, ""), node.outputs)
    return None


def _biased(steps: Steps, node: Node) -> Node | None:
    """Match a product with constant weights, plus a constant vector."""
    for product, bias in steps.sides(node, "vs.QuantisedMatMul"):
        width = steps.values[node.outputs[0]].shape[-1]
        if steps.is_vector(bias, width) and not product.inputs[4] and steps.keeps_shape(product, node):
            return Node("vs.QuantisedMatMul", (*product.inputs[:4], bias), node.outputs)
    for product, bias in steps.sides(node, "MatMul"):
        weight = steps.constants.get(product.inputs[1])
        if weight is None or weight.ndim != 2:  # noqa: PLR2004  (a matrix)
            continue
        if steps.is_vector(bias, weight.shape[1]) and steps.keeps_shape(product, node):
            return Node("vs.Linear", (*product.inputs, bias), node.outputs)
    return None


def _whole(steps: Steps, node: Node) -> Node | None:
    """Turn a gather at every position in order into what it is: the same values in another shape."""
    indices = steps.constants.get(node.inputs[1])
    x, depth = steps.values[node.inputs[0]].shape, 0 if indices is None else indices.shape[-1]
    if indices is None or node.attributes["batch_dims"] or depth != len(x) or indices.size != depth * math.prod(x):
        return None
    flat = np.ravel_multi_index(tuple(np.moveaxis(indices, -1, 0).reshape(depth, -1)), x, mode="wrap")
    if not np.array_equal(flat, np.arange(flat.size)):
        return None
    return Node("Reshape", node.inputs[:1], node.outputs, {"shape": steps.values[node.outputs[0]].shape})


def _no_choice(steps: Steps, node: Node) -> Node | None:
    """Drop `x and true`, and an expansion that changes nothing."""
    rest = [name for name in node.inputs if not (name in steps.constants and np.all(steps.constants[name]))]
    if len(rest) == 1 and steps.values[rest[0]] == steps.values[node.outputs[0]]:
        return Node("Identity", (rest[0],), node.outputs)
    return None


_RULES: Mapping[str, tuple[Callable[[Steps, Node], Node | None], ...]] = {
    "Add": (_layer_norm, _biased),
    "And": (_no_choice,),
    "Expand": (_no_choice,),
    "GatherND": (_whole,),
    "Mul": (_gelu, _quantised_matmul),
    "Reshape": (attention,),
}
