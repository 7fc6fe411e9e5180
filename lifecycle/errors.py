"""What the manager can raise.

VectorSearchError
└── LifecycleError
    ├── BudgetExhausted       no room, and none to be made
    │   └── QuotaExhausted    the tenant's quota has no room, whatever the budget has
    ├── LeaseTimeout          (TimeoutError) the wait for room or for the load was too long
    │   └── LoadTooSlow       its load would take longer than the caller would wait; `retry_after_s`
    ├── QueueFull             as many callers wait as may; `retry_after_s`
    ├── LoadFailed            the loader raised, or took too long; `retry_after_s` says when it may be tried again
    ├── ModelNotRegistered    (LookupError)
    ├── UnloadTimeout         (TimeoutError) still leased, or still closing, when the time was up
    ├── UnloadFailed          the model's `close()` raised; its bytes stay charged
    ├── ReplaceOvertaken      a later call that gave the name its meaning was done first
    ├── FallbackExhausted     (ExceptionGroup) it failed on every backend that it was tried on
    ├── OtherVectors          a backend computes something else from the same weights, and was refused
    ├── KeeperSilent          (TimeoutError) the manager's own thread did not answer in time
    ├── LeaseReused           a lease is for one `with` block
    └── ManagerClosed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.errors import VectorSearchError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

MIB = 1 << 20


def format_nbytes(nbytes: int) -> str:
    """Return bytes for a human: whole MiB from 1 MiB on, else bytes."""
    return f"{nbytes / MIB:.0f} MiB" if abs(nbytes) >= MIB else f"{nbytes} B"


@dataclass(frozen=True, slots=True)
class Holder:
    """Say who holds part of the budget: the model's name, its state, its open leases and its charged bytes."""

    name: str
    state: str
    leases: int
    nbytes: int

    def __str__(self) -> str:
        use = f"{self.leases} leases" if self.leases else "idle"
        return f"{self.name} {format_nbytes(self.nbytes)} ({self.state}, {use})"


class LifecycleError(VectorSearchError):
    """Root of what the lifecycle manager raises."""


class BudgetExhausted(LifecycleError):
    """The models asked for don't fit, and no allowed eviction makes enough room. Nothing was evicted."""

    def __init__(
        self, names: str, *, needed_nbytes: int, budget_nbytes: int, idle_nbytes: int, holders: tuple[Holder, ...]
    ) -> None:
        self.needed_nbytes = needed_nbytes
        self.budget_nbytes = budget_nbytes
        self.idle_nbytes = idle_nbytes
        self.holders = holders
        held = "; held by " + ", ".join(map(str, holders)) if holders else ""
        super().__init__(
            f"model {names} needs {format_nbytes(needed_nbytes)}; budget {format_nbytes(budget_nbytes)}, "
            f"{format_nbytes(idle_nbytes)} idle: raise budget_nbytes or unload a model{held}"
        )


class QuotaExhausted(BudgetExhausted):
    """The models asked for don't fit into their tenant's quota. `budget_nbytes` is the quota. Nothing was evicted."""

    def __init__(self, names: str, *, tenant: str, needed_nbytes: int, quota_nbytes: int, charged_nbytes: int) -> None:
        self.tenant = tenant
        self.needed_nbytes = needed_nbytes
        self.budget_nbytes = quota_nbytes
        self.idle_nbytes = 0
        self.holders = ()
        LifecycleError.__init__(
            self,
            f"model {names} needs {format_nbytes(needed_nbytes)} of the quota of tenant '{tenant}', which is "
            f"{format_nbytes(quota_nbytes)} with {format_nbytes(charged_nbytes)} charged: raise quota_nbytes with "
            "set_tenant, or unload a model of this tenant",
        )


class LeaseTimeout(LifecycleError, TimeoutError):
    """The lease was not to be had in time. A load that has begun goes on.

    `waited_for` is "room" or "load"; "estimate" if a loader has not told the model's size, "answer" if the manager's
    own thread has said nothing.
    """

    def __init__(self, names: str, *, timeout_s: float, waited_for: str, holders: tuple[Holder, ...]) -> None:
        self.timeout_s = timeout_s
        self.waited_for = waited_for
        self.holders = holders
        held = ", ".join(map(str, holders)) or "nobody"
        hints = {
            "room": f"no room in the budget (held by {held}): raise timeout_s or budget_nbytes",
            "load": "it is still loading: raise timeout_s, or ask again (the load goes on)",
            "estimate": "its loader has not told its size: raise timeout_s, or see what its estimate() waits for",
            "answer": "the manager's own thread has not answered: what holds it?",
        }
        super().__init__(f"model {names} was not to be had within {timeout_s:g} s; {hints[waited_for]}")


class LoadTooSlow(LeaseTimeout):
    """The model has never loaded as fast as the caller needs it. It is loaded all the same, if there is room."""

    def __init__(self, names: str, *, timeout_s: float, retry_after_s: float) -> None:
        self.timeout_s = timeout_s
        self.waited_for = "load"
        self.holders = ()
        self.retry_after_s = retry_after_s
        LifecycleError.__init__(
            self,
            f"model {names} takes {retry_after_s:.1f} s to load, longer than timeout_s ({timeout_s:g}): raise that, or "
            f"ask again in {retry_after_s:.1f} s",
        )


class QueueFull(LifecycleError):
    """As many callers wait for models as `max_waiters` allows; ask again after `retry_after_s`."""

    def __init__(self, names: str, *, max_waiters: int | None, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(
            f"model {names} is not loaded, and {max_waiters} callers wait already: ask again in {retry_after_s:.1f} s, "
            "or raise max_waiters"
        )


class LoadFailed(LifecycleError):
    """The model could not be loaded. `cause` is what its loader raised; until `retry_after_s` nothing is tried."""

    def __init__(self, names: str, *, cause: BaseException, retry_after_s: float) -> None:
        self.cause = cause
        self.retry_after_s = retry_after_s
        super().__init__(
            f"model {names} failed to load: {type(cause).__name__}: {cause} (next attempt in {retry_after_s:.1f} s)"
        )


class ModelNotRegistered(LifecycleError, LookupError):
    """No model is registered under this name."""


class UnloadTimeout(LifecycleError, TimeoutError):
    """The model was still leased, or still closing, when the time was up; its bytes stay charged until it is gone."""


class UnloadFailed(LifecycleError):
    """The model's `close()` raised: it is quarantined, and its bytes stay charged."""


class ReplaceOvertaken(LifecycleError):
    """The model was loaded, but a later `replace` or `register` gave the name another meaning first, which it keeps."""


class FallbackExhausted(LifecycleError, ExceptionGroup[Exception]):
    """A model failed on every backend that it was tried on: `exceptions` holds each attempt's error, in order."""

    def __new__(cls, name: str, errors: Sequence[Exception]) -> Self:
        """Make the group; `name` is the model's."""
        told = "; ".join(f"{type(error).__name__}: {error}" for error in errors)
        return super().__new__(cls, f"model '{name}' failed on {len(errors)} backends: {told}", errors)

    def __init__(self, name: str, errors: Sequence[Exception]) -> None:
        self.name = name
        super().__init__(name, errors)

    def derive(self, errors: Sequence[Exception]) -> FallbackExhausted:  # type: ignore[override]  # always of Exceptions
        """Return a group of some of the errors; `split` and `except*` use it."""
        return FallbackExhausted(self.name, errors)


class OtherVectors(LifecycleError):
    """A backend computes something else from the same weights than the one that served before it: it may not answer."""

    def __init__(self, ours: str, theirs: str, *, cosine: float, needed: float) -> None:
        self.cosine = cosine
        self.needed = needed
        super().__init__(
            f"{ours} gives other answers than {theirs} from the same weights: cosine {cosine:.4f} on the probe, and "
            f"{needed:g} is needed; name one of the two with backend=, and index again what the other has embedded"
        )


class KeeperSilent(LifecycleError, TimeoutError):
    """The manager's own thread did not answer in time: something of the program's holds it, or has killed it."""


class LeaseReused(LifecycleError):
    """A lease was entered a second time; take a new one with `manager.lease`."""


class ManagerClosed(LifecycleError):
    """The manager is closed or closing and admits nobody."""
