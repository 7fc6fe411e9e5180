"""Many texts at once: batches run on the model's streams while the caller's thread tokenises the next chunk."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InferenceError
from backends.running.batching import batches, collate
from backends.text.tokenizer import TokenRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from backends.base import TokenBatch
    from backends.running.batching import Batching

    Answers = NDArray[np.float32]
    Pending = list[tuple[NDArray[np.intp], Future[Answers]]]

CHUNK = 1024  # texts that are sorted by length together; while one chunk runs, the next is tokenised


def overlapped(
    chunks: Iterable[TokenRows], run: Callable[[TokenBatch], Answers], *, batching: Batching
) -> tuple[Answers, NDArray[np.bool_]]:
    """Return the answers to all rows, in their order, and which were truncated; there is at least one row.

    `run` is called in `batching.streams` threads. Whatever it or the chunks raise is raised here, once the batches that
    are under way have ended; the others are never begun.
    """
    parts: list[Answers] = []
    truncated: list[NDArray[np.bool_]] = []
    waiting: deque[Pending] = deque()
    first = 0
    with ThreadPoolExecutor(batching.streams, thread_name_prefix="backends-stream") as pool:
        try:
            for rows in chunks:
                truncated.append(rows.truncated)
                planned = batches(rows.lengths, token_budget=batching.token_budget, padded_to=batching.lengths)
                waiting.append([(indices, pool.submit(answered, run, rows, indices, first)) for indices in planned])
                first += len(rows.truncated)
                if len(waiting) > 1:
                    parts.append(_gathered(waiting.popleft()))
            parts += [_gathered(pending) for pending in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return np.concatenate(parts), np.concatenate(truncated)


def answered(
    run: Callable[[TokenBatch], Answers], rows: TokenRows, indices: NDArray[np.intp], first: int = 0
) -> Answers:
    """Return the answers to the rows of these numbers; `first` is the number of the text in row 0.

    Raises:
        InferenceError: as `run`, with the numbers of the batch's texts.
    """
    try:
        return run(collate(rows, indices))
    except InferenceError as exc:
        raise type(exc)(f"{exc} (the batch's rows are the texts {(indices + first).tolist()})") from exc


def joined(chunks: Iterable[TokenRows]) -> TokenRows:
    """Return all chunks as one; there is at least one."""
    first, *others = chunks
    if not others:
        return first
    every = (first, *others)
    return TokenRows(
        [ids for rows in every for ids in rows.input_ids],
        [types for rows in every for types in rows.token_type_ids],
        np.concatenate([rows.truncated for rows in every]),
        first.pad_id,
        first.prompt,
    )


def _gathered(pending: Pending) -> Answers:
    first = pending[0][1].result()
    answers = np.empty((sum(len(indices) for indices, _ in pending), *first.shape[1:]), np.float32)
    for indices, future in pending:
        answers[indices] = future.result()
    return answers
