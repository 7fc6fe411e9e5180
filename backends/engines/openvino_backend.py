"""OpenVINO: serves the portable graph on Intel's and other processors, in float32 or bfloat16, without PyTorch.

A graph with 8-bit products is computed with floats in their place (`dequantized`): the answers of the weights as they
are stored, whatever stands beside a text in its batch.
"""

from __future__ import annotations

import importlib.util
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import Serves
from backends.catalogue.dequantized import float_model
from backends.choosing.portable import is_graph, is_known, is_packed
from backends.choosing.precision import choose_precision
from backends.errors import DeadlineExceeded, InferenceError, InvalidModel, MissingExtra, TransientBackendError
from backends.graph.reading import signature
from backends.running.alarm import Alarm
from backends.running.batching import TOKEN_BUDGET, Batching
from backends.running.memory import trim
from backends.running.pooling import answer
from backends.running.process import Birthplace, has_bfloat16_tiles, usable_cores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Backend, LoadedModel, ModelSpec, TokenBatch
    from backends.running.deadline import Deadline

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}  # ours, and what OpenVINO calls them
# Checked by tests/benchmarks/backend_contract.py: the graph, and its weights as they are laid out for the products.
UNPACKED_FACTOR = 8.0  # of an 8-bit file's bytes
WEIGHTS_FACTOR = 2.2
WORKSPACE_NBYTES_PER_TOKEN = 96 * 1024
OVERHEAD_NBYTES = 64 << 20  # kernels, one for each shape that is met
# Kernels are compiled for every shape that is met and kept: of few lengths there are few.
LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
KERNELS = 64
_alarm = Alarm()  # ends the runs that are late; its thread starts with the first deadline


def backend() -> Backend:
    """Return this file's backend; the registry calls it on first use."""
    return OpenvinoBackend()


class OpenvinoBackend:
    """Compiles ONNX graphs with OpenVINO; `precision` is one of `PRECISIONS`, or '' for the one that is faster here."""

    priority: int | None = 45
    runtime = ("openvino", "onnx", "tokenizers")
    precisions = tuple(PRECISIONS)

    def __init__(self, precision: str = "") -> None:
        self.name = f"openvino:{precision}" if precision else "openvino"
        self._precision = precision

    def with_precision(self, precision: str) -> Backend:
        """Return this backend in one precision."""
        return OpenvinoBackend(precision)

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Say yes to an ONNX graph whose operators are known; a file that isn't there yet is taken at its name."""
        if not (named := is_graph(spec)):
            return named
        if importlib.util.find_spec("openvino") is None:
            return Serves(ok=False, reason="openvino is not installed: pip install 'vectorsearch[openvino]'")
        return is_known(spec)

    def estimate(self, spec: ModelSpec) -> int:
        """Return weights times a factor, the workspace of the largest batch, and kernels, in bytes."""
        factor = UNPACKED_FACTOR if is_packed(spec) else WEIGHTS_FACTOR
        tokens = max(TOKEN_BUDGET, spec.max_length)
        return int(spec.weights_nbytes * factor) + tokens * WORKSPACE_NBYTES_PER_TOKEN + OVERHEAD_NBYTES

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Compile the graph; see `Backend.load_model`.

        By the plain name it is computed in bfloat16 where this processor has a unit for such products and the model
        keeps its answers, else in float32.
        """
        served = self.can_serve(spec)
        try:
            import openvino  # noqa: PLC0415  (heavy: only where a model is loaded)
        except ImportError as exc:
            raise MissingExtra("this model needs OpenVINO: pip install 'vectorsearch[openvino]'") from exc
        if not served:
            raise InvalidModel(served.reason)
        path = spec.folder / spec.weights_file
        if not path.is_file():
            raise InvalidModel(f"model {spec.name!r} has no file {path}")
        core = openvino.Core()
        try:
            graph = core.read_model(float_model(path).SerializeToString() if is_packed(spec) else str(path))

            def load(precision: str) -> OpenvinoModel:
                compiled = core.compile_model(graph, "CPU", _properties(precision))
                return OpenvinoModel(spec, compiled, precision, self.estimate(spec))

            if self._precision or not has_bfloat16_tiles():
                return load(self._precision or "float32")
            return choose_precision((spec.digest, "openvino"), load, _answers, discard=OpenvinoModel.close)[0]
        except RuntimeError as exc:
            raise _translated(exc, f"can't compile {path}", InvalidModel) from exc
        finally:
            trim()


class OpenvinoModel:
    """A compiled graph, the output that is read from it, and how that is pooled."""

    quantises = False

    def __init__(self, spec: ModelSpec, compiled: Any, precision: str, nbytes: int) -> None:  # noqa: ANN401  (openvino's)
        self._spec = spec
        self._nbytes = nbytes
        self._inputs = tuple(each.get_any_name() for each in compiled.inputs)
        signature.check_inputs(self._inputs, spec.name)
        outputs = [_tensor(each) for each in compiled.outputs]
        chosen = signature.choose_output(outputs, task=spec.task, pooling=spec.pooling, model=spec.name)
        dim = chosen.shape[-1] if chosen.shape else None
        if spec.task == "embed" and dim is not None and spec.dim not in (None, dim):
            raise InvalidModel(f"model {spec.name!r} gives vectors of {dim} numbers, its description says {spec.dim}")
        self._output = chosen.name
        self._device = f"cpu:openvino:{precision}"
        self._birthplace = Birthplace(spec.name)
        # Guards `_request`, and lets one run in at a time: a run already uses every core, and each further one at once
        # would take a workspace of its own that nobody was charged for. Taken last; nothing is locked inside.
        self._turn = threading.Lock()
        self._request: Any | None = compiled.create_infer_request()

    @property
    def nbytes(self) -> int:
        """Return the bytes charged: the estimate, since what one model adds can't be read off a shared process."""
        return self._nbytes

    @property
    def device(self) -> str:
        """Return `cpu:openvino:` and the precision."""
        return self._device

    @property
    def batching(self) -> Batching:
        """Return what batches it wants: rows of few lengths."""
        return Batching(lengths=(*(n for n in LENGTHS if n < self._spec.max_length), self._spec.max_length))

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return float32[n, dim] or float32[n] logits; see `LoadedModel.infer`."""
        return answer(self._run(batch, None), batch, self._spec)

    def infer_until(self, batch: TokenBatch, deadline: Deadline) -> NDArray[np.float32]:
        """Answer, or let the runtime give up between two operators once the deadline has passed; see `Stoppable`."""
        return answer(self._run(batch, deadline), batch, self._spec)

    def close(self) -> None:
        """Drop the graph, which frees its weights and workspace; waits for a run that is under way."""
        with self._turn:
            self._request = None
        trim()

    def _run(self, batch: TokenBatch, deadline: Deadline | None) -> NDArray[np.float32]:
        self._birthplace.check()
        if not self._turn.acquire(timeout=-1 if deadline is None else deadline.left_s):
            raise DeadlineExceeded(f"model {self._spec.name!r} was busy with other runs until the time was up")
        try:
            if self._request is None:
                raise InferenceError(f"model {self._spec.name!r} is closed")
            return self._answer(self._request, batch, deadline)
        finally:
            self._turn.release()

    def _answer(self, request: Any, batch: TokenBatch, deadline: Deadline | None) -> NDArray[np.float32]:  # noqa: ANN401  (openvino's)
        feeds = {name: np.ascontiguousarray(getattr(batch, name), np.int64) for name in self._inputs}
        what = f"OpenVINO failed on a batch of {batch.shape} for model {self._spec.name!r}"
        if deadline is not None and not deadline.left_s:
            raise DeadlineExceeded(f"the time was up before model {self._spec.name!r} could answer; give it more")
        try:
            request.start_async(feeds, share_inputs=True)
            if deadline is None:
                request.wait()
            else:
                with _alarm.set(deadline.left_s, request.cancel):
                    request.wait()
            return np.array(request.get_tensor(self._output).data, np.float32)  # the runtime's own is used again
        except RuntimeError as exc:
            if deadline is not None and not deadline.left_s:
                raise DeadlineExceeded(
                    f"model {self._spec.name!r} was stopped in a batch of {batch.shape}: the time was up; give it more"
                ) from exc
            raise _translated(exc, what, InferenceError) from exc


def _properties(precision: str) -> dict[str, str]:
    return {
        "INFERENCE_PRECISION_HINT": PRECISIONS[precision],
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(usable_cores()),
        "ENABLE_CPU_PINNING": "NO",  # a core that is busy with other work would hold the whole batch up
        "CPU_RUNTIME_CACHE_CAPACITY": str(KERNELS),
    }


def _answers(model: OpenvinoModel) -> NDArray[np.float32]:
    """Return the answers to two rows of any tokens, the same each time."""
    from backends.base import TokenBatch  # noqa: PLC0415  (elsewhere a type alone)

    ids = np.random.default_rng(0).integers(0, 1000, (2, min(16, model.batching.lengths[-1])))
    return model.infer(TokenBatch(ids, np.ones_like(ids), np.zeros_like(ids)))


def _tensor(output: Any) -> signature.Tensor:  # noqa: ANN401  (openvino's)
    is_float = output.get_element_type().is_real()
    shape = tuple(dim.get_length() if dim.is_static else None for dim in output.get_partial_shape())
    return signature.Tensor(output.get_any_name(), is_float, shape)


def _translated(
    exc: BaseException, what: str, kind: type[InvalidModel | InferenceError]
) -> TransientBackendError | InvalidModel | InferenceError:
    words = ("allocat", "out of memory", "bad_alloc", "not enough memory")
    if any(word in str(exc).lower() for word in words):
        return TransientBackendError(f"no memory: {what}: {exc}")
    return kind(f"{what}: {exc}")
