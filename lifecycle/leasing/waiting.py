"""`Wait`: one caller's wait for its lease, from the request to the answer; threads and coroutines wait by it alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.config import check_seconds
from lifecycle.errors import LeaseTimeout, LifecycleError
from lifecycle.keeping import report
from lifecycle.keeping.mailbox import LOOK_S
from lifecycle.leasing.ticket import Ticket

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from lifecycle.keeping.keeper import Keeper
    from lifecycle.leasing.lease import LeaseBase

_MOST_LATE_LOOKS = 5  # once the time is up; then whoever waits goes without an answer


class Wait:
    """Ask the keeper for a lease. `done` is set, on the keeper's thread, when there is an answer.

    Whoever waits calls `begin`, sleeps on `done` for `nap_s()` at a time until it is set, and calls `settle`; or, if it
    can wait no longer, `withdraw`.

    Raises:
        InvalidInput: the lease's `timeout_s` is negative or not finite.
        ModelNotRegistered: one of its names is not known.
    """

    def __init__(self, keeper: Keeper, clock: Callable[[], float], lease: LeaseBase, done: threading.Event) -> None:
        lease.timeout_s = check_seconds("timeout_s", lease.timeout_s)
        self._keeper = keeper
        self._clock = clock
        self._ticket = Ticket(lease, done, keys=lease.keys, holds=lease.holds)
        self._since = clock()
        self._deadline = self._since + lease.timeout_s
        self._late_looks = 0

    @property
    def number(self) -> int:
        """Return the number of the request; 0 until the keeper has seen it."""
        return self._ticket.number

    def begin(self) -> None:
        """Send the request."""
        self._keeper.post(self._ask)

    def _ask(self) -> None:
        try:
            self._keeper.admit(self._ticket, self._deadline)
        except BaseException as defect:  # it may not be in the queue, so nothing else would ever end its wait
            self._ticket.refusal = defect
            self._ticket.done.set()
            if not isinstance(defect, LifecycleError):  # a name that was forgotten meanwhile is no defect
                raise

    def nap_s(self) -> float:
        """Return how long to sleep before looking again; once the time is up, let the keeper notice.

        Raises:
            LeaseTimeout: the time is up, and the keeper says nothing.
        """
        self._keeper.revive()
        left = self._deadline - self._clock()
        if left > 0:
            return min(left, LOOK_S)
        if self._late_looks == _MOST_LATE_LOOKS:
            lease = self._ticket.lease
            names = " + ".join(f"'{ref}'" for ref in lease.refs)
            raise LeaseTimeout(names, timeout_s=lease.timeout_s, waited_for="answer", holders=())
        self._late_looks += 1
        self._keeper.send(self._keeper.tick)
        return LOOK_S

    def withdraw(self) -> None:
        """Give the request up, and return whatever it may have been given; waits for nothing, takes no lock."""
        self._keeper.send(lambda: self._keeper.cancel(self._ticket))

    def settle(self) -> None:
        """Raise the refusal, or note on the lease how long it waited.

        Raises:
            BudgetExhausted, LeaseTimeout, LoadFailed, ManagerClosed: the request was refused.
        """
        lease = self._ticket.lease
        lease.wait_s = self._clock() - self._since
        match self._ticket.refusal:
            case BaseException() as defect:
                raise defect
            case (why, state):
                raise report.refusal(self._keeper, lease, why, state)
        for handle in lease.handles:
            if lease.cold:
                handle.misses += 1
            else:
                handle.hits += 1
