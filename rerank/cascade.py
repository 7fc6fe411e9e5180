"""Rerankers in a row: a cheap one reads many texts, a dear one only the best of them.

Telescoping as in Matveeva, Burges, Burkard, Laucius and Wong, "High accuracy retrieval with multiple nested ranker",
SIGIR 2006: each stage reorders the best of what the one before it gave, and the rest stays behind it in its order.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidInput
from rerank.base import ask
from rerank.cross_encoder import RankedText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from backends.running.deadline import Deadline
    from rerank.base import Reranker


def reorder(order: NDArray[np.int64], scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Sort the head of a ranking: int64[n], positions, of which the first `len(scores)` have these scores.

    They are sorted by score, equal ones in the order they came in. Those without one (NaN) come after all that have
    one, as they came in; the rest follows as it was.
    """
    head = np.argsort(-scores, kind="stable")  # NaN comes last
    return np.concatenate([order[head], order[len(scores) :]])


def standardize(given: NDArray[np.float32 | np.float64]) -> NDArray[np.float64]:
    """Return scores as deviations from the mean in standard deviations, float64[n]; 0 for all where they are equal."""
    scores = given.astype(np.float64)
    if not len(scores):
        return scores
    # Of equal numbers the mean may be off by rounding, and their deviation then isn't quite 0.
    spread = float(scores.std()) if scores.max() > scores.min() else 0.0
    return (scores - float(scores.mean())) / spread if spread > 0 else np.zeros_like(scores)


def blend(logits: NDArray[np.float32], given: NDArray[np.float32], *, weight: float) -> NDArray[np.float32]:
    """Return weight · z(logits) + (1 - weight) · z(given), float32[n]; z within the texts that have a logit.

    `given` are the scores of the stage before. z = (s - mean) / deviation: Montague and Aslam, "Relevance Score
    Normalization for Metasearch", CIKM 2001, section 3. NaN where there is no logit.
    """
    mixed = np.full(len(logits), np.nan, dtype=np.float32)
    scored = ~np.isnan(logits)
    mixed[scored] = weight * standardize(logits[scored]) + (1 - weight) * standardize(given[scored])
    return mixed


@dataclass(frozen=True, slots=True)
class CascadeStage:
    """A reranker, and how many of the best texts it reads; None reads all."""

    reranker: Reranker
    depth: int | None = None


class Cascade:
    """Rank texts with several rerankers, the cheapest first; it goes with the next release.

    `search(rerank=[Rerank(cheap, depth=100), Rerank(dear, depth=10)])` of a database does the same.

    Raises:
        InvalidInput: there is no stage, or one reads more texts than the one before it.
    """

    def __init__(self, *stages: CascadeStage) -> None:
        warnings.warn(
            "Cascade goes with the next release: give search(rerank=[…]) several rerankers",
            DeprecationWarning,
            stacklevel=2,
        )
        depths = [np.inf if stage.depth is None else stage.depth for stage in stages]
        if not stages or any(later > earlier for earlier, later in pairwise(depths)):
            raise InvalidInput(f"a cascade needs stages of falling depth, the cheapest reranker first, not {depths}")
        self._stages = stages

    def rank(
        self, query: str, texts: Sequence[str], top_k: int | None = None, *, deadline: Deadline | None = None
    ) -> list[RankedText]:
        """Rank the texts, best first. A text's score is that of the last stage that read it, NaN if none gave one.

        Raises:
            VectorSearchError: a stage failed, or was late.
        """
        order = np.arange(len(texts))
        scores = np.full(len(texts), np.nan, dtype=np.float32)
        for stage in self._stages:
            head = order[: stage.depth]
            answer = ask(stage.reranker, query, [texts[at] for at in head], deadline=deadline)
            scores[head] = answer.scores
            order = reorder(order, answer.scores)
        return [RankedText(int(at), float(scores[at]), texts[at]) for at in order[:top_k]]
