"""Walk through every state that the pure heart can reach in a small world, and check every invariant in each.

A world is the state, the jobs that run, what each caller does, and how much of the scenario's mischief (failures,
clock jumps, orders) is left. Callers take hits on open generations without a step, as the handles let them, and the
state learns of it through `observe`, as in the keeper. Worlds that differ in the names of generations and in the
hour only are the same. Callers ask for names; a swap lets a name mean another key, in the steps of `lifecycle.names`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lifecycle import signals
from lifecycle.config import InstanceKey, LoadPolicy, ModelConfig, Tenant
from lifecycle.events import ModelEvicted, ModelExpired
from lifecycle.states import IN_FLIGHT, Eviction, Generation, Job, Limits, Phase, State, observe
from lifecycle.transitions import step

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        callers = [Caller(names, timeout) for names, timeout in self.callers]
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
    `ending` says that it is over but for the mail that says so, and `met` that the name was let mean the key.
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
                g.hits, g.floor,
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
        rest = (
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


@dataclass
class Report:
    """How far the walk went."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    phases: set[Phase] = field(default_factory=set)
    effects: set[type] = field(default_factory=set)


class Violation(AssertionError):
    """An invariant doesn't hold."""


def require(holds: object, invariant: str, world: World) -> None:
    """Raise with the world if something that must hold doesn't."""
    if not holds:
        raise Violation(f"{invariant}\n{world}")


def explore(scenario: Scenario, limit: int = 2_000_000) -> Report:
    """Visit every reachable world, check it, and check that everybody in it can still be served."""
    report = Report()
    first = scenario.start()
    check(first)
    seen = {first.identity()}
    frontier = deque([(first, 0)])
    while frontier:
        world, depth = frontier.popleft()
        report.states += 1
        report.depth = max(report.depth, depth)
        report.phases |= {g.phase for g in world.state.generations.values()}
        require(report.states < limit, f"more than {limit} states", world)
        check_liveness(scenario, world)
        for after in moves(scenario, world, report):
            report.transitions += 1
            name = after.identity()
            if name not in seen:
                seen.add(name)
                check(after)
                frontier.append((after, depth + 1))
    return report


# Moves. -----------------------------------------------------------------------------------------------------------


def moves(scenario: Scenario, world: World, report: Report | None = None) -> Iterator[World]:
    """Yield every world that can come next."""
    for index, caller in enumerate(world.callers):
        yield from (swap_moves(scenario, world, index, report) if caller.swap else caller_moves(world, index, report))
    for number, job in sorted(world.jobs, key=lambda item: (item[0], item[1].value)):
        yield from job_moves(scenario, world, number, job, report)
    if world.mail:
        yield happen(replace(world, mail=False), signals.Tick(), report=report)
    if world.clock_steps:
        due = world.state.next_deadline()
        for entry in world.state.queue:
            due = min(due, entry.deadline)
        for later in {world.state.now + 1.0, min(due, world.state.now + 50.0)}:
            yield happen(replace(world, clock_steps=world.clock_steps - 1), signals.Tick(), later, report=report)
    for index, order in enumerate(world.orders):
        rest = (*world.orders[:index], *world.orders[index + 1 :])
        asked = order_input(order, world.state.now)
        shrunk = world.has_shrunk or isinstance(asked, signals.SetBudget | signals.SetTenant)
        yield happen(replace(world, orders=rest, has_shrunk=shrunk), asked, report=report)


def order_input(order: str, now: float) -> signals.Input:
    """Translate a scenario's order."""
    verb, _, names = order.partition(" ")
    match verb:
        case "unload":
            return signals.UnloadAsked(key(names), now + 1.0)
        case "unload-now":
            return signals.UnloadAsked(key(names), now)
        case "budget":
            return signals.SetBudget(int(names))
        case "quota":
            return signals.SetTenant(names[0], Tenant(int(names[1])))
        case "prefetch":
            return signals.Prefetch(tuple(map(key, names)))
        case _:
            return signals.CloseAsked(now + 1.0)


def caller_moves(world: World, index: int, report: Report | None) -> Iterator[World]:
    """Let a caller ask (through the gate where all are open, and through the queue), give up, or return."""
    state, caller = world.state, world.callers[index]
    if caller.done:
        if world.again:
            yield change(replace(world, again=world.again - 1), index, done=False)
        return
    if caller.held:
        yield release(world, index)
    elif caller.admission:
        if world.cancels:
            gone = change(world, index, done=True, admission=0)
            yield happen(replace(gone, cancels=world.cancels - 1), signals.Cancel(caller.admission), report=report)
    else:
        keys = world.keys(caller)
        gates = [g.number for k in keys for g in state.generations.values() if g.key == k and g.is_open]
        if len(gates) == len(keys):
            seen = [
                (
                    n,
                    state.generations[n].refs + 1,
                    state.generations[n].last_used,
                    state.generations[n].hits + scenario_hits(state),
                )
                for n in gates
            ]
            yield change(replace(world, state=observe(state, seen)), index, held=tuple(gates))
        yield ask(world, index, report)


def scenario_hits(state: State) -> int:
    """Return what a hit counts: 1, or 0 where it makes no difference and would only multiply the worlds."""
    return int(state.limits.eviction == "gdsf")


def ask(world: World, index: int, report: Report | None) -> World:
    """Put a caller into the queue."""
    state, caller = world.state, world.callers[index]
    number = 1 + max((e.number for e in state.queue), default=0)
    request = signals.Request(number, world.keys(caller), state.now + caller.timeout, world.spared(caller))
    return happen(change(world, index, admission=number), request, report=report)


def swap_moves(scenario: Scenario, world: World, index: int, report: Report | None) -> Iterator[World]:
    """Let a swap begin, give up, come to its end, or be over."""
    caller = world.callers[index]
    if caller.held:
        yield finish_swap(world, index)
    elif caller.ending:
        yield end_swap(world, index)
    elif caller.admission and world.cancels:
        gone = change(replace(world, cancels=world.cancels - 1), index, ending=True, admission=0)
        yield happen(gone, signals.Cancel(caller.admission), report=report)
    elif not caller.turn and not world.state.closing:
        turn = 1 + max(c.turn for c in world.callers)
        begun = change(world, index, turn=turn, drain=False)
        begun = ask(happen(begun, scenario.registration(caller.swap), report=report), index, report)
        if caller.drain and begun.callers[index].ending:
            begun = ask(change(begun, index, ending=False, drain=True), index, report)
        yield begun


def finish_swap(world: World, index: int) -> World:
    """Let the name mean the new key, move those who wait along, retire the old key and return the hold."""
    caller, names = world.callers[index], dict(world.names)
    overtaken = any(c.met and c.names == caller.names and c.turn > caller.turn for c in world.callers)
    if not overtaken and not world.state.closing:
        old, names[caller.names] = names[caller.names], caller.swap
        world = change(replace(world, names=tuple(sorted(names.items()))), index, met=True)
        for other in world.callers:
            wanted = (world.keys(other), world.spared(other))
            if any(e.number == other.admission and wanted != (e.keys, e.spared) for e in world.state.queue):
                world = happen(world, signals.Redirect(other.admission, *wanted))
        world = retire_if_unwanted(world, old)
    return change(release(world, index), index, done=False, ending=True)


def end_swap(world: World, index: int) -> World:
    """Forget a swap; its key is retired if it did not come into use."""
    return retire_if_unwanted(change(world, index, done=True, ending=False), world.callers[index].swap)


def retire_if_unwanted(world: World, letter: str) -> World:
    """Retire a key that neither a name nor a swap wants."""
    wanted = {*dict(world.names).values(), *(c.swap for c in world.callers if c.is_swapping)}
    known = key(letter) in world.state.models
    return world if letter in wanted or not known else happen(world, signals.Retire(key(letter), world.state.now + 1.0))


def job_moves(scenario: Scenario, world: World, number: int, job: Job, report: Report | None) -> Iterator[World]:
    """Let a job end well, or, while the scenario has failures left, badly."""
    done = replace(world, jobs=world.jobs - {(number, job)})
    yield happen(done, job_done(scenario, world, number, job), report=report)
    if world.failures:
        failed = signals.JobFailed(number, OSError("broken"), loaded=job is not Job.LOAD)
        yield happen(replace(done, failures=world.failures - 1), failed, report=report)


def job_done(scenario: Scenario, world: World, number: int, job: Job) -> signals.Input:
    """Return the input that says that a job has done its work."""
    match job:
        case Job.LOAD:
            name = world.state.generations[number].key.digest
            return signals.Loaded(number, scenario.measured.get(name, scenario.sizes[name]))
        case Job.WARM_UP:
            return signals.Warmed(number)
        case Job.UNLOAD:
            return signals.Unloaded(number)


def release(world: World, index: int) -> World:
    """Return what a caller holds: the handles count it at once, and a watched one sends a tick later."""
    state, held = world.state, world.callers[index].held
    watched = False
    for number in held:
        generation = state.generations[number]
        config = state.models[generation.key].config
        watched |= not generation.is_open or ((config.ttl_s == 0 or state.shrinking) and not config.pinned)
        state = observe(state, [(number, generation.refs - 1, state.now, generation.hits)])
    return change(replace(world, state=state, mail=world.mail or watched), index, held=(), done=True)


def change(world: World, index: int, **fields: object) -> World:
    """Return the world with one caller changed."""
    callers = list(world.callers)
    callers[index] = replace(callers[index], **fields)
    return replace(world, callers=tuple(callers))


def happen(world: World, event: signals.Input, now: float | None = None, report: Report | None = None) -> World:
    """Make a step, hand out what it granted, and check what may be said about the step itself."""
    before = world.state
    state, effects = step(before, event, before.now if now is None else now)
    jobs, started, callers = world.jobs, world.started, list(world.callers)
    for effect in effects:
        match effect:
            case signals.Start(number, job):
                require((number, job) not in started, "12: a job is started once per generation", world)
                jobs, started = jobs | {(number, job)}, started | {(number, job)}
            case signals.Grant(admission, generations):
                (index,) = [i for i, c in enumerate(callers) if c.admission == admission]
                callers[index] = replace(callers[index], admission=0, held=generations)
                require(all(state.generations[n].is_loaded for n in generations), "6: granted, and already gone", world)
                got = tuple(state.generations[n].key for n in generations)
                require(got == world.keys(callers[index]), "11: granted what its names mean", world)
            case signals.Refuse(admission):
                for index in [i for i, c in enumerate(callers) if c.admission == admission]:
                    over = {"ending": True} if callers[index].swap else {"done": True}
                    callers[index] = replace(callers[index], admission=0, **over)
    after = replace(world, state=state, jobs=jobs, started=started, callers=tuple(callers))
    if report is not None:
        report.effects |= {type(effect) for effect in effects}
        for effect in effects:
            if isinstance(effect, signals.Refuse):
                report.effects.add(type(effect.why))
    check_step(before, event, after, effects)
    return after


# Checks. ----------------------------------------------------------------------------------------------------------


def check(world: World) -> None:
    """Check what must hold in every state."""
    state = world.state
    generations = list(state.generations.values())
    excess = sum(max(0, g.charged_nbytes - g.reserved_nbytes) for g in generations)
    require(state.charged_nbytes == sum(g.charged_nbytes for g in generations), "1: the ledger is the sum", world)
    within = state.charged_nbytes <= state.limits.budget_nbytes + excess
    require(within or world.has_shrunk, "2: the ledger is within the budget", world)
    for tenant, settings in state.tenants.items():
        quota = settings.quota_nbytes
        fits = quota is None or charge(state, tenant, generations) <= quota + excess
        require(fits or world.has_shrunk, "a tenant is within its quota", world)
    idle = [g for g in generations if g.is_open and not g.refs and g.number not in state.held()]
    evictable = [g for g in idle if not state.models[g.key].config.pinned]
    most = state.limits.max_waiters
    require(most is None or len(state.queue) <= most, "the queue is bounded", world)
    over = world.has_shrunk and surplus(replace(state, queue=()), wishes=False) < 0
    require(world.mail or not over or not evictable, "2: while the budget shrinks, nobody stays idle", world)
    held_by_admissions = state.held()
    for g in generations:
        holders = sum(g.number in caller.held for caller in world.callers)
        require(g.refs == holders, f"3: refs of {g} are {holders}", world)
        if g.phase is Phase.UNLOADING or g.job is Job.UNLOAD:
            require(not holders, "4: nothing in use is unloaded", world)
            require(g.number not in held_by_admissions, "6: nothing held is unloaded", world)
        check_shape(world, g)
    for k in state.models:
        flying = [g for g in generations if g.key == k and g.phase in IN_FLIGHT]
        require(len(flying) <= 1, "5: one load per key", world)
        require(
            sum(g.is_live or g.is_blocking for g in generations if g.key == k) <= 1, "5: one live generation", world
        )
    for caller in world.callers:
        require(all(n in state.generations for n in caller.held), "9: what is leased is there", world)
        if caller.admission:
            require(any(e.number == caller.admission for e in state.queue), "14: a waiter is in the queue", world)
    require(world.mail or state.next_deadline() > state.now, "14: nothing that is due is left undone", world)
    require(not state.closing or not (state.queue or state.wishes), "15: closing admits nobody", world)
    for name, letter in world.names:
        require(not state.models[key(letter)].retired, f"what {name} means is not retired", world)
    for k in [k for k, model in state.models.items() if model.retired]:
        require(any(g.key == k for g in generations), "what is retired is forgotten with its last generation", world)
    again, effects = step(state, signals.Tick(), state.now)
    require(world.mail or (not effects and again == state), "a step leaves nothing for the next to do", world)


def check_shape(world: World, g: Generation) -> None:
    """Check that phase, job, claim and deadline of one generation go together."""
    running = {Phase.LOADING: Job.LOAD, Phase.WARMING: Job.WARM_UP, Phase.UNLOADING: Job.UNLOAD}
    if g.phase is not Phase.QUARANTINED:
        require(g.job is running.get(g.phase), "14: every transition has an owner", world)
        require(g.job is None or g.deadline < math.inf, "14: every job has a deadline", world)
        require(g.job is None or (g.number, g.job) in world.jobs, "14: every job runs", world)
    if g.claimed_by is not None:
        claimers = [e for e in world.state.queue if e.number == g.claimed_by and e.generations is None]
        require(claimers and g.phase is Phase.READY, "8: claims", world)
        in_use = g.refs or g.number in world.state.held()
        enough = surplus(world.state, wishes=False, last=g.claimed_by) >= 0
        enough |= bool(world.state.tenants)  # a claim may be for a quota; if it is not let go, liveness will tell
        require(world.mail or in_use or enough, "8: a claimed one is closed at its last release, if needed", world)
        require(not world.state.models[g.key].config.pinned, "8: a pinned model is not claimed", world)
        require(all(g.key not in (*e.keys, *e.spared) for e in claimers), "8: nobody claims his own", world)


def check_step(before: State, event: signals.Input, after: World, effects: tuple[signals.Effect, ...]) -> None:
    """Check what must hold of every step."""
    state = after.state
    evicted = [state.generations[e.generation] for e in effects if isinstance(e, ModelEvicted)]
    spare = surplus(state, wishes=True)
    for g in evicted:
        require(not g.refs and g.number not in state.held(), "8: nobody in use is evicted", after)
        require(not before.models[g.key].config.pinned, "8: nobody pinned is evicted", after)
        require(g.charged_nbytes > spare or state.tenants, "8: no victim more than needed", after)
        waiting = [e for e in (*before.queue, *state.queue) if e.generations is None]
        others = before.wishes or isinstance(event, signals.Request | signals.Prefetch | signals.Redirect)
        others = others or before.shrinking or isinstance(event, signals.SetBudget | signals.SetTenant)
        require(others or any(g.key not in e.spared for e in waiting), "a swap spares what it replaces", after)
    most = max(before.charged_nbytes, state.limits.budget_nbytes)
    grown = state.charged_nbytes > most and not isinstance(event, signals.Loaded)
    require(not grown, "2: whoever is over the budget takes no more", after)
    for number in state.generations.keys() - before.generations.keys():
        g = state.generations[number]
        require(g.charged_nbytes == before.models[g.key].nbytes, "1: what is loaded was reserved before", after)
    claimed = [g for n, g in state.generations.items() if g.claimed_by and not before.generations[n].claimed_by]
    unclaimed = [g for g in evicted if before.generations[g.number].claimed_by is None]
    check_residency(state, unclaimed)
    check_guarantees(before, after, [*evicted, *claimed])
    if isinstance(event, signals.Loaded):
        require(state.generations[event.generation].charged_nbytes == event.nbytes, "1: the measured is charged", after)
    if isinstance(event, signals.Cancel):
        require(not any(isinstance(e, signals.Refuse) for e in effects), "5: a caller's leaving fails nobody", after)
    if isinstance(event, signals.Request) and not after.mail and all(is_live(before, k) for k in event.keys):
        require(not evicted and state.charged_nbytes == before.charged_nbytes, "7: a hit never evicts", after)
    if any(isinstance(e, signals.Refuse) and isinstance(e.why, signals.Exhausted) for e in effects):
        shrinking = before.shrinking or state.shrinking
        require(not evicted or shrinking or len(before.queue) > 0, "8: nobody is evicted for one who is refused", after)
    for effect in effects:
        if isinstance(effect, ModelExpired):
            g, config = before.generations[effect.generation], before.models[effect.key].config
            require(config.ttl_s is not None and g.last_used + config.ttl_s <= state.now, "13: TTL", after)
            require(not g.refs and not config.pinned, "13: nobody in use expires", after)
    check_bytes(before, event, after)


def check_residency(state: State, evicted: list[Generation]) -> None:
    """Check that nobody young is evicted while somebody else as large is idle, whom no waiting caller wants."""
    wanted = {k for e in state.queue for k in (*e.keys, *e.spared)}
    for g in evicted:
        if state.now - g.ready_at < state.models[g.key].config.min_residency_s and not g.eager:
            others = [
                o for o in state.generations.values() if o.is_open and not o.refs and o.number not in state.held()
            ]
            old = [o for o in others if state.now - o.ready_at >= state.models[o.key].config.min_residency_s]
            spare = [o for o in old if o.key not in wanted and o.charged_nbytes >= g.charged_nbytes]
            assert not spare, f"a young one was evicted beside {spare}\n{state}"


def check_guarantees(before: State, after: World, taken: list[Generation]) -> None:
    """Check that a tenant within its guarantee loses nothing unless a key that it uses itself is to be loaded."""
    state = after.state
    asked = {k for e in (*before.queue, *state.queue) for k in e.keys} | {
        w.key for w in (*before.wishes, *state.wishes)
    }
    known = {**before.models, **state.models}
    asking = {tenant for k in asked if not is_live(before, k) for tenant in known[k].tenants}
    for tenant in {t for g in taken for t in state.models[g.key].tenants} & state.tenants.keys() - asking:
        live = [g for g in before.generations.values() if g.is_live]
        within = 0 < charge(before, tenant, live) <= state.tenants[tenant].guaranteed_nbytes
        require(not within or before.shrinking, "a guarantee is kept", after)


def charge(state: State, tenant: str, generations: list[Generation]) -> int:
    """Return a tenant's part of what is charged for these generations."""
    models = [(state.models[g.key].tenants, g.charged_nbytes) for g in generations]
    return sum(math.ceil(nbytes / len(users)) for users, nbytes in models if tenant in users)


def surplus(state: State, *, wishes: bool, last: float = math.inf) -> int:
    """Return the bytes that are free or leaving beyond what admissions, up to the last, (and wishes) wait for."""
    queue = [e for e in state.queue if e.generations is None and e.number <= last]
    waiting = {k for e in queue for k in e.keys if not is_live(state, k)}
    if wishes:
        waiting |= {wish.key for wish in state.wishes if state.models[wish.key].retry_at <= state.now}
    free = state.limits.budget_nbytes - state.charged_nbytes
    leaving = sum(g.charged_nbytes for g in state.generations.values() if g.phase in {Phase.DRAINING, Phase.UNLOADING})
    return free + leaving - sum(state.models[k].nbytes for k in waiting)


def check_bytes(before: State, event: signals.Input, after: World) -> None:
    """Check that bytes become free only when backend code has said so."""
    for number, g in before.generations.items():
        now = after.state.generations.get(number)
        if now is None:
            ended = isinstance(event, signals.Unloaded | signals.JobFailed) and event.generation == number
            dropped = isinstance(event, signals.CloseAsked | signals.Retire) and g.phase is Phase.RESERVED
            require(ended or dropped, "9: bytes are free when close() has returned", after)
        elif now.charged_nbytes != g.charged_nbytes:
            measured = isinstance(event, signals.Loaded) and event.generation == number
            require(measured, "1: a charge changes when it is measured, and only then", after)
        else:
            order = list(Phase)
            back = g.phase in IN_FLIGHT and now.phase in IN_FLIGHT and order.index(now.phase) < order.index(g.phase)
            require(not back, "states go forward", after)
        if now is not None and g.claimed_by is not None and now.is_open:
            ended = all(e.number != g.claimed_by or e.generations is not None for e in after.state.queue)
            ended |= isinstance(event, signals.Redirect) and event.admission == g.claimed_by
            require(ended, "8: only the end of an admission, or of what it asked for, clears its claims", after)


def is_live(state: State, k: InstanceKey) -> bool:
    """Return whether the key has a generation that admissions may join."""
    return any(g.key == k and g.is_live for g in state.generations.values())


def check_liveness(scenario: Scenario, world: World) -> None:
    """Check that every waiter ends: at its deadline by itself, and without the clock if everybody does his part."""
    for entry in world.state.queue:
        late, _ = step(world.state, signals.Tick(), entry.deadline)
        require(all(e.number != entry.number for e in late.queue), "14: a wait ends at its deadline", world)
    current = world
    while True:
        following = next(cooperative_moves(scenario, current), None)
        if following is None:
            break
        current = following
    require(not current.state.queue, "14: everybody who waits is served once the others are done", current)
    if current.state.closing:
        stuck = [g for g in current.state.generations.values() if g.phase is not Phase.QUARANTINED]
        require(not stuck, "15: nothing is left behind", current)


def cooperative_moves(scenario: Scenario, world: World) -> Iterator[World]:
    """Yield the moves in which jobs succeed, leases come back and mail is read, the clock standing still."""
    for number, job in world.jobs:
        done = replace(world, jobs=world.jobs - {(number, job)})
        yield happen(done, job_done(scenario, world, number, job))
    for index, caller in enumerate(world.callers):
        if caller.swap:
            if caller.held or caller.ending:
                yield from swap_moves(scenario, world, index, None)
        elif caller.held:
            yield release(world, index)
    if world.mail:
        yield happen(replace(world, mail=False), signals.Tick())


EAGER = LoadPolicy.EAGER
