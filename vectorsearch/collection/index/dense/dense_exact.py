"""Exact search in NumPy: the oracle of the contract suite, and the recent tail of the FAISS index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from vectorsearch.collection.index.base import no_candidates
from vectorsearch.collection.index.dense.cosine import nearest, positions_of, unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vectorsearch.collection.index.base import Advance
    from vectorsearch.collection.storage.sqlite.snapshot import Snapshot
    from vectorsearch.types import Candidates

_FIRST_CAPACITY = 256
_DEAD_SHARE = 0.3  # above it the buffer is packed: memory matters, and each search multiplies the dead as well


@dataclass(frozen=True, slots=True)
class RowVectors:
    """Unit vectors by row, each alive or dead: what a reader holds, never changed in place.

    `matrix` float32[n, dim] unit vectors, `rows` int64[n] ascending, `alive` bool[n].
    """

    matrix: NDArray[np.float32]
    rows: NDArray[np.int64]
    alive: NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all three arrays."""
        return self.matrix.nbytes + self.rows.nbytes + self.alive.nbytes

    @property
    def n_live(self) -> int:
        """Return how many vectors a search can find."""
        return int(self.alive.sum())

    def without(self, gone: NDArray[np.int64]) -> Self:
        """Return the same with the rows `gone` int64[m] ascending dead; rows that aren't here are ignored."""
        at = positions_of(self.rows, gone)
        if not at.size:
            return self
        alive = self.alive.copy()
        alive[at] = False
        return replace(self, alive=alive)

    def search(self, vector: NDArray[np.float32], k: int, allowed: NDArray[np.int64] | None) -> Candidates:
        """Return the `k` live, allowed rows nearest to the unit vector `vector`."""
        if allowed is None:
            return nearest(self.matrix, self.rows, vector, k, np.flatnonzero(self.alive))
        at = positions_of(self.rows, allowed)
        return nearest(self.matrix, self.rows, vector, k, at[self.alive[at]])


class VectorBuffer:
    """Unit vectors by row in arrays that are doubled when full; what is there is never moved under a reader."""

    def __init__(self, dim: int, capacity: int = _FIRST_CAPACITY) -> None:
        self._matrix = np.empty((capacity, dim), dtype=np.float32)
        self._rows = np.empty(capacity, dtype=np.int64)
        self._n = 0

    def append(self, tail: RowVectors | None, rows: NDArray[np.int64], units: NDArray[np.float32]) -> RowVectors:
        """Return `tail`, the last one returned, with unit vectors float32[m, dim] added behind it."""
        end = self._n + len(rows)
        if end > len(self._rows):
            self._grow(max(end, 2 * len(self._rows)))
        self._matrix[self._n : end], self._rows[self._n : end] = units, rows
        self._n = end
        new = np.ones(len(rows), dtype=bool)
        alive = new if tail is None else np.concatenate([tail.alive, new])
        return RowVectors(self._matrix[:end], self._rows[:end], alive)

    def _grow(self, capacity: int) -> None:
        matrix = np.empty((capacity, self._matrix.shape[1]), dtype=np.float32)
        rows = np.empty(capacity, dtype=np.int64)
        matrix[: self._n], rows[: self._n] = self._matrix[: self._n], self._rows[: self._n]
        self._matrix, self._rows = matrix, rows


class TailWriter:
    """The writing side of a tail: one thread at a time appends and removes; `tail` is what readers may take."""

    def __init__(self) -> None:
        self._buffer: VectorBuffer | None = None
        self.tail: RowVectors | None = None

    def append(self, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Add vectors float32[m, dim], normalised in a copy."""
        if self._buffer is None:
            self._buffer = VectorBuffer(vectors.shape[1])
        self.tail = self._buffer.append(self.tail, rows, unit(vectors))

    def remove(self, rows: NDArray[np.int64]) -> None:
        """Make rows int64[m], ascending, dead; pack the buffer when too many are."""
        if self.tail is None:
            return
        tail = self.tail = self.tail.without(rows)
        if len(tail.rows) - tail.n_live > max(_FIRST_CAPACITY, _DEAD_SHARE * len(tail.rows)):
            self._buffer = VectorBuffer(tail.matrix.shape[1], max(_FIRST_CAPACITY, tail.n_live))
            self.tail = self._buffer.append(None, tail.rows[tail.alive], tail.matrix[tail.alive])


class ExactIndex:
    """Every vector in memory, every search over all of them."""

    def __init__(self) -> None:
        self._writer = TailWriter()
        # Swapped whole: a reader takes one reference and sees one moment.
        self._state: tuple[int, RowVectors | None] = (0, None)

    @property
    def seq(self) -> int:
        """Return the last change of the store that a search sees."""
        return self._state[0]

    def catch_up(self, snapshot: Snapshot, advance: Advance, *, build: bool = True) -> None:  # noqa: ARG002 -- the protocol's argument
        """Apply every change after `seq`."""
        if self.seq < snapshot.vectors_floor:
            self.close()
        self._writer.remove(snapshot.deleted_after(self.seq))
        for rows, vectors in snapshot.vectors(self.seq):
            self._writer.append(rows, vectors)
            advance(len(rows))
        self._state = (snapshot.seq, self._writer.tail)

    def search(self, vector: NDArray[np.float32], k: int, allowed: NDArray[np.int64] | None = None) -> Candidates:
        """Return the `k` live rows nearest to `vector`."""
        _, tail = self._state
        return no_candidates() if tail is None else tail.search(unit(vector), k, allowed)

    def rows(self) -> NDArray[np.int64]:
        """Return the live rows, ascending."""
        _, tail = self._state
        return np.empty(0, np.int64) if tail is None else tail.rows[tail.alive]

    def kept(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:  # noqa: ARG002 -- the protocol's argument
        """Return none: all come from the store."""
        return {}

    @property
    def keeps_files(self) -> bool:
        """Return False: the store has everything."""
        return False

    def save(self, *, durable: bool) -> None:
        """Do nothing: the store's own vectors are read on opening."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of the vectors."""
        _, tail = self._state
        return tail.nbytes if tail else 0

    def info(self) -> dict[str, object]:
        """Return counts."""
        _, tail = self._state
        return {"kind": "exact", "vectors": tail.n_live if tail else 0}

    def close(self) -> None:
        """Let go of the vectors."""
        self._writer = TailWriter()
        self._state = (0, None)
