"""How much of what is nearest a base really finds, measured on its own vectors, and how widely it must be searched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.collection.index.dense.cosine import unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from vectorsearch.collection.index.dense.base_plan import Reach
    from vectorsearch.collection.index.dense.faiss_base import Base
    from vectorsearch.collection.storage.sqlite.snapshot import VectorBatch

WANTED = 0.98  # recall@10 that a base is widened for
FLOOR = 0.95  # below it the whole vectors that an index holds, or its graph's codes, are scanned instead
# A graph finds all ten neighbours or, where it strays into another cluster, none of them: measured with 64 queries, a
# recall is off by 0.02 or more in every third base.
_QUERIES = 256
_CHECKED = 4  # one in so many is asked again at each opening
_NOISE = 0.5  # by which a vector is moved to make a query of it: its cosine to itself is then 0.89
_SEED = 64_010_089  # of that noise; 0 and 1 may have made the vectors, and noise towards some of them is no noise
_K = 10
_BLOCK = 4096  # vectors that are multiplied at once


def tuned(base: Base, batches: Iterable[VectorBatch] = ()) -> Base:
    """Return the base with the narrowest reach whose recall@10 is what is wanted, and with what it was asked.

    The queries are some of its own live vectors, moved away from themselves as a query is from its answer: a vector
    that an index holds is found more easily. Their neighbours are found by a scan of the base's own vectors, or of
    `batches` where it holds none. If no reach is wide enough it is the widest, and below the floor none: every search
    is then exact, if the base holds whole vectors, and looks at every code, if it doesn't.
    """
    if base.plan.family == "flat" or not base.n_live:
        return base
    return _widened(replace(base, asked=_asked(base, batches)))


def checked(base: Base) -> Base:
    """Return a base that was read from disk, searched more widely if it finds less than the floor.

    It is asked some of what it was asked when it was tuned; the answers are kept with it, so nothing is scanned.
    """
    if base.asked is None or not base.asked.size or base.reach is None:
        return base
    return base if _recall(base, *_questions(base, base.asked[::_CHECKED])) >= FLOOR else _widened(base)


def _widened(base: Base) -> Base:
    if base.asked is None:
        return base
    questions = _questions(base, base.asked)
    base = _narrowest(base, base.plan.reaches(base.n_live), questions)
    if base.recall >= FLOOR:
        return base
    if base.matrix is not None:
        return replace(base, reach=None, recall=1.0)
    return _narrowest(base, base.plan.last_reaches, questions)


def _narrowest(
    base: Base, reaches: Iterable[Reach], questions: tuple[NDArray[np.float32], list[NDArray[np.int64]]]
) -> Base:
    """Return the base with the first reach whose recall is what is wanted, else the last; as it is if there is none."""
    for reach in reaches:
        base = replace(base, reach=reach)
        base = replace(base, recall=_recall(base, *questions))
        if base.recall >= WANTED:
            break
    return base


def _asked(base: Base, batches: Iterable[VectorBatch]) -> NDArray[np.int64]:
    """Return rows whose vectors are moved to make queries, int64[m], each with the rows nearest to it: int64[m, 1 + n].

    Where there are fewer than `_K` vectors, n is their number.
    """
    step = max(1, base.n_live // _QUERIES)
    rows, queries = _moved(base, base.rows[base.live[::step][:_QUERIES]])
    units = _live(batches, base.rows[base.live]) if base.matrix is None else _scanned(base, base.matrix)
    return np.column_stack([rows, _neighbours(queries, units)])


def _questions(base: Base, asked: NDArray[np.int64]) -> tuple[NDArray[np.float32], list[NDArray[np.int64]]]:
    """Return queries float32[m, dim], unit vectors, and the rows nearest to each that are still there."""
    rows, queries = _moved(base, asked[:, 0])
    near = asked[np.isin(asked[:, 0], rows), 1:]
    alive = base.alive[np.searchsorted(base.rows, near)]
    return queries, [of_one[there] for of_one, there in zip(near, alive, strict=True)]


def _moved(base: Base, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return those of `rows`, ascending, whose vectors are there, and queries made of them: float32[m, dim]."""
    if base.matrix is not None:
        vectors = base.matrix[np.searchsorted(base.rows, rows)]
    else:
        rows, vectors = base.fetch(rows)
        vectors = unit(vectors)
    noise = [np.random.default_rng([_SEED, row]).standard_normal(vectors.shape[1], np.float32) for row in rows]
    return rows, unit(vectors + np.float32(_NOISE) * unit(np.array(noise, np.float32).reshape(vectors.shape)))


def _recall(base: Base, queries: NDArray[np.float32], truth: list[NDArray[np.int64]]) -> float:
    """Return the share of the true neighbours that are found."""
    pairs = zip(queries, truth, strict=True)
    found = sum(int(np.isin(near, base.search(query, _K, None).rows).sum()) for query, near in pairs)
    wanted = sum(near.size for near in truth)
    return found / wanted if wanted else 1.0


def _neighbours(
    queries: NDArray[np.float32], units: Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]
) -> NDArray[np.int64]:
    """Return the rows of the `_K` nearest of each query, in any order: int64[m, n], n at most `_K`."""
    rows = np.empty((len(queries), 0), np.int64)
    scores = np.empty((len(queries), 0), np.float32)
    if not len(queries):  # their vectors have gone from the store since the base was built
        return rows
    for more_rows, vectors in units:
        rows = np.concatenate([rows, np.broadcast_to(more_rows, (len(queries), len(more_rows)))], axis=1)
        scores = np.concatenate([scores, (vectors @ queries.T).T], axis=1)
        if scores.shape[1] > _K:
            at = np.argpartition(scores, -_K, axis=1)[:, -_K:]
            rows, scores = np.take_along_axis(rows, at, 1), np.take_along_axis(scores, at, 1)
    return rows


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
