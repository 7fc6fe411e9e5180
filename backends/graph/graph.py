"""The portable model: an ONNX graph, loaded, checked, rewritten into few operators, its weights folded once.

What must hold of a file: every input of a node is defined before it, every name once, every size and path is
checked (`onnx_file`). Anything else is an `InvalidModel`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidModel
from backends.graph.node import Node, Value
from backends.graph.reading import onnx_file, signature, understood
from backends.graph.reading.understood import INPUT_TYPES, NEWEST_OPSET, OLDEST_OPSET
from backends.graph.rewriting import folding
from backends.graph.rewriting.canonical import REWRITTEN, rewrite
from backends.graph.rewriting.normal_form import NORMALISED
from backends.graph.rewriting.rewriting_graph import Rewriting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["SUPPORTED", "Graph", "Node", "load", "unsupported"]

# Operators that `specialise` knows.
SUPPORTED = folding.SUPPORTED | REWRITTEN | NORMALISED
# What folding may add: 8-bit weights grow fourfold, and two or three forms of one may be alive at once.
_FOLDING_FACTOR = 12
_FOLDING_FLOOR_NBYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Graph:
    """A model's operators in order, and its weights by name; both rewritten (`canonical`) and folded.

    `inputs` are the names to be fed, `outputs` as the file declares them. Arrays are not writable.
    """

    path: Path
    nodes: tuple[Node, ...]
    weights: Mapping[str, NDArray[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[signature.Tensor, ...]
    opset: int

    @property
    def operators(self) -> frozenset[str]:
        """Return the names of the operators left."""
        return frozenset(node.op for node in self.nodes)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights."""
        return sum(array.nbytes for array in self.weights.values() if any(array.strides) or array.size == 1)

    def without(self, names: Collection[str]) -> Graph:
        """Return the graph with the content of these weights dropped: shapes can still be told, answers can't."""
        empty = {n: np.broadcast_to(np.zeros((), self.weights[n].dtype), self.weights[n].shape) for n in names}
        return replace(self, weights=MappingProxyType({**self.weights, **empty}))


def unsupported(path: Path) -> tuple[str, ...]:
    """Return what of a file `load` does not know, in words, sorted; remembered until the file changes.

    Operators, attributes of known ones, inputs: see `understood`.

    Raises:
        InvalidModel, MissingExtra: as `load`.
    """
    return understood.unknown(path)


def load(path: Path) -> Graph:
    """Load an ONNX graph with its weights; whatever depends on weights alone is computed now, once.

    Raises:
        InvalidModel: the file is damaged, unsafe, or uses an operator or an attribute that is not known; the message
            says which.
        MissingExtra: the `onnx` package is not installed.
    """
    return read(onnx_file.parse(path), path)


def read(model: Any, path: Path) -> Graph:  # noqa: ANN401  (a protobuf message without a type)
    """Load as `load` does, from a ModelProto; `path` is where it came from."""
    found = _opset(model, path)
    if unknown := understood.refused(model):
        raise InvalidModel(f"{path} uses {', '.join(unknown)}, which is not served")
    weights = {tensor.name: onnx_file.array(tensor, path) for tensor in model.graph.initializer}
    if len(weights) < len(model.graph.initializer) or "" in weights:
        raise InvalidModel(f"{path} has weights without a name, or two of one name")
    made = Graph(
        path=path,
        nodes=tuple(
            Node(node.op_type, tuple(node.input), tuple(node.output), onnx_file.attributes(node, path))
            for node in model.graph.node
        ),
        weights=weights,
        inputs=signature.inputs(model),
        outputs=tuple(signature.tensor(value) for value in model.graph.output),
        opset=found,
    )
    _check_names(made)
    return _folded(_as_declared(made, model))


def _as_declared(made: Graph, model: Any) -> Graph:  # noqa: ANN401  (as above)
    """Return the graph with each input, which is fed int64, cast to the type that the file declares for it."""
    kinds = {value.name: INPUT_TYPES[value.type.tensor_type.elem_type] for value in model.graph.input}
    cast = {name: f"{name}~fed" for name in made.inputs if kinds[name] not in {"int64", "int32"}}
    if not cast:
        return made
    codes = {name: value.type.tensor_type.elem_type for value in model.graph.input if (name := value.name) in cast}
    casts = [Node("Cast", (name,), (to,), {"to": codes[name]}) for name, to in cast.items()]
    nodes = [replace(node, inputs=tuple(cast.get(name, name) for name in node.inputs)) for node in made.nodes]
    return replace(made, nodes=(*casts, *nodes))


def _folded(read: Graph) -> Graph:
    """Return the graph rewritten into few operators, with everything computed that depends on weights alone."""
    names = {*read.weights, *read.inputs, *(name for node in read.nodes for name in (*node.inputs, *node.outputs))}
    shapes = {name: array.shape for name, array in read.weights.items()}
    rewriting = Rewriting(names, frozenset(out.name for out in read.outputs), shapes)
    _each(read.path, read.nodes, partial(rewrite, rewriting))
    weights = {**read.weights, **rewriting.constants}
    fold = folding.Folding(
        weights,
        {name: Value(array.shape, array.dtype) for name, array in weights.items()},
        opset=read.opset,
        budget_nbytes=_FOLDING_FACTOR * sum(array.nbytes for array in weights.values()) + _FOLDING_FLOOR_NBYTES,
    )
    with np.errstate(all="ignore"):
        _each(read.path, rewriting.nodes, fold.fold_weights)
    renamed = [Node("Identity", (fold.same[name],), (name,)) for name in rewriting.outputs & fold.same.keys()]
    fold.steps += renamed
    wanted = {name for node in fold.steps for name in node.inputs} | rewriting.outputs
    used = {name: array for name, array in fold.known.items() if name in wanted}
    return replace(read, nodes=tuple(fold.steps), weights=MappingProxyType(used))


def _each(path: Path, nodes: Iterable[Node], take: Callable[[Node], None]) -> None:
    for node in nodes:
        try:
            take(node)
        except folding.MALFORMED as exc:
            raise folding.translate(path, node, exc) from exc


def _opset(model: Any, path: Path) -> int:  # noqa: ANN401  (a protobuf message without a type)
    found = understood.opset(model)
    if found < OLDEST_OPSET:
        raise InvalidModel(
            f"{path} is of ONNX opset {found}; served are {OLDEST_OPSET} to {NEWEST_OPSET}: export it again"
        )
    return found


def _check_names(read: Graph) -> None:
    defined = {*read.weights, *read.inputs}
    for node in read.nodes:
        missing = [name for name in node.inputs if name and name not in defined]
        if missing:
            raise InvalidModel(
                f"{read.path}: {node.op} takes {missing}, which nothing before it gives (or a cycle does)"
            )
        given = [name for name in node.outputs if name]
        if not given or len(set(given)) < len(given) or not defined.isdisjoint(given):
            raise InvalidModel(f"{read.path}: {node.op} gives {given}: nothing, or a name that is given already")
        defined.update(given)
    declared = [out.name for out in read.outputs]
    absent = [name for name in declared if name not in defined]
    if absent or not declared:
        raise InvalidModel(f"{read.path} declares the outputs {declared}; nothing gives {absent or 'any'}")
