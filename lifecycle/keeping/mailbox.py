"""`Mailbox`: one thread that calls what it is sent, one thing after the other, and wakes when time is due.

`SimpleQueue.put` never waits and is re-entrant, so sending waits for nothing, and a finalizer may send in the middle of
anything. An interrupt of a caller (Ctrl-C) can't hit what runs on this thread.

Nothing but its end leaves the thread's loop; still nobody trusts it to live: whoever waits looks after it now and then,
and has another one started if it has died.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lifecycle.errors import KeeperSilent

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
_SHORTEST_PAUSE_S = 0.01  # so that a TTL of nearly nothing doesn't make the thread spin
LONGEST_TIMER_S = 3600.0  # timers overflow at some 292 years; one that is due later is set again
LOOK_S = 1.0  # how often whoever waits looks whether the thread lives; a Ctrl-C before a sleep is noticed then, too
_mailboxes: weakref.WeakSet[Mailbox] = weakref.WeakSet()


class Mailbox(ABC):
    """A thread that starts when it is first needed, and ends when `is_finished`."""

    def __init__(self) -> None:
        self.renew()
        _mailboxes.add(self)

    def renew(self) -> None:
        """Begin without a thread and without mail: at first, and in a forked child, where the queue may be dead."""
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

    def call(self, function: Callable[[], Any], timeout_s: float | None = None) -> Any:  # noqa: ANN401 - whatever it is
        """Run a function on the thread, after the mail sent so far, and return or raise what it does.

        Raises:
            KeeperSilent: it was not answered within `timeout_s`, or the thread died over it.
        """
        outcome: list[Any] = []
        done = threading.Event()

        def run() -> None:
            try:
                outcome.extend((function(), None))
            except BaseException as error:  # noqa: BLE001 - it is the caller's, and raised there
                outcome.extend((None, error))
            done.set()

        self.post(run)
        self._wait(done, timeout_s)
        value, error = outcome
        if error is not None:
            raise error
        return value

    def _wait(self, done: threading.Event, timeout_s: float | None) -> None:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        passed = threading.Event()  # set by a later letter: ours was read by then, or never will be
        while not done.wait(LOOK_S if until is None else min(LOOK_S, max(0.0, until - time.monotonic()))):
            if passed.is_set() and not done.is_set():
                raise KeeperSilent("the lifecycle manager's thread died over a call, and was started again: ask again")
            if until is not None and time.monotonic() >= until:
                raise KeeperSilent(
                    f"the lifecycle manager's thread has not answered for {timeout_s:g} s: what holds it?"
                )
            self.post(passed.set)

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

    def revive(self) -> bool:
        """Start another thread if the last one has died, and tell whether it had."""
        thread = self._thread
        if thread is None or thread.is_alive() or self.is_finished:
            return False
        self.post(self.tick)
        return True

    def join_thread(self, timeout_s: float = LONGEST_TIMER_S) -> None:
        """Wait for the thread to end, if it has nothing left to do."""
        thread = self._thread
        if thread is None or thread is threading.current_thread() or not self.is_finished:
            return
        if thread.is_alive():  # or another caller is about to start it, and waits for it itself
            thread.join(min(timeout_s, LONGEST_TIMER_S))

    def _run(self) -> None:
        is_over = False
        while not is_over:
            mail: Callable[[], object] | None = None
            try:
                is_over = self._ends()
                if not is_over:
                    mail = self._next()
                    mail()
            except BaseException:  # noqa: BLE001 - what one input meets must not end the thread on which all callers wait
                complain("lifecycle keeper could not process %r", mail)
                time.sleep(_SHORTEST_PAUSE_S)
            del mail  # while the thread sleeps, its frame keeps nobody alive

    def _next(self) -> Callable[[], object]:
        try:
            pause_s = self.pause_s()
        except BaseException:  # noqa: BLE001 - as above, and there may be mail
            complain("lifecycle keeper could not tell when it must wake")
            pause_s = LOOK_S
        try:
            return self._mail.get(timeout=max(_SHORTEST_PAUSE_S, min(LONGEST_TIMER_S, pause_s)))
        except queue.Empty:
            return self.tick

    def _ends(self) -> bool:
        with self._starting:
            if threading.current_thread() is not self._thread:  # an interrupted start: another took its place
                return True
            self._is_running = not (self.is_finished and self._mail.empty())
            return not self._is_running


def complain(message: str, *about: object) -> None:
    """Log the exception that is being handled; the handlers are the program's, and what they raise is dropped."""
    with suppress(BaseException):
        _log.exception(message, *about)


def _renew_all() -> None:
    for mailbox in list(_mailboxes):
        mailbox.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
