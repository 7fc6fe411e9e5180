"""Batches run on streams while the next chunk is tokenised; order, errors and what is cut survive."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from backends.errors import InferenceError, TransientBackendError
from backends.running.batching import Batching
from backends.running.pipeline import joined, overlapped
from backends.text.tokenizer import TokenRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.base import TokenBatch

BATCHING = Batching(16, (4, 8), streams=2)


def rows_of(*numbers: int) -> TokenRows:
    """Return one row per number: the number, repeated so that lengths differ; multiples of three are truncated."""
    ids = [[number] * (1 + number % 7) for number in numbers]
    return TokenRows(ids, [[0] * len(row) for row in ids], np.array([number % 3 == 0 for number in numbers]))


def first_id(batch: TokenBatch) -> NDArray[np.float32]:
    """Return each row's number: float32[n, 1]."""
    return batch.input_ids[:, :1].astype(np.float32)


def test_answers_are_in_order_when_there_are_several_chunks() -> None:
    """Rows of all chunks come back in their own order, whichever stream ran them, with what was truncated."""
    chunks = [rows_of(*range(start, start + 50)) for start in (0, 50, 100)]
    answers, truncated = overlapped(iter(chunks), first_id, batching=BATCHING)
    assert answers[:, 0].tolist() == list(range(150))
    assert np.flatnonzero(truncated).tolist() == list(range(0, 150, 3))


def test_next_chunk_is_tokenised_when_the_first_is_still_running() -> None:
    """A run that waits until the next chunk was asked for gets its wish: tokenising overlaps with computing."""
    asked = threading.Event()

    def chunks() -> Iterator[TokenRows]:
        yield rows_of(1, 2, 3)
        asked.set()
        yield rows_of(4, 5)

    def run(batch: TokenBatch) -> NDArray[np.float32]:
        assert asked.wait(600)
        return first_id(batch)

    answers, _ = overlapped(chunks(), run, batching=BATCHING)
    assert answers[:, 0].tolist() == [1, 2, 3, 4, 5]


def test_two_batches_run_at_once_when_there_are_two_streams() -> None:
    """Each of two batches waits for the other to have begun."""
    both = threading.Barrier(2, timeout=600)

    def run(batch: TokenBatch) -> NDArray[np.float32]:
        both.wait()
        return first_id(batch)

    overlapped(iter([rows_of(6, 6, 6, 6)]), run, batching=Batching(14, streams=2))


def test_error_names_the_texts_when_a_later_chunk_fails() -> None:
    """The number of a text counts from the first chunk's, and the kind of the error is kept."""

    def run(batch: TokenBatch) -> NDArray[np.float32]:
        if 11 in batch.input_ids:
            raise TransientBackendError("no memory")
        return first_id(batch)

    with pytest.raises(TransientBackendError, match=r"no memory \(the batch's rows are the texts \[4\]\)"):
        overlapped(iter([rows_of(7, 7, 7), rows_of(7, 11)]), run, batching=Batching(1, streams=2))


def test_nothing_more_is_run_when_one_batch_has_failed() -> None:
    """After an error the batches that wait are dropped, and later chunks are never asked for."""
    runs: list[int] = []

    def chunks() -> Iterator[TokenRows]:
        yield rows_of(*[7] * 1000)
        yield rows_of(*[7] * 1000)
        raise AssertionError("a third chunk was asked for")

    def run(batch: TokenBatch) -> NDArray[np.float32]:
        runs.append(len(batch.input_ids))
        raise InferenceError("broken")

    with pytest.raises(InferenceError, match="broken"):
        overlapped(chunks(), run, batching=Batching(1, streams=1))
    assert len(runs) < 2000


def test_chunks_are_one_when_joined() -> None:
    """Joined rows are those of all chunks, one after the other."""
    rows = joined([rows_of(1, 2), rows_of(3)])
    assert [ids[0] for ids in rows.input_ids] == [1, 2, 3]
    assert rows.truncated.tolist() == [False, False, True]
    assert rows.lengths.tolist() == [2, 3, 4]
