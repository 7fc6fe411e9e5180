"""Cosine arithmetic that every dense index shares, so that one vector has one score wherever it is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.collection.index.base import best, no_candidates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vectorsearch.types import Candidates

# float32 sums of a few hundred products differ by less than this between two orders of summation.
_ROUNDING = np.float32(2e-6)
_MOST_TIED = 4096
_GATHERED_SHARE = 0.25  # below it, copying the wanted vectors together costs less than multiplying all of them
_FEW = 256  # so many are scored exactly at once, without a rough choice first


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a copy of float32[..., dim] with each vector of length 1; a zero vector stays zero."""
    # Scaled first: the square of a component near float32's limits would overflow or vanish.
    largest = np.max(np.abs(vectors), axis=-1, keepdims=True, initial=0)
    scaled: NDArray[np.float32] = np.divide(vectors, np.where(largest > 0, largest, 1), dtype=np.float32)
    norms = np.linalg.norm(scaled, axis=-1, keepdims=True)
    scaled /= np.where(norms > 0, norms, 1)
    return scaled


def cosines(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine of each unit vector of `matrix` float32[n, dim] with `vector` float32[dim], in [-1, 1].

    Summed in float64, row by row, so that a score doesn't depend on the vector's neighbours in memory.
    """
    products = matrix.astype(np.float64)
    products *= vector
    scores: NDArray[np.float32] = products.sum(axis=1).clip(-1.0, 1.0).astype(np.float32)
    return scores


def nearest(
    matrix: NDArray[np.float32],
    rows: NDArray[np.int64],
    vector: NDArray[np.float32],
    k: int,
    at: NDArray[np.int64] | None = None,
) -> Candidates:
    """Return the `k` of the unit vectors `matrix` float32[n, dim] that are nearest to the unit vector `vector`.

    `rows` int64[n], ascending, names them; `at` int64[m], ascending, limits the search to these positions.
    """
    at = np.arange(len(rows)) if at is None else at
    if not at.size or k <= 0:
        return no_candidates()
    if at.size > _FEW:
        few = at.size < _GATHERED_SHARE * len(rows)
        at = at[_near_best(_products(matrix[at], vector) if few else _products(matrix, vector)[at], k)]
    return best(rows[at], cosines(matrix[at], vector), k)


def positions_of(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where in `rows` int64[n] ascending the `wanted` int64[m] ascending are, leaving out those that aren't."""
    at = np.searchsorted(rows, wanted)
    inside = at < len(rows)
    at, wanted = at[inside], wanted[inside]
    present: NDArray[np.int64] = at[rows[at] == wanted]
    return present


def _products(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the inner products float32[n] of `matrix` float32[n, dim] with `vector` float32[dim], rounded somehow.

    Not by BLAS: its threads wait for one another, which costs 10 to 20 ms where others keep the cores busy.
    """
    import faiss  # noqa: PLC0415 -- loaded by the first search, not by opening

    matrix, vector = np.ascontiguousarray(matrix), np.ascontiguousarray(vector)
    products = np.empty(len(matrix), dtype=np.float32)
    faiss.fvec_inner_products_ny(*map(faiss.swig_ptr, (products, vector, matrix)), len(vector), len(matrix))  # type: ignore[attr-defined]  # stubs lack it
    return products


def _near_best(rough: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return the positions, ascending, of all that may be among the `k` best once rounding is taken out."""
    if k >= rough.size:
        return np.arange(rough.size)
    kth = np.partition(rough, rough.size - k)[rough.size - k]
    chosen = np.flatnonzero(rough >= kth - _ROUNDING)
    limit = max(_MOST_TIED, 4 * k)
    if chosen.size > limit:  # as when all vectors are equal: among ties the first rows win anyway
        surely = rough[chosen] > kth + _ROUNDING
        chosen = np.union1d(chosen[surely], chosen[~surely][:limit])
    return chosen
