"""What `transitions.step` is told, and what it answers: inputs and effects, all frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lifecycle.events import Event

if TYPE_CHECKING:
    from lifecycle.config import InstanceKey, ModelConfig, Tenant
    from lifecycle.heart.states import Job


# Inputs: what happened. ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A key is known, or its merged config or the tenants that use it have changed."""

    key: InstanceKey
    nbytes: int
    config: ModelConfig
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A caller asks for a set of keys, until `deadline`; nothing of `spared` may be driven out for its sake.

    It asks for `tenants`: their quotas bound the load, and no other's that shares a key; if they are empty, everyone's.
    The admissions that it is `under` end only after it, so it may use what these hold.
    """

    admission: int
    keys: tuple[InstanceKey, ...]
    deadline: float
    spared: tuple[InstanceKey, ...] = ()
    tenants: frozenset[str] = frozenset()
    under: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Redirect:
    """A caller that waits shall wait for other keys from now on, in the same place of the queue."""

    admission: int
    keys: tuple[InstanceKey, ...]
    spared: tuple[InstanceKey, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """A caller stopped waiting. Harmless if it was already served or refused."""

    admission: int


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Somebody will soon ask for these keys; for `tenants`, as in a `Request`."""

    keys: tuple[InstanceKey, ...]
    tenants: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The load job returned a model that measures `nbytes`."""

    generation: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Warmed:
    """The warm-up job returned."""

    generation: int


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The running job raised. `loaded` says whether there is a model that must still be closed."""

    generation: int
    error: BaseException
    loaded: bool


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The unload job returned: the bytes are free."""

    generation: int


@dataclass(frozen=True, slots=True)
class Keep:
    """A lease that has just ended wants this instance to have another time to live than its config's."""

    generation: int
    ttl_s: float


@dataclass(frozen=True, slots=True)
class UnloadAsked:
    """The key's instance must leave by `drain_by`. If that is now and it is in use, nothing happens."""

    key: InstanceKey
    drain_by: float


@dataclass(frozen=True, slots=True)
class Retire:
    """No name means this key any more: what is loaded of it must leave by `drain_by`, and it is forgotten then."""

    key: InstanceKey
    drain_by: float


@dataclass(frozen=True, slots=True)
class SetBudget:
    """From now on all models together may be charged this much."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class SetTenant:
    """From now on a tenant has this quota and this guarantee."""

    name: str
    settings: Tenant


@dataclass(frozen=True, slots=True)
class CloseAsked:
    """Everything must leave by `drain_by`, and nobody is admitted any more."""

    drain_by: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, or a lease came back."""


Input = (
    Register
    | Request
    | Redirect
    | Cancel
    | Prefetch
    | Loaded
    | Warmed
    | JobFailed
    | Unloaded
    | Keep
    | UnloadAsked
    | Retire
    | SetBudget
    | SetTenant
    | CloseAsked
    | Tick
)


# Effects: what the manager must do. Events for the hooks are effects too. ----------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Run this job of this generation on a worker thread and report how it ended."""

    generation: int
    job: Job


@dataclass(frozen=True, slots=True)
class Grant:
    """Open one lease on each of these generations for the admission, and tell its caller."""

    admission: int
    generations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Why: the set can't be given room, in the budget or, if a tenant is named, in that one's quota."""

    needed_nbytes: int
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """Why: a model of the set failed to load."""

    key: InstanceKey
    error: BaseException
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Why: the deadline passed while waiting for "room" or for the "load"."""

    waited_for: str


@dataclass(frozen=True, slots=True)
class TooSlow:
    """Why: even the fastest load so far would take this long, which is more than the caller would wait."""

    expected_s: float


@dataclass(frozen=True, slots=True)
class Full:
    """Why: as many callers wait as may."""

    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Closed:
    """Why: the manager is closing."""


Why = Exhausted | Broken | TimedOut | TooSlow | Full | Closed


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the admission's caller that it is not served, and why."""

    admission: int
    why: Why


Effect = Start | Grant | Refuse | Event
