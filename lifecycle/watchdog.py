"""`Watchdog`: notices callers that wait while nothing moves, and says who waits for what and who holds it.

A single wait has a deadline, so it ends; but callers who come, wait in vain and come again, or a keeper that is stuck
in somebody's logging handler, are seen by nobody. The watchdog only reads, and its clock is the manager's.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import fields
from typing import TYPE_CHECKING

from lifecycle.config import InstanceKey, check_seconds
from lifecycle.events import Stalled
from lifecycle.keeping.mailbox import LONGEST_TIMER_S
from lifecycle.snapshot import Counters, Stall

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType
    from typing import Self

    from lifecycle.manager import ModelManager

_log = logging.getLogger(__name__)
_CHECKS_PER_STALL = 4
_NO_PROGRESS = {"budget_exhausted", "leaked_leases", "dropped_events", "peak_references"}


class Watchdog:
    """Report once per stall, to the log, to the hooks and to `report`: no progress for `stall_s` while somebody waits.

    Progress is a load, an unload, a failure, a change of charge, or a lease given to somebody who waited; a caller that
    gives up, or comes, is none. Used as a context manager it checks by itself, on a thread of its own; without that,
    call `check`.

    Raises:
        InvalidInput: `stall_s` is not positive.
    """

    def __init__(
        self, manager: ModelManager, *, stall_s: float = 60.0, report: Callable[[Stall], object] | None = None
    ) -> None:
        self._manager = manager
        self._stall_s = check_seconds("stall_s", stall_s, positive=True)
        self._report = report
        self._moved_at = 0.0
        self._seen: Hashable = None
        self._waiting_since: float | None = None
        self._asked_at: float | None = None  # an unanswered ping
        self._is_told = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._look(manager.clock())

    def check(self) -> Stall | None:
        """Look once, and return the stall if there is one now; it is reported if it wasn't before."""
        now = self._manager.clock()
        asked_at = self._asked_at
        silent_s = 0.0 if asked_at is None else now - asked_at
        if asked_at is None:
            self._asked_at = now
            try:
                self._manager.ping(self._answer)
            except BaseException:  # nobody was asked, so no answer is missing
                self._asked_at = None
                raise
        stalled_s = self._look(now)
        if max(stalled_s, silent_s) < self._stall_s:
            self._is_told = False
            return None
        is_silent = silent_s >= self._stall_s
        stall = Stall(silent_s if is_silent else stalled_s, self._manager.waiting(), self._manager.holders(), is_silent)
        if not self._is_told:
            self._is_told = True
            self._tell(stall)
        return stall

    def _look(self, now: float) -> float:
        """Return for how long somebody has been waiting with nothing moving."""
        snapshot = self._manager.snapshot()
        counts = tuple(getattr(snapshot.counters, f.name) for f in fields(Counters) if f.name not in _NO_PROGRESS)
        seen = (counts, tuple((model.key, model.charged_nbytes) for model in snapshot.models if model.charged_nbytes))
        if seen != self._seen:
            self._seen = seen
            self._moved_at = now
        waiting = self._manager.waiting()
        if not waiting:
            self._waiting_since = None
            return 0.0
        if self._waiting_since is None:
            self._waiting_since = now - max(waiter.waited_s for waiter in waiting)
        return now - max(self._moved_at, self._waiting_since)

    def _answer(self) -> None:
        self._asked_at = None

    def _tell(self, stall: Stall) -> None:
        extra = {"event": "Stall", "stalled_s": stall.stalled_s, "waiters": stall.waiters, "holders": stall.holders}
        _log.error("%s", stall, extra=extra)
        self._manager.announce(Stalled(InstanceKey("", ""), 0, stall))
        if self._report is not None:
            self._report(stall)

    def __enter__(self) -> Self:
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="lifecycle-watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(min(self._stall_s / _CHECKS_PER_STALL, LONGEST_TIMER_S)):
            try:
                self.check()
            except BaseException:  # noqa: BLE001 - `report` is the caller's code: what it raises must not end the watch
                _log.exception("lifecycle watchdog could not report")
