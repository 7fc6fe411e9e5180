"""Cut token rows into rectangular batches: sorted by length, filled by token budget. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends.base import TokenBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.text.tokenizer import TokenRows

# Measured (README.md): on two cores 512 to 1,024 tokens a batch are the fastest at any length; larger batches fall out
# of the processor's cache. Of equals the smaller: half the workspace, and int8 graphs, which take one range for the
# whole batch, come closer to the scores that each text has alone.
TOKEN_BUDGET = 512


@dataclass(frozen=True, slots=True)
class Batching:
    """What batches a model wants. It may say so with a property `batching`; other models get the default.

    `token_budget` is the tokens of a batch, padding included. `lengths`, rising, are those that the model pads its rows
    to (none: it takes any). `streams` is how many batches it runs at once.
    """

    token_budget: int = TOKEN_BUDGET
    lengths: tuple[int, ...] = ()
    streams: int = 1

    def padded(self, length: int) -> int:
        """Return the length that rows of this length are padded to: their own if there is no greater."""
        return next((longer for longer in self.lengths if longer >= length), length)

    def rows(self, length: int) -> int:
        """Return how many rows of this length make a batch, at least one."""
        return max(1, self.token_budget // max(1, self.padded(length)))


def batches(
    lengths: NDArray[np.intp], *, token_budget: int = TOKEN_BUDGET, padded_to: tuple[int, ...] = ()
) -> Iterator[NDArray[np.intp]]:
    """Yield row numbers, batch by batch, every row once, the longest rows first.

    A batch times its longest row, padded to one of the lengths `padded_to`, fits the budget, except that a row longer
    than the budget is a batch of its own. Longest first: the largest workspace is taken at once, so memory doesn't
    creep, and a lack of it shows early. Rows of equal length keep their order, so equal input gives equal batches.
    """
    order = np.argsort(-lengths, kind="stable")
    wishes = Batching(token_budget, padded_to)
    start = 0
    while start < len(order):
        rows = wishes.rows(int(lengths[order[start]]))
        yield order[start : start + rows]
        start += rows


def collate(rows: TokenRows, indices: NDArray[np.intp]) -> TokenBatch:
    """Return these rows as one batch, padded on the right to the longest of them and no further.

    Rounding the length up was measured and rejected: the padding costs time, and int8 graphs that quantise over
    the whole batch would see it.
    """
    length = max(len(rows.input_ids[i]) for i in indices)
    shape = (len(indices), length)
    input_ids = np.full(shape, rows.pad_id, np.int64)
    attention_mask = np.zeros(shape, np.int64)
    token_type_ids = np.zeros(shape, np.int64)
    for row, index in enumerate(indices):
        n = len(rows.input_ids[index])
        input_ids[row, :n] = rows.input_ids[index]
        attention_mask[row, :n] = 1
        token_type_ids[row, :n] = rows.token_type_ids[index]
    return TokenBatch(input_ids, attention_mask, token_type_ids, rows.pad_id, rows.prompt)
