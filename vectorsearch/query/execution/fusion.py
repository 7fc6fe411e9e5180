"""Rank fusion: several lists of rows become one. Pure functions of the lists.

A row's fused score is the weighted sum of what each list says for it (CombSUM: Fox and Shaw, "Combination of
Multiple Searches", TREC-2, 1994). A list that lacks a row says 0; one that holds it says more than 0, whichever of
these is used:

- `rrf`: 1 / (rrf_k + rank), rank from 1. Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet
  and individual Rank Learning Methods", SIGIR 2009, section 2.
- `minmax`: (s - min) / (max - min) over the list. Lee, "Analyses of Multiple Evidence Combination", SIGIR 1997,
  section 3.
- `zscore`: z = (s - mean) / deviation (Montague and Aslam, "Relevance Score Normalization for Metasearch", CIKM 2001,
  section 3), moved from [-3, 3] to [0, 1], so that 0 stays the score of what is absent (Mazzeschi,
  "Distribution-Based Score Fusion", 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rerank.cascade import standardize
from vectorsearch.types import Candidates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Fusion = Literal["rrf", "minmax", "zscore"]

RRF_K = 60
# The least that a hit gets from a list that holds it: the worst of a list must still beat a row that it lacks.
_LEAST = 1e-3
_DEVIATIONS = 3.0


def fuse(
    lists: Sequence[Candidates],
    fusion: Fusion = "rrf",
    *,
    weights: Sequence[float] | None = None,
    rrf_k: float = RRF_K,
) -> Candidates:
    """Merge lists into one, best first; equal scores are ordered by row.

    A row that a list holds twice counts once there, at its best place. The order of the lists doesn't matter.

    Args:
        lists: each best first.
        fusion: how a list's evidence is read: `rrf` from ranks, `minmax` and `zscore` from scores.
        weights: one for each list; all 1 if None.
        rrf_k: the constant of `rrf`; larger values flatten the difference between ranks.
    """
    kept = [_first_of_each(candidates) for candidates in lists]
    rows = np.unique(np.concatenate([part.rows for part in kept])) if kept else np.empty(0, dtype=np.int64)
    said = np.zeros((len(kept), len(rows)))
    for line, part, weight in zip(said, kept, weights or [1.0] * len(kept), strict=True):
        line[np.searchsorted(rows, part.rows)] = weight * _evidence(part.scores.astype(np.float64), fusion, rrf_k=rrf_k)
    if len(kept) > 2:  # noqa: PLR2004 -- of two, the order doesn't matter
        said.sort(axis=0)  # before they are added: rounding then doesn't depend on the order of the lists
    scores = said.sum(axis=0).astype(np.float32)
    order = np.lexsort((rows, -scores))
    return Candidates(rows[order], scores[order])


def minmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stretch float64[n] to [0.001, 1]; 1 for all where they are equal, a single hit's score included."""
    if not len(scores):
        return scores
    span = scores.max() - scores.min()
    return np.maximum((scores - scores.min()) / span, _LEAST) if span > 0 else np.ones_like(scores)


def zscore(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Put float64[n] on a scale where mean ± 3 standard deviations are 0 and 1: [0.001, 1], 0.5 where all are equal."""
    return np.clip(0.5 + standardize(scores) / (2 * _DEVIATIONS), _LEAST, 1.0)


def _evidence(scores: NDArray[np.float64], fusion: Fusion, *, rrf_k: float) -> NDArray[np.float64]:
    """Return what a list, best first, says for each of its rows: float64[n], above 0."""
    match fusion:
        case "rrf":
            return np.reciprocal(rrf_k + np.arange(1, len(scores) + 1, dtype=np.float64))
        case "minmax":
            return minmax(scores)
        case "zscore":
            return zscore(scores)


def _first_of_each(candidates: Candidates) -> Candidates:
    if len(set(candidates.rows.tolist())) == len(candidates.rows):
        return candidates
    _, first = np.unique(candidates.rows, return_index=True)
    kept = np.sort(first)
    return Candidates(candidates.rows[kept], candidates.scores[kept])
