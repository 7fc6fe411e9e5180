"""JAX/XLA: serves the portable graph, compiled for a few shapes; the default for bulk embedding.

Rows are padded to one of a few lengths and batches to one of three numbers of rows, so that there are few programs.
They are compiled when first met and kept on disk, and those used last in memory as well. Weights are stored once, as
the precision wants them, and given to every program. What was measured is in README.md, JAX.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from backends.base import Serves
from backends.catalogue.files import cache_dir
from backends.choosing.portable import is_graph, is_known, is_packed
from backends.choosing.precision import choose_precision
from backends.errors import InferenceError, InvalidModel, MissingExtra
from backends.graph.graph import load as load_graph
from backends.graph.reading import signature
from backends.running.batching import Batching
from backends.running.memory import trim
from backends.running.pooling import require_finite
from backends.running.process import Birthplace, usable_cores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.base import Backend, LoadedModel, ModelSpec, TokenBatch
    from backends.graph.graph import Graph
    from backends.runtimes.jax_runtime.jax_program import Programs

PRECISIONS = ("float32", "bfloat16", "int8")
LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512)
TOKENS = 1024  # of a batch
STREAMS = 2  # batches at once, where there are so many cores: what one core can't share out, another batch uses
# Of the bytes in the file; of 8-bit ones, and of floats, whose matrices may become bfloat16 and whose tables don't.
UNPACKED_FACTOR = {"float32": 3.2, "bfloat16": 2.0, "int8": 1.2}
WEIGHTS_FACTOR = 1.1
# Measured with every program that is kept (README.md, JAX): activations, and what one program, loaded from disk, holds.
WORKSPACE_NBYTES_PER_TOKEN = 48 * 1024
PROGRAM_NBYTES_PER_LAYER = {"float32": 1280 << 10, "bfloat16": 1280 << 10, "int8": 2560 << 10}
COMPILER_NBYTES = 32 << 20  # while it is at work
SPARE_PROGRAMS = 3  # kept beside a full one of each length: what the ends of bulk work, and single queries, need
_LAYERS = 12  # where config.json doesn't say


def backend() -> Backend:
    """Return this file's backend; the registry calls it on first use."""
    return JaxBackend()


class JaxBackend:
    """Compiles ONNX graphs with XLA; `precision` is one of `PRECISIONS`, or '' for the one that is faster here."""

    priority: int | None = 30
    runtime = ("jax", "onnx", "tokenizers")
    precisions = PRECISIONS

    def __init__(self, precision: str = "") -> None:
        self.name = f"jax:{precision}" if precision else "jax"
        self._precision = precision

    def with_precision(self, precision: str) -> Backend:
        """Return this backend in one precision."""
        return JaxBackend(precision)

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Say yes to an ONNX graph whose operators are known; a file that isn't there yet is taken at its name."""
        if not (named := is_graph(spec)):
            return named
        if not spec.include_prompt:
            return Serves(
                ok=False, reason="its programs pool all tokens, and this model leaves those of its prompts out"
            )
        if importlib.util.find_spec("jax") is None:
            return Serves(ok=False, reason="jax is not installed: pip install 'vectorsearch[jax]'")
        known = is_known(spec)
        if known and self._precision == "int8" and not is_packed(spec):
            return Serves(ok=False, reason=f"{spec.name!r} has no 8-bit products: ask for jax or jax:bfloat16")
        return known

    def estimate(self, spec: ModelSpec) -> int:
        """Return weights times a factor, plus programs and the workspace of the batches that run at once, in bytes."""
        packed = is_packed(spec)
        precision = self._precision or ("int8" if packed else "float32")
        factor = UNPACKED_FACTOR[precision] if packed else WEIGHTS_FACTOR
        return int(spec.weights_nbytes * factor) + workspace_nbytes(spec, precision)

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Load the graph; each program is compiled with the first batch of its shape. See `Backend.load_model`.

        By the plain name, a graph with 8-bit products is computed in them, and any other in bfloat16 where this machine
        multiplies that clearly faster and the model keeps its answers, else in float32.
        """
        served = self.can_serve(spec)
        if importlib.util.find_spec("jax") is None:
            raise MissingExtra("this model needs JAX: pip install 'vectorsearch[jax]'")
        from backends.runtimes.jax_runtime import jax_precision, jax_program  # noqa: PLC0415  (heavy: only where a model is loaded)

        graph = load_graph(spec.folder / spec.weights_file)
        if not served:
            raise InvalidModel(served.reason)
        jax_program.configure(cache_dir() / "jax")
        try:
            if self._precision or is_packed(spec):
                return JaxModel(spec, graph, self._precision or "int8")
            if not jax_precision.bfloat16_pays():
                return JaxModel(spec, graph, "float32")
            load = functools.partial(JaxModel, spec, graph)
            return choose_precision((spec.digest, "jax"), load, jax_precision.answers_of, discard=JaxModel.close)[0]
        except jax_program.RUNTIME_ERRORS as exc:
            raise jax_program.translated(exc, f"to load model {spec.name!r}") from exc
        finally:
            trim()


def workspace_nbytes(spec: ModelSpec, precision: str) -> int:
    """Return the bytes of the programs that are kept, of the compiler, and of the largest batches that run at once."""
    batches = min(STREAMS, usable_cores()) * max(TOKENS, spec.max_length) * WORKSPACE_NBYTES_PER_TOKEN
    program = layers_of(spec) * PROGRAM_NBYTES_PER_LAYER[precision]
    return batches + kept_programs(spec) * program + COMPILER_NBYTES


def kept_programs(spec: ModelSpec) -> int:
    """Return how many programs are kept in memory."""
    return len(lengths(spec.max_length)) + SPARE_PROGRAMS


def layers_of(spec: ModelSpec) -> int:
    """Return the model's layers by its config.json; those of a usual small model if that doesn't say."""
    try:
        config = json.loads((spec.folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return _LAYERS
    stated = config.get("num_hidden_layers") if isinstance(config, dict) else None
    return stated if isinstance(stated, int) and stated > 0 else _LAYERS


def lengths(longest: int) -> tuple[int, ...]:
    """Return the lengths that rows are padded to, rising, up to the model's longest."""
    doubled = (LENGTHS[-1] << i for i in range(1, longest.bit_length()))
    return (*(length for length in (*LENGTHS, *doubled) if length < longest), longest)


def row_counts(rows: int, most: int) -> Iterator[int]:
    """Yield the rows of the programs that a batch is run with: a full one, an eighth of it, or one row.

    A batch that comes near a program's number of rows is padded up to it; what is left of a smaller one is cut on.
    """
    sizes = sorted({1, max(1, most // 8), most})
    while rows > 0:
        up = next((size for size in sizes if size >= rows), most)
        down = max(size for size in sizes if size <= rows)
        chosen = up if up <= 2 * rows else down
        yield chosen
        rows -= chosen


class JaxModel:
    """Programs by shape, the batches that they are given, and how many may run at once."""

    def __init__(self, spec: ModelSpec, graph: Graph, precision: str) -> None:
        from backends.runtimes.jax_runtime.jax_program import Programs  # noqa: PLC0415  (heavy: only where a model is loaded)

        signature.check_inputs(graph.inputs, spec.name)
        chosen = signature.choose_output(graph.outputs, task=spec.task, pooling=spec.pooling, model=spec.name)
        self._spec = spec
        self._birthplace = Birthplace(spec.name)
        self.quantises = precision == "int8"
        self._programs: Programs | None = Programs(spec, graph, chosen.name, precision, most=kept_programs(spec))
        self.vocabulary = self._programs.vocabulary
        streams = min(STREAMS, usable_cores()) if self._programs.platform == "cpu" else 1
        self.batching = Batching(max(TOKENS, spec.max_length), lengths(spec.max_length), streams)
        self._device = f"{self._programs.platform}:jax:{precision}"
        self._nbytes = self._programs.nbytes + workspace_nbytes(spec, precision)
        self._streams = streams
        # One permit for each run at once: each takes a workspace, and no more are charged for. `close` takes them all;
        # `_closing`, taken before them and by nobody else, keeps two closes from holding some each.
        self._turns = threading.Semaphore(streams)
        self._closing = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights as they are stored, and those that `workspace_nbytes` gives."""
        return self._nbytes

    @property
    def device(self) -> str:
        """Return the platform that XLA compiles for, and the precision of the products: `cpu:jax:bfloat16`."""
        return self._device

    @property
    def compiled(self) -> tuple[tuple[int, int], ...]:
        """Return the (rows, length) of the programs that are kept."""
        return () if self._programs is None else self._programs.shapes

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return float32[n, dim] or float32[n] logits; see `LoadedModel.infer`."""
        self._birthplace.check()
        rows, length = batch.shape
        padded = self.batching.padded(length)
        parts, start = [], 0
        for count in row_counts(rows, self.batching.rows(length)):
            taken = slice(start, min(start + count, rows))
            parts.append(self._run(batch, taken, (count, padded)))
            start += count
        return require_finite(np.concatenate(parts), self._spec.name)

    def close(self) -> None:
        """Free the weights and the programs; waits for the runs that are under way."""
        with self._closing, ExitStack() as turns:
            for _ in range(self._streams):
                turns.enter_context(self._turns)
            if self._programs is not None:
                self._programs.close()
            self._programs = None
        gc.collect()  # what JAX traced refers to itself, and holds the compiled code: 60 MB of a small model
        trim()

    def _run(self, batch: TokenBatch, taken: slice, shape: tuple[int, int]) -> NDArray[np.float32]:
        feeds = {name: _padded(getattr(batch, name)[taken], shape) for name in ("attention_mask", "token_type_ids")}
        feeds["input_ids"] = _padded(batch.input_ids[taken], shape, batch.pad_id)
        n = taken.stop - taken.start
        feeds["attention_mask"][n:, 0] = 1  # a row without any token has no mean
        with self._turns:
            if self._programs is None:
                raise InferenceError(f"model {self._spec.name!r} is closed")
            return self._programs.run(feeds)[:n]


def _padded(values: NDArray[np.int64], shape: tuple[int, int], value: int = 0) -> NDArray[np.int32]:
    padded = np.full(shape, value, np.int32)
    padded[: values.shape[0], : values.shape[1]] = values
    return padded
