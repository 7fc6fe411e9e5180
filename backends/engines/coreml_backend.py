"""Core ML: the portable graph as ML programs, each of one fixed shape, built with coremltools and kept on disk.

Building, saving and checking work wherever coremltools is installed; compiling and predicting only on macOS. Products
are float32, so answers are those of the other backends; the Neural Engine, which computes in float16 only, is not used.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import platform
import sys
import tempfile
import threading
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import Serves
from backends.catalogue.files import cache_dir
from backends.choosing.portable import is_graph, is_known, is_packed
from backends.errors import InferenceError, InvalidModel, MissingExtra, TransientBackendError
from backends.graph import graph
from backends.graph.reading import signature
from backends.graph.rewriting.specialise import specialise
from backends.running.pooling import answer
from backends.runtimes.coreml_lowering import lower

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from backends.base import Backend, LoadedModel, ModelSpec, TokenBatch
    from backends.graph.rewriting.specialise import Program

# Each shape is a program with weights of its own, so there are few: a row alone, and batches of 512 tokens.
LENGTHS = (32, 128, 512)
TOKENS = 512
OUTPUT = "output"
COMPUTE_UNITS = "CPU_AND_GPU"
# Raise it when the lowering changes what a program computes: programs on disk are then built again.
_REVISION = 1
_INT8_FACTOR = 4
_WORKSPACE_NBYTES_PER_TOKEN = 72 * 1024  # ONNX Runtime's, on the same graphs; not measured on macOS
_FIRST_WITHOUT_WHEEL = (3, 14)
_building = threading.Lock()  # coremltools' builder keeps the block that it builds in a variable of the whole process


# A compiled program (coremltools has no types), and the names of its inputs.
Opened = tuple[Any, tuple[str, ...]]


def backend() -> Backend:
    """Return this file's backend; the registry calls it on first use."""
    return CoreMLBackend()


class CoreMLBackend:
    """Lowers ONNX graphs to Core ML programs."""

    name = "coreml"
    priority: int | None = 10
    runtime = ("coremltools", "onnx", "tokenizers")

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Say yes on Apple silicon to a graph of operators that can be lowered; else the first reason against it."""
        if not (named := is_graph(spec)):
            return named
        installed = importlib.util.find_spec("coremltools") is not None
        why = why_not_here(sys.platform, platform.machine(), sys.version_info[:2], installed=installed)
        return Serves(ok=False, reason=why) if why else is_known(spec)

    def estimate(self, spec: ModelSpec) -> int:
        """Return one set of float32 weights for each shape, plus the workspace of the largest, in bytes."""
        return _charged(spec, spec.weights_nbytes * (_INT8_FACTOR if is_packed(spec) else 1))

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Build and compile the smallest program; the others follow with the first batch that needs them.

        Raises:
            InvalidModel: the file is damaged.
            MissingExtra: coremltools is not installed.
            TransientBackendError: Core ML can't build or compile the program; another backend may run the model.
        """
        opened = functools.cache(functools.partial(open_program, spec))
        smallest = shapes(spec)[0]
        opened(*smallest)
        saved = build_package(spec, *smallest).rglob("*")
        weights_nbytes = sum(file.stat().st_size for file in saved if file.is_file())
        return CoreMLModel(spec, opened, _charged(spec, weights_nbytes))


class CoreMLModel:
    """The programs of a model, opened by shape when first needed; batches are padded to the next shape.

    `opened` gives the program of a shape, and remembers it.
    """

    def __init__(self, spec: ModelSpec, opened: Callable[[int, int], Opened], nbytes: int) -> None:
        self._spec = spec
        self._nbytes = nbytes
        # Guards `_open`, and lets one run in at a time: a run has the device to itself. `_building` is taken inside.
        self._turn = threading.Lock()
        self._open: Callable[[int, int], Opened] | None = opened

    @property
    def nbytes(self) -> int:
        """Return the bytes charged: the weights as saved, for each shape, and a workspace."""
        return self._nbytes

    @property
    def device(self) -> str:
        """Return the compute units that Core ML may choose from; which of them runs an operator it doesn't tell."""
        return f"coreml:{COMPUTE_UNITS}"

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return float32[n, dim] or float32[n] logits; see `LoadedModel.infer`."""
        shape = shape_for(batch, shapes(self._spec))
        raw = np.concatenate([self._run(batch, start, shape) for start in range(0, batch.shape[0], shape[0])])
        has_tokens = self._spec.task == "embed" and self._spec.pooling != "none"
        return answer(raw[:, : batch.shape[1]] if has_tokens else raw, batch, self._spec)

    def close(self) -> None:
        """Drop the programs; waits for a run that is under way."""
        with self._turn:
            self._open = None

    def _run(self, batch: TokenBatch, start: int, shape: tuple[int, int]) -> NDArray[np.float32]:
        """Return the answers for the rows from `start` on, as many as the shape has."""
        with self._turn:
            if self._open is None:
                raise InferenceError(f"model {self._spec.name!r} is closed")
            program, inputs = self._open(*shape)
            feeds = {name: np.full(shape, batch.pad_id if name == "input_ids" else 0, np.int32) for name in inputs}
            for name, padded in feeds.items():
                rows = getattr(batch, name)[start : start + shape[0]]
                padded[: rows.shape[0], : rows.shape[1]] = rows
                padded[rows.shape[0] :] = padded[0]  # of empty rows the mean is NaN
            try:
                given = program.predict(feeds)[OUTPUT]
            except Exception as exc:  # Core ML's failures reach Python as bare RuntimeErrors
                kind = TransientBackendError if "memory" in str(exc).lower() else InferenceError
                raise kind(f"Core ML failed on a batch of {shape} for model {self._spec.name!r}: {exc}") from exc
        return np.asarray(given, np.float32)[: batch.shape[0] - start]


def why_not_here(system: str, machine: str, python: tuple[int, ...], *, installed: bool) -> str:
    """Return why Core ML can't run on such a machine, or nothing."""
    if system != "darwin":
        return f"Core ML runs on macOS only, and this is {system}"
    if machine != "arm64":
        return f"it is for Apple silicon, and this processor is {machine}"
    if installed:
        return ""
    if python >= _FIRST_WITHOUT_WHEEL:
        return f"coremltools has no wheel for Python {'.'.join(map(str, python))}: use Python 3.11 to 3.13"
    return "coremltools is not installed: pip install 'vectorsearch[coreml]'"


def shapes(spec: ModelSpec) -> tuple[tuple[int, int], ...]:
    """Return the (rows, length) of a model's programs, the smallest first: one row, then a batch, for each length."""
    lengths = [*(length for length in LENGTHS if length < spec.max_length), spec.max_length]
    return tuple(dict.fromkeys((rows, length) for length in lengths for rows in (1, max(1, TOKENS // length))))


def shape_for(batch: TokenBatch, shapes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the shape to pad a batch to: the shortest that its rows fit into, for one row or for several."""
    rows, length = batch.shape
    fitting = [shape for shape in shapes if shape[1] >= length]
    return next((shape for shape in fitting if (shape[0] > 1) == (rows > 1)), fitting[-1])


def open_program(spec: ModelSpec, rows: int, length: int) -> Opened:
    """Return a compiled program and the names of its inputs; compiled once, and kept beside its package.

    Raises:
        TransientBackendError: Core ML can't compile or open it.
    """
    coremltools = _coremltools()
    package = build_package(spec, rows, length)
    compiled = package.with_suffix(f".{platform.mac_ver()[0]}.mlmodelc")
    try:
        if not compiled.exists():
            with tempfile.TemporaryDirectory(dir=package.parent, prefix=".compile-") as scratch:
                made = coremltools.models.utils.compile_model(str(package), str(Path(scratch) / compiled.name))
                _put(Path(made), compiled)
        units = coremltools.ComputeUnit[COMPUTE_UNITS]
        program = coremltools.models.CompiledMLModel(str(compiled), compute_units=units)
        inputs = coremltools.models.utils.load_spec(str(package)).description.input
    except Exception as exc:
        what = f"model {spec.name!r} for batches of {rows} x {length}"
        raise TransientBackendError(f"Core ML can't compile {what}: {exc}") from exc
    return program, tuple(feature.name for feature in inputs)


def build_package(spec: ModelSpec, rows: int, length: int) -> Path:
    """Return the `.mlpackage` of a model for batches of [rows, length], built unless it is on disk.

    Its inputs are int32[rows, length], those that the answer depends on; its one output is `output`, float32.

    Raises:
        InvalidModel: the graph is damaged or gives no such answer.
        MissingExtra: coremltools is not installed.
        TransientBackendError: the graph can't be lowered, or the package can't be written.
    """
    _coremltools()
    folder = cache_dir() / "coreml" / f"{spec.digest[:16]}-{version('coremltools')}-{_REVISION}"
    package = folder / f"{rows}x{length}.mlpackage"
    if package.exists():
        return package
    path = spec.folder / spec.weights_file
    loaded = graph.load(path)
    signature.check_inputs(loaded.inputs, spec.name)
    output = signature.choose_output(loaded.outputs, task=spec.task, pooling=spec.pooling, model=spec.name).name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            made = Path(scratch) / package.name
            convert(specialise(loaded, rows=rows, length=length, output=output), made)
            _put(made, package)
    except InvalidModel:
        raise
    except Exception as exc:  # CannotServe of the lowering, coremltools' own errors of many types, a full disk
        what = f"the Core ML program of {path} for batches of {rows} x {length}"
        raise TransientBackendError(f"can't build {what}: {exc}") from exc
    return package


def convert(program: Program, package: Path) -> None:
    """Write a specialised program as an `.mlpackage`, in float32.

    Raises:
        CannotServe: as `lower`.
    """
    coremltools = _coremltools()
    from coremltools.converters.mil import mil  # noqa: PLC0415  (heavy: only where a program is built)

    used = {name for step in program.steps for name in step.inputs}
    with _building:
        feeds = {
            name: mil.Builder.placeholder(shape=value.shape, dtype=mil.types.int32)
            for name, value in program.inputs.items()
            if name in used
        }
        with mil.Function(feeds, opset_version=coremltools.target.macOS12) as main:
            lowered = lower(program, dict(main.inputs), mil.Builder)
            main.set_outputs([mil.Builder.identity(x=lowered, name=OUTPUT)])
        made = mil.Program()
        made.add_function("main", main)
        coremltools.convert(
            made,
            convert_to="mlprogram",
            compute_precision=coremltools.precision.FLOAT32,
            minimum_deployment_target=coremltools.target.macOS12,
            package_dir=str(package),
            skip_model_load=True,
        )


def _coremltools() -> Any:  # noqa: ANN401  (coremltools has no types)
    # It warns that Core ML is missing on Linux, and of versions of packages that are not used here.
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    try:
        import coremltools  # noqa: PLC0415  (heavy: only where a program is built)
        from coremltools.converters.mil.mil.passes import pass_pipeline  # noqa: PLC0415  (as above)
    except ImportError as exc:
        raise MissingExtra("Core ML programs need coremltools: pip install 'vectorsearch[coreml]'") from exc
    # Its progress bars have no switch, and would be written over those of the command line.
    pass_pipeline.tqdm = lambda passes, **_: passes
    return coremltools


def _put(made: Path, target: Path) -> None:
    """Move a folder into its place in one step, unless another process was first."""
    try:
        made.rename(target)
    except OSError:
        if not target.exists():
            raise


def _charged(spec: ModelSpec, weights_nbytes: int) -> int:
    return len(shapes(spec)) * weights_nbytes + max(TOKENS, spec.max_length) * _WORKSPACE_NBYTES_PER_TOKEN
