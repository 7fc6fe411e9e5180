"""Small ONNX graphs for tests: written to a file, specialised, and run in NumPy and by the reference evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from backends.graph import graph
from backends.graph.fusing.fuse import fuse
from backends.graph.rewriting.specialise import specialise
from backends.runtimes.numpy_runtime.numpy_program import Execution, Weights

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from backends.graph.rewriting.specialise import Program

FUSED = ("vs.Attention", "vs.Gelu", "vs.Linear", "vs.QuantisedMatMul")  # what `fuse` makes


def model(
    nodes: list[onnx.NodeProto],
    weights: Mapping[str, NDArray[Any]],
    *,
    opset: int = 17,
    inputs: tuple[str, ...] = ("input_ids",),
    output: str = "y",
) -> onnx.ModelProto:
    """Build a graph that takes int64[n, length] and gives one output."""
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def programs(path: Path, made: onnx.ModelProto, rows: int, length: int) -> tuple[Program, Program]:
    """Return a graph's program for a shape, as it is and fused."""
    path.write_bytes(made.SerializeToString())
    loaded = graph.load(path)
    plain = specialise(loaded, rows=rows, length=length, output=loaded.outputs[0].name)
    return plain, fuse(plain)


def run(program: Program, feeds: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return what a program gives in NumPy; 8-bit products quantise row by row."""
    return Execution(program, Weights(quantised=True)).run(feeds)


def reference(made: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return what the `onnx` package's own evaluator gives."""
    with np.errstate(all="ignore"):
        return np.asarray(ReferenceEvaluator(made).run(None, dict(feeds))[0])


def as_data(name: str, dtype: np.dtype[Any], opset: int) -> list[onnx.NodeProto]:
    """Return nodes that make `name.data`, equal to a constant, but depending on what is fed (all zeros)."""
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    keep = {"axes": [0, 1]} if opset < 18 else {}
    nodes = [helper.make_node("ReduceMax", ["input_ids"], ["top"], keepdims=0, **keep)]
    if dtype == np.bool_:
        nodes.append(helper.make_node("Cast", ["top"], ["zero"], to=kind))
        return [*nodes, helper.make_node("Or", [name, "zero"], [f"{name}.data"])]
    if dtype.itemsize == 1:  # ONNX adds no bytes before opset 14
        nodes += [
            helper.make_node("Cast", [name], ["wide"], to=TensorProto.INT64),
            helper.make_node("Add", ["wide", "top"], ["sum"]),
            helper.make_node("Cast", ["sum"], [f"{name}.data"], to=kind),
        ]
        return nodes
    nodes.append(helper.make_node("Cast", ["top"], ["zero"], to=kind))
    return [*nodes, helper.make_node("Add", [name, "zero"], [f"{name}.data"])]
