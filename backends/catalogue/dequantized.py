"""An int8 ONNX graph as floats: the same graph with float products, and its weights under their Hugging Face names.

Names of quantised weights say nothing (`onnx::MatMul_1662_quantized`); what a weight is follows from its place in the
graph: a table from what it is looked up by, a product's weight from the bias that is added to its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidModel
from backends.graph.graph import Graph, read
from backends.graph.reading import onnx_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_TABLES = {"input_ids": "word", "token_type_ids": "token_type"}  # any other table is of positions
_MATRIX = 2
_FLOAT = "_as_float"


def float_model(path: Path) -> Any:  # noqa: ANN401  (a protobuf message without a type)
    """Return the file's ModelProto with float32 weights, products and tables in place of 8-bit ones.

    Raises:
        InvalidModel: the file is damaged, or quantised in a way that is not known.
    """
    model = onnx_file.parse(path)
    _Rewriting(model.graph, path).run()
    return model


def float_graph(path: Path) -> Graph:
    """Return the file's graph with float32 weights, products and tables in place of 8-bit ones.

    Raises:
        InvalidModel: as `float_model`, or `graph.load`.
    """
    return read(float_model(path), path)


class _Rewriting:
    """Replaces quantised products and look-ups in one GraphProto."""

    def __init__(self, graph: Any, path: Path) -> None:  # noqa: ANN401  (as above)
        self._graph = graph
        self._path = path
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._makers = {output: node for node in graph.node for output in node.output}
        self._users: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)

    def run(self) -> None:
        from onnx import numpy_helper  # noqa: PLC0415  (heavy: loaded by now)

        for node in self._graph.node:
            if node.op_type == "MatMulInteger" and node.input[1] in self._stored:
                weight, inputs, result = self._product(node)
                node.op_type = "MatMul"
            elif node.op_type == "Gather" and self._is_packed(node.input[0]):
                weight, inputs, result = self._table(node)
            else:
                continue
            self._graph.initializer.append(
                numpy_helper.from_array(weight, next(i for i in inputs if i.endswith(_FLOAT)))
            )
            del node.input[:]
            node.input.extend(inputs)
            # Whoever turned the integers into floats is left without a reader.
            self._makers[result].output[0] = f"{result}_unused"
            node.output[0] = result
        self._drop_unused()

    def _drop_unused(self) -> None:
        used = {output.name for output in self._graph.output}
        kept = []
        for node in reversed(self._graph.node):
            if used.intersection(node.output):
                used.update(node.input)
                kept.append(node)
        stored = [tensor for tensor in self._graph.initializer if tensor.name in used]
        for field, values in ((self._graph.node, kept[::-1]), (self._graph.initializer, stored)):
            del field[:]
            field.extend(values)

    def _product(self, node: Any) -> tuple[NDArray[np.float32], list[str], str]:  # noqa: ANN401  (as above)
        """Return the weight [in, out], the inputs of a float product, and the name of its result."""
        cast = self._only_user(node.output[0], "Cast")
        scaled = self._only_user(cast.output[0], "Mul")
        scales = self._makers[next(name for name in scaled.input if name != cast.output[0])]
        names = [name for name in scales.input if name in self._stored]
        quantised = self._makers[node.input[0]]
        if quantised.op_type != "DynamicQuantizeLinear" or len(names) != 1:
            raise InvalidModel(f"{self._path}: product {node.name!r} is not quantised as DynamicQuantizeLinear does")
        zero = node.input[3] if len(node.input) > 3 else ""  # noqa: PLR2004  (the fourth input, which may be left out)
        weight = self._dequantise(node.input[1], names[0], zero)
        return weight, [quantised.input[0], node.input[1] + _FLOAT], scaled.output[0]

    def _table(self, node: Any) -> tuple[NDArray[np.float32], list[str], str]:  # noqa: ANN401  (as above)
        """Return the table, the inputs of its look-up, and the name of the result."""
        back = self._only_user(node.output[0], "DequantizeLinear")
        zero = back.input[2] if len(back.input) > 2 else ""  # noqa: PLR2004  (the third input, which may be left out)
        table = self._dequantise(node.input[0], back.input[1], zero)
        return table, [node.input[0] + _FLOAT, node.input[1]], back.output[0]

    def _dequantise(self, weight: str, scale: str, zero: str) -> NDArray[np.float32]:
        shift = self._array(zero).astype(np.float32) if zero else np.float32(0)
        return np.asarray((self._array(weight).astype(np.float32) - shift) * self._array(scale), np.float32)

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self._stored:
            raise InvalidModel(f"{self._path}: {name!r}, which scales a weight, is not stored in the graph")
        return onnx_file.array(self._stored[name], self._path)

    def _is_packed(self, name: str) -> bool:
        return name in self._stored and self._array(name).dtype in (np.int8, np.uint8)

    def _only_user(self, name: str, kind: str) -> Any:  # noqa: ANN401  (as above)
        users = self._users.get(name, [])
        if len(users) != 1 or users[0].op_type != kind:
            raise InvalidModel(f"{self._path}: {name!r} should go to one {kind} and nowhere else: not known")
        return users[0]


def named_weights(graph: Graph) -> Mapping[str, NDArray[np.float32]]:
    """Return the weights of BERT and its kin as their checkpoints name them.

    Raises:
        InvalidModel: a product has no bias, or one without a name, to tell its layer by.
    """
    biases = {name for name in graph.weights if name.endswith(".bias")}
    found = {
        name: array for name, array in graph.weights.items() if array.ndim == 1 and name.endswith((".weight", ".bias"))
    }
    norm = "embeddings.LayerNorm.weight"
    prefix = next((name.removesuffix(norm) for name in found if name.endswith(norm)), "")
    for node in graph.nodes:
        weight = next((graph.weights[name] for name in node.inputs if name in graph.weights), None)
        if weight is None or weight.ndim != _MATRIX or weight.dtype != np.float32:
            continue
        if node.op == "Gather":
            kind = _TABLES.get(node.inputs[1], "position")
            found[f"{prefix}embeddings.{kind}_embeddings.weight"] = weight
        elif node.op == "MatMul":
            added = {name for user in graph.nodes if node.outputs[0] in user.inputs for name in user.inputs}
            bias = next(iter(added & biases), None)
            if bias is None:
                raise InvalidModel(
                    f"{graph.path}: no named bias is added to {node.outputs[0]!r}, so it can't be placed"
                )
            found[bias.removesuffix("bias") + "weight"] = weight.T
    return {name: np.array(array, np.float32, order="C") for name, array in found.items()}
