"""How much of what is nearest a base really finds, measured on its own vectors, and how widely it must be searched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.index.cosine import unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from vectorsearch.index.faiss_base import Base
    from vectorsearch.storage.snapshot import VectorBatch

WANTED = 0.98  # recall@10 that a base is widened for
FLOOR = 0.95  # below it an index that holds whole vectors is scanned instead
_QUERIES = 64
_QUICK_QUERIES = 16
_K = 10
_BLOCK = 4096  # vectors that are multiplied at once


def checked(base: Base) -> Base:
    """Return a base that was read from disk, tuned again if a few queries fall below the floor."""
    if base.matrix is None or base.reach is None or base.plan.family == "flat":
        return base  # where vectors are in the store alone, a check would read them all
    rows, queries, truth = _questions(base, (), _QUICK_QUERIES)
    return base if _recall(base, rows, queries, truth) >= FLOOR else tuned(base)


def tuned(base: Base, batches: Iterable[VectorBatch] = ()) -> Base:
    """Return the base with the narrowest reach whose recall@10 is what is wanted, and that recall.

    The queries are 64 of its own live vectors, their neighbours found by a scan of the base's own vectors, or of
    `batches` where it holds none. If no reach is wide enough it is the widest, and below the floor none: every search
    is then exact, if the base holds whole vectors.
    """
    if base.plan.family == "flat" or not base.n_live:
        return base
    rows, queries, truth = _questions(base, batches, _QUERIES)
    for reach in base.plan.reaches():
        base = replace(base, reach=reach)
        base = replace(base, recall=_recall(base, rows, queries, truth))
        if base.recall >= WANTED:
            return base
    return replace(base, reach=None, recall=1.0) if base.recall < FLOOR and base.matrix is not None else base


def _questions(
    base: Base, batches: Iterable[VectorBatch], n: int
) -> tuple[NDArray[np.int64], NDArray[np.float32], list[NDArray[np.int64]]]:
    """Return rows int64[m], their unit vectors float32[m, dim], and the rows nearest to each."""
    live = np.flatnonzero(base.alive)
    at = live[:: max(1, live.size // n)][:n]
    if base.matrix is not None:
        return base.rows[at], base.matrix[at], _neighbours(base.matrix[at], _scanned(base, base.matrix))
    asked = base.fetch(base.rows[at])
    queries = unit(asked.vectors)
    return asked.rows, queries, _neighbours(queries, _live(batches, base.rows[live]))


def _recall(
    base: Base, asked: NDArray[np.int64], queries: NDArray[np.float32], truth: list[NDArray[np.int64]]
) -> float:
    """Return the share of the true neighbours that are found; the vector itself is no neighbour."""
    found = wanted = 0
    for row, query, near in zip(asked.tolist(), queries, truth, strict=True):
        others = near[near != row][:_K]
        found += np.isin(others, base.search(query, _K + 1, None).rows).sum()
        wanted += others.size
    return float(found / wanted) if wanted else 1.0


def _neighbours(
    queries: NDArray[np.float32], units: Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]
) -> list[NDArray[np.int64]]:
    """Return the rows of the `_K` + 1 nearest of each query, best first."""
    rows = np.empty((len(queries), 0), np.int64)
    scores = np.empty((len(queries), 0), np.float32)
    for more_rows, vectors in units:
        rows = np.concatenate([rows, np.broadcast_to(more_rows, (len(queries), len(more_rows)))], axis=1)
        scores = np.concatenate([scores, queries @ vectors.T], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, : _K + 1]
        rows, scores = np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
    return list(rows)


def _scanned(base: Base, matrix: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    for start in range(0, len(base.rows), _BLOCK):
        at = np.flatnonzero(base.alive[start : start + _BLOCK]) + start
        yield base.rows[at], matrix[at]


def _live(
    batches: Iterable[VectorBatch], live: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    for batch in batches:
        kept = np.isin(batch.rows, live, assume_unique=True)
        yield batch.rows[kept], unit(batch.vectors[kept])
