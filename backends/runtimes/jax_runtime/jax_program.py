"""A graph's compiled programs, one for each shape, over one set of weights on one device."""

from __future__ import annotations

import gc
import itertools
import os
import threading
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from backends.errors import InferenceError, InvalidModel, TransientBackendError
from backends.graph.fusing.fuse import fuse
from backends.graph.reading import signature
from backends.graph.rewriting.specialise import specialise
from backends.running.memory import trim
from backends.runtimes.jax_runtime.jax_kernels import narrow
from backends.runtimes.jax_runtime.jax_lowering import LITERAL_SIZE, PRODUCTS, lower, stored

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jax import Array
    from numpy.typing import NDArray

    from backends.base import ModelSpec, Pooling
    from backends.graph.graph import Graph
    from backends.graph.rewriting.specialise import Program

# A compiled program, and its constants in the order that it takes them.
Compiled = tuple[Any, tuple["Array", ...]]
RUNTIME_ERRORS = (jax.errors.JaxRuntimeError, MemoryError)


def configure(cache: Path) -> None:
    """Keep compiled programs in this folder, unless JAX is configured to keep them elsewhere; for the whole process.

    On a GPU memory is taken as it is needed instead of nearly all of it beforehand, unless the process says otherwise:
    a budget in bytes would be fiction. That is read when JAX first looks for devices.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def translated(exc: BaseException, what: str) -> InferenceError:
    """Return the error that says what failed: transient if memory or the device was lacking."""
    lacking = isinstance(exc, MemoryError) or any(word in str(exc) for word in ("RESOURCE_EXHAUSTED", "UNAVAILABLE"))
    return (TransientBackendError if lacking else InferenceError)(f"JAX failed {what}: {exc or 'out of memory'}")


class Programs:
    """Compile each shape when it is first met, and keep `most` programs; safe to use from many threads.

    A program holds a megabyte or two a layer, so the one used least recently makes room for another. Disk keeps it.

    Raises:
        InvalidModel: the graph doesn't fit its description.
    """

    def __init__(self, spec: ModelSpec, graph: Graph, output: str, precision: str, *, most: int) -> None:
        self._spec = spec
        self._most = most
        self._output = output
        self._precision = precision
        self._device = jax.devices()[0]
        self._compiled: dict[tuple[int, int], Compiled] = {}
        self._weights: dict[str, Array] = {}
        self._used: dict[tuple[int, int], int] = {}  # when, by a counter; written by any thread
        self._uses = itertools.count()
        # One compilation at a time, and the other two dictionaries change under it only; nothing is locked inside.
        self._compiling = threading.Lock()
        program = fuse(specialise(graph, rows=1, length=spec.max_length, output=output))
        _check(program, spec)
        self._store(graph, program, "")
        tables = {node.inputs[0] for node in program.steps if node.op == "Gather" and node.inputs[1] == "input_ids"}
        self.vocabulary = min((program.values[name].shape[0] for name in tables), default=int(np.iinfo(np.int32).max))
        # Matrices that are on the device are dropped here: further programs need no more of them than their shape.
        # Tables that were used whole at this length may be cut at others, and stay.
        matrices = {node.inputs[1] for node in program.steps if node.op in PRODUCTS}
        self._graph = graph.without([name for name in tables | matrices if name in graph.weights])

    @property
    def platform(self) -> str:
        """Return the kind of device: cpu, gpu or tpu."""
        return str(self._device.platform)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Return the (rows, length) of the programs that are kept."""
        return tuple(self._compiled)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights, on the device and off."""
        return sum(weight.nbytes for weight in self._weights.values()) + self._graph.nbytes

    def run(self, feeds: Mapping[str, NDArray[np.int32]]) -> NDArray[np.float32]:
        """Return float32[n, dim] or float32[n] for int32[n, length] each of ids, mask and types.

        Raises:
            InferenceError: an id is not in the vocabulary, or the runtime failed.
        """
        ids = feeds["input_ids"]
        if not (ids.min() >= 0 and ids.max() < self.vocabulary):
            raise InferenceError(
                f"model {self._spec.name!r} knows {self.vocabulary} tokens, and a batch of {ids.shape} has ids "
                f"{ids.min()} to {ids.max()}: its tokenizer.json is of another model"
            )
        rows, length = ids.shape
        compiled, constants = self._program((rows, length))
        try:
            given = [jax.device_put(feeds[name], self._device) for name in signature.FED]
            return np.asarray(compiled(constants, *given))
        except RUNTIME_ERRORS as exc:
            raise translated(exc, f"on a batch of {ids.shape} for model {self._spec.name!r}") from exc

    def close(self) -> None:
        """Free the weights at once, and the programs."""
        for weight in self._weights.values():
            weight.delete()
        self._weights.clear()
        self._compiled.clear()

    def _program(self, shape: tuple[int, int]) -> Compiled:
        self._used[shape] = next(self._uses)
        found = self._compiled.get(shape)
        if found is None:
            with self._compiling:
                found = self._compiled.get(shape)
                if found is None:
                    if len(self._compiled) >= self._most:
                        self._drop(min(self._compiled, key=self._used.__getitem__))
                    found = self._compiled[shape] = self._compile(shape)
                    trim()  # some 40 MB that the compiler has freed
        return found

    def _drop(self, shape: tuple[int, int]) -> None:
        """Forget a program, and the constants that only it uses; a run of it that is under way keeps its own."""
        del self._compiled[shape]
        for name in [name for name in self._weights if name.endswith(_suffix(shape))]:
            del self._weights[name]
        gc.collect()  # what JAX traced refers to itself, and holds the compiled code

    def _compile(self, shape: tuple[int, int]) -> Compiled:
        rows, length = shape
        program = fuse(specialise(self._graph, rows=rows, length=length, output=self._output))
        program, stored_as = self._store(self._graph, program, _suffix(shape))
        evaluate = lower(program, self._precision, fenced=self.platform == "cpu")
        spec = self._spec

        def answer(constants: tuple[Array, ...], ids: Array, mask: Array, types: Array) -> Array:
            fed = dict(zip(signature.FED, (ids, mask, types), strict=True))
            raw = evaluate({**dict(zip(stored_as, constants, strict=True)), **fed})
            if spec.task == "cross-encode":
                return raw.reshape(rows)
            vectors = _pooled(raw, mask, spec.pooling)
            return _normalized(vectors) if spec.normalize else vectors

        constants = tuple(self._weights[name] for name in stored_as.values())
        token = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=jax.sharding.SingleDeviceSharding(self._device))
        return jax.jit(answer).lower(constants, token, token, token).compile(), constants

    def _store(self, graph: Graph, program: Program, suffix: str) -> tuple[Program, dict[str, str]]:
        """Put the constants of a program on the device; return it as it uses them, and their names there by its own.

        Weights that are there already are shared. What is not the graph's own depends on the shape: `suffix` names it.
        """
        program, made = stored(program, self._precision)
        stored_as = {}
        for name in sorted({name for node in program.steps for name in node.inputs}):
            array = program.constants.get(name)
            if name in made:
                stored_as[name] = name
            elif array is not None and array.size > LITERAL_SIZE:
                stored_as[name] = name if graph.weights.get(name) is array else name + suffix
            if name in stored_as and stored_as[name] not in self._weights:
                content = made[name]() if array is None else array.astype(narrow(array.dtype), copy=False)
                self._weights[stored_as[name]] = jax.device_put(content, self._device)
        return program, stored_as


def _suffix(shape: tuple[int, int]) -> str:
    return f"@{shape[0]}x{shape[1]}"


def _check(program: Program, spec: ModelSpec) -> None:
    shape = program.values[program.output].shape
    if spec.task == "cross-encode" and program.values[program.output].shape not in ((1, 1), (1,)):
        raise InvalidModel(f"model {spec.name!r} gives {shape} for one pair: not one label")
    if spec.task == "embed" and spec.dim not in (None, shape[-1]):
        raise InvalidModel(f"model {spec.name!r} gives vectors of {shape[-1]} numbers, its description says {spec.dim}")


def _pooled(hidden: Array, mask: Array, pooling: Pooling) -> Array:
    """Reduce float32[n, length, dim] to float32[n, dim], as `pooling.pool` does."""
    if pooling == "none":
        return hidden
    parts = [_of_mode(hidden, mask[..., None], mode) for mode in pooling.split("+")]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)


def _of_mode(hidden: Array, mask: Array, mode: str) -> Array:
    """Reduce float32[n, length, dim] by one mode; `mask` is [n, length, 1]."""
    if mode == "cls":
        return hidden[:, 0]
    if mode == "last":
        return jnp.take_along_axis(hidden, jnp.maximum(mask.sum(axis=1, keepdims=True), 1) - 1, axis=1)[:, 0]
    if mode == "max":
        return jnp.where(mask > 0, hidden, -jnp.inf).max(axis=1)
    weights = mask.astype(hidden.dtype)
    if mode == "weightedmean":
        weights = weights * jnp.arange(1, mask.shape[1] + 1, dtype=hidden.dtype)[None, :, None]
    counts = jnp.maximum(weights.sum(axis=1), 1)
    sums = (jnp.where(mask > 0, hidden, 0) * weights).sum(axis=1)
    return sums / (jnp.sqrt(counts) if mode == "mean_sqrt_len" else counts)


def _normalized(vectors: Array) -> Array:
    norms = jnp.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / jnp.where(norms == 0, 1, norms)
