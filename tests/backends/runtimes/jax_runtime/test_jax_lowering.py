"""The lowering to JAX: every operator against the reference evaluator, fences, shared functions, programs on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import helper
from operator_cases import CASES, I64, Use
from small_graphs import FUSED, as_data, model, programs, reference

from backends.catalogue import catalogue
from backends.graph.node import Node
from backends.graph.rewriting.folding import ONLY_KNOWN
from backends.graph.rewriting.shapes import LOWERED
from backends.runtimes.jax_runtime import jax_kernels
from backends.runtimes.jax_runtime.jax_kernels import kernels, narrow
from backends.runtimes.jax_runtime.jax_lowering import blocks, lower, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from backends.graph.rewriting.specialise import Program

RNG = np.random.default_rng(5)
FEEDS = {"input_ids": np.array([[0, 3, 1], [2, 2, 0]])}
WIDTH = 8


def run(program: Program, feeds: dict[str, NDArray[Any]], precision: str = "float32") -> NDArray[Any]:
    """Return what a program gives in JAX, fenced."""
    kept, made = stored(program, precision)
    constants = {name: array.astype(narrow(array.dtype)) for name, array in kept.constants.items()}
    constants |= {name: make() for name, make in made.items()}
    given = {**constants, **{name: array.astype(np.int32) for name, array in feeds.items()}}
    return np.asarray(lower(kept, precision, fenced=True)({name: jnp.asarray(x) for name, x in given.items()}))


def uses() -> Iterator[Any]:
    """Yield each use of an operator that can be a step; of one that becomes others, the first, the rest being deep."""
    seen: set[str] = set()
    for use in CASES:
        if use.op not in ONLY_KNOWN:
            marks = [pytest.mark.deep] if use.op in seen - LOWERED else []
            seen.add(use.op)
            yield pytest.param(use, id=f"{use.op} {use.opset}", marks=marks)


@pytest.mark.parametrize("use", list(uses()))
def test_operator_gives_what_the_specification_says_when_run(tmp_path: Path, use: Use) -> None:
    """Applied to data, each operator gives what the reference evaluator computes, fused or not."""
    op, weights, opset, x, attributes = use
    names = [f"w{i}" if not isinstance(w, str) else "" for i, w in enumerate(weights)]
    constants = {"x": np.asarray(x)} | {name: w for name, w in zip(names, weights, strict=True) if name}
    outputs = ["y", "y2"][: 2 if op == "Split" else 1]
    nodes = [
        *as_data("x", constants["x"].dtype, opset),
        helper.make_node(op, ["x.data", *names], outputs, **attributes),
    ]
    made = model(nodes, constants, opset=opset)
    feeds = {"input_ids": np.zeros((1, 1), I64)}
    expected = reference(made, feeds)
    for program in programs(tmp_path / "m.onnx", made, 1, 1):
        answer = run(program, feeds)
        assert (answer.shape, answer.dtype) == (expected.shape, narrow(expected.dtype))
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=2e-6)


def test_every_operator_has_a_kernel_when_the_graph_knows_it() -> None:
    """What can be left after specialising and fusing can be lowered."""
    table = kernels(jnp.float32)
    assert table.keys() >= LOWERED | set(FUSED)
    assert table.keys() - LOWERED - set(FUSED) <= ONLY_KNOWN | {"Identity"}


def layers(n: int) -> onnx.ModelProto:
    """Build n layers of a product, a residual sum and a layer norm, over embedded ids."""
    floats = np.float32
    weights: dict[str, Any] = {"table": RNG.normal(size=(4, WIDTH)).astype(floats)}
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["x0"])]
    for i in range(n):
        weights |= {f"w{i}": RNG.normal(size=(WIDTH, WIDTH)).astype(floats)}
        weights |= {f"{kind}{i}": RNG.normal(size=WIDTH).astype(floats) for kind in "gb"}
        output = "y" if i == n - 1 else f"x{i + 1}"
        nodes += [
            helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"]),
            helper.make_node("Add", [f"p{i}", f"x{i}"], [f"s{i}"]),
            helper.make_node("LayerNormalization", [f"s{i}", f"g{i}", f"b{i}"], [output]),
        ]
    return model(nodes, weights)


def test_steps_are_cut_when_there_are_layer_norms(tmp_path: Path) -> None:
    """Each layer norm is a block of its own; a block tells what it takes from outside and what is needed outside."""
    program, _ = programs(tmp_path / "m.onnx", layers(2), 2, 3)
    found = blocks(program.steps, program.output, fenced=True)
    assert [[node.op for node in block.steps] for block in found] == [
        ["Gather", "MatMul", "Add"], ["LayerNormalization"], ["MatMul", "Add"], ["LayerNormalization"],
    ]  # fmt: skip
    assert found[0].inputs == ("table", "input_ids", "w0")
    assert [block.outputs for block in found] == [("s0",), ("x1",), ("s1",), ("y",)]
    assert len(blocks(program.steps, program.output, fenced=False)) == 1


@pytest.mark.parametrize(("fenced", "calls", "functions"), [(True, 8, 3), (False, 0, 0)])
def test_layers_are_one_function_when_only_their_weights_differ(
    tmp_path: Path, *, fenced: bool, calls: int, functions: int
) -> None:
    """Four layers are eight calls that may not be inlined, of three functions: the first block, a norm, a layer."""
    program, _ = programs(tmp_path / "m.onnx", layers(4), 2, 3)
    given = {
        name: jnp.asarray(array)
        for name, array in {**program.constants, "input_ids": np.int32(FEEDS["input_ids"])}.items()
    }
    text = jax.jit(lower(program, "float32", fenced=fenced)).lower(given).as_text()
    fences = [line for line in text.splitlines() if "call @call" in line]
    assert len(fences) == calls
    assert all('inlineable = "false"' in line for line in fences)
    assert len({line.split("call @")[1].split("(")[0] for line in fences}) == functions


@pytest.mark.parametrize(("precision", "atol"), [("float32", 1e-5), ("bfloat16", 0.1)])
def test_products_are_rounded_when_asked(tmp_path: Path, precision: str, atol: float) -> None:
    """bfloat16 rounds the products' sides and nothing else: close to float32's answers, and not equal to them."""
    made = layers(3)
    program, _ = programs(tmp_path / "m.onnx", made, 2, 3)
    answer, expected = run(program, FEEDS, precision), reference(made, FEEDS)
    np.testing.assert_allclose(answer, expected, atol=atol)
    assert (abs(answer - expected).max() < 1e-5) == (precision == "float32")


@pytest.mark.parametrize("mask_shape", [(2, 1, 1, 5), (2, 1, 5, 5), (1, 1, 5, 5), (5, 5), None])
def test_attention_is_the_same_when_its_rows_and_queries_are_cut(
    monkeypatch: pytest.MonkeyPatch, mask_shape: tuple[int, ...] | None
) -> None:
    """However many rows and queries are attended at once, the answers are equal; queries that see nothing give 0."""
    node = Node("vs.Attention", ("q", "k", "v", "m"), ("y",), {"heads": 2, "scale": 0.5, "empty_rows_are_zero": 1})
    q, k, v = (jnp.asarray(RNG.normal(size=(2, 5, 6)), jnp.float32) for _ in range(3))
    mask = None
    if mask_shape is not None:
        mask = (
            jnp.where(jnp.asarray(RNG.random(mask_shape)) > 0.3, 0, -jnp.inf)
            .at[(-1, 0, -1)[4 - len(mask_shape) :]]
            .set(-jnp.inf)
        )
    attend = kernels(jnp.float32)["vs.Attention"]
    whole = attend(node, q, k, v, mask)
    for scores in (1, 2 * 2 * 5, 2 * 5 * 5):  # one query, two queries, one row
        monkeypatch.setattr(jax_kernels, "_SCORES", scores)
        np.testing.assert_allclose(attend(node, q, k, v, mask), whole, atol=1e-6)
    assert np.isfinite(whole).all()
    assert mask is None or not np.asarray(whole)[-1, -1].any()


_CHILD = """
import sys
from backends.catalogue import catalogue
from backends.choosing import registry
from backends.running.text_model import TextLoader
TextLoader(registry.get("jax:float32")).load_model(catalogue.resolve(sys.argv[1])).embed(["csv"], kind="query")
import jax
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.parametrize("configured", [False, True])
def test_programs_are_kept_on_disk_when_compiled(
    make_folder: Callable[..., Path], tmp_path: Path, *, configured: bool
) -> None:
    """Compiled programs go to the model cache, or to the folder that JAX was told by its user, who keeps the say."""
    own, theirs = tmp_path / "cache" / "jax", tmp_path / "theirs"
    environment = {**os.environ, "VECTORSEARCH_CACHE": str(own.parent)}
    if configured:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(theirs)
    folder = str(catalogue.resolve(make_folder()).folder)
    command = [sys.executable, "-c", _CHILD, folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(theirs if configured else own)]
    assert own.exists() != configured
    assert configured or any(own.iterdir())
