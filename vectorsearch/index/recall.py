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
_NOISE = 0.5  # by which a vector is moved to make a query of it: its cosine to itself is then 0.89
_K = 10
_BLOCK = 4096  # vectors that are multiplied at once


def checked(base: Base) -> Base:
    """Return a base that was read from disk, tuned again if it finds less than the floor."""
    if base.matrix is None or base.reach is None or base.plan.family == "flat":
        return base  # where vectors are in the store alone, a check would read them all
    queries, truth = _questions(base, ())
    return base if _recall(base, queries, truth) >= FLOOR else tuned(base)


def tuned(base: Base, batches: Iterable[VectorBatch] = ()) -> Base:
    """Return the base with the narrowest reach whose recall@10 is what is wanted, and that recall.

    The queries are 64 of its own live vectors, moved away from themselves as a query is from its answer: a vector that
    an index holds is found more easily. Their neighbours are found by a scan of the base's own vectors, or of
    `batches` where it holds none. If no reach is wide enough it is the widest, and below the floor none: every search
    is then exact, if the base holds whole vectors.
    """
    if base.plan.family == "flat" or not base.n_live:
        return base
    queries, truth = _questions(base, batches)
    for reach in base.plan.reaches():
        base = replace(base, reach=reach)
        base = replace(base, recall=_recall(base, queries, truth))
        if base.recall >= WANTED:
            return base
    return replace(base, reach=None, recall=1.0) if base.recall < FLOOR and base.matrix is not None else base


def _questions(base: Base, batches: Iterable[VectorBatch]) -> tuple[NDArray[np.float32], list[NDArray[np.int64]]]:
    """Return queries float32[m, dim], unit vectors, and the rows nearest to each."""
    at = base.live[:: max(1, base.n_live // _QUERIES)][:_QUERIES]
    if base.matrix is not None:
        queries = _moved(base.matrix[at])
        return queries, _neighbours(queries, _scanned(base, base.matrix))
    queries = _moved(unit(base.fetch(base.rows[at]).vectors))
    return queries, _neighbours(queries, _live(batches, base.rows[base.live]))


def _moved(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    noise = unit(np.random.default_rng(0).standard_normal(vectors.shape, dtype=np.float32))
    return unit(vectors + np.float32(_NOISE) * noise)


def _recall(base: Base, queries: NDArray[np.float32], truth: list[NDArray[np.int64]]) -> float:
    """Return the share of the true neighbours that are found."""
    pairs = zip(queries, truth, strict=True)
    found = sum(int(np.isin(near, base.search(query, _K, None).rows).sum()) for query, near in pairs)
    wanted = sum(near.size for near in truth)
    return found / wanted if wanted else 1.0


def _neighbours(
    queries: NDArray[np.float32], units: Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]
) -> list[NDArray[np.int64]]:
    """Return the rows of the `_K` nearest of each query, in any order."""
    if not len(queries):  # their vectors have gone from the store since the base was built
        return []
    rows = np.empty((len(queries), 0), np.int64)
    scores = np.empty((len(queries), 0), np.float32)
    for more_rows, vectors in units:
        rows = np.concatenate([rows, np.broadcast_to(more_rows, (len(queries), len(more_rows)))], axis=1)
        scores = np.concatenate([scores, (vectors @ queries.T).T], axis=1)
        if scores.shape[1] > _K:
            at = np.argpartition(scores, -_K, axis=1)[:, -_K:]
            rows, scores = np.take_along_axis(rows, at, 1), np.take_along_axis(scores, at, 1)
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
