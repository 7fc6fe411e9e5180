"""A tokenizer and a loaded model as one thing that takes texts: what the lifecycle manager holds and callers lease."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from backends.base import Stoppable
from backends.catalogue import catalogue
from backends.errors import CannotServe, InvalidInput, InvalidModel
from backends.running import fingerprint
from backends.running.batching import Batching, batches
from backends.running.deadline import Pace
from backends.running.head import Head
from backends.running.pipeline import CHUNK, answered, joined, overlapped
from backends.running.pooling import require_finite
from backends.text.tokenizer import FolderTokenizer, SuppliesTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from backends.base import Backend, LoadedModel, ModelSpec, Task, TokenBatch
    from backends.running.deadline import Deadline
    from backends.text.tokenizer import Tokenizer, TokenRows

TextKind = Literal["query", "passage"]


@dataclass(frozen=True, slots=True)
class Embeddings:
    """`vectors` float32[n, dim] in the order of the texts; `truncated` bool[n] says which texts lost their tail."""

    vectors: NDArray[np.float32]
    truncated: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scores:
    """`scores` float32[n] logits in the order of the texts, higher is better; `truncated` bool[n]."""

    scores: NDArray[np.float32]
    truncated: NDArray[np.bool_]


class TextModel:
    """Embeds or scores texts. Safe to use from many threads; whoever loaded it closes it."""

    def __init__(
        self,
        spec: ModelSpec,
        tokenizer: Tokenizer,
        model: LoadedModel,
        backend: str,
        *,
        batching: Batching | None = None,
        nbytes: int | None = None,
        head: Head | None = None,
    ) -> None:
        self.spec = spec
        self._head = head
        self._prompts: dict[str, int] = {}  # their lengths in tokens
        self.backend = backend
        self._tokenizer = tokenizer
        self._model = model
        self._batching: Batching = getattr(model, "batching", Batching()) if batching is None else batching
        self._nbytes = nbytes
        self._pace = Pace()
        self._stoppable = model if isinstance(model, Stoppable) else None
        self._fingerprint: NDArray[np.float32] | None = None

    @property
    def fingerprint(self) -> NDArray[np.float32]:
        """Return what it computes for a few fixed texts: float32[n, dim], or float32[n] logits; taken in `warm_up`."""
        if self._fingerprint is None:
            texts = fingerprint.TEXTS
            is_embedder = self.spec.task == "embed"
            self._fingerprint = (
                self.embed(texts, kind="passage").vectors
                if is_embedder
                else self.score(fingerprint.QUESTION, texts).scores
            )
        return self._fingerprint

    @property
    def quantises(self) -> bool:
        """Return whether it rounds activations to integers, so that its answers are close to a float model's only."""
        return bool(getattr(self._model, "quantises", False))

    @property
    def batching(self) -> Batching:
        """Return what batches it makes."""
        return self._batching

    @property
    def stops(self) -> bool:
        """Return whether a run ends soon after its deadline; if not, it goes on until its batch is done."""
        return self._stoppable is not None

    @property
    def nbytes(self) -> int:
        """Return the bytes to charge for it: those measured beforehand, if its loader knew them."""
        known = self._model.nbytes + (self._head.nbytes if self._head else 0) if self._nbytes is None else self._nbytes
        return max(self.spec.least_nbytes, known)

    @property
    def device(self) -> str:
        """Return the device and provider that run it."""
        return self._model.device

    def embed(self, texts: Sequence[str], *, kind: TextKind, deadline: Deadline | None = None) -> Embeddings:
        """Return one vector per text, with the model's own prefix for queries or passages put before it.

        With a deadline batches are as small as the time that is left asks for.

        Raises:
            InvalidInput: the model is a cross-encoder, or `texts` is not a sequence of strings.
            DeadlineExceeded: it can't be done in time; at once if the model is known to be too slow for that.
            InferenceError: the model failed; no vector is ever made up in place of one.
        """
        self._require("embed", texts)
        prefix = self.spec.query_prefix if kind == "query" else self.spec.passage_prefix
        if not len(texts):
            return Embeddings(np.empty((0, self.spec.dim or 0), np.float32), np.empty(0, np.bool_))
        prompt = 0 if self.spec.include_prompt else self._prompt_length(prefix)
        chunks = (
            replace(
                self._tokenizer.texts([prefix + text for text in texts[start : start + CHUNK]], longest), prompt=prompt
            )
            for longest in (self.spec.max_length,)
            for start in range(0, len(texts), CHUNK)
        )
        return Embeddings(*self._answers(chunks, len(texts), deadline))

    def score(
        self, query: str, texts: Sequence[str], *, max_length: int | None = None, deadline: Deadline | None = None
    ) -> Scores:
        """Return one logit per text: how well it answers the query. `max_length` tokens a pair, at most the model's.

        Raises:
            InvalidInput: the model is an embedder, or an argument is not text.
            DeadlineExceeded: as `embed`.
            InferenceError: the model failed.
        """
        self._require("cross-encode", texts)
        if not isinstance(query, str):
            raise InvalidInput(f"query must be a string, not {type(query).__name__}")
        longest = min(max_length or self.spec.max_length, self.spec.max_length)
        if not len(texts):
            return Scores(np.empty(0, np.float32), np.empty(0, np.bool_))
        rows = self._tokenizer.pairs(self.spec.query_prefix + query, texts, longest)
        return Scores(*self._answers(iter([rows]), len(texts), deadline))

    def warm_up(self) -> None:
        """Run one full-length row, so that the first caller finds the workspace taken and the code paths warm."""
        text = "warm " * self.spec.max_length
        if self.spec.task == "embed":
            self.embed([text], kind="passage")
        else:
            self.score("warm", [text])
        self._fingerprint = self.fingerprint

    def close(self) -> None:
        """Free the model. Closing again is harmless."""
        self._model.close()

    def _require(self, task: Task, texts: Sequence[str]) -> None:
        if self.spec.task != task:
            raise InvalidInput(f"model {self.spec.name!r} is for {self.spec.task}, not for {task}")
        if isinstance(texts, str):
            raise InvalidInput("texts must be a sequence of strings, not one string")
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise InvalidInput(f"texts[{row}] must be a string, not {type(text).__name__}")

    def _answers(
        self, chunks: Iterator[TokenRows], n: int, deadline: Deadline | None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the answers to the n rows of all chunks, in their order, and which were truncated."""
        if deadline is None and self._batching.streams > 1 and n > 1:
            return overlapped(chunks, lambda batch: self._run(batch, None), batching=self._batching)
        rows = joined(chunks)
        return self._infer(rows, deadline), rows.truncated

    def _infer(self, rows: TokenRows, deadline: Deadline | None) -> NDArray[np.float32]:
        """Return the answers in the rows' order, batch by batch."""
        answers: NDArray[np.float32] | None = None
        for indices in self._batches(rows.lengths, deadline):
            begun = time.perf_counter()
            part = answered(lambda batch: self._run(batch, deadline), rows, indices)
            self._pace.note(len(indices) * int(rows.lengths[indices].max()), time.perf_counter() - begun)
            if answers is None:
                answers = np.empty((len(rows.input_ids), *part.shape[1:]), np.float32)
            answers[indices] = part
        return np.empty(0, np.float32) if answers is None else answers

    def _batches(self, lengths: NDArray[np.intp], deadline: Deadline | None) -> Iterator[NDArray[np.intp]]:
        """Yield row numbers, batch by batch; with a deadline each batch is cut when the one before it is done."""
        wishes = self._batching
        if deadline is None:
            yield from batches(lengths, token_budget=wishes.token_budget, padded_to=wishes.lengths)
            return
        rest = np.arange(len(lengths))
        while len(rest):
            left = lengths[rest]
            most = self._pace.allowance(deadline, left_tokens=int(left.sum()), most=wishes.token_budget)
            chosen = next(batches(left, token_budget=most, padded_to=wishes.lengths))
            yield rest[chosen]
            rest = np.delete(rest, chosen)

    def _run(self, batch: TokenBatch, deadline: Deadline | None) -> NDArray[np.float32]:
        if deadline is None or self._stoppable is None:
            answers = self._model.infer(batch)
        else:
            answers = self._stoppable.infer_until(batch, deadline)
        if self._head is not None:
            answers = require_finite(self._head(answers), self.spec.name)
        if self.spec.task == "embed" and self.spec.dim not in (None, answers.shape[-1]):
            raise InvalidModel(
                f"model {self.spec.name!r} gives vectors of {answers.shape[-1]} numbers, and its description says "
                f"{self.spec.dim}: its files don't belong together"
            )
        return answers

    def _prompt_length(self, prompt: str) -> int:
        if prompt not in self._prompts:
            measure = getattr(self._tokenizer, "prompt_length", None)
            self._prompts[prompt] = measure(prompt, self.spec.max_length) if prompt and measure else 0
        return self._prompts[prompt]


class TextLoader:
    """Loads text models with one backend; the loader that the lifecycle manager is given.

    `measured(spec, backend_name)` is asked for the bytes that a model was measured to take here, None if it wasn't:
    they replace the backend's estimate. A runtime may fall back to another device than one hopes for, and its model
    then says so; with `device`, such as `cuda`, it has to run there, or is not loaded.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        measured: Callable[[ModelSpec, str], int | None] | None = None,
        device: str | None = None,
    ) -> None:
        self._backend = backend
        self._device = device
        self._measured = measured or (lambda _spec, _backend: None)

    @property
    def name(self) -> str:
        """Return the backend's name."""
        return self._backend.name

    def estimate(self, spec: ModelSpec) -> int:
        """Return the bytes that the model is expected to take, while it loads too."""
        nbytes = self._measured(spec, self.name)
        return max(spec.least_nbytes, spec.load_nbytes, self._backend.estimate(spec) if nbytes is None else nbytes)

    def load_model(self, spec: ModelSpec) -> TextModel:
        """Fetch the model's files if the cache lacks them, and load it.

        Raises:
            BackendError: as `catalogue.ensure` and `Backend.load_model`.
            CannotServe: it runs on another device than it has to.
        """
        spec = catalogue.ensure(spec)
        # The tokenizer first: it is small, and if it can't be read nothing has to be freed.
        tokenizer = self.load_tokenizer(spec)
        head = Head(spec.head, spec.folder) if spec.head else None
        # What the network gives is wider or narrower than the vector where a head follows, or several poolings.
        model = self._backend.load_model(replace(spec, dim=None) if head or "+" in spec.pooling else spec)
        if self._device is not None and not model.device.startswith(self._device):
            model.close()
            raise CannotServe(
                f"model {spec.name!r} has to run on {self._device!r}, and {self.name} runs it on {model.device!r}: "
                "install what that device needs, or leave device out"
            )
        return TextModel(spec, tokenizer, model, self.name, nbytes=self._measured(spec, self.name), head=head)

    def load_tokenizer(self, spec: ModelSpec) -> Tokenizer:
        """Return the tokenizer of the model's folder, or of the backend if that brings its own.

        Raises:
            InvalidModel: the file is missing or can't be read.
        """
        if isinstance(self._backend, SuppliesTokenizer):
            return self._backend.load_tokenizer(spec)
        return FolderTokenizer(spec.folder / "tokenizer.json", lower_case=spec.lower_case)
