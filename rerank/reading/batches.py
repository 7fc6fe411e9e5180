"""Score many texts in calls of a bounded size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rerank.base import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.running.deadline import Deadline
    from rerank.base import Reranker, RerankScores


@dataclass(frozen=True, slots=True)
class BatchedReranker:
    """A reranker that is given at most `batch` texts at once; a deadline then holds from call to call."""

    inner: Reranker
    batch: int

    @property
    def name(self) -> str:
        """Return the inner reranker's name."""
        return self.inner.name

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:
        """Score the texts batch by batch, float32[n].

        Raises:
            VectorSearchError: as the inner reranker's.
        """
        starts = range(0, max(1, len(texts)), self.batch)
        parts = [ask(self.inner, query, texts[start : start + self.batch], deadline=deadline) for start in starts]
        return replace(
            parts[0],
            scores=np.concatenate([part.scores for part in parts]),
            truncated=sum(part.truncated for part in parts),
            cold=any(part.cold for part in parts),
            load_ms=sum(part.load_ms for part in parts),
        )
