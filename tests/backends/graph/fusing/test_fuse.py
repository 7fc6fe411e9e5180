"""Fusing: what exporters write in many small operators becomes one step, and the answer stays the same."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_graphs import FUSED, as_data, model, programs, reference, run

from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from backends.graph import graph
from backends.graph.fusing.fuse import fuse
from backends.graph.kernels import compute
from backends.graph.rewriting.specialise import specialise
from backends.runtimes.numpy_runtime.fused_kernels import gelu

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from backends.graph.rewriting.specialise import Program

RNG = np.random.default_rng(5)
B, L, H, D = 3, 4, 2, 5
X = RNG.normal(size=(B, L, H * D)).astype(np.float32)
VECTOR = RNG.normal(size=H * D).astype(np.float32)
SCALARS = {
    "half": np.float32(0.5), "one": np.float32(1), "two": np.float32(2), "root": np.float32(math.sqrt(2)),
    "inverse": np.float32(math.sqrt(0.5)), "epsilon": np.float32(1e-3), "scale": VECTOR, "bias": VECTOR[::-1].copy(),
}  # fmt: skip
N = helper.make_node
FEEDS = {"input_ids": np.zeros((B, L), np.int64)}


def check(path: Path, nodes: list[onnx.NodeProto], expected: dict[str, int], **weights: Any) -> Program:
    """Check that a graph over `x` fuses to these steps and still gives what the reference evaluator gives."""
    made = model([*as_data("x", X.dtype, 17), *nodes], {"x": X, **SCALARS, **weights})
    plain, fused = programs(path / "m.onnx", made, B, L)
    found = Counter(node.op for node in fused.steps)
    assert {op: found[op] for op in (*FUSED, "LayerNormalization") if found[op]} == expected
    for program in (plain, fused):
        np.testing.assert_allclose(run(program, FEEDS), reference(made, FEEDS), atol=2e-6)
    return fused


GELUS = {
    "divided, half last": [
        N("Div", ["x.data", "root"], ["a"]), N("Erf", ["a"], ["e"]), N("Add", ["e", "one"], ["p"]),
        N("Mul", ["x.data", "p"], ["m"]), N("Mul", ["m", "half"], ["y"]),
    ],
    "multiplied, half first": [
        N("Mul", ["inverse", "x.data"], ["a"]), N("Erf", ["a"], ["e"]), N("Add", ["one", "e"], ["p"]),
        N("Mul", ["half", "p"], ["m"]), N("Mul", ["x.data", "m"], ["y"]),
    ],
    "half of x": [
        N("Mul", ["x.data", "half"], ["h"]), N("Div", ["x.data", "root"], ["a"]), N("Erf", ["a"], ["e"]),
        N("Add", ["e", "one"], ["p"]), N("Mul", ["h", "p"], ["y"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("nodes", GELUS.values(), ids=GELUS)
def test_gelu_is_found_when_its_factors_come_in_any_order(tmp_path: Path, nodes: list[onnx.NodeProto]) -> None:
    """Each way to write x Φ(x) is one step."""
    check(tmp_path, nodes, {"vs.Gelu": 1})


def test_gelu_is_exact_to_rounding_when_fused() -> None:
    """The fused GELU agrees with the C library's erf everywhere, in place too, and keeps NaN and infinity."""
    x = np.concatenate([np.linspace(-9, 9, 100_001), [0.0, -50, 50]]).astype(np.float32)
    expected = np.array([value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()])
    answer = gelu(x, np.empty_like(x))
    assert np.abs(answer - expected).max() < 4e-7
    copy = x.copy()
    assert gelu(copy, copy) is copy
    np.testing.assert_array_equal(copy, answer)
    ends = np.float32([np.nan, np.inf])
    np.testing.assert_array_equal(gelu(ends, np.empty_like(ends)), ends)


@pytest.mark.parametrize(
    ("at", "wrong"), [(0, "two"), (0, "inverse"), (2, "half"), (2, "two"), (4, "one"), (4, "root")]
)
def test_gelu_is_not_found_when_a_number_differs(tmp_path: Path, at: int, wrong: str) -> None:
    """With any other number it is no GELU, and stays as it is."""
    nodes = list(GELUS["divided, half last"])
    node = nodes[at]
    inputs = [wrong if name in SCALARS else name for name in node.input]
    nodes[at] = N(node.op_type, inputs, list(node.output))
    check(tmp_path, nodes, {})


@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize("twice", [False, True])
def test_layer_norm_is_found_when_it_is_written_out(tmp_path: Path, square: str, *, twice: bool) -> None:
    """Mean, deviation, scale and bias in small operators are ONNX's own LayerNormalization."""
    other = "d2" if twice else "d"
    nodes = [
        N("ReduceMean", ["x.data"], ["mean"], axes=[-1]),
        N("Sub", ["x.data", "mean"], ["d"]),
        N("Sub", ["x.data", "mean"], ["d2"]),
        N("Pow", [other, "two"], ["s"]) if square == "Pow" else N("Mul", [other, other], ["s"]),
        N("ReduceMean", ["s"], ["v"], axes=[-1]),
        N("Add", ["v", "epsilon"], ["ve"]),
        N("Sqrt", ["ve"], ["r"]),
        N("Div", ["d", "r"], ["n"]),
        N("Mul", ["scale", "n"], ["m"]),
        N("Add", ["m", "bias"], ["y"]),
    ]
    fused = check(tmp_path, nodes, {"LayerNormalization": 1})
    assert fused.steps[-1].attributes == {"axis": 2, "epsilon": pytest.approx(1e-3)}
    nodes[4] = N("ReduceMean", ["s"], ["v"], axes=[1])  # the variance of something else
    check(tmp_path, nodes, {})


def test_linear_layer_is_found_when_a_vector_is_added_to_a_product(tmp_path: Path) -> None:
    """A product with constant weights plus a constant vector is one step; plus anything else it is not."""
    weight = RNG.normal(size=(H * D, H * D)).astype(np.float32)
    product = N("MatMul", ["x.data", "weight"], ["p"])
    check(tmp_path, [product, N("Add", ["bias", "p"], ["y"])], {"vs.Linear": 1}, weight=weight)
    check(tmp_path, [product, N("Add", ["p", "x.data"], ["y"])], {}, weight=weight)
    check(
        tmp_path, [product, N("Add", ["p", "wide"], ["y"])], {}, weight=weight, wide=np.ones((2, 1, 1, 10), np.float32)
    )


def heads(name: str, perm: list[int]) -> list[onnx.NodeProto]:
    """Return nodes that split a value into heads."""
    return [N("Reshape", [name, "split"], [f"{name}.r"]), N("Transpose", [f"{name}.r"], [f"{name}.h"], perm=perm)]


def attention(
    scores: list[onnx.NodeProto], *, weights: str = "w", keys: list[onnx.NodeProto] | None = None
) -> list[Any]:
    """Return attention whose scores `s` become `t` by these nodes; q, k and v are x times three vectors."""
    return [
        *(N("Mul", ["x.data", f"v{part}"], [part]) for part in "qkv"),
        *heads("q", [0, 2, 1, 3]),
        *(keys or heads("k", [0, 2, 3, 1])),
        *heads("v", [0, 2, 1, 3]),
        N("MatMul", ["q.h", "k.h"], ["s"]),
        *scores,
        N("Softmax", ["t"], ["w"], axis=-1),
        N("IsNaN", ["w"], ["nan"]),
        N("Where", ["nan", "none", "w"], ["g"]),
        N("MatMul", [weights, "v.h"], ["c"]),
        N("Transpose", ["c"], ["ct"], perm=[0, 2, 1, 3]),
        N("Reshape", ["ct", "join"], ["y"]),
    ]


MASK = np.where(np.arange(L) < np.array([[4], [2], [1]]), 0, -np.inf).astype(np.float32)[:, None, None]
EMPTY = np.where(np.arange(L) < np.array([[4], [0], [1]]), 0, -np.inf).astype(np.float32)[:, None, None]
CONSTANTS = {
    **{f"v{part}": RNG.normal(size=H * D).astype(np.float32) for part in "qkv"},
    "split": np.array([0, -1, H, D]), "join": np.array([0, -1, H * D]), "mask": MASK, "none": np.float32(0),
    "flat": np.array([-1, L, D]), "back": np.array([B, H, D, L]), "third": np.float32(1 / 3),
}  # fmt: skip
VARIANTS: dict[str, list[onnx.NodeProto]] = {
    "divided, masked": [N("Div", ["s", "root"], ["d"]), N("Add", ["d", "mask"], ["t"])],
    "multiplied, mask first": [N("Mul", ["half", "s"], ["d"]), N("Add", ["mask", "d"], ["t"])],
    "masked only": [N("Add", ["s", "mask"], ["t"])],
    "scaled only": [N("Mul", ["s", "third"], ["t"])],
}


@pytest.mark.parametrize("scores", VARIANTS.values(), ids=VARIANTS)
def test_attention_is_found_when_scores_are_scaled_and_masked(tmp_path: Path, scores: list[Any]) -> None:
    """Every usual way to scale and mask scores is one step, its mask and number kept."""
    fused = check(tmp_path, attention(scores), {"vs.Attention": 1}, **CONSTANTS)
    assert not {"Softmax", "Transpose"} & {node.op for node in fused.steps}


def test_attention_is_found_when_keys_are_turned_in_two_steps_and_scaled_before(tmp_path: Path) -> None:
    """PyTorch's newer exporter scales q and k before the product, and turns k by way of three axes."""
    keys = [
        N("Reshape", ["k", "split"], ["k1"]), N("Transpose", ["k1"], ["k2"], perm=[0, 2, 1, 3]),
        N("Reshape", ["k2", "flat"], ["k3"]), N("Transpose", ["k3"], ["k4"], perm=[0, 2, 1]),
        N("Reshape", ["k4", "back"], ["k5"]), N("Mul", ["k5", "half"], ["k.h"]),
    ]  # fmt: skip
    fused = check(tmp_path, attention(VARIANTS["masked only"], keys=keys), {"vs.Attention": 1}, **CONSTANTS)
    assert fused.steps[-1].attributes["scale"] == pytest.approx(0.5)


def test_rows_are_zero_when_all_is_masked_and_the_graph_says_so(tmp_path: Path) -> None:
    """A graph that replaces NaN by 0 in the weights gives 0 for a row without a single key."""
    fused = check(
        tmp_path, attention(VARIANTS["masked only"], weights="g"), {"vs.Attention": 1}, **CONSTANTS | {"mask": EMPTY}
    )
    assert fused.steps[-1].attributes["empty_rows_are_zero"] == 1
    assert not run(fused, FEEDS)[1].any()


BROKEN = {
    "softmax over the wrong axis": ("Softmax", {"axis": 2}),
    "heads joined in another order": ("Transpose", {"perm": [0, 2, 3, 1]}),
}


@pytest.mark.parametrize(("op", "attributes"), BROKEN.values(), ids=BROKEN)
def test_attention_is_not_found_when_an_axis_is_another(tmp_path: Path, op: str, attributes: dict[str, Any]) -> None:
    """What looks like attention but moves other axes is left as it is, and gives the right answer."""
    nodes = attention(VARIANTS["masked only"])
    last = max(i for i, node in enumerate(nodes) if node.op_type == op)
    nodes[last] = N(op, list(nodes[last].input), list(nodes[last].output), **attributes)
    check(tmp_path, nodes, {}, **CONSTANTS)


def quantised(**more: Any) -> list[onnx.NodeProto]:
    """Return an 8-bit product as ONNX Runtime's quantiser writes it."""
    return [
        N("DynamicQuantizeLinear", ["x.data"], ["xq", "xs", "xz"]),
        N("Mul", ["xs", "ws"], ["both"]),
        N("MatMulInteger", ["xq", "wq", "xz", *more.get("zero", [])], ["i"]),
        N("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        N("Mul", ["f", "both"], ["p"]),
        N("Add", ["bias", "p"], ["y"]),
    ]


@pytest.mark.parametrize("scale", [np.float32(0.02), RNG.uniform(0.01, 0.03, H * D).astype(np.float32)])
@pytest.mark.parametrize("zero", [[], [np.int8(0)], [np.int8(3)], [RNG.integers(-3, 3, H * D).astype(np.int8)]])
def test_eight_bit_product_is_found_when_the_quantiser_wrote_it(tmp_path: Path, scale: Any, zero: list[Any]) -> None:
    """Scales of weights by column or one for all, zero points too: one step with its bias, close to the floats."""
    weight = RNG.integers(-127, 128, (H * D, H * D)).astype(np.int8)
    nodes = quantised(zero=["wz"] if zero else [])
    constants = {"x": X, **SCALARS, "wq": weight, "ws": scale} | ({"wz": zero[0]} if zero else {})
    plain, fused = programs(tmp_path / "m.onnx", model([*as_data("x", X.dtype, 17), *nodes], constants), B, L)
    assert Counter(node.op for node in fused.steps)["vs.QuantisedMatMul"] == 1
    assert len(fused.steps) == 4
    exact = X @ ((weight.astype(np.float32) - (zero[0].astype(np.float32) if zero else 0)) * scale) + SCALARS["bias"]
    steps = np.abs(X).max() / 127 * np.abs(scale).max() * 128 * math.sqrt(H * D)
    for program in (plain, fused):
        assert np.abs(run(program, FEEDS) - exact).max() < steps
    # The row with its own scale is as good as one with the batch's, or better.
    assert np.abs(run(fused, FEEDS) - exact).mean() <= np.abs(run(plain, FEEDS) - exact).mean() * 1.1


@pytest.mark.models
@pytest.mark.parametrize("name", [DEFAULT_EMBEDDER, DEFAULT_RERANKER])
def test_model_is_fused_whole_when_it_is_a_default(name: str) -> None:
    """Both default models become layers of known steps, and what they give differs by quantisation alone."""
    spec = catalogue.pull(name)
    loaded = graph.load(spec.folder / spec.weights_file)
    plain = specialise(loaded, rows=1, length=9, output=loaded.outputs[0].name)
    found = Counter(node.op for node in fuse(plain).steps)
    layers = 12
    assert found["vs.Attention"] == found["vs.Gelu"] == layers
    assert found["LayerNormalization"] == 2 * layers + 1
    assert found["vs.QuantisedMatMul"] >= 6 * layers
    assert not found.keys() & {"Erf", "Softmax", "MatMul", "MatMulInteger", "DynamicQuantizeLinear", "Transpose", "Pow"}


def test_every_fused_step_is_refused_by_plain_kernels_when_asked() -> None:
    """The fused steps are no ONNX operators: only a backend's own table runs them."""
    for op in FUSED:
        with pytest.raises(KeyError):
            compute(graph.Node(op, (), ("y",)), [])
