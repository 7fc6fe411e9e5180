"""Which rows a filter allows, remembered for the filters used last, and the vectors nearest among them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vectorsearch.collection.index.base import DenseIndex, LexicalIndex
    from vectorsearch.collection.index.filtering.filters import Condition
    from vectorsearch.collection.index.keeper import Keeper
    from vectorsearch.collection.storage.sqlite.store import Store
    from vectorsearch.types import Candidates

_REMEMBERED_FILTERS = 32
_TRIES = 3


class AllowedRows:
    """The allowed rows of recent filters, each as of one state of the lexical index."""

    def __init__(self, store: Store, lexical: Keeper[LexicalIndex], dense: Keeper[DenseIndex]) -> None:
        self._store = store
        self._lexical = lexical
        self._dense = dense
        self._lock = threading.Lock()  # protects the dictionary; nothing is called while it is held
        self._rows: OrderedDict[tuple[Condition, int], NDArray[np.int64]] = OrderedDict()

    def nearest(self, vector: NDArray[np.float32], k: int, condition: Condition | None) -> Candidates:
        """Return the `k` rows nearest to `vector` float32[dim] for which the condition, if there is one, holds.

        The vectors may be of a later change than the rows: a document that was replaced between is in neither as the
        other knows it. Then both are asked again, unless others write so fast that it is no use, which is said.
        """
        if condition is None:
            return self._dense.current().search(vector, k)
        for _ in range(_TRIES):
            index = self._lexical.current()
            seq, allowed = index.seq, self.of(index, condition)
            later = self._dense.current()
            found = later.search(vector, k, allowed)
            if later.seq == seq:
                return found
            with self._store.snapshot() as snapshot:
                if not np.isin(snapshot.deleted_after(seq), allowed).any():
                    return found
        return replace(found, changed=True)

    def of(self, index: LexicalIndex, condition: Condition) -> NDArray[np.int64]:
        """Return the live rows for which the condition holds, int64[n] ascending."""
        key = (condition, index.seq)
        with self._lock:
            if key in self._rows:
                self._rows.move_to_end(key)
                return self._rows[key]
        # The index may have moved on since `seq` was read; its rows are then newer than asked for, never older.
        found = index.rows_where(condition)
        with self._lock:
            self._rows[key] = found
            while len(self._rows) > _REMEMBERED_FILTERS:
                self._rows.popitem(last=False)
        return found
