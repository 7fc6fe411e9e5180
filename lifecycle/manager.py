"""`ModelManager`: what callers use. It turns names into keys, asks its keeper, and turns refusals into errors."""

from __future__ import annotations

import logging
import math
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from lifecycle import errors, events, report, signals
from lifecycle.config import InstanceKey, LoadPolicy, ModelConfig, ModelRef, check_wait, merge_configs
from lifecycle.keeper import Instance, Keeper
from lifecycle.lease import Leak, Lease, LeaseSet
from lifecycle.snapshot import Readiness
from lifecycle.states import Job, Limits, Phase, State
from lifecycle.waiting import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from lifecycle.config import Loader
    from lifecycle.snapshot import ManagerSnapshot, ModelStatus

_log = logging.getLogger(__name__)


class ModelManager:
    """Load models on first use, lease them, and keep all of them together within one budget.

    Args:
        budget_nbytes: what all loaded models together may be charged.
        clock: monotonic seconds; tests inject their own.
        max_parallel_loads: how many loads run at once.
        unload_timeout_s: how long a model's `close()` may take before its bytes are quarantined.
        backoff_s: the pause after a failed load; it doubles with each failure in a row, up to `backoff_cap_s`.

    Raises:
        InvalidInput: the budget is negative, or a limit is not positive.
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
    ) -> None:
        limits = Limits(budget_nbytes, max_parallel_loads, unload_timeout_s, backoff_s, backoff_cap_s)
        self.clock = clock
        self._configs: dict[ModelRef, ModelConfig] = {}
        self._keys: dict[ModelRef, InstanceKey] = {}
        self._notifier = events.Notifier()
        self._keeper = Keeper(State(limits, now=clock()), clock, self._notifier)
        self.open_handles = self._keeper.open_handles  # leases read it, without a lock

    @property
    def budget_nbytes(self) -> int:
        """Return the budget in bytes."""
        return self._keeper.state.limits.budget_nbytes

    # Names.

    def register(
        self,
        ref: ModelRef,
        spec: Any,  # noqa: ANN401 - each loader has its own kind of spec
        loader: Loader,
        config: ModelConfig | None = None,
        *,
        key: InstanceKey | None = None,
    ) -> InstanceKey:
        """Make a model known, and return its key; an eager one starts to load at once.

        Registering a ref again with the same key replaces its config. `key` defaults to the spec's `digest` and the
        loader's name. Refs with one key share an instance, and their configs are merged.

        Raises:
            InvalidInput: the ref is registered with another key.
            LoadFailed: the loader can't estimate the model's size; nothing is registered.
            ManagerClosed: the manager is closed.
        """
        key = key or InstanceKey(spec.digest, loader.name)
        try:
            nbytes = int(loader.estimate(spec))
        except Exception as error:  # a loader is foreign code
            raise errors.LoadFailed(f"'{ref}'", cause=error, retry_after_s=0.0) from error
        if nbytes < 0:
            raise InvalidInput(f"model '{ref}': its loader's estimate is {nbytes} bytes")
        self._keeper.call(lambda: self._register(ref, key, Instance(loader, spec), config or ModelConfig(), nbytes))
        return key

    def _register(self, ref: ModelRef, key: InstanceKey, instance: Instance, config: ModelConfig, nbytes: int) -> None:
        keeper = self._keeper
        if keeper.state.closing:
            raise errors.ManagerClosed(f"model '{ref}' can't be registered: the manager is closed")
        known = self._keys.setdefault(ref, key)
        if known != key:
            raise InvalidInput(f"model '{ref}' is registered as {known}, not {key}: give the other one its own name")
        self._configs[ref] = config
        instance = keeper.instances.setdefault(key, instance)
        if ref not in instance.refs:
            instance.refs = (*instance.refs, ref)
        merged = merge_configs(self._configs[other] for other in instance.refs)
        keeper.happen(signals.Register(key, nbytes, merged))
        for generation in keeper.state.generations.values():
            if generation.key == key and generation.is_open:
                keeper.publish(keeper.handles[generation.number])
        keeper.tick()  # the last lease may have ended unwatched, before a TTL of 0 was set

    def registered(self) -> tuple[ModelRef, ...]:
        """Return all refs, in the order of their registration."""
        return tuple(self._keys.copy())

    def key_of(self, ref: ModelRef) -> InstanceKey:
        """Return the key that a ref resolves to.

        Raises:
            ModelNotRegistered: there is no such ref.
        """
        try:
            return self._keys[ref]
        except KeyError:
            raise errors.ModelNotRegistered(f"no model '{ref}' is registered: call register() first") from None

    # Leases.

    def lease(self, ref: ModelRef, timeout_s: float = 30.0) -> Lease:
        """Return a lease: `with manager.lease(ref) as model`. It is taken on entering, once.

        Entering waits up to `timeout_s` for room and for the load, and goes on loading if that was too short. With
        0 it never waits: a model that is not loaded raises, though its load begins if there is free room.

        Raises (on entering):
            BudgetExhausted: it can never fit, or `timeout_s` is 0 and there is no free room.
            LeaseTimeout: it was not to be had in time.
            LoadFailed: its loader raised, now or less than `retry_after_s` ago.
            ModelNotRegistered, ManagerClosed, LeaseReused.
        """
        return Lease(self, (ref,), timeout_s)

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

    def admit(self, lease: LeaseSet) -> None:
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

    def wait_for(self, lease: LeaseSet, done: threading.Event) -> Wait:
        """Return a lease's wait, not begun; `admit` and `lifecycle.aio` wait by it."""
        return Wait(self._keeper, self.clock, lease, done)

    def report_leak(self, leak: Leak) -> None:
        """Note a lease that was garbage-collected open; called from its finalizer."""
        self._keeper.send(lambda: self._leaked(leak))

    def _leaked(self, leak: Leak) -> None:
        file, line = leak.code.co_filename, leak.line
        self._keeper.announce(events.LeaseLeaked(self._keys[leak.ref], 0, f"{file}:{line}"))
        self._keeper.tick()
        message = f"a lease of '{leak.ref}' was never closed; taken in {leak.code.co_qualname}: use it in a with block"
        try:
            warnings.warn_explicit(message, ResourceWarning, file, line)
        except ResourceWarning as error:  # warnings are errors here, and this is nobody's thread to raise one on
            _log.error("%s:%s: %s", file, line, error)

    # Orders.

    def prefetch(self, refs: Iterable[ModelRef]) -> None:
        """Start loading models that will soon be asked for; returns at once, and never fails for want of room.

        It loads behind all callers that wait, into free room or that of idle models, but not of those that were
        prefetched themselves and not yet used.

        Raises:
            ModelNotRegistered: there is no such ref; nothing is prefetched.
        """
        keys = tuple(dict.fromkeys(map(self.key_of, refs)))
        self._keeper.ensure_thread()
        self._keeper.send_event(signals.Prefetch(keys))

    def unload(self, ref: ModelRef, *, drain_timeout_s: float = 30.0) -> None:
        """Unload the ref's instance, for all refs that share it, and return when its bytes are free.

        New leases load a new instance at once; open ones have `drain_timeout_s` to end. With 0 an instance in use is
        left as it is. Harmless if nothing is loaded.

        Raises:
            UnloadTimeout: it was still in use, or its `close()` takes too long (it is then quarantined).
            UnloadFailed: its `close()` raised (it is quarantined).
            ModelNotRegistered: there is no such ref.
        """
        check_wait("drain_timeout_s", drain_timeout_s)
        key = self.key_of(ref)
        drain_by = self.clock() + drain_timeout_s
        number = self._keeper.call(lambda: self._ask_to_unload(key, ref, drain_by))
        if number is not None:
            self._keeper.wait_until(lambda state: not state.is_leaving(number))
            self._raise_if_quarantined(number)

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

    def _raise_if_quarantined(self, *numbers: int) -> None:
        for number in numbers:
            generation = self._keeper.state.generations.get(number)
            if generation is not None:
                raise report.unload_error(self._keeper, generation) from generation.error

    def reap(self) -> None:
        """Expire, quarantine and refuse whatever is due now; the keeper does it by itself at each deadline."""
        self._keeper.call(self._keeper.tick)

    def close(self, *, timeout_s: float = 30.0) -> None:
        """Refuse new leases and waiting ones, let open ones end, join loads, unload everything; again is harmless.

        Raises:
            UnloadTimeout: a lease, a load or a `close()` was not done within `timeout_s`; all else is unloaded.
            UnloadFailed: a model's `close()` raised; all else is unloaded.
        """
        check_wait("timeout_s", timeout_s)
        self._keeper.call(lambda: self._keeper.happen(signals.CloseAsked(self.clock() + timeout_s)))
        self._keeper.wait_until(lambda state: not any(map(state.is_leaving, state.generations)))
        self._keeper.join()
        self._notifier.close(timeout_s)
        self._raise_if_quarantined(*self._keeper.state.generations)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What is going on.

    def subscribe(self, hook: Callable[[events.Event], None]) -> None:
        """Call `hook` with every event from now on, on the hooks' own thread."""
        self._notifier.subscribe(hook)

    def ready(self) -> Readiness:
        """Tell whether all eager models are open for leases, and which are not."""
        eager = [ref for ref, config in self._configs.copy().items() if config.load_policy is LoadPolicy.EAGER]
        return Readiness(tuple(ref for ref in eager if ref not in self.open_handles))

    def status(self, ref: ModelRef) -> ModelStatus:
        """Return what there is to know about one ref's instance.

        Raises:
            ModelNotRegistered: there is no such ref.
        """
        return report.model_status(self._keeper, self.key_of(ref), self.clock())

    def snapshot(self) -> ManagerSnapshot:
        """Return the budget, every model and the counters, as one immutable value; stops nobody."""
        return report.snapshot(self._keeper, self.clock())
