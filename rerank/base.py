"""What a reranker is: a name, and scores for the texts that a first stage found."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from backends.errors import VectorSearchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from backends.running.deadline import Deadline


class RerankError(VectorSearchError):
    """A reranker failed, or gave something that is not one score for each text."""


@dataclass(frozen=True, slots=True)
class RerankScores:
    """Scores of n texts, in the texts' order, and what they cost.

    `scores` is float32[n], higher is more relevant; NaN means that the reranker gave none. `truncated`
    counts texts whose tail did not fit into the model. `cold` says that the call had to wait for a load of
    `load_ms` milliseconds. `backend` and `device` are what really ran, None where that isn't known. `cached` counts
    scores that were remembered.
    """

    scores: NDArray[np.float32]
    truncated: int = 0
    cold: bool = False
    load_ms: float = 0.0
    backend: str | None = None
    device: str | None = None
    cached: int = 0


@runtime_checkable
class Reranker(Protocol):
    """Anything that scores texts against a query."""

    @property
    def name(self) -> str:
        """Return the name that plans and statistics show."""

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:
        """Score each text against the query; an empty list gives an empty array without any model.

        Raises:
            DeadlineExceeded: it can't be done in time.
        """


def ask(reranker: Reranker, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:
    """Return what a reranker says of n texts, its scores float32[n]; whoever uses scores asks by this.

    Raises:
        RerankError: it gave something that is not one score for each text.
        VectorSearchError: as the reranker's.
    """
    answer: object = reranker.score_detailed(query, texts, deadline=deadline)  # a caller's may give anything
    if not isinstance(answer, RerankScores):
        refuse_awaitable(reranker.name, answer)
        raise RerankError(f"reranker {reranker.name!r} gave {type(answer).__name__}, not RerankScores")
    return replace(answer, scores=checked_scores(reranker.name, answer.scores, len(texts)))


def checked_scores(name: str, answer: object, n: int) -> NDArray[np.float32]:
    """Return n scores, float32[n]; one that is no finite number says nothing, and counts as none (NaN).

    A number that is too large for float32 becomes the largest that isn't.

    Raises:
        RerankError: the answer is not one number for each text.
    """
    refuse_awaitable(name, answer)
    if type(answer) is np.ndarray and answer.dtype == np.float32 and answer.shape == (n,):
        scores = answer.astype(np.float64)
    else:
        scores = _numbers(name, answer, n)
    largest = np.finfo(np.float32).max
    return np.where(np.isfinite(scores), np.clip(scores, -largest, largest), np.nan).astype(np.float32)


def _numbers(name: str, answer: object, n: int) -> NDArray[np.float64]:
    try:
        is_masked = np.ma.isMaskedArray(answer)  # a score that is masked is none
        given = np.ma.filled(answer.astype(np.float64), np.nan) if is_masked else np.asarray(answer)  # type: ignore[attr-defined]  # masked
        if given.dtype.kind not in "biufO":
            raise TypeError(f"{given.dtype} is no kind of number")  # noqa: TRY301 - as what NumPy raises below
        if given.dtype == object and any(isinstance(score, str | bytes) for score in given.ravel()):
            raise TypeError("a text is no number")  # noqa: TRY301 - as above
        scores = given.astype(np.float64)
    except Exception as exc:  # an array of another library's: any failure means that it holds no plain numbers
        raise RerankError(f"reranker {name!r} gave {type(answer).__name__}, not {n} numbers: {exc}") from exc
    if scores.shape not in {(n,), (n, 1), (1, n)}:
        shape = f"{scores.size} scores" if scores.ndim == 1 else f"scores of shape {scores.shape}"
        raise RerankError(f"reranker {name!r} gave {shape} for {n} texts: it must give one for each")
    return scores.reshape(n)


def refuse_awaitable(name: str, answer: object) -> None:
    """Insist on an answer that is there.

    Raises:
        RerankError: it would have to be awaited.
    """
    if inspect.isawaitable(answer) or hasattr(answer, "__aiter__"):
        if inspect.iscoroutine(answer):
            answer.close()  # else Python warns that nobody awaited it
        raise RerankError(f"reranker {name!r} gave {type(answer).__name__}: give a function that isn't async")
