"""What `ModelManager.snapshot` tells: plain frozen values, made without stopping anybody."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from lifecycle.config import InstanceKey, ModelRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lifecycle.errors import Holder


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One instance: all refs that share it, where it runs, and what it costs.

    `nbytes` is what it takes, or would take, in memory; `charged_nbytes` what is charged for it now, generations on
    their way out included. `idle_s` is None while it is leased or not resident. `loads`, `hits` (leases that waited for
    nothing) and `misses` (those that had to wait for it) count from registration on. `ready_at` is when it became
    ready, by the manager's clock, and `load_s` what that load took; both are None while it isn't resident.
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
    misses: int
    ready_at: float | None = None
    load_s: float | None = None

    @property
    def hit_ratio(self) -> float | None:
        """Return the share of leases that waited for nothing; None before the first."""
        leases = self.hits + self.misses
        return self.hits / leases if leases else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON has them."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        key = {**self.key._asdict(), "options": dict(self.key.options)}
        return {**own, "refs": [ref._asdict() for ref in self.refs], "key": key, "hit_ratio": self.hit_ratio}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the status of which these are the plain values."""
        own = {field.name: values[field.name] for field in fields(cls)}
        key = InstanceKey(**{**values["key"], "options": tuple(values["key"]["options"].items())})
        return cls(**{**own, "refs": tuple(ModelRef(**ref) for ref in values["refs"]), "key": key})


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
    model measured more than it had reserved. `waiters` are callers waiting for room or for a load. `residue` is what
    runtimes have kept of unloaded models, by backend, as far as it could be told; it is charged to nobody.
    """

    budget_nbytes: int
    charged_nbytes: int
    idle_nbytes: int
    deficit_nbytes: int
    quarantined_nbytes: int
    waiters: int
    by_backend: Mapping[str, int]
    by_tenant: Mapping[str, int]
    residue: Mapping[str, int]
    models: tuple[ModelStatus, ...]
    counters: Counters

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON has them."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "by_backend": dict(self.by_backend),
            "by_tenant": dict(self.by_tenant),
            "residue": dict(self.residue),
            "models": [model.to_dict() for model in self.models],
            "counters": asdict(self.counters),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the snapshot of which these are the plain values.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: they are not those of a snapshot.
        """
        own = {field.name: values[field.name] for field in fields(cls)}
        models = tuple(map(ModelStatus.from_dict, values["models"]))
        return cls(**{**own, "models": models, "counters": Counters(**values["counters"])})


@dataclass(frozen=True, slots=True)
class Readiness:
    """True when every eager model is open for leases; `missing` names those that are not."""

    missing: tuple[ModelRef, ...]

    def __bool__(self) -> bool:
        """Return whether none is missing."""
        return not self.missing


@dataclass(frozen=True, slots=True)
class Stall:
    """Say for how long nothing has moved, who waits, and who is charged for what.

    `keeper_is_silent`: the manager's own thread has answered nothing for so long; `waiters` may then be too few.
    """

    stalled_s: float
    waiters: tuple[Waiter, ...]
    holders: tuple[Holder, ...]
    keeper_is_silent: bool

    def __str__(self) -> str:
        held = ", ".join(map(str, self.holders)) or "nobody"
        if self.keeper_is_silent:
            return f"the lifecycle keeper has not answered for {self.stalled_s:.0f} s; held by {held}"
        waiting = ", ".join(map(str, self.waiters))
        return f"no lifecycle progress for {self.stalled_s:.0f} s: {waiting}; held by {held}"
