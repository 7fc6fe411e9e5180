"""The contract between this project and an inference runtime: `Backend`, `LoadedModel`, `ModelSpec`, `TokenBatch`.

A backend is one file, `backends/NAME_backend.py`, found by its name. It turns a `ModelSpec` (files on disk and
how to read them) into a `LoadedModel` (token ids in, vectors or scores out). It knows nothing of tenants,
budgets or documents.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from backends.running.deadline import Deadline

Task = Literal["embed", "cross-encode"]
# One mode, or several joined by "+" in the order of their parts of a vector ("cls+mean"); "none": the graph pools.
Pooling = str
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "last")


@dataclass(frozen=True, slots=True)
class HeadStep:
    """One module after the pooling, as `modules.json` lists it: its kind, its folder, and what it is told."""

    kind: Literal["dense", "normalize", "layer-norm", "truncate"]
    folder: str = ""  # of its weights, inside the model's
    activation: str = ""  # of "dense": the name of PyTorch's class
    residual: bool = False  # of "dense"
    size: int = 0  # numbers that it gives


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Say which files make a model and how its answers are read off them.

    `digest` (sha256, hex) covers the weights, the tokenizer, the configuration and everything here that changes an
    answer: two specs with one digest give the same vectors. `former_digest` is that of release 0.1.0, "" where its
    answers may have been others. `folder` is in Hugging Face layout. `weights_file` may be the index of several, or a
    graph below `onnx/`. Lengths are in tokens. The files of a `checked` model are read whole and compared with the
    digest at each load, not only when their size or time has changed. It is charged `least_nbytes` at least, what it
    took when it was tried, and `load_nbytes` are reserved for its load, the most that it took then.

    An embedder's vectors have `dim` numbers (None: a cross-encoder, or not known). `head` is what follows the pooling;
    it is applied by `TextModel`, not by a backend, and without one `normalize` is all there is. Tokens of a prompt are
    left out of the pooling unless `include_prompt`. `similarity` is what the vectors were trained for.

    Texts of a `lower_case` model are lowered before its own normaliser. `accept_keys` were vouched for.
    """

    name: str
    task: Task
    folder: Path
    digest: str
    weights_file: str
    weights_nbytes: int
    max_length: int = 512
    dim: int | None = None
    pooling: Pooling = "none"
    normalize: bool = True
    query_prefix: str = ""
    passage_prefix: str = ""
    include_prompt: bool = True
    head: tuple[HeadStep, ...] = ()
    similarity: Similarity = "cosine"
    lower_case: bool = False
    accept_keys: tuple[str, ...] = ()
    former_digest: str = ""
    checked: bool = False
    least_nbytes: int = 0
    load_nbytes: int = 0

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, of which `of_plain` makes the same again."""
        return {**asdict(self), "folder": str(self.folder)}

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the spec of what `plain` gave, read back from JSON.

        Raises:
            KeyError, TypeError, ValueError: it was written by another version.
        """
        own = {
            "folder": Path(values["folder"]),
            "head": tuple(HeadStep(**step) for step in values["head"]),
            "accept_keys": tuple(values["accept_keys"]),
        }
        return cls(**{**values, **own})


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """One rectangular batch: `input_ids`, `attention_mask`, `token_type_ids`, each int64[n, length].

    Rows shorter than `length` are padded on the right, with `pad_id`; their mask is 0 there. Whoever pads further does
    so with `pad_id` too: a model that reads its score at the last token may know that by its id alone. The first
    `prompt` tokens of each row are left out of the pooling.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    pad_id: int = 0
    prompt: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, length)."""
        rows, length = self.input_ids.shape
        return rows, length


@dataclass(frozen=True, slots=True)
class Serves:
    """Answer of `Backend.can_serve`: true, or false with the reason in words that a user can act on."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        """Return whether the backend can serve the model."""
        return self.ok


@runtime_checkable
class LoadedModel(Protocol):
    """A model in memory. Whoever loaded it closes it, once; `infer` may be called from many threads."""

    @property
    def nbytes(self) -> int:
        """Return the bytes to charge for it: weights and workspace, as measured or best known."""

    @property
    def device(self) -> str:
        """Return the device and provider that really run it, such as `cpu:CPUExecutionProvider`."""

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return float32[n, dim] (pooled, normalised if the spec says so) or float32[n] logits.

        Raises:
            InferenceError: the runtime failed, or gave NaN or infinite values.
        """

    def close(self) -> None:
        """Free everything. Closing again is harmless."""


@runtime_checkable
class Stoppable(Protocol):
    """What a `LoadedModel` is besides, if it can end a run that its caller has no more time for."""

    def infer_until(self, batch: TokenBatch, deadline: Deadline) -> NDArray[np.float32]:
        """Answer as `LoadedModel.infer`, or end soon after the deadline.

        Raises:
            DeadlineExceeded: the time was up; the model is as good as before.
            InferenceError: as `LoadedModel.infer`.
        """


@runtime_checkable
class Backend(Protocol):
    """A runtime that can load models. `priority`: lower is tried first; None is never chosen unasked."""

    @property
    def name(self) -> str:
        """Return the short name used on command lines and in statistics, such as `onnx`."""

    @property
    def priority(self) -> int | None:
        """Return the rank in the default order."""

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Say whether this model can run here, or why not, without loading it."""

    def estimate(self, spec: ModelSpec) -> int:
        """Return the bytes that `load_model` is expected to take, workspace included."""

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Load the model.

        Raises:
            InvalidModel: files are missing or damaged.
            MissingExtra: the runtime is not installed.
            TransientBackendError: not enough memory, or the device is lost.
        """
