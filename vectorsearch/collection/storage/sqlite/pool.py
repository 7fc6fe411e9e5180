"""Read connections, shared by threads: each is used by one at a time, so readers never wait for one another."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vectorsearch.collection.storage.errors import DatabaseClosed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

_KEPT_IDLE = 8


class ReadPool:
    """Lend connections made by `connect`, as many as are asked for at once; keep a few for the next reader."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()  # protects the two below; a leaf: nothing is called while it is held
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    @property
    def closed(self) -> bool:
        """Tell whether `close` was called."""
        return self._closed

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for the length of a `with` block; an open transaction is rolled back at its end.

        Raises:
            DatabaseClosed: after `close()`.
        """
        with self._lock:
            if self._closed:
                raise DatabaseClosed("the database is closed: open it again")
            conn = self._idle.pop() if self._idle else None
        conn = conn or self._connect()
        try:
            yield conn
        finally:
            if conn.in_transaction:
                conn.rollback()
            with self._lock:
                keep = not self._closed and len(self._idle) < _KEPT_IDLE
                if keep:
                    self._idle.append(conn)
            if not keep:
                conn.close()

    def trim(self) -> None:
        """Close the idle connections: each keeps pages that it has read, up to 2 MB."""
        with self._lock:
            idle, self._idle = self._idle, []
        for conn in idle:
            conn.close()

    def close(self) -> None:
        """Close the idle connections now and each lent one when it comes back."""
        with self._lock:
            self._closed = True
        self.trim()
