"""Batches: every row once, within the budget, longest first; padding on the right."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backends.running.batching import batches, collate
from backends.text.tokenizer import TokenRows


@given(st.lists(st.integers(0, 600), max_size=200), st.integers(1, 4096))
def test_every_row_comes_once_and_fits_the_budget_when_lengths_are_ragged(lengths: list[int], budget: int) -> None:
    """Each row is in exactly one batch, and a batch of several rows fits the budget at its longest row."""
    found = list(batches(np.array(lengths, np.intp), token_budget=budget))
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    for batch in found:
        assert (
            len(batch) == 1
            or len(batch) * max(lengths[i] for i in batch) <= budget
            or max(lengths[i] for i in batch) == 0
        )


def test_rows_keep_their_order_when_lengths_are_equal() -> None:
    """Equal lengths keep the caller's order, so that equal input gives equal batches."""
    assert [batch.tolist() for batch in batches(np.array([5, 5, 9, 5]), token_budget=10)] == [[2], [0, 1], [3]]


def test_no_batch_is_made_when_there_are_no_rows() -> None:
    """No rows give no batches."""
    assert list(batches(np.array([], np.intp))) == []


def test_padding_is_on_the_right_and_masked_when_rows_differ() -> None:
    """The batch is as long as its longest row; the rest is the pad id, with mask 0."""
    rows = TokenRows([[5, 6, 7], [8]], [[0, 1, 1], [0]], np.zeros(2, np.bool_), pad_id=9)
    batch = collate(rows, np.array([1, 0]))
    assert batch.shape == (2, 3)
    assert batch.input_ids.tolist() == [[8, 9, 9], [5, 6, 7]]
    assert batch.attention_mask.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch.token_type_ids.tolist() == [[0, 0, 0], [0, 1, 1]]
    assert batch.input_ids.dtype == np.int64
