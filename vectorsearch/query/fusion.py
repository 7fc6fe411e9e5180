"""Rank fusion: several lists of rows become one. Pure functions of the lists.

Reciprocal rank fusion: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods", SIGIR 2009: score(d) = sum over lists of w / (k + rank(d)), rank from 1.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.types import Candidates

if TYPE_CHECKING:
    from collections.abc import Sequence

RRF_K = 60


def fuse_rrf(
    lists: Sequence[Candidates], *, weights: Sequence[float] | None = None, rrf_k: float = RRF_K
) -> Candidates:
    """Fuse by reciprocal rank; a row counts once in each list, at its best rank.

    A list that lacks a row, or is empty, gives it nothing. Equal scores are ordered by row.

    Args:
        lists: each best first.
        weights: one for each list; all 1 if None.
        rrf_k: the constant of the formula; larger values flatten the difference between ranks.
    """
    fused: defaultdict[int, float] = defaultdict(float)
    for candidates, weight in zip(lists, weights or [1.0] * len(lists), strict=True):
        for rank, row in enumerate(dict.fromkeys(candidates.rows.tolist()), start=1):
            fused[row] += weight / (rrf_k + rank)
    rows = np.fromiter(fused.keys(), dtype=np.int64, count=len(fused))
    scores = np.fromiter(fused.values(), dtype=np.float32, count=len(fused))
    order = np.lexsort((rows, -scores))
    return Candidates(rows[order], scores[order])
