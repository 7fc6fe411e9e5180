"""`Alarm`: calls functions at their time, on one thread for all.

To set one costs microseconds; a `threading.Timer` would cost a thread each time, 100 us and more.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Alarm:
    """Rings are functions that return at once and raise nothing: they run on the alarm's thread."""

    def __init__(self) -> None:
        # Guards all below, and is waited on by the thread; nothing else is locked while it is held, and no ring called.
        self._changed = threading.Condition()
        self._rings: list[tuple[float, int, Callable[[], object]]] = []  # a heap by time
        self._wanted: set[int] = set()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    @contextmanager
    def set(self, after_s: float, ring: Callable[[], object]) -> Iterator[None]:
        """Call `ring` in `after_s` seconds, unless the block has been left by then."""
        due = time.monotonic() + after_s
        with self._changed:
            number = next(self._numbers)
            self._wanted.add(number)
            heapq.heappush(self._rings, (due, number, ring))
            if self._thread is None or not self._thread.is_alive():  # at first, and in a forked child
                self._thread = threading.Thread(target=self._run, name="backends-alarm", daemon=True)
                self._thread.start()
            if self._rings[0][1] == number:
                self._changed.notify()
        try:
            yield
        finally:
            self._wanted.discard(number)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._rings or self._rings[0][0] > time.monotonic():
                    self._changed.wait(self._rings[0][0] - time.monotonic() if self._rings else None)
                _, number, ring = heapq.heappop(self._rings)
            if number in self._wanted:
                ring()
            del ring  # while the thread sleeps, its frame keeps nobody alive
