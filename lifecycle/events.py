"""What the manager tells its hooks: one frozen type per thing that happens. Bytes are charged bytes.

Hooks run on a thread of their own, in the order in which things happened: a slow one delays only the other hooks
(and may lose events, which are then counted), and one that raises is logged and harms nobody.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle.config import InstanceKey
    from lifecycle.snapshot import Stall

_log = logging.getLogger(__name__)
_MOST_PENDING = 10_000  # events kept for hooks that are too slow; later ones are dropped, and counted


@dataclass(frozen=True, slots=True)
class Event:
    """Say which instance something happened to. `generation` is 0 where it was none; `key` may be empty then."""

    key: InstanceKey
    generation: int


@dataclass(frozen=True, slots=True)
class ModelReady(Event):
    """A model is loaded and warm, after `load_s`. `eager`: no caller asked for it, but eager at start or a prefetch."""

    nbytes: int
    load_s: float
    eager: bool


@dataclass(frozen=True, slots=True)
class ModelEvicted(Event):
    """An idle model, or one at its last lease, was told to leave for another's sake."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class ModelExpired(Event):
    """An idle model's time to live was over."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class ModelReplaced(Event):
    """New leases of a ref go to this instance from now on, and no more to that of `old_key`."""

    old_key: InstanceKey


@dataclass(frozen=True, slots=True)
class ModelUnloaded(Event):
    """A model's `close()` has returned: its bytes are free."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class ResidueLeft(Event):
    """A model's `close()` has returned, and its runtime has kept these bytes of what the load had taken."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class LoadFailure(Event):
    """A load or a warm-up raised or was too long; nothing is tried for `retry_after_s`."""

    error: BaseException
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class ModelQuarantined(Event):
    """ALARM: a load, drain or unload passed its deadline, or an unload raised: these bytes stay charged."""

    nbytes: int
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class DeficitOpened(Event):
    """A model measured more than it had reserved, and the ledger is `deficit_nbytes` over the budget."""

    deficit_nbytes: int


@dataclass(frozen=True, slots=True)
class Overpromised(Event):
    """Guarantees and pins together are more than the budget: not all of them can be kept. `key` is empty."""

    promised_nbytes: int
    budget_nbytes: int


@dataclass(frozen=True, slots=True)
class AdmissionExhausted(Event):
    """A caller was refused with `BudgetExhausted`. `key` is the first of the models that it asked for."""

    needed_nbytes: int


@dataclass(frozen=True, slots=True)
class FellBack(Event):
    """A call went from this instance's backend to that of `to_key`.

    `error` is what it had met here, None if it was not even tried since the backend's breaker is open.
    """

    to_key: InstanceKey
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Stalled(Event):
    """ALARM: somebody waits and nothing has moved for long; told by a `Watchdog`, even if the manager hangs."""

    stall: Stall


@dataclass(frozen=True, slots=True)
class LeaseLeaked(Event):
    """A lease was garbage-collected while open. `where` is the file and line that took it."""

    where: str


class Notifier:
    """Deliver events to hooks, in order, on one thread that starts with the first hook."""

    def __init__(self) -> None:
        self.renew()
        self._closed = False
        self.dropped = 0

    def renew(self) -> None:
        """Begin without hooks and without a thread: at first, and in a forked child."""
        # Protects everything here; taken last of all locks, never held while a hook runs.
        self._changed = threading.Condition()
        self._hooks: tuple[Callable[[Event], None], ...] = ()
        self._pending: deque[Event] = deque()
        self._thread: threading.Thread | None = None

    def subscribe(self, hook: Callable[[Event], None]) -> None:
        """Call `hook` with every event from now on.

        Raises:
            InvalidInput: it can't be called.
        """
        if not callable(hook):
            raise InvalidInput(f"hook is {hook!r}: give a function of one event")
        with self._changed:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._deliver, name="lifecycle-events", daemon=True)
                thread.start()
                self._thread = thread  # once it runs: one that could not be started can't be joined
            self._hooks = (*self._hooks, hook)

    def publish(self, event: Event) -> None:
        """Queue an event for the hooks; never waits for one."""
        with self._changed:
            if self._thread is not None and not self._closed:
                if len(self._pending) < _MOST_PENDING:
                    self._pending.append(event)
                    self._changed.notify()
                else:
                    self.dropped += 1

    def close(self, timeout_s: float) -> None:
        """Deliver what is queued, then stop; give up on a hook that takes longer than `timeout_s`."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(min(timeout_s, threading.TIMEOUT_MAX))

    def _deliver(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._closed:
                    self._changed.wait()
                if not self._pending:
                    return
                event, hooks = self._pending.popleft(), self._hooks
            for hook in hooks:
                try:
                    hook(event)
                except BaseException:  # noqa: BLE001 - a hook is foreign code: not even its sys.exit() may stop the others
                    with suppress(BaseException):  # what it has raised, or a log's handler, is foreign too
                        _log.exception("lifecycle hook %r failed on %r", hook, event)
            del event, hooks, hook  # while the thread sleeps, its frame keeps nobody alive
