"""What callers may give as a reranker."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import DeadlineExceeded, InvalidInput
from backends.running.deadline import Deadline
from rerank import RerankError, RerankScores, as_reranker

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXTS = ["a", "bbb", "cc"]


class Predicts:
    """Shaped as sentence-transformers' CrossEncoder."""

    def predict(self, pairs: list[tuple[str, str]]) -> np.ndarray[Any, Any]:
        """Score a pair by the length of its text."""
        return np.array([len(text) for _, text in pairs], dtype=np.float64)


class Ranks:
    """Gives dicts, best first, and leaves one text out."""

    def rank(self, query: str, documents: list[str]) -> list[dict[str, Any]]:
        """Rank the longest first and leave out the first text."""
        assert query == "q"
        return [{"corpus_id": 1, "score": 3.0}, {"corpus_id": len(documents) - 1, "score": 2.0}]


class Reranks:
    """Gives an answer with `.results`, as hosted rerankers do."""

    def rerank(self, query: str, documents: list[str]) -> SimpleNamespace:
        """Rank by length."""
        assert query == "q"
        items = [SimpleNamespace(index=i, relevance_score=float(len(text))) for i, text in enumerate(documents)]
        return SimpleNamespace(results=sorted(items, key=lambda item: -item.relevance_score))


class RerankScoresInOrder:
    """Gives plain scores in the texts' order."""

    def rerank(self, query: str, documents: list[str]) -> list[float]:
        """Score by length."""
        assert query == "q"
        return [float(len(text)) for text in documents]


@dataclass
class Native:
    """Is a Reranker already."""

    name: str = "native"

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:  # noqa: ARG002  (the protocol's)
        """Score by length."""
        assert query
        return RerankScores(np.array([len(text) for text in texts], dtype=np.float32))


@pytest.mark.parametrize(
    "candidate",
    [Predicts(), Reranks(), RerankScoresInOrder(), Native(), lambda _query, texts: [len(text) for text in texts]],
)
def test_scores_come_in_the_texts_order(candidate: object) -> None:
    """Every accepted form gives one float32 for each text, in the texts' order."""
    scores = as_reranker(candidate).score_detailed("q", TEXTS).scores
    assert scores.dtype == np.float32
    assert scores.tolist() == [1.0, 3.0, 2.0]


def test_text_gets_nan_when_the_ranking_leaves_it_out() -> None:
    """A text that a ranking doesn't name has no score, rather than the lowest."""
    scores = as_reranker(Ranks()).score_detailed("q", TEXTS).scores
    assert np.isnan(scores[0])
    assert scores[1:].tolist() == [3.0, 2.0]


def test_function_is_not_called_when_there_are_no_texts() -> None:
    """S30: no texts give an empty array, and the reranker is not called."""
    calls: list[object] = []
    assert as_reranker(lambda *arguments: calls.append(arguments)).score_detailed("q", []).scores.shape == (0,)
    assert calls == []


def test_one_text_gives_one_score() -> None:
    """S30: a single text is scored as well."""
    assert as_reranker(Predicts()).score_detailed("q", ["xx"]).scores.tolist() == [2.0]


@pytest.mark.parametrize("answer", [[1.0], [1.0, 2.0, 3.0, 4.0], None, ["x", "y", "z"], [[1, 2], [3, 4], [5, 6]]])
def test_answer_is_refused_when_it_is_not_one_number_for_each_text(answer: object) -> None:
    """A wrong number of scores, or something that is no number, is an error that names the reranker."""
    with pytest.raises(RerankError, match="<lambda>"):
        as_reranker(lambda _query, _texts: answer).score_detailed("q", TEXTS)


def test_cause_is_kept_when_the_function_raises() -> None:
    """The caller's own exception is the cause of the reranker's."""

    def broken(_query: str, _texts: list[str]) -> list[float]:
        raise RuntimeError("out of order")

    with pytest.raises(RerankError, match="out of order") as caught:
        as_reranker(broken).score_detailed("q", TEXTS)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("candidate", [3, object(), ["a"]])
def test_candidate_is_refused_when_it_can_not_rerank(candidate: object) -> None:
    """Something that is none of the accepted forms is refused at once, with the forms named."""
    with pytest.raises(InvalidInput, match="predict, rank or rerank"):
        as_reranker(candidate)


def test_function_is_left_alone_when_it_is_late() -> None:
    """A function that hangs costs its caller no more than the deadline; one in time gives its scores."""
    gate = threading.Event()
    late = as_reranker(lambda _query, texts: gate.wait(600) and [0.0 for _ in texts])
    with pytest.raises(DeadlineExceeded):
        late.score_detailed("q", TEXTS, deadline=Deadline.after(0.01))
    gate.set()
    assert late.score_detailed("q", TEXTS, deadline=Deadline.after(60)).scores.tolist() == [0.0, 0.0, 0.0]
