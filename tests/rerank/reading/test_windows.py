"""Long texts by windows, and many texts in batches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import DeadlineExceeded, InvalidInput
from backends.running.deadline import Deadline
from rerank import FunctionReranker, Passages
from rerank.reading.batches import BatchedReranker
from rerank.reading.windows import PassageReranker


def counting(wanted: str, calls: list[list[str]]) -> FunctionReranker:
    """Score a text by how often it says a word; a text of one word has no score."""

    def score(_query: str, texts: list[str]) -> list[float]:
        calls.append(texts)
        return [float(t.split().count(wanted)) if len(t.split()) > 1 else float("nan") for t in texts]

    return FunctionReranker("counting", score)


@given(st.integers(0, 60), st.integers(1, 20), st.data())
def test_every_word_is_in_a_window(n: int, words: int, data: st.DataObject) -> None:
    """Windows cover the whole text, none is longer than asked for, and none is wholly inside another."""
    stride = data.draw(st.integers(1, words))
    text = " ".join(f"w{i}" for i in range(n))
    windows = [window.split() for window in Passages(words, stride).split(text)]
    assert list(dict.fromkeys(word for window in windows for word in window)) == text.split()
    assert all(len(window) <= words for window in windows)
    assert all(not set(later) <= set(earlier) for earlier, later in pairwise(windows))


@pytest.mark.parametrize(("words", "stride"), [(0, 0), (10, -1), (10, 11), ("a", 1), (10, None), (2.5, 1)])
def test_windows_are_refused_when_words_would_be_left_out(words: Any, stride: Any) -> None:
    """Both are whole numbers, and a stride longer than the window would skip words."""
    with pytest.raises(InvalidInput, match=f"passages of {words!r} words every {stride!r}"):
        Passages(words, stride)


def test_text_counts_as_its_best_window() -> None:
    """A long text gets the highest score of its windows, a short one its own; all go into one call."""
    calls: list[list[str]] = []
    reranker = PassageReranker(counting("yes", calls), Passages(4, 2))
    texts = ["no no no no no yes yes no", "no yes", "no " * 9, "alone"]
    scores = reranker.score_detailed("q", texts).scores
    assert scores[:3].tolist() == [2.0, 1.0, 0.0]
    assert np.isnan(scores[3])
    assert len(calls) == 1
    assert reranker.name == "counting"


def test_window_without_a_score_is_passed_over() -> None:
    """A text has no score only if none of its windows has one."""
    reranker = PassageReranker(counting("yes", []), Passages(3, 3))
    assert reranker.score_detailed("q", ["yes yes no alone"]).scores.tolist() == [2.0]


def test_no_texts_give_no_scores() -> None:
    """S30: no texts are no call, through windows and batches too."""
    calls: list[list[str]] = []
    inner = counting("yes", calls)
    for reranker in (PassageReranker(inner, Passages()), BatchedReranker(inner, 3)):
        assert reranker.score_detailed("q", []).scores.shape == (0,)
    assert calls == []


@pytest.mark.parametrize(("words", "stride"), [(0, 1), (5, 0), (5, 6)])
def test_passages_are_refused_when_they_would_skip_words(words: int, stride: int) -> None:
    """A window of no words, or a stride beyond it, is an error at once."""
    with pytest.raises(InvalidInput, match="passages of"):
        Passages(words, stride)


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_batches_give_the_same_scores(batch: int) -> None:
    """S32: whatever the batch size, each text has its score, and no call is larger."""
    calls: list[list[str]] = []
    texts = ["yes " * i + "no" for i in range(1, 12)]
    scores = BatchedReranker(counting("yes", calls), batch).score_detailed("q", texts).scores
    assert scores.tolist() == [float(i) for i in range(1, 12)]
    assert max(map(len, calls)) <= batch


def test_deadline_holds_between_batches() -> None:
    """A deadline that has passed after one batch stops the next."""
    now = [0.0]

    def slow(_query: str, texts: list[str]) -> list[float]:
        now[0] += 1.0
        return [0.0] * len(texts)

    class Inner:
        name = "slow"

        def score_detailed(self, query: str, texts: list[str], *, deadline: Deadline) -> object:
            deadline.check("slow")
            return FunctionReranker("slow", slow).score_detailed(query, texts)

    reranker = BatchedReranker(Inner(), 2)  # type: ignore[arg-type]  # as a caller's own object
    with pytest.raises(DeadlineExceeded):
        reranker.score_detailed("q", ["a"] * 9, deadline=Deadline(1.5, lambda: now[0]))
    assert now[0] == 2.0
