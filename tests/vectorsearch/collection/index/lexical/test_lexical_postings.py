"""Sums of scores by row."""

from __future__ import annotations

import numpy as np
import pytest

from vectorsearch.collection.index.lexical.lexical_postings import _summed


@pytest.mark.parametrize("largest", [100, 10**6, 10**12])
@pytest.mark.parametrize("n", [0, 1, 50, 5000])
def test_every_row_has_the_sum_of_its_parts_when_rows_are_near_or_far_apart(largest: int, n: int) -> None:
    """F9: adding in place and by sorting give the same rows, ascending, and the same sums."""
    rng = np.random.default_rng(n)
    rows, parts = rng.integers(1, largest, n), rng.random(n) + 0.01
    wanted, inverse = np.unique(rows, return_inverse=True)
    found, sums = _summed(rows, parts)
    assert found.tolist() == wanted.tolist()
    assert sums.tolist() == pytest.approx(np.bincount(inverse, parts, len(wanted)).tolist())
