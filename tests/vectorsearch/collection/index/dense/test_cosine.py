"""Cosine arithmetic."""

from __future__ import annotations

import numpy as np

from vectorsearch.collection.index.dense.cosine import cosines, nearest, positions_of, unit


def test_the_first_rows_are_nearest_when_all_vectors_are_equal() -> None:
    """Beyond some thousands of ties not all are scored again, and the first rows win all the same."""
    matrix = np.tile(unit(np.ones(4, np.float32)), (20_000, 1))
    matrix[15_000] = unit(np.array([1, 1, 1, 1.01], np.float32))
    found = nearest(matrix, np.arange(1, 20_001), matrix[15_000], 50)
    assert found.rows.tolist() == [15_001, *range(1, 50)]


def test_cosines_stay_within_one_when_vectors_are_parallel() -> None:
    """Rounding can't carry a cosine beyond 1."""
    units = unit(np.random.default_rng(0).standard_normal((500, 300)).astype(np.float32))
    for vector in units[:50]:
        scores = cosines(units, vector)
        assert scores.max() <= 1.0
        assert cosines(-units, vector).min() >= -1.0


def test_positions_are_those_of_present_rows_when_some_are_not_there() -> None:
    """Rows before, between and after the held ones are left out."""
    rows = np.array([2, 4, 9], dtype=np.int64)
    assert positions_of(rows, np.array([1, 2, 3, 9, 10], dtype=np.int64)).tolist() == [0, 2]
    assert positions_of(rows[:0], rows).tolist() == []
