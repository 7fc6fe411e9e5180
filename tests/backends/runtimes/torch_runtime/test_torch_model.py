"""How a batch is cut into parts for the cores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import TokenBatch

pytest.importorskip("torch")
from backends.runtimes.torch_runtime.torch_model import cut, rounded


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 100))
def test_parts_hold_every_row_once_when_a_batch_is_cut(lengths: list[int], parts: int, most: int) -> None:
    """Rows keep their order, a part fits unless it is one row, and is as long as its longest row, rounded up."""
    width = max(1, *lengths) if len(lengths) > 1 else max(1, lengths[0])
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.repeat(np.arange(len(lengths))[:, None], width, axis=1)
    found = list(cut(TokenBatch(ids, mask, mask), parts=parts, most=most, longest=28))
    assert [row for part in found for row in part.input_ids[:, 0]] == list(range(len(lengths)))
    for part in found:
        assert part.shape[0] == 1 or part.input_ids.size <= most
        needed = max(1, part.attention_mask.sum(axis=1).max())
        assert part.shape[1] == min(-(-needed // 8) * 8, max(28, *lengths, 0))


def test_lengths_are_few_when_rounded() -> None:
    """Every length up to 512 is rounded up, by less than 8, 16 or 32, to one of 24."""
    lengths = np.arange(1, 513)
    more = rounded(lengths) - lengths
    assert len(np.unique(rounded(lengths))) == 24
    assert (more >= 0).all()
    assert (more < np.where(lengths <= 64, 8, np.where(lengths <= 128, 16, 32))).all()
