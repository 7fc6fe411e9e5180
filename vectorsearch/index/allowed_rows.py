"""Which rows a filter allows, remembered for the filters used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vectorsearch.index.base import LexicalIndex
    from vectorsearch.index.filters import Condition

_REMEMBERED_FILTERS = 32


class AllowedRows:
    """The allowed rows of recent filters, each as of one state of the lexical index."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects the dictionary; nothing is called while it is held
        self._rows: OrderedDict[tuple[Condition, int], NDArray[np.int64]] = OrderedDict()

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
