"""The memory that all indexes of a store may take together: those used least recently are closed, and reopen on use."""

from __future__ import annotations

import itertools
import threading
from typing import Protocol

from backends.running.memory import trim


class Resident(Protocol):
    """What holds an index in memory, or could."""

    @property
    def last_use(self) -> int:
        """Return the number that `next_use` gave at the last use."""

    @property
    def nbytes(self) -> int:
        """Return the bytes that the index takes, 0 if it is closed."""

    def release(self) -> bool:
        """Close the index if that is possible without waiting, and say whether it was."""


class IndexBudget:
    """Keeps the indexes of all databases that share it within `limit_nbytes`; None is no limit.

    What an index takes is known once it is open, so the limit may be passed by the one that opens, for that moment; one
    that is larger than the limit is alone. Threads may share it.
    """

    def __init__(self, limit_nbytes: int | None = None) -> None:
        self._limit_nbytes = limit_nbytes
        # Protects the members, and lets one thread choose at a time; a member's lock is tried inside it, never awaited.
        self._lock = threading.Lock()
        self._members: set[Resident] = set()
        self._uses = itertools.count(1)

    def join(self, member: Resident) -> None:
        """Count a member's index from now on."""
        with self._lock:
            self._members.add(member)

    def leave(self, member: Resident) -> None:
        """Forget a member; a second call does nothing."""
        with self._lock:
            self._members.discard(member)

    def next_use(self) -> int:
        """Return a number that is higher than all before."""
        return next(self._uses)

    def settle(self, asking: Resident) -> None:
        """Close what is too much, but never the index of whoever asks, who must hold no lock."""
        if self._limit_nbytes is None:
            return
        with self._lock:
            before = over_nbytes = sum(member.nbytes for member in self._members) - self._limit_nbytes
            for member in sorted(self._members - {asking}, key=lambda member: member.last_use):
                nbytes = member.nbytes
                if over_nbytes > 0 and nbytes and member.release():
                    over_nbytes -= nbytes
        if over_nbytes < before:
            trim()
