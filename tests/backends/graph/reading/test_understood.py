"""Nothing in a graph is passed over: an attribute, an input or a type that isn't obeyed is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from small_graphs import as_data, model

from backends.errors import InvalidModel
from backends.graph import graph
from backends.graph.fusing.fuse import fuse
from backends.graph.reading import onnx_file, understood
from backends.graph.rewriting.specialise import specialise
from backends.runtimes.numpy_runtime.numpy_program import Execution, Weights

if TYPE_CHECKING:
    from pathlib import Path

N = helper.make_node
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
BYTES = np.arange(6, dtype=np.int8).reshape(2, 3)
FEEDS = {"input_ids": np.zeros((1, 1), np.int64)}
W = np.ones(3, np.float32)


def file_of(path: Path, node: onnx.NodeProto, x: Any = X, *, opset: int = 17, **constants: Any) -> Path:
    """Write a graph of one node over data."""
    made = model([*as_data("x", x.dtype, opset), node], {"x": x, **constants}, opset=opset)
    path.write_bytes(made.SerializeToString())
    return path


REFUSED: dict[str, tuple[onnx.NodeProto, dict[str, Any], str]] = {
    "a made-up attribute": (N("Softmax", ["x.data"], ["y"], temperature=2.0), {}, r"Softmax \(temperature"),
    "an attribute of another opset": (N("ReduceMax", ["x.data"], ["y"], axes=[0]), {"opset": 18}, r"ReduceMax \(axes"),
    "an input of another opset": (N("ReduceMax", ["x.data", "w"], ["y"]), {"w": np.array([0])}, r"ReduceMax \(2 inp"),
    "an attribute of another kind": (N("Concat", ["x.data"], ["y"], axis=0.0), {}, r"axis of another kind"),
    "an attribute left out": (N("Concat", ["x.data", "x.data"], ["y"]), {}, r"Concat \(no axis"),
    "a reference for a value": (N("Gelu", ["x.data"], ["y"], approximate="sigmoid"), {"opset": 20}, "sigmoid"),
    "another precision of sums": (N("LayerNormalization", ["x.data", "w"], ["y"], stash_type=11), {"w": W}, "stash"),
    "a norm of nothing": (N("ReduceL2", ["x.data"], ["y"], noop_with_empty_axes=1), {"opset": 18}, "noop_with_empty"),
    "blocks of scales": (
        N("DequantizeLinear", ["x.data", "w"], ["y"], axis=1, block_size=3),
        {"x": BYTES, "w": np.ones((2, 1), np.float32), "opset": 21},
        "block_size=3",
    ),
    "another type of output": (
        N("DequantizeLinear", ["x.data", "w"], ["y"], output_dtype=TensorProto.FLOAT16),
        {"x": BYTES, "w": np.float32(1), "opset": 23},
        "output_dtype=10",
    ),
    "training": (N("Dropout", ["x.data", "r", "t"], ["y"]), {"r": np.float32(0.5), "t": np.array(True)}, "training"),
    "no such operator yet": (N("Gelu", ["x.data"], ["y"]), {}, "not an operator of opset 17"),
    "a norm's mean": (N("LayerNormalization", ["x.data", "w"], ["z", "y"]), {"w": W}, "mean and deviation"),
    "parts that aren't there": (
        N("Split", ["x.data"], ["y", "z"], axis=1, num_outputs=3),
        {"opset": 18},
        "num_outputs=3",
    ),
}


@pytest.mark.parametrize(("node", "options", "words"), REFUSED.values(), ids=REFUSED)
def test_node_is_refused_when_it_says_what_is_not_obeyed(
    tmp_path: Path, node: onnx.NodeProto, options: dict[str, Any], words: str
) -> None:
    """Each attribute, value, input and output that would be ignored is named in the refusal."""
    path = file_of(tmp_path / "m.onnx", node, **options)
    with pytest.raises(InvalidModel, match=words):
        specialise(graph.load(path), rows=1, length=1, output="y")


def test_meaning_is_refused_when_it_is_newer_than_what_was_read(tmp_path: Path) -> None:
    """An operator that a later opset changed is not taken for the older one of its name."""
    latest = onnx.defs.onnx_opset_version()
    changed = [op for op in understood.ATTRIBUTES if onnx.defs.get_schema(op).since_version > understood.NEWEST_OPSET]
    for op in changed or ():
        node = N(op, ["x.data", "x.data"][: onnx.defs.get_schema(op).min_input], ["y"])
        assert op in "".join(graph.unsupported(file_of(tmp_path / f"{op}.onnx", node, opset=latest)))
    path = file_of(tmp_path / "m.onnx", N("Abs", ["x.data"], ["y"]), opset=latest + 1)
    assert any("Abs" in what for what in graph.unsupported(path))


def test_table_names_only_what_the_standard_has() -> None:
    """Every attribute of the table is one of some version of its operator, and every served operator is in it."""
    assert understood.ATTRIBUTES.keys() == graph.SUPPORTED
    history: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            history.setdefault(schema.name, set()).update(schema.attributes)
    assert {op: attributes.keys() - history[op] for op, attributes in understood.ATTRIBUTES.items()} == {
        op: set() for op in understood.ATTRIBUTES
    }


def test_file_is_refused_when_it_redefines_an_operator_or_imports_two_standards(tmp_path: Path) -> None:
    """A function named as a standard operator, and two versions of the standard at once, are not passed over."""
    path = tmp_path / "m.onnx"
    made = model([*as_data("x", X.dtype, 17), N("Abs", ["x.data"], ["y"])], {"x": X})
    body = helper.make_function("", "Abs", ["a"], ["b"], [N("Neg", ["a"], ["b"])], [helper.make_opsetid("", 17)])
    made.functions.append(body)
    path.write_bytes(made.SerializeToString())
    with pytest.raises(InvalidModel, match=r"Abs \(a function of the file's own\)"):
        graph.load(path)
    del made.functions[:]
    made.opset_import.append(helper.make_opsetid("ai.onnx", 11))
    path.write_bytes(made.SerializeToString())
    with pytest.raises(InvalidModel, match="opset 0"):
        graph.load(path)


def declared(path: Path, kind: int, shape: list[Any]) -> Path:
    """Write a graph that halves its mask, which is declared as this type and shape, and adds it to the ids."""
    nodes = [
        N("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT)
        if kind == TensorProto.BOOL
        else N("Div", ["attention_mask", "two"], ["m"]),
        N("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        N("Cast", ["input_ids"], ["i"], to=TensorProto.FLOAT),
        N("Add", ["f", "i"], ["y"]),
    ]
    two = numpy_helper.from_array(np.array(2, {1: np.float32, 6: np.int32}.get(kind, np.int64)), "two")
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, shape),
        helper.make_tensor_value_info("attention_mask", kind, shape),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, [two]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize(
    "kind", [TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.FLOAT], ids=TensorProto.DataType.Name
)
def test_input_is_of_the_type_that_the_file_declares_when_it_is_fed(tmp_path: Path, kind: int) -> None:
    """A mask that is declared as floats is halved as floats, and one of whole numbers as those."""
    path = declared(tmp_path / "m.onnx", kind, ["n", "length"])
    feeds = {"input_ids": np.array([[3, 1]]), "attention_mask": np.array([[1, 0]])}
    program = fuse(specialise(graph.load(path), rows=1, length=2, output="y"))
    given = {**feeds, "attention_mask": feeds["attention_mask"].astype(helper.tensor_dtype_to_np_dtype(kind))}
    expected = ReferenceEvaluator(str(path)).run(None, given)[0]
    np.testing.assert_array_equal(Execution(program, Weights(quantised=False)).run(feeds), expected)


@pytest.mark.parametrize("shape", [[1, "length"], ["n", 16], [1, 16], ["n"]])
def test_graph_is_refused_when_its_shape_is_fixed(tmp_path: Path, shape: list[Any]) -> None:
    """M13: a graph of a fixed batch or length isn't specialised for others, where its reshapes would mix rows."""
    path = tmp_path / "m.onnx"
    nodes = [N("Cast", ["input_ids"], ["y"], to=TensorProto.FLOAT)]
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path.write_bytes(made.SerializeToString())
    assert "'input_ids' of the fixed shape" in "".join(graph.unsupported(path))
    with pytest.raises(InvalidModel, match="fixed shape"):
        graph.load(path)


def test_external_files_are_named_when_a_constant_or_a_subgraph_has_them(tmp_path: Path) -> None:
    """M14's kind: whatever file a graph's answer depends on is among those that the digest covers."""

    def outside(file: str) -> onnx.TensorProto:
        (tmp_path / file).write_bytes(bytes(4))
        tensor = TensorProto(name=file, dims=[1], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=file)
        return tensor

    branch = helper.make_graph([N("Identity", ["b.bin"], ["z"])], "b", [], [], [outside("b.bin")])
    nodes = [N("Constant", [], ["y"], value=outside("c.bin")), N("If", ["y"], ["q"], then_branch=branch)]
    made = model(nodes, {})
    assert onnx_file.external_files(made, tmp_path / "m.onnx") == ("b.bin", "c.bin")


def test_weights_are_refused_when_their_file_is_described_by_unknown_words(tmp_path: Path) -> None:
    """An entry about an external file that isn't known (a compression, say) is named, not passed over."""
    tensor = TensorProto(name="w", dims=[1], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    (tmp_path / "w.bin").write_bytes(bytes(4))
    for key, value in (("location", "w.bin"), ("compression", "zstd")):
        tensor.external_data.add(key=key, value=value)
    with pytest.raises(InvalidModel, match="compression"):
        onnx_file.array(tensor, tmp_path / "m.onnx")
