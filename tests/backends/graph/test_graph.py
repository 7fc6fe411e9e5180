"""Graphs: a good file is loaded and its weights folded once; whatever is wrong with a bad one, it is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from backends.errors import InvalidModel
from backends.graph import graph
from backends.graph.reading import onnx_file
from backends.graph.rewriting.specialise import specialise

if TYPE_CHECKING:
    from collections.abc import Callable

IDS = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "length"])


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a graph of these nodes and weights, whose output is `y`."""

    def make(nodes: list[Any], weights: Any = (), *, opset: int = 17, **more: Any) -> Path:
        tensors = [w if isinstance(w, onnx.TensorProto) else numpy_helper.from_array(w[1], w[0]) for w in weights]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in more.pop("outputs", ["y"])]
        made = helper.make_model(
            helper.make_graph(nodes, "g", [IDS], outputs, tensors, **more),
            opset_imports=[helper.make_opsetid("", opset)],
        )
        path = tmp_path / "model.onnx"
        path.write_bytes(made.SerializeToString())
        return path

    return make


def raw(name: str, shape: list[int], content: bytes, data_type: int = TensorProto.FLOAT) -> onnx.TensorProto:
    """Return weights whose bytes need not fit their shape."""
    return onnx.TensorProto(name=name, dims=shape, data_type=data_type, raw_data=content)


def external(name: str, shape: list[int], **entries: Any) -> onnx.TensorProto:
    """Return weights kept in another file."""
    tensor = onnx.TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


ADD = [helper.make_node("Cast", ["input_ids"], ["x"], to=TensorProto.FLOAT), helper.make_node("Add", ["x", "w"], ["y"])]


def test_weights_are_folded_once_when_they_are_stored_in_eight_bits(write: Any) -> None:
    """Cast, Mul, DequantizeLinear and Transpose of stored weights are computed at load, and every shape shares them."""
    packed = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    nodes = [
        helper.make_node("Cast", ["packed"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "scale"], ["w"]),
        helper.make_node("DequantizeLinear", ["packed", "one", "zero"], ["v"]),
        helper.make_node("Transpose", ["v"], ["vt"], perm=[1, 0]),
        helper.make_node("MatMul", ["w", "vt"], ["p"]),
        helper.make_node("Cast", ["input_ids"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "p"], ["y"]),
    ]
    weights = [("packed", packed), ("scale", np.float32([[2], [3], [4]])), ("one", np.float32(1)), ("zero", np.int8(0))]
    loaded = graph.load(write(nodes, weights))
    assert loaded.operators == {"Cast", "MatMul"}
    assert list(loaded.weights) == ["p"]
    wide = packed.astype(np.float32)
    np.testing.assert_array_equal(loaded.weights["p"], (wide * [[2], [3], [4]]) @ wide.T)
    programs = [specialise(loaded, rows=rows, length=3, output="y") for rows in (1, 5)]
    assert all(program.constants["p"] is loaded.weights["p"] for program in programs)
    with pytest.raises(ValueError, match="read-only"):
        loaded.weights["p"][0] = 1


@pytest.mark.parametrize(
    ("data_type", "field", "stored", "expected"),
    [
        (TensorProto.FLOAT16, "int32_data", [0x3C00, 0xC000], np.float32([1, -2])),
        (TensorProto.BFLOAT16, "int32_data", [0x3F80, 0xC000], np.float32([1, -2])),
        (TensorProto.INT8, "int32_data", [-1, 127], np.int8([-1, 127])),
        (TensorProto.BOOL, "int32_data", [0, 1], np.array([False, True])),
        (TensorProto.DOUBLE, "double_data", [0.5, 2], np.float64([0.5, 2])),
        (TensorProto.UINT64, "uint64_data", [1, 2**63], np.uint64([1, 2**63])),
        (TensorProto.UINT32, "uint64_data", [1, 2**31], np.uint32([1, 2**31])),
        (TensorProto.INT64, "int64_data", [-(2**62), 3], np.int64([-(2**62), 3])),
    ],
)
def test_numbers_are_read_when_they_are_stored_by_field(data_type: int, field: str, stored: Any, expected: Any) -> None:
    """Each data type is read from the field that protobuf keeps it in; half floats are widened."""
    tensor = onnx.TensorProto(name="w", dims=[2], data_type=data_type)
    getattr(tensor, field).extend(stored)
    read = onnx_file.array(tensor, Path("model.onnx"))
    assert read.dtype == expected.dtype
    np.testing.assert_array_equal(read, expected)


def test_external_weights_are_read_when_they_lie_beside_the_graph(write: Any, tmp_path: Path) -> None:
    """A file inside the folder is read from its offset on."""
    np.float32([9, 1, 2]).tofile(tmp_path / "w.bin")
    loaded = graph.load(write(ADD, [external("w", [2], location="w.bin", offset=4, length=8)]))
    np.testing.assert_array_equal(loaded.weights["w"], [1, 2])


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "../secret.bin"},
        {"location": "/etc/hostname"},
        {"location": "link.bin"},
        {"location": "loop.bin"},
        {"location": "absent.bin"},
        {"location": "nul\0.bin"},
        {"location": "."},
        {},
        {"location": "w.bin", "offset": 8},
        {"location": "w.bin", "offset": -4},
        {"location": "w.bin", "offset": "many"},
        {"location": "w.bin", "length": 4},
    ],
)
def test_external_weights_are_refused_when_they_lead_out_or_are_too_short(
    tmp_path: Path, write: Any, entries: dict[str, Any]
) -> None:
    """Neither a path nor a link leads out of the model's folder, and no read goes beyond the file."""
    np.float32([1, 2, 3]).tofile(tmp_path / "w.bin")
    secret = tmp_path.parent / "secret.bin"
    secret.write_bytes(bytes(64))
    (tmp_path / "link.bin").symlink_to(secret)
    (tmp_path / "loop.bin").symlink_to("loop.bin")
    with pytest.raises(InvalidModel, match="weights"):
        graph.load(write(ADD, [external("w", [2], **entries)]))


@pytest.mark.parametrize(
    "tensor",
    [
        raw("w", [2], bytes(7)),
        raw("w", [2], bytes(9)),
        raw("w", [-2], b""),
        raw("w", [1 << 40, 1 << 40], bytes(8)),
        raw("w", [2], bytes(8), TensorProto.STRING),
        raw("w", [2], bytes(8), TensorProto.COMPLEX64),
        raw("w", [2], bytes(8), 999),
        onnx.TensorProto(name="w", dims=[3], data_type=TensorProto.FLOAT, float_data=[1, 2]),
        onnx.TensorProto(name="w", dims=[1 << 62], data_type=TensorProto.INT64, int64_data=[1]),
    ],
)
def test_weights_are_refused_when_their_size_or_type_is_wrong(write: Any, tensor: onnx.TensorProto) -> None:
    """Bytes that don't fit the shape, absurd shapes and unknown types are refused by name."""
    with pytest.raises(InvalidModel, match="'w'"):
        graph.load(write(ADD, [tensor]))


SUBGRAPH = helper.make_graph([helper.make_node("Identity", ["input_ids"], ["z"])], "then", [], [])
W = [("w", np.ones(1, np.float32))]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([helper.make_node("Add", ["a", "input_ids"], ["a"]), *ADD], "nothing before it gives"),
        ([helper.make_node("Add", ["b", "input_ids"], ["a"]), helper.make_node("Abs", ["a"], ["b"]), *ADD], "cycle"),
        ([*ADD, helper.make_node("Abs", ["x"], ["x"])], "given already"),
        ([*ADD, helper.make_node("Abs", ["x"], ["w"])], "given already"),
        ([*ADD, helper.make_node("Abs", ["x"], [])], "0 outputs"),
        ([ADD[0]], "nothing gives"),
        ([*ADD, helper.make_node("If", ["w"], ["z"], then_branch=SUBGRAPH, else_branch=SUBGRAPH)], "uses If"),
        ([*ADD, helper.make_node("Abs", ["x"], ["z"], body=SUBGRAPH)], "body, which is not known"),
        ([*ADD, helper.make_node("Attention", ["x"], ["z"], domain="com.microsoft")], "com.microsoft::Attention"),
        ([*ADD, helper.make_node("Constant", [], ["z"], value_string="text")], "value_string"),
        ([*ADD, helper.make_node("Transpose", ["w"], ["z"], perm=[1, 0])], "order of 1 axes"),
        ([*ADD, helper.make_node("Cast", ["w"], ["z"], to=TensorProto.STRING)], "Cast"),
        ([*ADD, helper.make_node("Cast", ["w"], ["z"])], "Cast"),
    ],
)
def test_graph_is_refused_when_its_nodes_do_not_fit_together(write: Any, nodes: list[Any], words: str) -> None:
    """Cycles, undefined and doubled names, subgraphs, foreign operators, senseless attributes: each with its reason."""
    with pytest.raises(InvalidModel, match=words):
        graph.load(write(nodes, W))


def test_graph_is_refused_when_it_declares_no_output_or_sparse_weights(write: Any) -> None:
    """Sparse weights, doubled weights and a graph without outputs are refused."""
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [0]),
        [3],
    )
    for path in (
        lambda: write(ADD, W, sparse_initializer=[sparse]),
        lambda: write(ADD, W, outputs=[]),
        lambda: write(ADD, W * 2),
    ):
        with pytest.raises(InvalidModel):
            graph.load(path())


@pytest.mark.parametrize("opset", [0, 6])
def test_graph_is_refused_when_its_opset_is_too_old(write: Any, opset: int) -> None:
    """An opset whose operators mean something else is refused by number."""
    with pytest.raises(InvalidModel, match=f"opset {opset}"):
        graph.load(write(ADD, W, opset=opset))


@pytest.mark.parametrize("shape", [[1 << 30, 1 << 30, 1 << 30], [1 << 20, 1 << 12]])
def test_memory_is_not_taken_when_a_small_file_asks_for_much(write: Any, shape: list[int]) -> None:
    """A file of a few bytes that folds to gigabytes is refused, or left for a run that may never come."""
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["huge"]),
        helper.make_node("Exp", ["huge"], ["more"]),
        helper.make_node("ReduceSum", ["more"], ["w"], keepdims=0),
        *ADD,
    ]
    try:
        loaded = graph.load(write(nodes, [("shape", np.array(shape))]))
    except InvalidModel:
        return
    assert sum(a.nbytes for a in loaded.weights.values() if 0 not in a.strides) < 1 << 20


def test_files_are_refused_when_they_are_gone_or_folders(tmp_path: Path) -> None:
    """A path that can't be read is an invalid model, with the path."""
    for path in (tmp_path / "absent.onnx", tmp_path):
        with pytest.raises(InvalidModel, match=str(path)):
            graph.load(path)


def test_operators_are_named_without_parsing_again_when_asked_twice(write: Any, monkeypatch: Any) -> None:
    """What a graph can't be served for is remembered until the file changes."""
    path = write([*ADD, helper.make_node("Foo", ["x"], ["z"]), helper.make_node("Bar", ["x"], ["u"], domain="a.b")], W)
    assert graph.unsupported(path) == ("Foo", "a.b::Bar")
    monkeypatch.setattr(onnx_file, "parse", None)
    assert graph.unsupported(path) == ("Foo", "a.b::Bar")
    monkeypatch.undo()
    write(ADD, W)
    assert graph.unsupported(path) == ()


def test_damage_is_an_invalid_model_when_bytes_of_a_real_graph_change(make_folder: Any) -> None:
    """A graph cut short, or with some bytes changed, loads and runs or is refused: no other error, no hang."""
    path = make_folder() / "model.onnx"
    whole = path.read_bytes()
    chance = random.Random(11)  # noqa: S311  (a repeatable fuzz, no secret)
    refused = 0
    for attempt in range(2000):
        damaged = bytearray(whole)
        if attempt % 4 == 0:
            del damaged[chance.randrange(len(whole)) :]
        for _ in range(chance.randrange(1, 6)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            loaded = graph.load(path)
            specialise(loaded, rows=2, length=3, output=loaded.outputs[0].name)
        except InvalidModel:
            refused += 1
    assert refused > 500
