"""Turn what callers already have into a `Reranker`: functions, and other libraries' objects.

Accepted, in this order: a `Reranker`; an object with `predict(pairs)` (sentence-transformers' CrossEncoder);
with `rank(query, documents)` or `rerank(query, documents)` that gives scores in order, or items (dicts or objects, in
`results` or as they are) with `corpus_id` or `index`, and `score` or `relevance_score`; any `callable(query, texts)`.

A ranking may name only its best texts: the others have no score (NaN), and come after those that have one. One that
names a text twice, or a text that isn't there, and scores that are too few or too many, are an error. What is async is
refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from backends.errors import InvalidInput
from backends.running.overtime import Overtime
from rerank.base import Reranker, RerankError, RerankScores, checked_scores, refuse_awaitable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backends.running.deadline import Deadline

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
        except RerankError:
            raise
        except Exception as exc:  # the caller's own code: any failure is reported as this stage's
            raise RerankError(f"reranker {self.name!r} failed on {len(texts)} texts: {exc!r}") from exc
        return RerankScores(checked_scores(self.name, answer, len(texts)))


def as_reranker(candidate: object) -> Reranker:
    """Wrap `candidate` as a `Reranker`.

    Raises:
        InvalidInput: it is none of the accepted forms, or async, or a class.
    """
    if isinstance(candidate, type):
        raise InvalidInput(f"{candidate!r} is a class: give an object of it")
    if isinstance(candidate, Reranker):
        _refuse_async(candidate, candidate.score_detailed)
        return candidate
    label = str(getattr(candidate, "__name__", type(candidate).__name__))
    if callable(predict := getattr(candidate, "predict", None)):
        _refuse_async(candidate, predict)
        return FunctionReranker(label, lambda query, texts: predict([(query, text) for text in texts]))
    for method in ("rank", "rerank"):
        if callable(ranked := getattr(candidate, method, None)):
            _refuse_async(candidate, ranked)
            return FunctionReranker(label, _in_texts_order(label, ranked))
    if callable(candidate):
        _refuse_async(candidate, candidate)
        return FunctionReranker(label, candidate)
    raise InvalidInput(
        f"{candidate!r} can't rerank: give a model's name, an object with predict, rank or rerank, "
        "or a callable (query, texts) -> scores"
    )


def _in_texts_order(name: str, ranked: Callable[[str, list[str]], Any]) -> Callable[[str, list[str]], object]:
    """Put a ranking's items back into the texts' order; a text that is left out gets NaN."""

    def score(query: str, texts: list[str]) -> object:
        answer = ranked(query, texts)
        refuse_awaitable(name, answer)
        results = answer.get("results") if isinstance(answer, Mapping) else getattr(answer, "results", answer)
        if not isinstance(results, Iterable):
            raise RerankError(f"reranker {name!r} gave {type(answer).__name__}, not a ranking")
        if hasattr(results, "__array__"):
            return results
        items = list(results)
        if not items or isinstance(items[0], int | float | np.generic):
            return items
        scores = np.full(len(texts), np.nan)
        named: set[int] = set()
        for item in items:
            at = _index(name, item, len(texts))
            if at in named:
                raise RerankError(f"reranker {name!r} ranks text {at} twice: it must rank each at most once")
            named.add(at)
            scores[at] = _number(name, item, "score", "relevance_score")
        return scores

    return score


def _index(name: str, item: object, n: int) -> int:
    at = _number(name, item, "corpus_id", "index")
    if not (at.is_integer() and 0 <= at < n):
        raise RerankError(f"reranker {name!r} ranks text {at:g}, and there are {n}: an index is one from 0 to {n - 1}")
    return int(at)


def _number(name: str, item: object, *fields: str) -> float:
    for field in fields:
        value = item.get(field) if isinstance(item, Mapping) else getattr(item, field, None)
        if isinstance(value, SupportsFloat) and not isinstance(value, bool):
            return float(value)
    raise RerankError(f"reranker {name!r} ranks an item without a number as {' or '.join(fields)}: {item!r:.200}")


def _refuse_async(candidate: object, *called: object) -> None:
    """Insist on functions that give their answer: a search waits for none that has to be awaited."""
    for function in called:
        whole = (function, getattr(function, "__call__", None))  # noqa: B004 - an object's may be async
        if any(inspect.iscoroutinefunction(part) or inspect.isasyncgenfunction(part) for part in whole):
            raise InvalidInput(f"{candidate!r} is async: give a reranker whose answer needn't be awaited")
