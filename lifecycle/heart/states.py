"""The pure heart: what is loaded, who waits, and what an event changes. No threads, no clock, no I/O.

`transitions.step(state, event, now) -> (state, effects)` is the only way from one `State` to the next. This module
holds the data and everything that is derived from it; above all the ledger, which is a sum over the generations
and is kept nowhere.

A `Generation` is one instance of a key, from its reservation until its bytes are free. An `Admission` is one caller
asking for a set of keys (a single lease is a set of one): it waits in the queue until its whole set fits, then holds
the set's generations while they load, then becomes leases. Leases on an open generation come and go without passing
through here; `refs` is what the handle counted when the manager last looked (`observe`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Literal, get_args

from backends.errors import InvalidInput
from lifecycle.config import check_count, check_seconds, set_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lifecycle.config import InstanceKey, ModelConfig, Tenant


class Phase(Enum):
    """The states of LIFECYCLE: the first, second and last belong to a key, the others to a generation."""

    REGISTERED = "registered"
    QUEUED = "queued"
    RESERVED = "reserved"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    UNLOADING = "unloading"
    QUARANTINED = "quarantined"
    FAILED = "failed"


IN_FLIGHT = frozenset({Phase.RESERVED, Phase.LOADING, Phase.WARMING})


class Job(Enum):
    """Backend code that runs for a generation right now, on a thread of the manager's."""

    LOAD = "load"
    WARM_UP = "warm_up"
    UNLOAD = "unload"


Eviction = Literal["lru", "gdsf"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The manager's settings. `backoff_s` doubles with each failure in a row, up to `backoff_cap_s`.

    `max_waiters` bounds the queue. A load that nobody waits for ranks behind the others, but not after `ageing_s`.
    """

    budget_nbytes: int
    max_parallel_loads: int = 2
    unload_timeout_s: float = 30.0
    backoff_s: float = 1.0
    backoff_cap_s: float = 60.0
    max_waiters: int | None = None
    ageing_s: float = 30.0
    eviction: Eviction = "lru"

    def __post_init__(self) -> None:
        set_fields(
            self,
            budget_nbytes=check_count("budget_nbytes", self.budget_nbytes),
            max_parallel_loads=check_count("max_parallel_loads", self.max_parallel_loads, least=1),
            unload_timeout_s=check_seconds("unload_timeout_s", self.unload_timeout_s, positive=True),
            backoff_s=check_seconds("backoff_s", self.backoff_s, positive=True),
            backoff_cap_s=check_seconds("backoff_cap_s", self.backoff_cap_s),
            ageing_s=check_seconds("ageing_s", self.ageing_s, endless=True),
        )
        if self.max_waiters is not None:
            set_fields(self, max_waiters=check_count("max_waiters", self.max_waiters, least=1))
        if self.eviction not in get_args(Eviction):
            raise InvalidInput(f"eviction is {self.eviction!r}: give one of {get_args(Eviction)}")
        if self.backoff_cap_s < self.backoff_s:
            raise InvalidInput(f"backoff_cap_s is {self.backoff_cap_s}: give at least backoff_s, {self.backoff_s}")

    def backoff_after(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        return float(min(self.backoff_cap_s, self.backoff_s * 2.0 ** min(failures - 1, 60)))


@dataclass(frozen=True, slots=True)
class Model:
    """A registered key. `nbytes` is what a load reserves: the loader's estimate, then what the last load measured.

    `tenants` are those that use it, `load_s` is how long its fastest load took. One that is `retired` is not wanted
    any more, and forgotten as soon as nothing of it is left.
    """

    key: InstanceKey
    nbytes: int
    config: ModelConfig
    failures: int = 0
    retry_at: float = -math.inf
    error: BaseException | None = None
    retired: bool = False
    tenants: tuple[str, ...] = ()
    load_s: float | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """One instance of a key.

    `job` is the backend code running for it, and `deadline` that job's. `drain_by`, once finite, means that it must
    leave as soon as nobody uses it, and by then. `claimed_by` is the admission that waits for its last lease:
    until that admission ends, nobody else may take a new one. A QUARANTINED generation keeps its job until its late
    completion. `floor` is the state's `inflation` at its load or last hit. `own_ttl_s` overrides its config's. If
    `close()` raised it `is_lost`: its bytes are never known to be free. `asked_by` are the tenants that it was loaded
    for, or that waited for it.
    """

    number: int
    key: InstanceKey
    phase: Phase
    reserved_nbytes: int
    charged_nbytes: int
    job: Job | None = None
    deadline: float = math.inf
    drain_by: float = math.inf
    claimed_by: int | None = None
    refs: int = 0
    reserved_at: float = 0.0
    loading_since: float = 0.0
    ready_at: float = 0.0
    last_used: float = 0.0
    hits: int = 0
    floor: float = 0.0
    eager: bool = False
    own_ttl_s: float | None = None
    error: BaseException | None = None
    is_lost: bool = False
    asked_by: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Return whether new leases may be taken on it."""
        return self.phase is Phase.READY and self.claimed_by is None and self.drain_by == math.inf

    @property
    def is_live(self) -> bool:
        """Return whether a new admission may count on it: it is open, or will be when its load is done."""
        return self.is_open or (self.phase in IN_FLIGHT and self.drain_by == math.inf)

    @property
    def is_loaded(self) -> bool:
        """Return whether a lease on it can be handed out: the model is there and nobody is closing it."""
        return self.job is None and self.phase is not Phase.RESERVED and not self.is_lost

    @property
    def is_blocking(self) -> bool:
        """Return whether new admissions for its key must wait for its fate to be decided."""
        return (self.phase is Phase.READY and self.claimed_by is not None) or (
            self.phase in IN_FLIGHT and self.drain_by < math.inf
        )


@dataclass(frozen=True, slots=True)
class Admission:
    """A caller that waits for a set of keys. `generations` is None until the set's room is reserved.

    The instances of `spared` must not leave for its sake: it is to replace one of them. The quotas of `tenants` bound
    its loads; if there are none, those of all that use its keys. What the admissions hold that it is `under` it joins
    even where that is claimed or must leave: they end only after it.
    """

    number: int
    keys: tuple[InstanceKey, ...]
    since: float
    deadline: float
    generations: tuple[int, ...] | None = None
    spared: tuple[InstanceKey, ...] = ()
    tenants: frozenset[str] = frozenset()
    under: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """A load that no caller waits for. An eager one uses free room only and stays until it could be met.

    It asks for `tenants`, as an `Admission` does. One that is `left` was made by a caller who could not wait so long.
    """

    key: InstanceKey
    eager: bool
    tenants: frozenset[str] = frozenset()
    left: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """All that the manager knows. The mappings are never changed in place.

    While it is `shrinking`, the budget or a quota was lowered below what is in use: whatever becomes idle must leave
    at once. `inflation` is what the most valuable model evicted so far was worth (see `policy.worth`).
    """

    limits: Limits
    now: float = 0.0
    models: Mapping[InstanceKey, Model] = field(default_factory=dict)
    generations: Mapping[int, Generation] = field(default_factory=dict)
    queue: tuple[Admission, ...] = ()
    wishes: tuple[Wish, ...] = ()
    next_generation: int = 1
    closing: bool = False
    shrinking: bool = False
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    inflation: float = 0.0

    @property
    def charged_nbytes(self) -> int:
        """Return the ledger: the bytes charged for every generation, whatever its phase."""
        return sum(generation.charged_nbytes for generation in self.generations.values())

    @property
    def deficit_nbytes(self) -> int:
        """Return by how much the ledger is over the budget, because a model measured more than it reserved."""
        return max(0, self.charged_nbytes - self.limits.budget_nbytes)

    @property
    def is_finished(self) -> bool:
        """Return whether nothing can happen any more."""
        return self.closing and all(generation.is_lost for generation in self.generations.values())

    @property
    def watches_leases(self) -> bool:
        """Return whether the end of any lease must be told: while it shrinks, and while callers wait beside guarantees.

        A guarantee covers what is in use first, so the end of a lease on one model can free another.
        """
        has_guarantees = any(tenant.guaranteed_nbytes for tenant in self.tenants.values())
        return self.shrinking or (has_guarantees and any(entry.generations is None for entry in self.queue))

    def ttl_s(self, generation: Generation) -> float:
        """Return after how long an idle generation expires: infinity is never."""
        return ttl_of(self.models[generation.key], generation)

    def is_leaving(self, number: int) -> bool:
        """Return whether a generation is still there, and is not given up."""
        generation = self.generations.get(number)
        return generation is not None and generation.phase is not Phase.QUARANTINED

    def held(self) -> frozenset[int]:
        """Return the generations that admissions hold: leases that exist, though nobody has been told yet."""
        return frozenset(number for admission in self.queue for number in admission.generations or ())

    def phase_of(self, key: InstanceKey, now: float) -> Phase:
        """Return the phase of a key at a time: that of a generation which isn't on its way out, else its own."""
        generations = [generation for generation in self.generations.values() if generation.key == key]
        live = [generation for generation in generations if generation.is_live or generation.is_blocking]
        if live:
            return live[-1].phase
        if any(key in admission.keys for admission in self.queue):
            return Phase.QUEUED
        if now < self.models[key].retry_at:
            return Phase.FAILED
        return generations[-1].phase if generations else Phase.REGISTERED

    def next_deadline(self) -> float:
        """Return the earliest time at which something happens by itself, except the ends of callers' own waits."""
        retries = (self.models[wish.key].retry_at for wish in self.wishes)
        times = [retry_at for retry_at in retries if retry_at > self.now]
        held = self.held()
        for generation in self.generations.values():
            ttl_s = self.ttl_s(generation)
            if generation.phase is Phase.QUARANTINED:
                continue
            if generation.job is not None:
                times.append(generation.deadline)
            elif generation.phase is Phase.DRAINING:
                times.append(generation.drain_by)
            elif generation.is_open and ttl_s < math.inf:
                in_use = generation.refs > 0 or generation.number in held
                if not in_use:
                    times.append(generation.last_used + ttl_s)
                elif ttl_s > 0:  # a handle with a TTL of 0 reports its last release by itself
                    times.append(after(self.now, ttl_s))
        return min(times, default=math.inf)


def after(now: float, seconds: float) -> float:
    """Return the time so long after now, and never now itself: what is too short to be told apart still has to pass."""
    return max(now + seconds, math.nextafter(now, math.inf))


def ttl_of(model: Model, generation: Generation) -> float:
    """Return a generation's time to live: its own, if a lease has set one, else its config's; infinity if pinned."""
    config = model.config
    own = generation.own_ttl_s
    ttl_s = math.inf if config.ttl_s is None else config.ttl_s
    return math.inf if config.pinned else ttl_s if own is None else own


def observe(state: State, seen: Iterable[tuple[int, int, float, int]]) -> State:
    """Return the state with what the handles counted: (generation, open leases, time of the last release, hits)."""
    changed = {
        number: replace(
            known,
            refs=refs,
            last_used=max(last_used, known.last_used),
            hits=hits,
            floor=state.inflation if hits > known.hits else known.floor,
        )
        for number, refs, last_used, hits in seen
        if (known := state.generations[number]).refs != refs or last_used > known.last_used or hits > known.hits
    }
    return replace(state, generations={**state.generations, **changed}) if changed else state
