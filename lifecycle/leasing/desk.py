"""`LeaseDesk`: the part of the manager at which leases are asked for, waited for, and reported when they leak."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import TYPE_CHECKING

from backends.choosing.health import Health
from backends.errors import InvalidInput
from lifecycle import events
from lifecycle.config import check_seconds
from lifecycle.leasing.lease import KeptLease, Leak, Lease, LeaseBase, LeaseSet
from lifecycle.leasing.waiting import Wait
from lifecycle.registering.names import Names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lifecycle.chains.witness import Witness
    from lifecycle.config import InstanceKey, ModelRef
    from lifecycle.keeping.keeper import Keeper

_log = logging.getLogger(__name__)


class LeaseDesk:
    """Hand out leases on what a keeper keeps. `ModelManager` is one, with the orders added."""

    def __init__(self, keeper: Keeper, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.health = Health(clock=clock)  # of the backends, as chains of them find it
        self.witnesses: dict[str, Witness] = {}  # by digest: what chains compare later instances with
        self.open_handles = keeper.open_handles  # leases read it, without a lock
        self._keeper = keeper
        self._names = Names(keeper)

    def registered(self) -> tuple[ModelRef, ...]:
        """Return all refs, in the order of their registration."""
        return tuple(self._names.keys.copy())

    def keys_by_ref(self) -> dict[ModelRef, InstanceKey]:
        """Return what each ref means at this moment."""
        return self._names.keys.copy()

    def key_of(self, ref: ModelRef) -> InstanceKey:
        """Return the key that a ref resolves to.

        Raises:
            ModelNotRegistered: there is no such ref.
        """
        return self._names.key_of(ref)

    def lease(self, ref: ModelRef, timeout_s: float = 30.0, *, ttl_s: float | None = None) -> Lease:
        """Return a lease: `with manager.lease(ref) as model`. It is taken on entering, once.

        Entering waits up to `timeout_s` for room and for the load, and goes on loading if that was too short. With
        0 it never waits: a model that is not loaded raises, though its load begins if there is free room. With `ttl_s`
        the instance expires so long after this lease (0: at once, infinity: never), until another lease says otherwise.

        Raises (on entering):
            BudgetExhausted: it can never fit, or `timeout_s` is 0 and there is no free room.
            LeaseTimeout: it was not to be had in time; at once if its load is known to take longer (`LoadTooSlow`).
            QueueFull: as many callers wait as may.
            LoadFailed: its loader raised, now or less than `retry_after_s` ago.
            ModelNotRegistered, ManagerClosed, LeaseReused.
            InvalidInput (at once): `ttl_s` is negative or no number.
        """
        if ttl_s is None:
            return Lease(self, ref, timeout_s)
        return KeptLease(self, ref, timeout_s, check_seconds("ttl_s", ttl_s, endless=True))

    def lease_set(self, refs: Iterable[ModelRef], timeout_s: float = 30.0) -> LeaseSet:
        """Return a lease on several models at once, all or none; the block's value is a tuple in the refs' order.

        Nothing of the set is held while it waits for the rest, so sets can't block each other for ever. A set that
        can never fit raises `BudgetExhausted` at once. Else as `lease`.

        Raises:
            InvalidInput: the set is empty.
        """
        refs = tuple(refs)
        if not refs:
            raise InvalidInput("lease_set needs at least one model")
        return LeaseSet(self, refs, timeout_s)

    def admit(self, lease: LeaseBase) -> None:
        """Wait until the keeper has given the lease its handles; a lease that finds no open gate calls this."""
        done = threading.Event()
        wait = self.wait_for(lease, done)
        try:
            wait.begin()
            while not done.wait(wait.nap_s()):
                pass
        except BaseException:
            wait.withdraw()
            raise
        wait.settle()

    def wait_for(self, lease: LeaseBase, done: threading.Event) -> Wait:
        """Return a lease's wait, not begun; `admit` and `lifecycle.aio` wait by it."""
        return Wait(self._keeper, self.clock, lease, done)

    def keep(self, generation: int, ttl_s: float) -> None:
        """Give an instance another time to live; a lease that has its own calls this when it ends."""
        self._keeper.send(lambda: self._keeper.keep(generation, ttl_s))

    def announce(self, event: events.Event) -> None:
        """Tell the hooks, now, and have the event counted; waits for nothing and works while the keeper hangs."""
        self._keeper.notifier.publish(event)
        self._keeper.send(lambda: self._keeper.tally.note(event))

    def report_leak(self, leak: Leak) -> None:
        """Note a lease that was garbage-collected open; called from its finalizer."""
        self._keeper.send(lambda: self._leaked(leak))

    def _leaked(self, leak: Leak) -> None:
        file, line = leak.code.co_filename, leak.line
        if key := self._names.keys.get(leak.ref):
            self._keeper.announce(events.LeaseLeaked(key, 0, f"{file}:{line}"))
        self._keeper.tick()
        message = f"a lease of '{leak.ref}' was never closed; taken in {leak.code.co_qualname}: use it in a with block"
        message = "\n".join((message, *(leak.stack.format() if leak.stack else ())))
        try:
            warnings.warn_explicit(message, ResourceWarning, file, line)
        except ResourceWarning as error:  # warnings are errors here, and this is nobody's thread to raise one on
            _log.error("%s:%s: %s", file, line, error)
