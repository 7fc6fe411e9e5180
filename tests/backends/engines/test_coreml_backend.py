"""Core ML without macOS: programs are built, saved, opened and checked; coremltools computes the answers in NumPy."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import coremltools
import numpy as np
import pytest
from coremltools.converters.mil import mil
from module_files import pooled

from backends.base import TokenBatch
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER
from backends.choosing.registry import get, select
from backends.engines import coreml_backend
from backends.engines.coreml_backend import (
    OUTPUT,
    CoreMLBackend,
    CoreMLModel,
    build_package,
    open_program,
    shape_for,
    shapes,
    why_not_here,
)
from backends.engines.onnx_backend import OnnxBackend
from backends.errors import CannotServe, InferenceError, InvalidModel, TransientBackendError
from backends.graph import graph
from backends.graph.reading import understood
from backends.graph.reading.signature import choose_output
from backends.graph.rewriting.specialise import specialise
from backends.runtimes.coreml_lowering import lower

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backends.base import ModelSpec

# coremltools leaves its folder of weights to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <finalize object:pytest.PytestUnraisableExceptionWarning"),
]

RNG = np.random.default_rng(3)


class Computed:
    """A program that coremltools computes in NumPy, as Core ML would on macOS; its shape is recorded in `runs`."""

    def __init__(self, program: Any, runs: list[tuple[int, ...]]) -> None:
        self._program = program
        self._runs = runs

    def predict(self, feeds: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        """Return the output, as a compiled program does."""
        self._runs.append(feeds["input_ids"].shape)
        with mil.Function({}):
            constants = {name: mil.Builder.const(val=value) for name, value in feeds.items()}
            return {OUTPUT: lower(self._program, constants, mil.Builder).val}


def computed(spec: ModelSpec, runs: list[tuple[int, ...]] | None = None) -> CoreMLModel:
    loaded = graph.load(spec.folder / spec.weights_file)
    output = choose_output(loaded.outputs, task=spec.task, pooling=spec.pooling, model=spec.name).name

    def opened(rows: int, length: int) -> tuple[Computed, tuple[str, ...]]:
        program = specialise(loaded, rows=rows, length=length, output=output)
        return Computed(program, [] if runs is None else runs), tuple(program.inputs)

    return CoreMLModel(spec, functools.cache(opened), nbytes=1)


def batch_of(*lengths: int, words: int = 14) -> TokenBatch:
    shape = (len(lengths), max(lengths))
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    ids = RNG.integers(4, words, shape) * mask
    return TokenBatch(ids, mask, np.zeros(shape, np.int64))


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        (("linux", "arm64", (3, 12), True), "macOS only, and this is linux"),
        (("darwin", "x86_64", (3, 12), True), "Apple silicon, and this processor is x86_64"),
        (("darwin", "arm64", (3, 14), False), "no wheel for Python 3.14"),
        (("darwin", "arm64", (3, 12), False), r"pip install 'vectorsearch\[coreml\]'"),
        (("darwin", "arm64", (3, 14), True), "^$"),
    ],
)
def test_reason_names_what_is_missing_when_core_ml_cannot_run(here: tuple[Any, ...], reason: str) -> None:
    """System, processor, interpreter and package are asked for in that order; nothing is said where all is there."""
    system, machine, python, installed = here
    assert re.search(reason, why_not_here(system, machine, python, installed=installed))


@pytest.mark.skipif(sys.platform == "darwin", reason="Core ML runs here")
def test_model_is_refused_when_the_system_is_another(make_folder: Callable[..., Path]) -> None:
    """Asked for by name on another system, it is refused with the reason, and never chosen."""
    spec = catalogue.resolve(make_folder())
    with pytest.raises(CannotServe, match="coreml: Core ML runs on macOS only"):
        select(spec, backend="coreml")
    assert select(spec).name != "coreml"
    assert get("coreml").priority == 10


def test_operator_is_named_when_it_has_no_counterpart(make_folder: Callable[..., Path], monkeypatch: Any) -> None:
    """A graph with a foreign operator is refused with its name; a file still to be fetched isn't, nor a good one."""
    spec = catalogue.resolve(make_folder())
    monkeypatch.setattr(coreml_backend, "why_not_here", lambda *_, **__: "")  # as on Apple silicon
    assert get("coreml").can_serve(spec)
    assert get("coreml").can_serve(dataclasses.replace(spec, weights_file="later.onnx"))
    monkeypatch.setattr(understood, "unknown", lambda _: ("Foo",))
    assert get("coreml").can_serve(spec).reason == "'tiny' uses what it does not know: Foo"


def test_shapes_are_few_and_hold_every_batch() -> None:
    """A row alone has a program without other rows; several share one; the longest takes whatever is left."""
    spec = dataclasses.replace(_spec_of(), max_length=512)
    assert shapes(spec) == ((1, 32), (16, 32), (1, 128), (4, 128), (1, 512))
    assert shapes(dataclasses.replace(spec, max_length=100)) == ((1, 32), (16, 32), (1, 100), (5, 100))
    assert shape_for(batch_of(9), shapes(spec)) == (1, 32)
    assert shape_for(batch_of(9, 33), shapes(spec)) == (4, 128)
    assert shape_for(batch_of(500, 8), shapes(spec)) == (1, 512)


@pytest.mark.parametrize("options", [{}, {"pooled": True}, {"task": "cross-encode"}, {"files": pooled("mean")}])
def test_answers_are_those_of_onnx_runtime(make_folder: Callable[..., Path], options: dict[str, Any]) -> None:
    """Padded to a program's shape and cut into several runs, a batch gets the answers it has elsewhere."""
    spec = catalogue.resolve(make_folder(**options))
    runs: list[tuple[int, ...]] = []
    batch = batch_of(3, 9, 1, 40, 2)
    expected = OnnxBackend().load_model(spec).infer(batch)
    np.testing.assert_allclose(computed(spec, runs).infer(batch), expected, atol=1e-6)
    assert runs == [(4, 128), (4, 128)]


def test_nan_is_an_error_that_names_the_rows(make_folder: Callable[..., Path]) -> None:
    """NaN out of a broken model never becomes a vector; padding rows, which are dropped, don't count."""
    model = computed(catalogue.resolve(make_folder(poison=True)))
    ids = np.array([[4, 5], [7, 7]])
    with pytest.raises(InferenceError, match=r"rows \[1\] of a batch of 2"):
        model.infer(TokenBatch(ids, np.ones_like(ids), np.zeros_like(ids)))


def test_closed_model_refuses_and_closes_again(make_folder: Callable[..., Path]) -> None:
    """A closed model refuses to run; closing twice is harmless; the device named is what Core ML may use."""
    model = computed(catalogue.resolve(make_folder()))
    assert model.device == "coreml:CPU_AND_GPU"
    model.close()
    model.close()
    with pytest.raises(InferenceError, match="closed"):
        model.infer(batch_of(2))


def test_package_is_saved_and_opened_again_with_the_shapes_of_the_spec(make_folder: Callable[..., Path]) -> None:
    """The saved program takes int32[rows, length], those inputs that count, and gives one float32 output."""
    spec = catalogue.resolve(make_folder())
    package = build_package(spec, 4, 32)
    description = coremltools.models.MLModel(str(package), skip_model_load=True).get_spec().description
    kinds = coremltools.proto.FeatureTypes_pb2.ArrayFeatureType
    taken = {each.name: each.type.multiArrayType for each in description.input}
    assert {name: (list(kind.shape), kind.dataType) for name, kind in taken.items()} == {
        "input_ids": ([4, 32], kinds.INT32),
        "attention_mask": ([4, 32], kinds.INT32),
    }
    (given,) = description.output
    assert given.name == OUTPUT
    assert list(given.type.multiArrayType.shape) == [4, 32, spec.dim]
    assert given.type.multiArrayType.dataType == kinds.FLOAT32


def test_package_is_built_once_when_asked_for_again(make_folder: Callable[..., Path]) -> None:
    """What is on disk is used: a second call needs no graph, and leaves nothing half-built beside it."""
    spec = catalogue.resolve(make_folder())
    package = build_package(spec, 1, 32)
    (spec.folder / spec.weights_file).unlink()
    assert build_package(spec, 1, 32) == package
    assert [path.name for path in package.parent.iterdir()] == ["1x32.mlpackage"]
    with pytest.raises(InvalidModel, match=r"model\.onnx"):
        build_package(spec, 2, 32)


def test_packages_are_whole_when_threads_build_them_at_once(make_folder: Callable[..., Path]) -> None:
    """Threads that build the same and other shapes get whole packages, one for each shape."""
    spec = catalogue.resolve(make_folder())
    threads = [threading.Thread(target=build_package, args=(spec, rows, 8)) for rows in (1, 1, 2, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = sorted(build_package(spec, 1, 8).parent.iterdir())
    assert [path.name for path in made] == ["1x8.mlpackage", "2x8.mlpackage"]
    assert all(coremltools.models.utils.load_spec(str(path)).description.output for path in made)


def test_damaged_graph_is_an_invalid_model(make_folder: Callable[..., Path]) -> None:
    """A damaged file is the model's fault, which no other backend mends."""
    spec = catalogue.resolve(make_folder())
    (spec.folder / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(InvalidModel):
        build_package(spec, 1, 8)


@pytest.mark.skipif(sys.platform == "darwin", reason="Core ML compiles here")
def test_failed_compilation_is_transient(make_folder: Callable[..., Path]) -> None:
    """A program that can't be compiled raises what lets the next backend of the chain take over."""
    spec = catalogue.resolve(make_folder())
    with pytest.raises(TransientBackendError, match="can't compile model 'tiny' for batches of 1 x 32"):
        open_program(spec, 1, 32)
    with pytest.raises(TransientBackendError):
        CoreMLBackend().load_model(spec)


def test_cache_that_cannot_be_written_is_transient(
    make_folder: Callable[..., Path], tmp_path: Path, monkeypatch: Any
) -> None:
    """Without a place for its programs Core ML can't run, and another backend can."""
    spec = catalogue.resolve(make_folder())
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(TransientBackendError, match="can't build"):
        build_package(spec, 1, 8)


def test_nothing_is_printed_when_a_program_is_built(make_folder: Callable[..., Path]) -> None:
    """Neither coremltools' warnings about Linux nor its progress bars reach the user's terminal."""
    folder = make_folder()
    code = (
        "import sys, pathlib; from backends.catalogue import catalogue\n"
        "from backends.engines.coreml_backend import build_package\n"
        f"build_package(catalogue.resolve(pathlib.Path({str(folder)!r})), 1, 8)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout + done.stderr == ""


@pytest.mark.models
def test_real_model_is_lowered_and_saved(tmp_path: Path, monkeypatch: Any) -> None:
    """A real 12-layer model is saved with its weights as floats, and computes what the 8-bit graph approximates."""
    spec = dataclasses.replace(catalogue.pull(DEFAULT_EMBEDDER), max_length=16)
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path))
    batch = batch_of(12, words=20_000)
    expected = OnnxBackend().load_model(spec).infer(batch)
    assert (computed(spec).infer(batch) * expected).sum() > 0.99
    weights = build_package(spec, 1, 16) / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
    assert weights.stat().st_size > 3 * spec.weights_nbytes


def _spec_of() -> ModelSpec:
    return catalogue.resolve(DEFAULT_EMBEDDER)
