"""What `ModelManager.snapshot` tells: plain frozen values, made without stopping anybody."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lifecycle.config import InstanceKey, ModelRef


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One instance: all refs that share it, where it runs, and what it costs.

    `nbytes` is what it takes, or would take, in memory; `charged_nbytes` what is charged for it now, generations on
    their way out included. `idle_s` is None while it is leased or not resident. `loads` and `hits` (leases that
    waited for nothing) count from registration on. `ready_at` is when it became ready, by the manager's clock, and
    `load_s` what that load took; both are None while it isn't resident.
    """

    refs: tuple[ModelRef, ...]
    key: InstanceKey
    backend: str
    device: str | None
    state: str
    resident: bool
    leases: int
    nbytes: int
    charged_nbytes: int
    idle_s: float | None
    loads: int
    hits: int
    ready_at: float | None = None
    load_s: float | None = None


@dataclass(frozen=True, slots=True)
class Waiter:
    """One caller that waits: for which models, since when, for how much longer, and for "room" or for the "load"."""

    names: str
    waited_s: float
    left_s: float
    waits_for: str

    def __str__(self) -> str:
        return f"{self.names} waited for {self.waited_s:.0f} s for {self.waits_for}"


@dataclass(frozen=True, slots=True)
class Counters:
    """What happened since the manager was made.

    `cold_leases` are leases and sets that the keeper gave to callers who found no open model. `peak_references` is the
    most leases open on one instance at once. `replacements` are names that came to mean another model, `fallbacks`
    calls that went on to another backend.
    """

    lazy_loads: int
    eager_loads: int
    cold_leases: int
    load_failures: int
    evictions: int
    expirations: int
    replacements: int
    unloads: int
    budget_exhausted: int
    quarantined: int
    fallbacks: int
    leaked_leases: int
    dropped_events: int
    peak_references: int


@dataclass(frozen=True, slots=True)
class ManagerSnapshot:
    """The budget, who is charged for what, and the counters. Bytes are charged bytes.

    `idle_nbytes` could be freed at once. `deficit_nbytes` is by how much the ledger is over the budget because a
    model measured more than it had reserved. `waiters` are callers waiting for room or for a load.
    """

    budget_nbytes: int
    charged_nbytes: int
    idle_nbytes: int
    deficit_nbytes: int
    quarantined_nbytes: int
    waiters: int
    by_backend: Mapping[str, int]
    by_tenant: Mapping[str, int]
    models: tuple[ModelStatus, ...]
    counters: Counters

    def of_tenant(self, name: str) -> ManagerSnapshot:
        """Return what a tenant may see: its own models and refs, and the bytes charged for them; all else is of all."""
        own = tuple(
            replace(model, refs=tuple(ref for ref in model.refs if ref.tenant == name))
            for model in self.models
            if any(ref.tenant == name for ref in model.refs)
        )
        by_backend: dict[str, int] = {}
        for model in own:
            by_backend[model.backend] = by_backend.get(model.backend, 0) + model.charged_nbytes
        charged = self.by_tenant.get(name, 0)
        return replace(self, models=own, by_backend=by_backend, by_tenant={name: charged}, charged_nbytes=charged)


@dataclass(frozen=True, slots=True)
class Readiness:
    """True when every eager model is open for leases; `missing` names those that are not."""

    missing: tuple[ModelRef, ...]

    def __bool__(self) -> bool:
        """Return whether none is missing."""
        return not self.missing
