"""`Overtime`: calls that nobody can stop, whose callers leave at their deadline. What they leave behind is bounded."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from backends.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.running.deadline import Deadline

T = TypeVar("T")


def _nothing() -> None:
    """Do nothing."""


class Overtime:
    """Run calls on at most `most` threads, those that go on after their callers have left included.

    A call that finds all of them taken waits, and is never begun if its deadline passes first. The threads are daemons:
    a call that hangs doesn't keep the process from ending.
    """

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()  # protects the three above; nothing is taken under it

    def run(self, work: Callable[[], T], deadline: Deadline, *, finally_do: Callable[[], object] = _nothing) -> T:
        """Return what `work` returns, or raise what it raises; leave it alone once the deadline has passed.

        `finally_do` is called exactly once: when the work has ended, or when it is certain that it won't begin.

        Raises:
            DeadlineExceeded: the time was up; the work may go on for a while.
        """
        future: Future[T] = Future()

        def perform() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                answer = work()
            except BaseException as error:  # noqa: BLE001  (it is the caller's, and raised there)
                finally_do()
                future.set_exception(error)
            else:
                finally_do()
                future.set_result(answer)

        try:
            self._hand_over(perform)
            wait((future,), timeout=deadline.left_s)
        except BaseException:
            if future.cancel():
                finally_do()
            raise
        if future.done():
            return future.result()
        if future.cancel():
            finally_do()
            raise DeadlineExceeded(f"the time was up before one of {self._most} threads was free: give it more")
        raise DeadlineExceeded("the time was up, and the call, which can't be stopped, goes on by itself: give it more")

    def close(self) -> None:
        """Let idle threads end, and the others when their call is done."""
        for _ in self._threads:
            self._calls.put(None)

    def _hand_over(self, call: Callable[[], None]) -> None:
        with self._starting:
            if self._threads and not any(thread.is_alive() for thread in self._threads):  # in a forked child
                self._calls, self._idle, self._threads = SimpleQueue(), threading.Semaphore(0), []
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                thread = threading.Thread(target=self._serve, name="backends-overtime", daemon=True)
                thread.start()
                self._threads.append(thread)
            self._calls.put(call)  # last: a call whose thread can't be started is nobody's

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # while the thread is idle, its frame keeps nobody alive
            self._idle.release()
