"""`ModelManager`: what callers use. It turns names into keys, asks its keeper, and turns refusals into errors."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from lifecycle import errors, events
from lifecycle.config import InstanceKey, LoadPolicy, ModelRef, Tenant, check_count, check_kind, check_seconds
from lifecycle.heart import signals
from lifecycle.heart.states import Eviction, Job, Limits, Phase, State
from lifecycle.keeping import report
from lifecycle.keeping.keeper import MOMENT_S, Keeper
from lifecycle.keeping.residue import resident_nbytes
from lifecycle.registering.registrar import Registrar
from lifecycle.snapshot import Readiness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from lifecycle.snapshot import ManagerSnapshot, ModelStatus, Waiter


class ModelManager(Registrar):
    """Load models on first use, lease them, and keep all of them together within one budget.

    Args:
        budget_nbytes: what all loaded models together may be charged.
        clock: monotonic seconds; tests inject their own.
        max_parallel_loads: how many loads run at once.
        unload_timeout_s: how long a model's `close()` may take before its bytes are quarantined.
        backoff_s: the pause after a failed load; it doubles with each failure in a row, up to `backoff_cap_s`.
        max_waiters: how many callers may wait at once; one more is refused with `QueueFull`.
        eviction: who leaves first: "lru", or "gdsf" (rarely used, fast to load and large; see `policy.worth`).
        ageing_s: after how long a load that nobody waits for ranks with those that somebody does.
        resident: the process's resident bytes, None if they can't be told; tests inject their own.

    Raises:
        InvalidInput: the budget is negative or no whole number, or a limit is not positive.
    """

    def __init__(
        self,
        budget_nbytes: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_parallel_loads: int = 2,
        unload_timeout_s: float = 30.0,
        backoff_s: float = 1.0,
        backoff_cap_s: float = 60.0,
        max_waiters: int | None = None,
        ageing_s: float = 30.0,
        eviction: Eviction = "lru",
        resident: Callable[[], int | None] = resident_nbytes,
    ) -> None:
        limits = Limits(
            budget_nbytes,
            max_parallel_loads,
            unload_timeout_s,
            backoff_s,
            backoff_cap_s,
            max_waiters,
            ageing_s,
            eviction,
        )
        self._notifier = events.Notifier()
        super().__init__(Keeper(State(limits, now=clock()), clock, self._notifier, resident), clock)

    @property
    def budget_nbytes(self) -> int:
        """Return the budget in bytes."""
        return self._keeper.state.limits.budget_nbytes

    # Orders.

    def prefetch(self, refs: Iterable[ModelRef]) -> None:
        """Start loading models that will soon be asked for; returns at once, and never fails for want of room.

        It loads behind all callers that wait, into free room or that of idle models, but not of those that were
        prefetched themselves and not yet used.

        Raises:
            ModelNotRegistered: there is no such ref; nothing is prefetched.
        """
        refs = tuple(refs)
        keys = tuple(dict.fromkeys(map(self.key_of, refs)))
        asking = frozenset(ref.tenant for ref in refs)
        self._keeper.post(lambda: self._keeper.happen(signals.Prefetch(keys, asking)))

    def unload(self, ref: ModelRef, *, drain_timeout_s: float = 30.0) -> None:
        """Unload the ref's instance, for all refs that share it, and return when its bytes are free.

        New leases load a new instance at once; open ones have `drain_timeout_s` to end. With 0 an instance in use is
        left as it is. Harmless if nothing is loaded. It returns within `drain_timeout_s` and a moment, whatever others
        have asked for; what isn't done by then (a load, a `close()`, a drain with more time) goes on by itself.

        Raises:
            UnloadTimeout: it was still in use, loading or closing when the time was up.
            UnloadFailed: its `close()` raised (it is quarantined).
            ModelNotRegistered: there is no such ref.
        """
        drain_timeout_s = check_seconds("drain_timeout_s", drain_timeout_s)
        key = self.key_of(ref)
        drain_by = self.clock() + drain_timeout_s
        number = self._keeper.call(lambda: self._ask_to_unload(key, ref, drain_by), drain_timeout_s + MOMENT_S)
        if number is not None:
            self._keeper.wait_until(lambda state: not state.is_leaving(number), drain_by + MOMENT_S)
            self._raise_if_there(number)

    def _ask_to_unload(self, key: InstanceKey, ref: ModelRef, drain_by: float) -> int | None:
        generations = [g for g in self._keeper.state.generations.values() if g.key == key]
        number = next((g.number for g in reversed(generations) if g.phase is not Phase.QUARANTINED), None)
        self._keeper.happen(signals.UnloadAsked(key, drain_by))
        generation = self._keeper.state.generations.get(number or 0)
        if generation is not None and generation.job is not Job.UNLOAD and generation.drain_by == math.inf:
            raise errors.UnloadTimeout(
                f"model '{ref}' is in use, and drain_timeout_s is 0: give its leases time to end"
            )
        return number

    def _raise_if_there(self, *numbers: int) -> None:
        for number in numbers:
            generation = self._keeper.state.generations.get(number)
            if generation is not None:
                raise report.unload_error(self._keeper, generation) from generation.error

    def set_budget(self, nbytes: int) -> int:
        """Change the budget, and return by how many bytes what is in use or pinned is over it (0: all fits).

        A lower one evicts idle models at once, in the policy's order and no more than needed. What it could not free
        stays charged, is counted as the deficit, and leaves as soon as it becomes idle, before anything new is
        loaded. A caller that waits for more than the new budget is refused.

        Raises:
            InvalidInput: it is negative, or no whole number.
        """
        check_count("nbytes", nbytes)

        def change() -> int:
            self._keeper.happen(signals.SetBudget(nbytes))
            self._keeper.tick()  # a last lease may have ended just before its gate was watched
            return report.unmet_nbytes(self._keeper.state)

        unmet_nbytes = int(self._keeper.call(change))
        self._warn_of_promises()
        return unmet_nbytes

    def set_tenant(self, name: str, *, quota_nbytes: int | None = None, guaranteed_nbytes: int = 0) -> None:
        """Bound what a tenant may be charged, and say how much of it nobody else may take; replaces earlier settings.

        An instance is charged in equal parts to the tenants that use it. A load that would go over the quota of one
        of them evicts that one's idle models, waits for its leased ones, or is refused. A tenant over its guarantee
        evicts its own models first; the most valuable ones within it never leave for another tenant. A quota below
        what is charged works as a lowered budget.

        Raises:
            InvalidInput: a size is negative or no whole number, the guarantee is larger than the quota, or the name is
                no string.
        """
        check_kind("name", name, str)
        settings = Tenant(quota_nbytes, guaranteed_nbytes)
        self._keeper.call(lambda: self._keeper.happen(signals.SetTenant(name, settings)))
        self._keeper.call(self._keeper.tick)  # a last lease may have ended just before its gate was watched
        self._warn_of_promises()

    def reap(self) -> None:
        """Expire, quarantine and refuse whatever is due now; the keeper does it by itself at each deadline."""
        self._keeper.call(self._keeper.tick)

    def close(self, *, timeout_s: float = 30.0) -> None:
        """Refuse new leases and waiting ones, let open ones end, join loads, unload everything; again is harmless.

        Raises:
            UnloadTimeout: a lease, a load or a `close()` was not done within `timeout_s`; all else is unloaded, and
                what is late is unloaded once it ends.
            UnloadFailed: a model's `close()` raised; all else is unloaded.
        """
        timeout_s = check_seconds("timeout_s", timeout_s)
        close_by = self.clock() + timeout_s
        self._keeper.call(lambda: self._keeper.happen(signals.CloseAsked(close_by)), timeout_s + MOMENT_S)
        self._keeper.wait_until(lambda state: not any(map(state.is_leaving, state.generations)), close_by + MOMENT_S)
        self._keeper.join(close_by + MOMENT_S)
        self._notifier.close(max(0.0, close_by + MOMENT_S - self.clock()))
        self._raise_if_there(*self._keeper.state.generations)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Dropped unclosed, and without a lease or a waiter: these hold their manager. No lock may be taken here.
        if hasattr(self, "_keeper"):
            self._keeper.send(self._keeper.abandon)

    # What is going on.

    def subscribe(self, hook: Callable[[events.Event], None]) -> None:
        """Call `hook` with every event from now on, on the hooks' own thread."""
        self._notifier.subscribe(hook)

    def ready(self) -> Readiness:
        """Tell whether all eager models are open for leases, and which are not."""
        eager = [ref for ref, config in self._names.configs.copy().items() if config.load_policy is LoadPolicy.EAGER]
        return Readiness(tuple(ref for ref in eager if ref not in self.open_handles))

    def status(self, ref: ModelRef) -> ModelStatus:
        """Return what there is to know about one ref's instance.

        Raises:
            ModelNotRegistered: there is no such ref.
        """
        key, state = self.key_of(ref), self._keeper.state
        if key not in state.models:  # it is being forgotten at this moment
            raise errors.ModelNotRegistered(f"no model '{ref}' is registered any more")
        return report.model_status(self._keeper, state, key, self.clock())

    def waiting(self) -> tuple[Waiter, ...]:
        """Return the callers that wait for room or for a load, the first in the queue first."""
        return report.waiting(self._keeper, self.clock())

    def holders(self) -> tuple[errors.Holder, ...]:
        """Return who is charged for what, the largest first."""
        return report.holders(self._keeper, self._keeper.state)

    def ping(self, answer: Callable[[], object]) -> None:
        """Have the manager's own thread call `answer` soon, as a sign that it lives; waits for nothing."""
        self._keeper.post(answer)

    def snapshot(self) -> ManagerSnapshot:
        """Return the budget, every model and the counters, as one immutable value; stops nobody."""
        return report.snapshot(self._keeper, self.clock())
