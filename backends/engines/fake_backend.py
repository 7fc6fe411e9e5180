"""A backend for tests, here and in programs built on this: no files, no runtime, and every failure on demand.

Its answers mean something: texts that share words have close vectors and high scores. It is never chosen unasked.
"""

from __future__ import annotations

import hashlib
import re
import threading
import zlib
from collections import deque
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from backends.base import ModelSpec, Serves
from backends.errors import InferenceError, InvalidModel, TransientBackendError
from backends.running.pooling import l2_normalize, require_finite
from backends.text.tokenizer import TokenRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from backends.base import Backend, LoadedModel, Task, TokenBatch
    from backends.text.tokenizer import Tokenizer

PAD, CLS, SEP, FIRST_WORD = 0, 1, 2, 3
_WORD = re.compile(r"\w+")
_EVENT_TIMEOUT_S = 60


class Fault(Enum):
    """A failure to act out, once: of a load or of an inference."""

    OUT_OF_MEMORY = "out of memory"
    CRASH = "crash"
    NAN = "nan"


# One step per load or inference: fail, wait until the event is set, or (None) succeed.
Step = Fault | threading.Event | None


def backend() -> Backend:
    """Return a fake backend without a script; the registry calls it on first use."""
    return FakeBackend()


def fake_spec(name: str, *, task: Task = "embed", dim: int = 64, max_length: int = 512) -> ModelSpec:
    """Return a spec without files, for `FakeBackend`; its digest is made from its name."""
    return ModelSpec(
        name=name,
        task=task,
        folder=Path(),
        digest=hashlib.sha256(name.encode()).hexdigest(),
        weights_file="",
        weights_nbytes=0,
        max_length=max_length,
        dim=dim if task == "embed" else None,
    )


class FakeBackend:
    """Loads fake models of `nbytes` each. `loads` and `infers` are scripts: one step is taken per call, in order.

    `loaded`, `closed` and `inferred` count what happened.
    """

    def __init__(
        self, name: str = "fake", *, nbytes: int = 1_000_000, loads: Iterable[Step] = (), infers: Iterable[Step] = ()
    ) -> None:
        self.name = name
        self.priority: int | None = None
        self.loaded = self.closed = self.inferred = 0
        self._nbytes = nbytes
        self._scripts = {"load": deque(loads), "infer": deque(infers)}
        # Guards the scripts and the counts; events are waited for outside it.
        self._lock = threading.Lock()

    def can_serve(self, spec: ModelSpec) -> Serves:  # noqa: ARG002  (the protocol's argument)
        """Say yes to anything."""
        return Serves(ok=True)

    def estimate(self, spec: ModelSpec) -> int:  # noqa: ARG002  (the protocol's argument)
        """Return the bytes given at construction."""
        return self._nbytes

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Take the next step of the load script, then load."""
        if self.step("load") is Fault.CRASH:
            raise InvalidModel(f"fake: loading {spec.name!r} crashed")
        with self._lock:
            self.loaded += 1
        return FakeModel(spec, self, self._nbytes)

    def load_tokenizer(self, spec: ModelSpec) -> Tokenizer:  # noqa: ARG002  (the protocol's argument)
        """Return a tokenizer by words that needs no files."""
        return WordTokenizer()

    def step(self, of: str) -> Step:
        """Take the next step of the script of `load` or `infer`: wait, or raise if it says out of memory.

        Raises:
            TransientBackendError: the step is out of memory.
            InferenceError: an event was not set within a minute, which is a fault of the test.
        """
        with self._lock:
            step = self._scripts[of].popleft() if self._scripts[of] else None
        if step is Fault.OUT_OF_MEMORY:
            raise TransientBackendError(f"fake: out of memory in {of}")
        if isinstance(step, threading.Event) and not step.wait(_EVENT_TIMEOUT_S):
            raise InferenceError(f"fake: nobody set the event that a step of {of} waits for")
        return step

    def count(self, *, closed: int = 0, inferred: int = 0) -> None:
        """Add to the counts; called by the models."""
        with self._lock:
            self.closed += closed
            self.inferred += inferred


class FakeModel:
    """A fake model in memory: vectors by hashing words, scores by shared words."""

    def __init__(self, spec: ModelSpec, owner: FakeBackend, nbytes: int) -> None:
        self._spec = spec
        self._owner = owner
        self._nbytes = nbytes
        self._closed = False

    @property
    def nbytes(self) -> int:
        """Return the bytes given at construction of the backend."""
        return self._nbytes

    @property
    def device(self) -> str:
        """Return `cpu:fake`."""
        return "cpu:fake"

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Take the next step of the inference script, then answer; see `LoadedModel.infer`."""
        if self._closed:
            raise InferenceError(f"model {self._spec.name!r} is closed")
        step = self._owner.step("infer")
        if step is Fault.CRASH:
            raise InferenceError(f"fake: model {self._spec.name!r} crashed")
        answer = hashed_vectors(batch, self._spec.dim or 1) if self._spec.task == "embed" else shared_words(batch)
        if step is Fault.NAN:
            answer[0] = np.nan
        self._owner.count(inferred=1)
        return require_finite(answer, self._spec.name)

    def close(self) -> None:
        """Count the first close."""
        if not self._closed:
            self._closed = True
            self._owner.count(closed=1)


class WordTokenizer:
    """Tokens are lower-cased words, numbered by checksum; rows are laid out as BERT's: [CLS] a [SEP] b [SEP]."""

    def texts(self, texts: Sequence[str], max_length: int) -> TokenRows:
        """Return one row per text; see `Tokenizer.texts`."""
        words = [_words(text) for text in texts]
        ids = [[CLS, *row[: max_length - 2], SEP] for row in words]
        cut = np.array([len(row) > max_length - 2 for row in words], np.bool_)
        return TokenRows(ids, [[0] * len(row) for row in ids], cut, PAD)

    def pairs(self, query: str, texts: Sequence[str], max_length: int) -> TokenRows:
        """Return one row per (query, text); see `Tokenizer.pairs`."""
        room = max_length - 3
        whole = _words(query)
        asked = whole[: room - room // 4]
        words = [_words(text) for text in texts]
        tails = [[*row[: room - len(asked)], SEP] for row in words]
        cut = np.array([len(row) > room - len(asked) or len(asked) < len(whole) for row in words], np.bool_)
        head = [CLS, *asked, SEP]
        return TokenRows(
            [head + tail for tail in tails], [[0] * len(head) + [1] * len(tail) for tail in tails], cut, PAD
        )


def hashed_vectors(batch: TokenBatch, dim: int) -> NDArray[np.float32]:
    """Return float32[n, dim] of length 1: each word adds +1 or -1 at the place that its number gives."""
    vectors = np.zeros((len(batch.input_ids), dim), np.float32)
    for vector, ids in zip(vectors, batch.input_ids, strict=True):
        words = ids[ids >= FIRST_WORD]
        np.add.at(vector, words // 2 % dim, np.where(words % 2, 1, -1))
    return l2_normalize(vectors)


def shared_words(batch: TokenBatch) -> NDArray[np.float32]:
    """Return float32[n] between -5 and 5: the share of the query's words that the document has; ties to the shorter."""
    scores = np.empty(len(batch.input_ids), np.float32)
    for row, (ids, types) in enumerate(zip(batch.input_ids, batch.token_type_ids, strict=True)):
        is_word = ids >= FIRST_WORD
        asked, found = np.unique(ids[is_word & (types == 0)]), ids[is_word & (types == 1)]
        share = np.isin(asked, found).mean() if len(asked) else 0.0
        scores[row] = 10 * share - 5 - 1e-3 * len(found)
    return scores


def _words(text: str) -> list[int]:
    return [FIRST_WORD + zlib.crc32(word.encode("utf-8", "replace")) for word in _WORD.findall(text.lower())]
