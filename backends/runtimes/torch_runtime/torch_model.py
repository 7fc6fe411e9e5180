"""A model that PyTorch has loaded: a batch is cut into parts, and each core computes a part alone.

So no operator waits for another core, a part stays in its core's cache, and no row is padded beyond its own part; a
processor that is busy with other work costs about its share, and not a multiple of it (figures in README.md).
"""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import torch

from backends.errors import InferenceError, TransientBackendError, VectorSearchError
from backends.running.batching import Batching
from backends.running.memory import trim
from backends.running.pooling import l2_normalize, require_finite
from backends.running.process import Birthplace
from backends.runtimes.torch_runtime.torch_memory import PART_TOKENS, is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from backends.base import ModelSpec, Pooling, TokenBatch
    from backends.running.deadline import Deadline

T = TypeVar("T")

PARTS_A_CORE = 2  # in a full batch
STREAMS = 2  # batches at once: the next one's parts follow those of the last without a gap
ACCELERATOR_TOKENS = 32_768  # of a batch there, which is one part


class Encoder(Protocol):
    """What computes: ids int64[n, length] and mask bool[n, length] (None: all real) to token vectors, or to logits."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of its weights."""

    @property
    def vocabulary(self) -> int:
        """Return how many token ids it knows."""

    @property
    def pad_id(self) -> int | None:
        """Return the id that it knows padding by; None if it goes by the mask alone."""

    @property
    def sees_padding(self) -> bool:
        """Return whether padding changes its answers, mask or not, so that each row has to be computed alone."""

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor | None, types: torch.Tensor) -> torch.Tensor:
        """Return [n, length, dim], [n, 1, dim] where only the first token is read, or [n]."""


class Workers:
    """Threads that run PyTorch's operators, each on one core; with `cores` 0 one thread, for an accelerator."""

    def __init__(self, cores: int) -> None:
        self.cores = max(1, cores)
        if not cores:
            self._pool = ThreadPoolExecutor(1, "torch")
            return
        usual = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(cores, "torch", torch.set_num_threads, (1,))
        gate = threading.Barrier(cores)
        try:
            list(self._pool.map(lambda _: gate.wait(), range(cores)))
        except BaseException:  # no thread to be had, or an interrupt: those at the gate would wait for ever
            gate.abort()
            self._pool.shutdown()
            raise
        finally:
            # The setting is a thread's own, but also the first value of all threads to come: give that back.
            torch.set_num_threads(usual)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run a function on one of the threads."""
        return self._pool.submit(work)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


class TorchModel:
    """An encoder, the threads that run it, and how its answers are pooled; `nbytes` is its workspace."""

    def __init__(self, spec: ModelSpec, encoder: Encoder, workers: Workers, *, device: str, nbytes: int) -> None:
        self._spec = spec
        self._device = device
        self._place = torch.device(device.partition(":torch:")[0])
        self._nbytes = encoder.nbytes + nbytes
        self._workers = workers
        self._birthplace = Birthplace(spec.name)
        self._encoder: Encoder | None = encoder

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights as they are kept, and of the workspace."""
        return self._nbytes

    @property
    def device(self) -> str:
        """Return the device, runtime and precision, such as `cpu:torch:bfloat16`."""
        return self._device

    @property
    def batching(self) -> Batching:
        """Return what batches it wants: some parts for each core, so that all end at about the same time."""
        if self._place.type != "cpu":
            return Batching(ACCELERATOR_TOKENS)
        return Batching(PARTS_A_CORE * PART_TOKENS * self._workers.cores, streams=STREAMS)

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return float32[n, dim] or float32[n] logits; see `LoadedModel.infer`."""
        return self._infer(batch, None)

    def infer_until(self, batch: TokenBatch, deadline: Deadline) -> NDArray[np.float32]:
        """Answer, or give up between two parts of the batch once the deadline has passed; see `Stoppable`."""
        return self._infer(batch, deadline)

    def close(self) -> None:
        """Free the weights and end the threads; waits for a batch that is under way."""
        self._encoder = None
        self._workers.close()
        gc.collect()
        trim()

    def _infer(self, batch: TokenBatch, deadline: Deadline | None) -> NDArray[np.float32]:
        self._birthplace.check()
        encoder = self._encoder
        if encoder is None:
            raise InferenceError(f"model {self._spec.name!r} is closed")
        answers = self._run(encoder, batch, deadline)
        require_finite(answers, self._spec.name)
        return l2_normalize(answers) if self._spec.task == "embed" and self._spec.normalize else answers

    def _run(self, encoder: Encoder, batch: TokenBatch, deadline: Deadline | None) -> NDArray[np.float32]:
        most = PART_TOKENS if self._place.type == "cpu" else ACCELERATOR_TOKENS
        if encoder.sees_padding:
            parts = alone(batch)
        else:
            known = batch if encoder.pad_id is None else _repadded(batch, encoder.pad_id)
            parts = cut(known, parts=self._workers.cores, most=most, longest=self._spec.max_length)
        futures: list[Future[NDArray[np.float32]]] = []
        try:
            # Batches of several callers share the threads, so no more parts are in memory than there are cores.
            futures += (self._workers.submit(partial(self._part, encoder, part, deadline)) for part in parts)
            wait(futures)
            return np.concatenate([future.result() for future in futures])
        except VectorSearchError:
            raise
        except Exception as exc:  # an architecture's own code raises anything
            kind = TransientBackendError if is_out_of_memory(exc) else InferenceError
            raise kind(f"PyTorch failed on a batch of {batch.shape} for model {self._spec.name!r}: {exc}") from exc

    def _part(self, encoder: Encoder, part: TokenBatch, deadline: Deadline | None) -> NDArray[np.float32]:
        if deadline is not None:
            deadline.check(f"model {self._spec.name!r} was stopped in a batch")
        ids, mask, types = (
            torch.from_numpy(np.ascontiguousarray(values)).to(self._place)
            for values in (part.input_ids, part.attention_mask, part.token_type_ids)
        )
        with torch.inference_mode():
            answer = encoder(ids, None if part.attention_mask.all() else mask.bool(), types).float()
            pooled = answer if answer.ndim == 1 else _pool(answer, mask, self._spec.pooling, part.prompt)
            return np.asarray(pooled.cpu().numpy(), np.float32)


def find_device() -> torch.device:
    """Return the accelerator that PyTorch can use here, or the processor."""
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def cut(batch: TokenBatch, *, parts: int, most: int, longest: int) -> Iterator[TokenBatch]:
    """Yield runs of rows, some `parts` or more of them, of `most` tokens if a row fits.

    Each is as long as its longest row, rounded up as far as `longest` allows: oneDNN keeps compiled kernels for every
    number of tokens that it has met, hundreds of megabytes where that is any number (README.md).
    """
    real = np.maximum(batch.attention_mask.sum(axis=1), 1)
    lengths = np.minimum(rounded(real), max(longest, int(real.max())))
    batch = _padded(batch, int(lengths.max()))
    size = min(most, -(-int(lengths.sum()) // parts))
    start = 0
    while start < len(lengths):
        end, length = start + 1, lengths[start]
        while end < len(lengths) and max(length, lengths[end]) * (end + 1 - start) <= size:
            length = max(length, lengths[end])
            end += 1
        rows = slice(start, end), slice(int(length))
        yield _part_of(batch, *rows)
        start = end


def alone(batch: TokenBatch) -> Iterator[TokenBatch]:
    """Yield each row by itself, without padding."""
    for at, length in enumerate(np.maximum(batch.attention_mask.sum(axis=1), 1)):
        yield _part_of(batch, slice(at, at + 1), slice(int(length)))


def _part_of(batch: TokenBatch, rows: slice, tokens: slice) -> TokenBatch:
    ids, mask, types = (each[rows, tokens] for each in (batch.input_ids, batch.attention_mask, batch.token_type_ids))
    return replace(batch, input_ids=ids, attention_mask=mask, token_type_ids=types)


def rounded(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lengths rounded up to a multiple of 8 until 64, of 16 until 128, and of 32 beyond."""
    step = np.select([lengths <= 64, lengths <= 128], [8, 16], 32)  # noqa: PLR2004  (the docstring's)
    made: NDArray[np.int64] = -(-lengths // step) * step
    return made


def _padded(batch: TokenBatch, length: int) -> TokenBatch:
    more = length - batch.shape[1]
    if more <= 0:
        return batch
    mask, types = (np.pad(values, ((0, 0), (0, more))) for values in (batch.attention_mask, batch.token_type_ids))
    ids = np.pad(batch.input_ids, ((0, 0), (0, more)), constant_values=batch.pad_id)
    return replace(batch, input_ids=ids, attention_mask=mask, token_type_ids=types)


def _repadded(batch: TokenBatch, pad_id: int) -> TokenBatch:
    ids = np.where(batch.attention_mask > 0, batch.input_ids, pad_id)
    return replace(batch, input_ids=ids, pad_id=pad_id)


def _pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling, prompt: int) -> torch.Tensor:
    """Pool as `pooling.pool` does; in PyTorch, because NumPy's products would start threads beside each worker."""
    if hidden.shape[1] < mask.shape[1]:  # only the first token was read
        return hidden[:, 0]
    kept = mask * (torch.arange(mask.shape[1], device=mask.device) >= prompt) if prompt else mask
    parts = [_pooled(hidden, kept, mode) for mode in pooling.split("+")]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _pooled(hidden: torch.Tensor, mask: torch.Tensor, mode: str) -> torch.Tensor:
    rows = torch.arange(len(hidden), device=hidden.device)
    if mode == "cls":
        return hidden[rows, mask.argmax(1)]
    if mode == "last":
        found = mask.any(1)
        last = torch.where(found, mask.shape[1] - 1 - mask.flip(1).argmax(1), 0)
        return hidden[rows, last] * found[:, None]
    if mode == "max":
        return hidden.masked_fill(mask[:, :, None] == 0, -torch.inf).amax(1)
    weights = mask.to(hidden.dtype)
    if mode == "weightedmean":
        weights = weights * torch.arange(1, mask.shape[1] + 1, device=mask.device)
    counts = weights.sum(1, keepdim=True).clamp(min=1)
    return (hidden * weights[:, :, None]).sum(1) / (counts.sqrt() if mode == "mean_sqrt_len" else counts)
