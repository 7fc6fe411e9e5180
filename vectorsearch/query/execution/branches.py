"""Work beside the caller's own: a thread for each piece, which its caller may stop waiting for."""

from __future__ import annotations

import _thread
import threading
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Generic, TypeVar

from backends.errors import DeadlineExceeded
from backends.running.process import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backends.running.deadline import Deadline

T = TypeVar("T")


class Branch(Generic[T]):
    """One piece of work on a thread of its own."""

    def __init__(self, owner: Branches, future: Future[T], work: Callable[[], T]) -> None:
        self._owner = owner
        self._future = future
        self._work = work

    def result(self, deadline: Deadline | None) -> T:
        """Return what the work returned, or raise what it raised; stop waiting when the deadline has passed.

        Raises:
            DeadlineExceeded: it isn't done; it goes on by itself, and what it returns is dropped.
        """
        if deadline is not None:
            wait((self._future,), timeout=deadline.left_s)
            if not self._future.done():
                self._owner.abandon(self._future)
                raise DeadlineExceeded("it was not done when its time was up, and goes on by itself: give it more time")
        elif self._future.cancel():
            return self._work()  # no core was free for its thread so far: waiting for one would take longer
        return self._future.result()


class Branches:
    """Start work on threads of its own. At most `most_late` pieces that nobody waits for any more may go on.

    `cores` is how many threads can compute at once, as many as this process may use if None.
    """

    def __init__(self, most_late: int = 8, *, cores: int | None = None) -> None:
        self._most_late = most_late
        self._cores = usable_cores() if cores is None else cores
        self._lock = threading.Lock()  # protects both counts; nothing is called while it is held
        self._late = 0
        self._callers = 0

    @contextmanager
    def calling(self) -> Iterator[bool]:
        """Count a caller for the length of a `with` block; yield whether a core is left over for a branch of its work.

        Where all cores have a caller or late work, another thread makes nothing faster.
        """
        with self._lock:
            self._callers += 1
            has_core = self._callers + self._late < min(self._cores, self._most_late)
        try:
            yield has_core
        finally:
            with self._lock:
                self._callers -= 1

    def start(self, work: Callable[[], T]) -> Branch[T]:
        """Begin the work; where too much late work goes on already, it isn't begun, and counts as late."""
        future: Future[T] = Future()
        context = copy_context()  # in which a lease finds the models that are held around the search
        if self._late >= self._most_late:
            late = f"{self._late} pieces of earlier, late work still go on: give searches more time"
            future.set_exception(DeadlineExceeded(late))
            return Branch(self, future, work)

        def perform() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(context.run(work))
            except BaseException as error:  # noqa: BLE001 -- it is raised where the result is asked for
                future.set_exception(error)

        try:
            # Not by `threading`: its start() waits until the thread runs, and the caller has work of its own meanwhile.
            _thread.start_new_thread(perform, ())
        except RuntimeError:  # the system gives no more threads: a search is late rather than lost
            perform()
        return Branch(self, future, work)

    def abandon(self, future: Future[T]) -> None:
        """Count work as late until it is done."""
        self._count_late(1)
        future.add_done_callback(lambda _: self._count_late(-1))

    def _count_late(self, change: int) -> None:
        with self._lock:
            self._late += change
