"""Long texts: score their windows and keep the best one's score.

A document is as relevant as its best passage: MaxP of Dai and Callan, "Deeper Text Understanding for IR with Contextual
Neural Language Modeling", SIGIR 2019, section 3.2, whose windows of 150 words every 75 are the default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidInput
from rerank.base import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.running.deadline import Deadline
    from rerank.base import Reranker, RerankScores


@dataclass(frozen=True, slots=True)
class Passages:
    """Windows of `words` words; each begins `stride` words after the one before, so they overlap where it is less.

    Raises:
        InvalidInput: `words` is below 1, or `stride` isn't between 1 and `words`.
    """

    words: int = 150
    stride: int = 75

    def __post_init__(self) -> None:
        whole = isinstance(self.words, int) and isinstance(self.stride, int)
        if not whole or self.words < 1 or not 1 <= self.stride <= self.words:
            raise InvalidInput(
                f"passages of {self.words!r} words every {self.stride!r}: there must be at least one word, and the "
                "stride must be a whole number from 1 to the number of words, or some words would never be read"
            )

    def split(self, text: str) -> list[str]:
        """Return the windows, in order; the text as it is if it fits into one."""
        words = text.split()
        if len(words) <= self.words:
            return [text]
        starts = range(0, len(words) - self.words + self.stride, self.stride)
        return [" ".join(words[start : start + self.words]) for start in starts]


@dataclass(frozen=True, slots=True)
class PassageReranker:
    """A reranker that reads long texts window by window. `truncated` of its answers counts windows."""

    inner: Reranker
    passages: Passages

    @property
    def name(self) -> str:
        """Return the inner reranker's name."""
        return self.inner.name

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:
        """Give each text the highest score of its windows, float32[n]; NaN if none of them has one.

        Raises:
            VectorSearchError: as the inner reranker's.
        """
        windows = [self.passages.split(text) for text in texts]
        answer = ask(self.inner, query, list(chain.from_iterable(windows)), deadline=deadline)
        if not windows:
            return answer
        starts = np.cumsum([0, *(len(of_text) for of_text in windows[:-1])])
        return replace(answer, scores=np.fmax.reduceat(answer.scores, starts))
