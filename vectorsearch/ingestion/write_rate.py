"""Decide which backend embeds what is written: the one that answers queries, or the bulk one, which takes loading.

A bulk runtime takes seconds to load and hundreds of MiB. It pays for a corpus and not for a document: what is written
is counted as a bucket that leaks, so that one document now and then never fills it, and a run of small writes does.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.choosing.selection import Workload

# What the backend for queries embeds in about the time that a bulk one takes to load and to compile its first lengths,
# by tests/benchmarks/one_document.py: whatever is faster afterwards can't have paid before.
BULK_TOKENS = 16_384
LEAK_TOKENS_PER_S = BULK_TOKENS / 60
CHARACTERS_PER_TOKEN = 4  # of English; of other scripts there are fewer, which only delays the bulk backend


class WriteRate:
    """Counts what one database embeds for its writes. Threads may share it. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # protects the two below; a leaf
        self._tokens = 0.0
        self._seen = clock()

    def workload(self, characters: int, *, query_is_resident: bool, bulk_is_resident: bool) -> Workload:
        """Count a write of so many characters, and return what it is: `bulk` work, or no more than a `query`.

        Whichever backend is loaded already is taken for a small write, the one for queries first.
        """
        with self._lock:
            now = self._clock()
            self._tokens = max(0.0, self._tokens - (now - self._seen) * LEAK_TOKENS_PER_S)
            self._seen = now
            self._tokens += characters / CHARACTERS_PER_TOKEN
            is_much = self._tokens > BULK_TOKENS
        return "bulk" if is_much or (bulk_is_resident and not query_is_resident) else "query"
