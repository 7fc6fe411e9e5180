"""A program's steps to one JAX function: how its matrices are stored, and how the steps are cut into fenced blocks.

**Fences.** XLA's fusion on a processor computes a residual sum again inside each layer norm, its reads all the way down
to the embeddings included: nearly half the time of a six-layer encoder. A call that may not be inlined stops it. So the
steps are cut before and behind each layer norm, and each block is a call; blocks that differ in their weights only are
one function, so the compiler sees a layer once (README.md, JAX).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

from backends.runtimes.jax_runtime.jax_kernels import kernels, narrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jax import Array
    from numpy.typing import NDArray

    from backends.graph.node import Node
    from backends.graph.rewriting.specialise import Program

PRODUCT_TYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "int8": jnp.bfloat16}
PRODUCTS = frozenset({"MatMul", "vs.Linear", "vs.QuantisedMatMul"})
_FENCED = "LayerNormalization"
LITERAL_SIZE = 1  # larger constants are arguments, so that models of one architecture share compiled programs


class Block(NamedTuple):
    """Steps that are one call: the names that they take from outside, and those that are needed outside."""

    steps: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def stored(program: Program, precision: str) -> tuple[Program, Mapping[str, Callable[[], NDArray[Any]]]]:
    """Return the program with its constants as the precision wants them, and how to make those that are new, by name.

    The right sides of products become bfloat16, or int8 where the graph has them so; in other precisions 8-bit weights
    become floats. A name tells its content whatever the program's shape, so programs share what was made once.
    """
    made: dict[str, Callable[[], NDArray[Any]]] = {}
    steps = tuple(_stored(node, program.constants, precision, made) for node in program.steps)
    return replace(program, steps=steps), made


def _stored(
    node: Node, constants: Mapping[str, NDArray[Any]], precision: str, made: dict[str, Callable[[], NDArray[Any]]]
) -> Node:
    if node.op in {"MatMul", "vs.Linear"} and node.inputs[1] in constants and precision != "float32":
        matrix = constants[node.inputs[1]]
        if matrix.dtype == np.float32:
            name = f"{node.inputs[1]}@bfloat16"
            made[name] = lambda: matrix.astype(jnp.bfloat16)
            return replace(node, inputs=(node.inputs[0], name, *node.inputs[2:]))
    if node.op == "vs.QuantisedMatMul":
        x, weight, scale, zero, bias = node.inputs
        if precision != "int8":
            name, dtype = f"{weight}@{precision}", PRODUCT_TYPES[precision]
            made[name] = lambda: _floats(*(constants.get(i) for i in (weight, scale, zero))).astype(dtype)
            return (
                replace(node, op="vs.Linear", inputs=(x, name, bias))
                if bias
                else replace(node, op="MatMul", inputs=(x, name))
            )
        if constants[weight].dtype == np.uint8:  # to int8: both sides of the difference move by 128
            made[f"{weight}@int8"] = lambda: (constants[weight] ^ 128).view(np.int8)
            made[f"{weight}@zero"] = lambda: np.asarray(constants[zero] if zero else 0, np.int32) - 128
            return replace(node, inputs=(x, f"{weight}@int8", scale, f"{weight}@zero", bias))
    return node


def _floats(weight: Any, scale: Any, zero: Any) -> NDArray[np.float32]:  # noqa: ANN401  (arrays, or None)
    difference = weight.astype(np.float32) - (0 if zero is None else zero.astype(np.float32))
    return np.asarray(difference * scale, np.float32)


def lower(program: Program, precision: str, *, fenced: bool) -> Callable[[Mapping[str, Array]], Array]:
    """Return a function of the program's inputs and constants, by name, that gives its output, float32.

    Constants of a single number are built in, and need not be given.
    """
    literals = {
        name: array.astype(narrow(array.dtype))
        for name, array in program.constants.items()
        if array.size <= LITERAL_SIZE
    }
    table = kernels(PRODUCT_TYPES[precision])
    calls: dict[object, Callable[..., tuple[Array, ...]]] = {}
    plan = []
    for block in blocks(program.steps, program.output, fenced=fenced):
        inputs = tuple(name for name in block.inputs if name not in literals)
        key, call = _call(block, inputs, literals, table)
        plan.append((calls.setdefault(key, jax.jit(call) if fenced else call), inputs, block.outputs))

    def evaluate(given: Mapping[str, Array]) -> Array:
        values = dict(given)
        for call, inputs, outputs in plan:
            with set_xla_metadata(inlineable="false") if fenced else nullcontext():
                values.update(zip(outputs, call(*(values[name] for name in inputs)), strict=True))
        return values[program.output]

    return evaluate


def blocks(steps: Sequence[Node], output: str, *, fenced: bool) -> list[Block]:
    """Cut the steps before and behind each layer norm; where they aren't fenced all of them are one block. Pure."""
    cut: list[list[Node]] = [[]]
    for node in steps:
        if fenced and node.op == _FENCED:
            cut += [[node], []]
        else:
            cut[-1].append(node)
    found: list[Block] = []
    needed = {output}
    for part in (tuple(part) for part in reversed(cut) if part):
        made = {name for node in part for name in node.outputs if name}
        taken = dict.fromkeys(name for node in part for name in node.inputs if name and name not in made)
        found.append(Block(part, tuple(taken), tuple(name for name in made if name in needed)))
        needed.update(taken)
    return found[::-1]


def _call(
    block: Block, inputs: tuple[str, ...], literals: Mapping[str, Any], table: Mapping[str, Callable[..., Any]]
) -> tuple[object, Callable[..., tuple[Array, ...]]]:
    """Return the block as a function of its inputs, and a key that is the same for blocks that do the same."""
    numbers = {name: i for i, name in enumerate(inputs)}

    def number(name: str) -> object:
        content = literals.get(name)
        if content is not None:
            return content.dtype.str, content.shape, content.tobytes()
        return numbers.setdefault(name, len(numbers)) if name else None

    def call(*given: Array) -> tuple[Array, ...]:
        values: dict[str, Any] = {**literals, **dict(zip(inputs, given, strict=True))}
        with set_xla_metadata(inlineable=None):  # what jax.numpy calls within a block may well be inlined
            for node in block.steps:
                made = table[node.op](node, *(values[name] if name else None for name in node.inputs))
                values.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True))
        return tuple(values[name] for name in block.outputs)

    steps = tuple(
        (node.op, *(tuple(map(number, names)) for names in (node.inputs, node.outputs)), repr(dict(node.attributes)))
        for node in block.steps
    )
    return (steps, tuple(map(number, block.outputs))), call
