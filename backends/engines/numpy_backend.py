"""NumPy: serves the portable graph wherever NumPy runs, without any runtime.

A graph with 8-bit weights is computed with these dequantised, in float32 (`numpy`, `numpy:float32`): NumPy has no fast
8-bit product, so quantising activations only costs time and accuracy. `numpy:int8` quantises them all the same, row by
row, as JAX does: the same answers in whatever batch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from backends.base import Serves
from backends.choosing.portable import is_graph, is_known, is_packed
from backends.errors import (
    DeadlineExceeded,
    InferenceError,
    InvalidModel,
    TransientBackendError,
)
from backends.features import feature_model
from backends.graph.fusing.fuse import fuse
from backends.graph.graph import Graph, load
from backends.graph.reading import signature
from backends.graph.rewriting.specialise import specialise
from backends.running.batching import TOKEN_BUDGET
from backends.running.memory import trim
from backends.running.pooling import answer
from backends.runtimes.numpy_runtime.numpy_program import Execution, Weights
from backends.text.tokenizer import FolderTokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Backend, LoadedModel, ModelSpec, TokenBatch
    from backends.running.deadline import Deadline
    from backends.text.tokenizer import Tokenizer

PRECISIONS = ("float32", "int8")
# What an 8-bit file grows by as floats, and the workspace of a token; checked by tests/benchmarks/backend_contract.py.
UNPACKED_FACTOR = 3.0
WEIGHTS_FACTOR = 1.05
WORKSPACE_NBYTES_PER_TOKEN = 32 * 1024
PROGRAMS = 24  # of so many shapes kept; up to 1 MB each
# What resident memory grows by besides: the matrix library's buffers, programs, what the allocator keeps.
OVERHEAD_NBYTES = 52 << 20


def backend() -> Backend:
    """Return this file's backend; the registry calls it on first use."""
    return NumpyBackend()


class NumpyBackend:
    """Evaluates ONNX graphs in NumPy; `precision` is one of `PRECISIONS`, or '' for the one that is faster here."""

    priority: int | None = 100
    runtime = ("onnx", "tokenizers")
    precisions = PRECISIONS

    def __init__(self, precision: str = "") -> None:
        self.name = f"numpy:{precision}" if precision else "numpy"
        self._precision = precision

    def with_precision(self, precision: str) -> Backend:
        """Return this backend in one precision."""
        return NumpyBackend(precision)

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Say yes to feature models, and to an ONNX graph whose operators are known or that isn't there yet."""
        if feature_model.is_feature_model(spec):
            reason = "a feature model has no 8-bit products: ask for numpy or numpy:float32"
            return Serves(ok=False, reason=reason) if self._precision == "int8" else Serves(ok=True)
        if not (named := is_graph(spec)):
            return named
        known = is_known(spec)
        if known and self._precision == "int8" and not is_packed(spec):
            return Serves(ok=False, reason=f"{spec.name!r} has no 8-bit products: ask for numpy or numpy:float32")
        return known

    def estimate(self, spec: ModelSpec) -> int:
        """Return weights times a factor, plus the workspace of the largest batch, in bytes."""
        if feature_model.is_feature_model(spec):
            return spec.weights_nbytes + feature_model.estimated_workspace(spec)
        factor = UNPACKED_FACTOR if is_packed(spec) else WEIGHTS_FACTOR
        workspace = max(TOKEN_BUDGET, spec.max_length) * WORKSPACE_NBYTES_PER_TOKEN
        return int(spec.weights_nbytes * factor) + workspace + OVERHEAD_NBYTES

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Load the graph; see `Backend.load_model`."""
        if feature_model.is_feature_model(spec):
            return feature_model.FeatureModel(spec)
        try:
            model = NumpyModel(spec, load(spec.folder / spec.weights_file), self._precision or "float32")
        except MemoryError as exc:
            raise TransientBackendError(f"no memory to load model {spec.name!r}: {exc}") from exc
        trim()
        return model

    def load_tokenizer(self, spec: ModelSpec) -> Tokenizer:
        """Return the folder's `tokenizer.json`, or the words of a feature model."""
        if feature_model.is_feature_model(spec):
            return feature_model.read_tokenizer(spec)
        return FolderTokenizer(spec.folder / "tokenizer.json", lower_case=spec.lower_case)


class NumpyModel:
    """A graph, its programs for the shapes met lately, and how the answer is read off."""

    def __init__(self, spec: ModelSpec, graph: Graph, precision: str) -> None:
        self._spec = spec
        signature.check_inputs(graph.inputs, spec.name)
        self._inputs = graph.inputs
        chosen = signature.choose_output(graph.outputs, task=spec.task, pooling=spec.pooling, model=spec.name)
        self._output = chosen.name
        self._device = f"cpu:numpy:{precision}"
        self.quantises = precision == "int8"
        # Guards all below, and lets one run in at a time: a matrix product uses every core already, and each further
        # run at once would take a workspace that nobody was charged for. Taken last; nothing is locked inside.
        self._turn = threading.Lock()
        self._graph: Graph | None = graph
        self._weights = Weights(quantised=self.quantises)
        self._programs: OrderedDict[tuple[int, int], Execution] = OrderedDict()
        longest = self._program((1, spec.max_length))  # what doesn't fit together is found now, not at a query
        width = longest.shape[-1] if longest.shape else None
        if spec.task == "embed" and spec.dim not in (None, width):
            raise InvalidModel(f"model {spec.name!r} gives vectors of {width} numbers, its description says {spec.dim}")
        self._graph = graph.without(self._weights.packed)
        batches = max(1, TOKEN_BUDGET / spec.max_length)
        weights = self._graph.nbytes + self._weights.nbytes
        self._nbytes = weights + int(longest.workspace_nbytes * batches) + OVERHEAD_NBYTES

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights, as they are kept, of the largest batch's workspace, and of the overhead."""
        return self._nbytes

    @property
    def device(self) -> str:
        """Return `cpu:numpy:` and the precision."""
        return self._device

    @property
    def compiled(self) -> tuple[tuple[int, int], ...]:
        """Return the (rows, length) of the programs kept, the one used last at the end."""
        return tuple(self._programs)

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return float32[n, dim] or float32[n] logits; see `LoadedModel.infer`."""
        return self._answer(batch, None)

    def infer_until(self, batch: TokenBatch, deadline: Deadline) -> NDArray[np.float32]:
        """Answer as `infer`, or end before the next operator once the deadline has passed; see `Stoppable`."""
        return self._answer(batch, deadline)

    def close(self) -> None:
        """Drop weights and programs; waits for a run that is under way."""
        with self._turn:
            self._graph = None
            self._weights = Weights(quantised=False)
            self._programs.clear()
        trim()

    def _answer(self, batch: TokenBatch, deadline: Deadline | None) -> NDArray[np.float32]:
        if not self._turn.acquire(timeout=-1 if deadline is None else deadline.left_s):
            raise DeadlineExceeded(f"model {self._spec.name!r} was busy with other runs until the time was up")
        try:
            raw = self._run(batch, deadline)
        finally:
            self._turn.release()
        return answer(raw, batch, self._spec)

    def _run(self, batch: TokenBatch, deadline: Deadline | None) -> NDArray[np.float32]:
        feeds = {name: getattr(batch, name).astype(np.int64, copy=False) for name in self._inputs}
        what = f"a batch of {batch.shape} for model {self._spec.name!r}"
        try:
            return np.asarray(self._program(batch.shape).run(feeds, deadline), np.float32)
        except MemoryError as exc:
            raise TransientBackendError(f"no memory for {what}: {exc}") from exc
        except (LookupError, ValueError, TypeError, ArithmeticError) as exc:
            raise InferenceError(f"NumPy failed on {what}: {exc}") from exc

    def _program(self, shape: tuple[int, int]) -> Execution:
        """Return the program for a shape, the one used longest ago making room for a new one."""
        if self._graph is None:
            raise InferenceError(f"model {self._spec.name!r} is closed")
        found = self._programs.pop(shape, None)
        if found is None:
            rows, length = shape
            found = Execution(
                fuse(specialise(self._graph, rows=rows, length=length, output=self._output)), self._weights
            )
            while len(self._programs) >= PROGRAMS:
                self._programs.popitem(last=False)
        self._programs[shape] = found
        return found
