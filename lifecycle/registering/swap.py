"""`Swap`: one hot swap. It is itself a lease on the new instance, so that nobody evicts that before it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lifecycle.errors import BudgetExhausted
from lifecycle.keeping.keeper import MOMENT_S
from lifecycle.leasing.lease import LeaseSet

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from lifecycle.config import InstanceKey, ModelRef
    from lifecycle.keeping.instance import Instance
    from lifecycle.keeping.keeper import Keeper
    from lifecycle.leasing.lease import Desk
    from lifecycle.registering.names import Names


class Swap(LeaseSet):
    """Load the instance of another key, then let the ref mean that key.

    `spares_old` says that the instance which the ref means may not be asked to leave for the new one's sake. Of swaps
    and registrations of one ref the one with the highest `turn` decides.
    """

    __slots__ = ("key", "spares_old", "turn")

    def __init__(self, desk: Desk, ref: ModelRef, key: InstanceKey, timeout_s: float) -> None:
        super().__init__(desk, (ref,), timeout_s)
        self.key = key
        self.spares_old = True
        self.turn = 0

    @property
    def ref(self) -> ModelRef:
        """Return the name that shall mean the new key."""
        return self.refs[0]

    @property
    def keys(self) -> tuple[InstanceKey, ...]:
        """Return the new key, whatever the ref means."""
        return (self.key,)

    @property
    def spared(self) -> tuple[InstanceKey, ...]:
        """Return the key whose instance must stay while this one loads."""
        old = self._desk.key_of(self.ref)
        return (old,) if self.spares_old and old != self.key else ()

    def take(self, frame: FrameType) -> bool:
        """Always wait for the keeper: the ref's open gate is the old instance's."""
        self._code, self._instruction = frame.f_code, frame.f_lasti
        return False

    def run(
        self, keeper: Keeper, names: Names, instance: Instance, nbytes: int, *, until: float, drain_first: bool
    ) -> None:
        """Swap, or raise and leave the ref as it was. The old instance's leases get as long as the load was given."""
        timeout_s, clock = self.timeout_s, self._desk.clock

        def ask(function: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the function returns
            return keeper.call(function, max(0.0, until - clock()) + MOMENT_S)

        try:
            ask(lambda: names.offer(self, instance, nbytes))
            is_shared = drain_first and ask(lambda: len(names.instance_of(self.ref).refs) > 1)
            self._load(until, drain_first=drain_first and not is_shared)
            ask(lambda: names.point(self, clock() + timeout_s))
        finally:
            self.release()
            keeper.send(lambda: names.end(self, clock() + timeout_s))

    def _load(self, until: float, *, drain_first: bool) -> None:
        self.timeout_s = min(self.timeout_s, max(0.0, until - self._desk.clock()))
        try:
            self.__enter__()
        except BudgetExhausted:
            if not drain_first:
                raise
            self.spares_old = False
            self.timeout_s = max(0.0, until - self._desk.clock())
            self.__enter__()
