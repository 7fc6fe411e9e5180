"""Turn what callers already have into a `Reranker`: functions, and other libraries' objects.

Accepted, in this order: a `Reranker`; an object with `predict(pairs)` (sentence-transformers' CrossEncoder);
with `rank(query, documents)` that gives dicts with `corpus_id` and `score`; with `rerank(query, documents)` that
gives scores in order, or items with `index` and `relevance_score` or `score`; any `callable(query, texts)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidInput
from backends.overtime import Overtime
from rerank.base import Reranker, RerankError, RerankScores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from backends.deadline import Deadline

_overtime = Overtime()  # for all functions together: what is late of them is bounded, whoever wraps them anew


@dataclass(frozen=True, slots=True)
class FunctionReranker:
    """A function `(query, texts) -> n scores` under a name."""

    name: str
    function: Callable[[str, list[str]], object]

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:
        """Call the function and check that it gave one number for each text.

        With a deadline it is called on another thread, and left alone there if it is late.

        Raises:
            RerankError: the function raised (its exception is the cause), or gave another number of scores.
            DeadlineExceeded: it was late.
        """
        if not texts:
            return RerankScores(np.empty(0, dtype=np.float32))
        if deadline is None:
            return self._score(query, texts)
        return _overtime.run(lambda: self._score(query, texts), deadline)

    def _score(self, query: str, texts: Sequence[str]) -> RerankScores:
        try:
            answer = self.function(query, list(texts))
        except Exception as exc:  # the caller's own code: any failure is reported as this stage's
            raise RerankError(f"reranker {self.name!r} failed on {len(texts)} texts: {exc!r}") from exc
        return RerankScores(_checked(self.name, answer, len(texts)))


def as_reranker(candidate: object) -> Reranker:
    """Wrap `candidate` as a `Reranker`.

    Raises:
        InvalidInput: it is none of the accepted forms.
    """
    if isinstance(candidate, Reranker):
        return candidate
    label = str(getattr(candidate, "__name__", type(candidate).__name__))
    if callable(predict := getattr(candidate, "predict", None)):
        return FunctionReranker(label, lambda query, texts: predict([(query, text) for text in texts]))
    for method in ("rank", "rerank"):
        if callable(ranked := getattr(candidate, method, None)):
            return FunctionReranker(label, _in_texts_order(ranked))
    if callable(candidate):
        return FunctionReranker(label, candidate)
    raise InvalidInput(
        f"{candidate!r} can't rerank: give a model's name, an object with predict, rank or rerank, "
        "or a callable (query, texts) -> scores"
    )


def _checked(name: str, answer: object, n: int) -> NDArray[np.float32]:
    """Return n scores; one that is not a finite number says nothing, and counts as none (NaN)."""
    try:
        with np.errstate(over="ignore"):  # a score too large for float32 becomes infinity, and still ranks first
            scores = np.asarray(answer, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as exc:
        raise RerankError(f"reranker {name!r} gave {type(answer).__name__}, not {n} numbers") from exc
    if scores.size != n:
        raise RerankError(f"reranker {name!r} gave {scores.size} scores for {n} texts: it must give one for each")
    return np.where(np.isfinite(scores), scores, np.float32(np.nan)).reshape(n)


def _in_texts_order(ranked: Callable[[str, list[str]], Any]) -> Callable[[str, list[str]], object]:
    """Put a ranking's items back into the texts' order; a text that is left out gets NaN."""

    def score(query: str, texts: list[str]) -> object:
        answer = ranked(query, texts)
        items = list(getattr(answer, "results", answer))
        if not items or isinstance(items[0], int | float | np.generic):
            return items
        scores = np.full(len(texts), np.nan, dtype=np.float32)
        for item in items:
            scores[int(_field(item, "corpus_id", "index"))] = _field(item, "score", "relevance_score")
        return scores

    return score


def _field(item: object, *names: str) -> float:
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None:
            return float(value)
    raise RerankError(f"a ranked item has none of {', '.join(names)}: {item!r}")
