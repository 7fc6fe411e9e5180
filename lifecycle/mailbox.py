"""`Mailbox`: one thread that calls what it is sent, one thing after the other, and wakes when time is due.

`SimpleQueue.put` never waits and is re-entrant, so sending waits for nothing, and a finalizer may send in the middle of
anything. An interrupt of a caller (Ctrl-C) can't hit what runs on this thread.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
_SHORTEST_PAUSE_S = 0.01  # so that a TTL of nearly nothing doesn't make the thread spin


class Mailbox(ABC):
    """A thread that starts when it is first needed, and ends when `is_finished`."""

    def __init__(self) -> None:
        self._mail: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_running = False
        self._starting = threading.Lock()  # protects the two above and `post`; nothing else is taken under it

    @abstractmethod
    def tick(self) -> None:
        """Let time pass."""

    @abstractmethod
    def pause_s(self) -> float:
        """Return after how long time has to pass if nothing is sent; infinity is never."""

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """Return whether nothing more can come of what the thread keeps."""

    def send(self, mail: Callable[[], object]) -> None:
        """Have something called soon; waits for nothing, takes no lock. It may be read late, or never once all is over.

        Whoever means to wait for an answer uses `post`.
        """
        self._mail.put(mail)

    def call(self, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the function returns
        """Run a function on the thread, after the mail sent so far, and return or raise what it does."""
        outcome: list[Any] = []
        done = threading.Event()

        def run() -> None:
            try:
                outcome.extend((function(), None))
            except BaseException as error:  # noqa: BLE001 - it is the caller's, and raised there
                outcome.extend((None, error))
            done.set()

        self.post(run)
        done.wait()
        value, error = outcome
        if error is not None:
            raise error
        return value

    def post(self, mail: Callable[[], object]) -> None:
        """Have something called soon for certain, by a thread that is started if there is none.

        There is none at first, after a fork, and when a closed manager is asked again.

        Raises:
            RuntimeError: this is the thread itself (a finalizer that ran here asks), and would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a lifecycle manager can't be asked on its own thread: is a finalizer asking?")
        with self._starting:
            if self._thread is None or not self._is_running or not self._thread.is_alive():
                self._is_running = True
                self._thread = threading.Thread(target=self._run, name="lifecycle-keeper", daemon=True)
                self._thread.start()
            self._mail.put(mail)  # under the lock, so that the thread doesn't end before it has read it

    def join_thread(self) -> None:
        """Wait for the thread to end, if it has nothing left to do."""
        thread = self._thread
        if thread is None or thread is threading.current_thread() or not self.is_finished:
            return
        if thread.is_alive():  # or another caller is about to start it, and waits for it itself
            thread.join()

    def _run(self) -> None:
        while not self._ends():
            pause_s = self.pause_s()
            try:
                mail = self._mail.get(timeout=None if pause_s == math.inf else max(_SHORTEST_PAUSE_S, pause_s))
            except queue.Empty:
                mail = self.tick
            try:
                mail()
            except BaseException:  # noqa: BLE001 - what one input meets must not end the thread on which all callers wait
                _log.exception("lifecycle keeper could not process %r", mail)

    def _ends(self) -> bool:
        with self._starting:
            if threading.current_thread() is not self._thread:  # an interrupted start: another took its place
                return True
            self._is_running = not (self.is_finished and self._mail.empty())
            return not self._is_running
