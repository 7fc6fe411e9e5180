"""Work beside the caller's own: a thread for each piece, which its caller may stop waiting for."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Generic, TypeVar

from backends.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.deadline import Deadline

T = TypeVar("T")


class Branch(Generic[T]):
    """One piece of work on a thread of its own."""

    def __init__(self, owner: Branches, future: Future[T]) -> None:
        self._owner = owner
        self._future = future

    def result(self, deadline: Deadline | None) -> T:
        """Return what the work returned, or raise what it raised; stop waiting when the deadline has passed.

        Raises:
            DeadlineExceeded: it isn't done; it goes on by itself, and what it returns is dropped.
        """
        wait((self._future,), timeout=None if deadline is None else deadline.left_s)
        if not self._future.done():
            self._owner.abandon(self._future)
            raise DeadlineExceeded("it was not done when its time was up, and goes on by itself: give it more time")
        return self._future.result()


class Branches:
    """Start work on threads of its own. At most `most_late` pieces that nobody waits for any more may go on."""

    def __init__(self, most_late: int = 8) -> None:
        self._most_late = most_late
        self._lock = threading.Lock()  # protects the count; nothing is called while it is held
        self._late = 0

    def start(self, work: Callable[[], T]) -> Branch[T]:
        """Begin the work; where too much late work goes on already, it isn't begun, and counts as late."""
        future: Future[T] = Future()
        if self._late >= self._most_late:
            late = f"{self._late} pieces of earlier, late work still go on: give searches more time"
            future.set_exception(DeadlineExceeded(late))
            return Branch(self, future)

        def perform() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 -- it is raised where the result is asked for
                future.set_exception(error)

        threading.Thread(target=perform, name="vectorsearch-branch", daemon=True).start()
        return Branch(self, future)

    def abandon(self, future: Future[T]) -> None:
        """Count work as late until it is done."""
        self._count(1)
        future.add_done_callback(lambda _: self._count(-1))

    def _count(self, change: int) -> None:
        with self._lock:
            self._late += change
