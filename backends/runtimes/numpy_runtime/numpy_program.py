"""Run a program in NumPy: which kernel each step takes, what it may overwrite, and when each value is dropped."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from backends.graph.kernels import compute
from backends.runtimes.numpy_runtime import fused_kernels as fused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from backends.graph.node import Node
    from backends.graph.rewriting.specialise import Program
    from backends.running.deadline import Deadline

    Run = Callable[..., tuple[NDArray[Any], ...]]

# What gives memory of its own, which a later step may overwrite; views and names of other values don't.
_OWNING = frozenset(
    {"LayerNormalization", "vs.Attention", "vs.Gelu", "vs.Linear", "vs.QuantisedMatMul", "Add", "Sub", "Mul", "Div"}
)
_VIEWS = frozenset({"Reshape", "Transpose", "Slice", "Expand"})
_IN_PLACE: Mapping[str, np.ufunc] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
_FLOAT32 = np.dtype(np.float32)


class Weights:
    """The matrices of 8-bit weights as floats, made on first use and shared by the programs of all shapes.

    `quantised` keeps their whole numbers and quantises what they are multiplied with; otherwise they are dequantised.
    """

    def __init__(self, *, quantised: bool) -> None:
        self.quantised = quantised
        self._made: dict[str, NDArray[np.float32]] = {}

    @property
    def packed(self) -> frozenset[str]:
        """Return the names of the 8-bit weights that a matrix was made of: their own bytes are needed no more."""
        return frozenset(self._made)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all matrices made."""
        return sum(matrix.nbytes for matrix in self._made.values())

    def matrix(self, node: Node, constants: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the weights of a `vs.QuantisedMatMul`, less their zero point, and scaled unless `quantised`."""
        _, weight, scale, zero, _ = node.inputs
        if weight not in self._made:
            floats = constants[weight].astype(np.float32)
            if zero:
                floats -= constants[zero].astype(np.float32)
            self._made[weight] = floats if self.quantised else floats * constants[scale]
        return self._made[weight]


class Step(NamedTuple):
    """One kernel, the names that it takes and gives, and the names that nobody needs after it."""

    run: Run
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dropped: tuple[str, ...]


class Execution:
    """A program ready to run. Safe from many threads: it changes nothing of its own."""

    def __init__(self, program: Program, weights: Weights) -> None:
        self._output = program.output
        self.shape = program.values[program.output].shape
        dropped = _last_uses(program)
        overwritable = _overwritable(program)
        self._steps = [
            Step(_kernel(node, program, weights, dying & overwritable), node.inputs, node.outputs, tuple(dying))
            for node, dying in zip(program.steps, dropped, strict=True)
        ]
        used = {name for step in self._steps for name in step.inputs} | {program.output}
        self._constants = {name: array for name, array in program.constants.items() if name in used}
        self.workspace_nbytes = _workspace(program, dropped)

    def run(self, feeds: Mapping[str, NDArray[Any]], deadline: Deadline | None = None) -> NDArray[Any]:
        """Return the answer for one batch of the program's shape.

        Raises:
            DeadlineExceeded: the time was up; it is looked at before each step.
        """
        held = {**self._constants, **feeds}
        with np.errstate(all="ignore"):  # NaN and infinity are looked for in the answer
            for step in self._steps:
                if deadline is not None:
                    deadline.check("inference in NumPy")
                made = step.run(*(held[name] if name else None for name in step.inputs))
                held.update(zip(step.outputs, made, strict=True))
                for name in step.dropped:
                    del held[name]
        return held[self._output]


def _kernel(node: Node, program: Program, weights: Weights, overwritable: set[str]) -> Run:
    """Return what runs a step; `overwritable` names those of its inputs whose memory it may take for its answer."""
    answer = program.values[node.outputs[0]]
    fitting = [i for i, name in enumerate(node.inputs) if name in overwritable and program.values[name] == answer]
    place = fitting[0] if fitting and answer.dtype == _FLOAT32 else None
    made = _FUSED.get(node.op)
    if made is not None:
        return made(node, program, weights, place)
    if node.op in _IN_PLACE and place is not None:
        return partial(_elementwise, _IN_PLACE[node.op], place)
    return lambda *inputs: compute(node, list(inputs))


def _elementwise(function: np.ufunc, place: int, *inputs: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    return (function(*inputs, out=inputs[place]),)


def _into(x: NDArray[np.float32], place: int | None) -> NDArray[np.float32]:
    """Return where to put an answer of the shape of x: x itself if it may be overwritten."""
    return x if place == 0 and x.flags.c_contiguous else np.empty(x.shape, np.float32)


def _gelu(_node: Node, _program: Program, _weights: Weights, place: int | None) -> Run:
    return lambda x: (fused.gelu(x, _into(x, place)),)


def _layer_norm(node: Node, program: Program, _weights: Weights, place: int | None) -> Run:
    axis, epsilon = node.attributes["axis"], node.attributes["epsilon"]
    if axis != len(program.values[node.inputs[0]].shape) - 1 or program.values[node.inputs[0]].dtype != _FLOAT32:
        return lambda *inputs: compute(node, list(inputs))
    return lambda x, scale, bias=None: (fused.layer_norm(x, scale, bias, epsilon, _into(x, place)),)


def _linear(_node: Node, _program: Program, _weights: Weights, _place: int | None) -> Run:
    return lambda x, weight, bias: (fused.linear(x, weight, bias),)


def _quantised_matmul(node: Node, program: Program, weights: Weights, _place: int | None) -> Run:
    matrix = weights.matrix(node, program.constants)
    if weights.quantised:
        return lambda x, _weight, scale, _zero, bias: (fused.quantised_linear(x, matrix, scale, bias),)
    return lambda x, _weight, _scale, _zero, bias: (fused.linear(x, matrix, bias),)


def _attention(node: Node, _program: Program, _weights: Weights, _place: int | None) -> Run:
    a = node.attributes
    run = partial(
        fused.attention, heads=a["heads"], scale=a["scale"], empty_rows_are_zero=bool(a["empty_rows_are_zero"])
    )
    return lambda *inputs: (run(*inputs),)


_FUSED: Mapping[str, Callable[[Node, Program, Weights, int | None], Run]] = {
    "LayerNormalization": _layer_norm,
    "vs.Attention": _attention,
    "vs.Gelu": _gelu,
    "vs.Linear": _linear,
    "vs.QuantisedMatMul": _quantised_matmul,
}


def _last_uses(program: Program) -> list[set[str]]:
    """Return for each step the values that no later step takes; constants stay."""
    needed, dropped = {program.output}, []
    for node in reversed(program.steps):
        names = {name for name in (*node.inputs, *node.outputs) if name and name not in program.constants}
        dropped.append(names - needed)
        needed |= names
    return dropped[::-1]


def _overwritable(program: Program) -> set[str]:
    """Return the values with memory of their own that no other value is a view of."""
    viewed = {node.inputs[0] for node in program.steps if node.op in _VIEWS or node.op == "Cast"}
    return {name for node in program.steps if node.op in _OWNING for name in node.outputs} - viewed - {program.output}


def _workspace(program: Program, dropped: list[set[str]]) -> int:
    """Return the bytes held at once, at most, with each answer in memory of its own."""
    nbytes = {name: math.prod(value.shape) * value.dtype.itemsize for name, value in program.values.items()}
    held = most = sum(nbytes[name] for name in program.inputs)
    for node, dying in zip(program.steps, dropped, strict=True):
        held += sum(nbytes[name] for name in node.outputs if name)
        most = max(most, held)
        held -= sum(nbytes[name] for name in dying)
    return most + 4 * fused.BLOCK_NBYTES
