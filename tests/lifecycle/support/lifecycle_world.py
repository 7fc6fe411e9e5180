"""A small world around the pure heart: what there is, who asks for what, and how much may go wrong.

Worlds that differ in the names of generations and in the hour only are the same one. Callers ask for names; a swap lets
a name mean another key.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lifecycle.config import InstanceKey, ModelConfig, Tenant
from lifecycle.heart import signals
from lifecycle.heart.states import IN_FLIGHT, Eviction, Job, Limits, Phase, State
from lifecycle.heart.transitions import step

RESERVED = Phase.RESERVED
LAZY = ModelConfig(warm_up=False)


def key(name: str) -> InstanceKey:
    """Return the key of a model that is only a name."""
    return InstanceKey(name, "fake")


@dataclass(frozen=True)
class Scenario:
    """What there is, who asks for what, and how much may go wrong. Names and keys are letters.

    A name means the key of the same letter, or what `shared` says. A swap is "A>X" (let A mean X), or "A>>X" if the old
    one may be drained first; X is known from then on only.
    """

    sizes: dict[str, int]
    budget: int
    callers: tuple[tuple[str, float], ...]  # (letters of the models, timeout)
    configs: dict[str, ModelConfig] = field(default_factory=dict)
    measured: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    cancels: int = 0
    clock_steps: int = 0
    again: int = 0  # how often a caller that is done may ask again
    shared: dict[str, str] = field(default_factory=dict)
    swaps: tuple[tuple[str, float], ...] = ()
    owners: dict[str, str] = field(default_factory=dict)  # letters of the tenants that use a key
    under: dict[int, int] = field(default_factory=dict)  # a caller's block lies within another's, who holds its models
    asking: str = ""  # letters of the tenants that the callers ask for, one for each; nothing: nobody says
    tenants: dict[str, Tenant] = field(default_factory=dict)
    orders: tuple[str, ...] = ()  # "unload A", "unload-now A", "prefetch AB", "budget 1", "quota t1", "close"
    max_parallel_loads: int = 2
    max_waiters: int | None = None
    eviction: Eviction = "lru"

    def start(self) -> World:
        """Return the world in which nothing has happened yet."""
        state = State(
            Limits(
                self.budget, self.max_parallel_loads, unload_timeout_s=2.0, backoff_s=1.0, backoff_cap_s=2.0,
                max_waiters=self.max_waiters, ageing_s=2.0, eviction=self.eviction,
            )
        )  # fmt: skip
        jobs: frozenset[tuple[int, Job]] = frozenset()
        later = {swap[-1] for swap, _ in self.swaps}
        names = {name: self.shared.get(name, name) for name in [*self.sizes, *self.shared] if name not in later}
        for name in self.sizes:
            if name not in later:
                state, effects = step(state, self.registration(name), 0.0)
                jobs |= {(e.generation, e.job) for e in effects if isinstance(e, signals.Start)}
        for tenant, settings in self.tenants.items():
            state, _ = step(state, signals.SetTenant(tenant, settings), 0.0)
        asking = (*self.asking, *[""] * len(self.callers))
        callers = [
            Caller(names, timeout, tenant=asking[n], under=self.under.get(n))
            for n, (names, timeout) in enumerate(self.callers)
        ]
        callers += [Caller(swap[0], timeout, swap=swap[-1], drain=">>" in swap) for swap, timeout in self.swaps]
        return World(
            state, jobs, jobs, tuple(callers), tuple(sorted(names.items())),
            self.failures, self.cancels, self.clock_steps, self.again, self.orders,
        )  # fmt: skip

    def registration(self, name: str) -> signals.Register:
        """Return the input that makes a key known."""
        config = self.configs.get(name, LAZY)
        return signals.Register(key(name), self.sizes[name], config, tuple(self.owners.get(name, "")))


@dataclass(frozen=True)
class Caller:
    """One caller: first idle, then waiting (`admission`) or holding (`held`), then done.

    One with a `swap` wants that key for its name: `turn` is its place among the swaps once it is begun,
    `ending` says that it is over but for the mail that says so, and `met` that the name was let mean the key. One that
    is `under` another asks within that one's block.
    """

    names: str
    timeout: float
    admission: int = 0
    held: tuple[int, ...] = ()
    done: bool = False
    swap: str = ""
    drain: bool = False
    turn: int = 0
    ending: bool = False
    met: bool = False
    tenant: str = ""
    under: int | None = None

    @property
    def is_swapping(self) -> bool:
        """Return whether it is a swap, begun and not ended."""
        return self.turn > 0 and not self.done


@dataclass(frozen=True)
class World:
    """One node of the walk."""

    state: State
    jobs: frozenset[tuple[int, Job]]
    started: frozenset[tuple[int, Job]]
    callers: tuple[Caller, ...]
    names: tuple[tuple[str, str], ...]
    failures: int
    cancels: int
    clock_steps: int
    again: int
    orders: tuple[str, ...]
    mail: bool = False
    has_shrunk: bool = False
    unloads: tuple[tuple[int, float], ...] = ()  # generations whose unload somebody waits for, and until when

    def keys(self, caller: Caller) -> tuple[InstanceKey, ...]:
        """Return the keys that a caller wants now."""
        names = dict(self.names)
        return (key(caller.swap),) if caller.swap else tuple(dict.fromkeys(key(names[name]) for name in caller.names))

    def spared(self, caller: Caller) -> tuple[InstanceKey, ...]:
        """Return the keys that may not leave for a caller's sake."""
        old = dict(self.names)[caller.names[0]]
        return (key(old),) if caller.swap and caller.swap != old and not caller.drain else ()

    def identity(self) -> object:
        """Return what makes two worlds the same: everything but the hour and the generations' numbers."""
        state, now = self.state, self.state.now
        number = {old: new for new, old in enumerate(state.generations)}
        ticket = {entry.number: new for new, entry in enumerate(state.queue)}
        generations = tuple(
            (
                g.key, g.phase, g.reserved_nbytes, g.charged_nbytes, g.job, g.deadline - now, g.drain_by - now,
                ticket.get(g.claimed_by, g.claimed_by), g.refs, g.is_lost, g.ready_at - now if g.is_open else 0,
                g.last_used - now if g.is_loaded else 0, repr(g.error),
                g.hits, g.floor, tuple(sorted(g.asked_by)),
                g.loading_since - now if g.phase in IN_FLIGHT else 0, g.reserved_at - now if g.phase is RESERVED else 0,
            )
            for g in state.generations.values()
        )  # fmt: skip
        models = tuple(
            (m.key, m.nbytes, m.failures, max(-9.0, m.retry_at - now), m.retired, m.load_s)
            for m in state.models.values()
        )
        queue = tuple(
            (
                e.keys,
                e.spared,
                e.deadline - now,
                e.deadline > e.since,
                e.generations and tuple(number[g] for g in e.generations),
                tuple(ticket[n] for n in e.under if n in ticket),
            )
            for e in state.queue
        )
        callers = tuple(
            (
                c.names, c.timeout, ticket.get(c.admission), tuple(number.get(g) for g in c.held), c.done, c.swap,
                c.drain, c.turn, c.ending, c.met,
            )
            for c in self.callers
        )  # fmt: skip
        running = frozenset((number[g], job) for g, job in self.jobs)
        begun = frozenset((number[g], job) for g, job in self.started if g in number)
        unloads = tuple((number[g], until - now) for g, until in self.unloads if g in number)
        rest = (
            unloads,
            self.names,
            state.wishes,
            state.closing,
            state.shrinking,
            state.inflation,
            state.limits.budget_nbytes,
            tuple(state.tenants.items()),
            self.failures,
            self.cancels,
            self.clock_steps,
            self.again,
            self.orders,
            self.mail,
        )
        return generations, models, queue, callers, running, begun, rest
