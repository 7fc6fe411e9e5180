"""Remembered rerank scores."""

from __future__ import annotations

import numpy as np

from rerank import FunctionReranker, ScoreCache
from rerank.reading.score_cache import ENTRY_NBYTES, CachedReranker


def remembering(nbytes: int = 10_000) -> tuple[CachedReranker, list[list[str]]]:
    """Return a reranker that scores by length and remembers, and what it was asked."""
    calls: list[list[str]] = []

    def score(_query: str, texts: list[str]) -> list[float]:
        calls.append(texts)
        return [float(len(text)) if text != "none" else float("nan") for text in texts]

    return CachedReranker(FunctionReranker("by-length", score), "digest", ScoreCache(nbytes)), calls


def test_only_unknown_texts_are_scored() -> None:
    """What was scored for this query is remembered; the rest goes to the model, and all come in the texts' order."""
    reranker, calls = remembering()
    assert reranker.score_detailed("q", ["a", "bbb"]).cached == 0
    answer = reranker.score_detailed("q", ["cc", "bbb", "a"])
    assert answer.scores.tolist() == [2.0, 3.0, 1.0]
    assert answer.cached == 2
    assert reranker.score_detailed("q", ["a"]).cached == 1
    assert calls == [["a", "bbb"], ["cc"]]


def test_scores_are_of_one_query_and_one_model() -> None:
    """Another query, or another model, has scores of its own, however the strings run together."""
    reranker, calls = remembering()
    reranker.score_detailed("q", ["a"])
    reranker.score_detailed("qa", [""])
    CachedReranker(reranker.inner, "other", reranker.cache).score_detailed("q", ["a"])
    assert len(calls) == 3


def test_missing_score_is_not_remembered() -> None:
    """NaN says nothing, so the model is asked again."""
    reranker, calls = remembering()
    for _ in range(2):
        assert np.isnan(reranker.score_detailed("q", ["none"]).scores[0])
    assert len(calls) == 2


def test_least_recently_used_scores_leave_when_the_bytes_are_used_up() -> None:
    """The cache never takes more bytes than it may; what was used last stays."""
    reranker, _ = remembering(3 * ENTRY_NBYTES)
    reranker.score_detailed("q", ["a", "b", "c"])
    reranker.score_detailed("q", ["a"])
    reranker.score_detailed("q", ["d"])
    assert reranker.cache.nbytes == 3 * ENTRY_NBYTES
    assert [reranker.score_detailed("q", [text]).cached for text in ("a", "d", "b")] == [1, 1, 0]


def test_text_may_hold_lone_surrogates() -> None:
    """S9: no text is unfit for a key."""
    reranker, _ = remembering()
    assert reranker.score_detailed("\ud800", ["\udfff"]).scores.tolist() == [1.0]
