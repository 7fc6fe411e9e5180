"""ONNX Runtime: serves any ONNX file of an embedder or a cross-encoder, on the processor.

Session settings were measured, see README.md: the arena on and memory patterns off make resident memory level off
after the largest batch; the arena off is slower on ragged batches and higher at its peak.
"""

from __future__ import annotations

import importlib.util
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import Serves
from backends.choosing.portable import is_graph
from backends.errors import DeadlineExceeded, InferenceError, InvalidModel, MissingExtra, TransientBackendError
from backends.graph.reading import onnx_file, signature
from backends.running.alarm import Alarm
from backends.running.batching import TOKEN_BUDGET
from backends.running.memory import trim
from backends.running.pooling import answer
from backends.running.process import Birthplace, usable_cores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Backend, LoadedModel, ModelSpec, TokenBatch
    from backends.running.deadline import Deadline

# Measured over the default models and the others of the catalogue (README.md).
WEIGHTS_FACTOR = 1.75
WORKSPACE_NBYTES_PER_TOKEN = 72 * 1024
_DRAWING = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_alarm = Alarm()  # ends the runs that are late; its thread starts with the first deadline


def backend() -> Backend:
    """Return this file's backend; the registry calls it on first use."""
    return OnnxBackend()


class OnnxBackend:
    """Loads ONNX files with ONNX Runtime."""

    name = "onnx"
    priority: int | None = 20
    runtime = ("onnxruntime", "onnx", "tokenizers")

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Say yes to any ONNX file, where the runtime is installed."""
        if not (named := is_graph(spec)):
            return named
        if importlib.util.find_spec("onnxruntime") is None:
            return Serves(ok=False, reason="onnxruntime is not installed: pip install onnxruntime")
        return Serves(ok=True)

    def estimate(self, spec: ModelSpec) -> int:
        """Return weights times a factor, plus the workspace of the largest batch, in bytes."""
        tokens = max(TOKEN_BUDGET, spec.max_length)
        return int(spec.weights_nbytes * WEIGHTS_FACTOR) + tokens * WORKSPACE_NBYTES_PER_TOKEN

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Load the graph; see `Backend.load_model`."""
        try:
            import onnxruntime  # noqa: PLC0415  (heavy: only where a model is loaded)
        except ImportError as exc:
            raise MissingExtra("this model needs ONNX Runtime: pip install onnxruntime") from exc
        path = spec.folder / spec.weights_file
        if not path.is_file():
            raise InvalidModel(f"model {spec.name!r} has no file {path}")
        operators = onnx_file.operators(path)
        if drawing := sorted(operators & _DRAWING):
            raise InvalidModel(
                f"model {spec.name!r} draws random numbers ({', '.join(drawing)}), so no answer could be had again: "
                "export it for inference"
            )
        try:
            session = onnxruntime.InferenceSession(
                str(path), _session_options(onnxruntime), providers=["CPUExecutionProvider"]
            )
        except runtime_errors() as exc:
            if _is_out_of_memory(exc):
                raise TransientBackendError(f"no memory to load model {spec.name!r}: {exc}") from exc
            raise InvalidModel(f"ONNX Runtime can't load {path}: {exc}") from exc
        model = OnnxModel(spec, session, self.estimate(spec), quantises="DynamicQuantizeLinear" in operators)
        trim()
        return model


class OnnxModel:
    """A session, the output that is read from it, and how that is pooled."""

    def __init__(
        self,
        spec: ModelSpec,
        session: Any,  # noqa: ANN401  (onnxruntime has no types)
        nbytes: int,
        *,
        quantises: bool,
    ) -> None:
        self.quantises = quantises
        self._spec = spec
        self._nbytes = nbytes
        # int32 ids occur in some exports; everything else takes int64.
        self._inputs = {i.name: np.int32 if i.type == "tensor(int32)" else np.int64 for i in session.get_inputs()}
        signature.check_inputs(tuple(self._inputs), spec.name)
        outputs = [_tensor(output) for output in session.get_outputs()]
        chosen = signature.choose_output(outputs, task=spec.task, pooling=spec.pooling, model=spec.name)
        dim = chosen.shape[-1] if chosen.shape else None
        if spec.task == "embed" and dim is not None and spec.dim not in (None, dim):
            raise InvalidModel(f"model {spec.name!r} gives vectors of {dim} numbers, its description says {spec.dim}")
        self._output = chosen.name
        self._device = ",".join(f"{_device_of(name)}:{name}" for name in session.get_providers())
        self._birthplace = Birthplace(spec.name)
        # Guards `_session`, and lets one run in at a time: a run already uses every core, and each further one at
        # once would take a workspace of its own that nobody was charged for. Taken last; nothing is locked inside.
        self._turn = threading.Lock()
        self._session: Any | None = session

    @property
    def nbytes(self) -> int:
        """Return the bytes charged: the estimate, since what one model adds can't be read off a shared process."""
        return self._nbytes

    @property
    def device(self) -> str:
        """Return the device and provider of the session, such as `cpu:CPUExecutionProvider`."""
        return self._device

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return float32[n, dim] or float32[n] logits; see `LoadedModel.infer`."""
        return self._infer(batch, None)

    def infer_until(self, batch: TokenBatch, deadline: Deadline) -> NDArray[np.float32]:
        """Answer, or let the runtime give up between two operators once the deadline has passed; see `Stoppable`."""
        return self._infer(batch, deadline)

    def _infer(self, batch: TokenBatch, deadline: Deadline | None) -> NDArray[np.float32]:
        feeds = {name: getattr(batch, name).astype(dtype, copy=False) for name, dtype in self._inputs.items()}
        return answer(np.asarray(self._run(feeds, deadline), np.float32), batch, self._spec)

    def close(self) -> None:
        """Drop the session, which frees its weights and workspace; waits for a run that is under way."""
        with self._turn:
            self._session = None
        trim()

    def _run(self, feeds: dict[str, NDArray[Any]], deadline: Deadline | None) -> Any:  # noqa: ANN401  (an array of any kind)
        self._birthplace.check()
        if not self._turn.acquire(timeout=-1 if deadline is None else deadline.left_s):
            raise DeadlineExceeded(f"model {self._spec.name!r} was busy with other runs until the time was up")
        try:
            if self._session is None:
                raise InferenceError(f"model {self._spec.name!r} is closed")
            return self._answer(self._session, feeds, deadline)
        finally:
            self._turn.release()

    def _answer(self, session: Any, feeds: dict[str, NDArray[Any]], deadline: Deadline | None) -> Any:  # noqa: ANN401  (onnxruntime has no types)
        shape = feeds["input_ids"].shape
        try:
            if deadline is None:
                return session.run([self._output], feeds)[0]
            options = _run_options()
            with _alarm.set(deadline.left_s, lambda: setattr(options, "terminate", True)):
                return session.run([self._output], feeds, options)[0]
        except runtime_errors() as exc:
            if deadline is not None and not deadline.left_s:
                raise DeadlineExceeded(
                    f"model {self._spec.name!r} was stopped in a batch of {shape}: the time was up; give it more"
                ) from exc
            kind = TransientBackendError if _is_out_of_memory(exc) else InferenceError
            raise kind(f"ONNX Runtime failed on a batch of {shape} for model {self._spec.name!r}: {exc}") from exc


def _run_options() -> Any:  # noqa: ANN401  (onnxruntime has no types)
    import onnxruntime  # noqa: PLC0415  (heavy: loaded by now)

    return onnxruntime.RunOptions()


def _session_options(onnxruntime: Any) -> Any:  # noqa: ANN401  (onnxruntime has no types)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    options.inter_op_num_threads = 1
    # Waiting threads sleep instead of spinning: a core that spins is taken from the lexical stage, and from whoever
    # else runs on this machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # A pattern is kept per shape, and ragged batches have hundreds of shapes.
    options.enable_mem_pattern = False
    options.log_severity_level = 3  # errors reach the caller as exceptions; warnings about a graph help nobody
    return options


def _tensor(output: Any) -> signature.Tensor:  # noqa: ANN401  (onnxruntime has no types)
    is_float = output.type in {"tensor(float)", "tensor(float16)", "tensor(double)"}
    shape = tuple(dim if isinstance(dim, int) else None for dim in output.shape or ())
    return signature.Tensor(output.name, is_float, shape)


def _device_of(provider: str) -> str:
    return {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "cuda"}.get(provider, "cpu")


def runtime_errors() -> tuple[type[Exception], ...]:
    """Return what the runtime raises: its own exception types have no common base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state  # noqa: PLC0415  (heavy: loaded by now)

    own = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return (*own, RuntimeError, MemoryError, ValueError)


def _is_out_of_memory(exc: BaseException) -> bool:
    words = ("allocat", "out of memory", "bad_alloc")
    return isinstance(exc, MemoryError) or any(word in str(exc).lower() for word in words)
