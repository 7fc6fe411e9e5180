"""`Registrar`: the part of the manager that knows models by name: registered, replaced, pinned, and forgotten again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from backends.errors import DeadlineExceeded
from backends.running.deadline import Deadline
from backends.running.overtime import Overtime
from lifecycle.config import ModelConfig, ModelRef, check_kind, check_seconds
from lifecycle.errors import LeaseTimeout, format_nbytes
from lifecycle.heart.tenants import promised
from lifecycle.keeping.instance import Instance
from lifecycle.keeping.keeper import MOMENT_S
from lifecycle.leasing.desk import LeaseDesk
from lifecycle.registering.names import estimate, key_for
from lifecycle.registering.swap import Swap

if TYPE_CHECKING:
    from lifecycle.config import InstanceKey, Loader


_log = logging.getLogger(__name__)


class Registrar(LeaseDesk):
    """Give names to models. `ModelManager` is one, with the orders added."""

    _warned_of = (0, 0)  # bytes promised, and the budget, at the last warning

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
            InvalidInput: the ref is registered with another key, or something is not of the type that is asked for.
            LoadFailed: the loader can't estimate the model's size; nothing is registered.
            ManagerClosed: the manager is closed.
        """
        check_kind("ref", ref, ModelRef)
        for name, value in ref._asdict().items():
            check_kind(name, value, str)
        config = config or ModelConfig()
        check_kind("config", config, ModelConfig)
        key = key_for(spec, loader, key)
        nbytes = estimate(ref, spec, loader)
        self._keeper.call(lambda: self._names.register(ref, key, Instance(loader, spec), config, nbytes))
        self._warn_of_promises()
        return key

    def replace(
        self,
        ref: ModelRef,
        spec: Any,  # noqa: ANN401 - each loader has its own kind of spec
        loader: Loader | None = None,
        *,
        key: InstanceKey | None = None,
        drain_first: bool = False,
        timeout_s: float = 120.0,
    ) -> InstanceKey:
        """Let a ref mean another model, and return its key once that model is loaded and serves all new leases.

        The new model loads beside the old one, which serves meanwhile: no lease fails and none waits for the swap.
        Then the old one, unless other refs share it, has `timeout_s` for its open leases to end, and is unloaded;
        this call does not wait for that. If both can't fit, `drain_first` lets the old one go before the new one
        loads, and leases wait for as long as that takes. `loader` defaults to the one that loaded the old model,
        `key` as in `register`. A key that the ref has already changes nothing.

        Raises (and then the ref means what it meant):
            BudgetExhausted: both can't fit, and `drain_first` is not asked for, or the old one is shared or pinned.
            LeaseTimeout: it was not loaded within `timeout_s`.
            LoadFailed: its loader raised.
            ReplaceOvertaken: a later `replace` was done first, or the ref was forgotten and registered anew.
            ModelNotRegistered, ManagerClosed.
        """
        timeout_s = check_seconds("timeout_s", timeout_s)
        until = self.clock() + timeout_s
        by = loader or self._keeper.call(lambda: self._names.instance_of(ref), timeout_s + MOMENT_S).loader
        beside = Overtime(most=1)  # a loader is foreign code, and may hang
        try:
            key, nbytes = beside.run(
                lambda: (key_for(spec, by, key), estimate(ref, spec, by)), Deadline(until + MOMENT_S, self.clock)
            )
        except DeadlineExceeded as exc:
            raise LeaseTimeout(f"'{ref}'", timeout_s=timeout_s, waited_for="estimate", holders=()) from exc
        finally:
            beside.close()
        swap = Swap(self, ref, key, timeout_s)
        swap.run(self._keeper, self._names, Instance(by, spec), nbytes, until=until, drain_first=drain_first)
        return key

    def unregister(self, ref: ModelRef, *, drain_timeout_s: float = 30.0) -> None:
        """Forget a ref; what it meant is unloaded if no other ref means it, once its open leases have ended.

        Returns at once. Open leases have `drain_timeout_s` to end; callers that wait for the model already still get
        it; later ones, and a swap of the ref that is not done, get `ModelNotRegistered`.

        Raises:
            ModelNotRegistered: there is no such ref.
        """
        drain_timeout_s = check_seconds("drain_timeout_s", drain_timeout_s)
        drain_by = self.clock() + drain_timeout_s
        self._keeper.call(lambda: self._names.unregister(ref, drain_by), drain_timeout_s + MOMENT_S)

    def pin(self, ref: ModelRef) -> None:
        """Keep what a ref means from being evicted or expiring; it is not loaded by that, and other refs' pins stay.

        Raises:
            ModelNotRegistered: there is no such ref.
        """
        self._keeper.call(lambda: self._names.pin(ref, pinned=True))
        self._warn_of_promises()

    def unpin(self, ref: ModelRef) -> None:
        """Take a ref's pin back.

        Raises:
            ModelNotRegistered: there is no such ref.
        """
        self._keeper.call(lambda: self._names.pin(ref, pinned=False))

    def _warn_of_promises(self) -> None:
        """Log, once, that guarantees and pins are more than the budget: not all of them can be kept."""
        state = self._keeper.state
        budget_nbytes, nbytes = state.limits.budget_nbytes, promised(state.models, state.tenants)
        if nbytes <= budget_nbytes:
            self._warned_of = (0, 0)
        elif self._warned_of != (nbytes, budget_nbytes):
            self._warned_of = (nbytes, budget_nbytes)
            _log.warning(
                "guarantees and pinned models need %s together, and the budget is %s: not all can be kept",
                format_nbytes(nbytes),
                format_nbytes(budget_nbytes),
                extra={"event": "Overpromised", "promised_nbytes": nbytes, "budget_nbytes": budget_nbytes},
            )
