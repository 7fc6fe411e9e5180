"""Everything that can happen next in a world: callers, swaps, jobs, mail, the clock, and orders.

Callers take hits on open generations without a step, as the handles let them, and the state learns of it through
`observe`, as in the keeper. A swap goes in the steps of `lifecycle.registering.names`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from lifecycle_checks import check_step, require
from lifecycle_world import Scenario, World, key

from lifecycle.config import Tenant
from lifecycle.heart import signals
from lifecycle.heart.states import Job, Phase, State, observe
from lifecycle.heart.transitions import step
from lifecycle.leasing.handle import ModelHandle
from lifecycle.leasing.lease import LeaseSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lifecycle_world import Caller

    from lifecycle.heart.states import Generation


@dataclass
class Report:
    """How far the walk went."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    phases: set[Phase] = field(default_factory=set)
    effects: set[type] = field(default_factory=set)


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
        for until in [entry.deadline for entry in world.state.queue] + [until for _, until in world.unloads]:
            due = min(due, until) if until > world.state.now else due
        for later in {world.state.now + 1.0, min(due, world.state.now + 50.0)}:
            yield happen(replace(world, clock_steps=world.clock_steps - 1), signals.Tick(), later, report=report)
    for index, order in enumerate(world.orders):
        rest = (*world.orders[:index], *world.orders[index + 1 :])
        asked = order_input(order, world.state.now)
        shrunk = world.has_shrunk or isinstance(asked, signals.SetBudget | signals.SetTenant)
        after = happen(replace(world, orders=rest, has_shrunk=shrunk), asked, report=report)
        yield waited_for(after, asked) if isinstance(asked, signals.UnloadAsked) else after


def waited_for(world: World, asked: signals.UnloadAsked) -> World:
    """Let somebody wait for the unload that he has ordered, as `ModelManager.unload` does."""
    found = [
        g.number for g in world.state.generations.values() if g.key == asked.key and world.state.is_leaving(g.number)
    ]
    return replace(world, unloads=(*world.unloads, *((number, asked.drain_by) for number in found[-1:])))


def order_input(order: str, now: float) -> signals.Input:
    """Translate a scenario's order."""
    verb, _, names = order.partition(" ")
    match verb:
        case "unload" | "unload-late" | "unload-now":
            return signals.UnloadAsked(key(names), now + {"unload": 1.0, "unload-late": 3.0, "unload-now": 0.0}[verb])
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
    caller = world.callers[index]
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
    elif caller.under is None or world.callers[caller.under].held or world.callers[caller.under].admission:
        yield from asking_moves(world, index, report)


def asking_moves(world: World, index: int, report: Report | None) -> Iterator[World]:
    """Let a caller ask: through the gate where all are open, of the block that it is in, or through the queue."""
    state, caller = world.state, world.callers[index]
    keys = world.keys(caller)
    if len(keys) > 1:
        try_gates(world, caller)
    gates = tuple(g for k in keys for g in state.generations.values() if g.key == k and g.is_open)
    if len(gates) == len(keys):
        yield hit(world, index, gates)
    loans = () if caller.under is None else lent(world, caller)
    if loans and len(gates) < len(keys):
        yield hit(world, index, loans)
    if not loans:
        yield ask(world, index, report)


def hit(world: World, index: int, taken: tuple[Generation, ...]) -> World:
    """Let a caller take leases without a step; the state learns of it as the keeper does."""
    seen = [(g.number, g.refs + 1, g.last_used, g.hits + scenario_hits(world.state)) for g in taken]
    return change(replace(world, state=observe(world.state, seen)), index, held=tuple(g.number for g in taken))


def lent(world: World, caller: Caller) -> tuple[Generation, ...]:
    """Return the generations that a caller may borrow of the one around it: all that it wants, or none."""
    held = [world.state.generations[number] for number in world.callers[caller.under].held]
    loans = tuple(g for k in world.keys(caller) for g in held if g.key == k)
    return loans if len(loans) == len(world.keys(caller)) else ()


def scenario_hits(state: State) -> int:
    """Return what a hit counts: 1, or 0 where it makes no difference and would only multiply the worlds."""
    return int(state.limits.eviction == "gdsf")


def try_gates(world: World, caller: Caller) -> None:
    """Try a set's hot path by the product's own code; one that is not given leaves no trace on the models."""
    state, handles, desk = world.state, [], SimpleNamespace(open_handles={}, clock=lambda: world.state.now + 1.0)
    for name, letter in world.names:
        for g in [g for g in state.generations.values() if g.key == key(letter) and g.is_open]:
            handle = ModelHandle(g.key, g.number, None, None, lambda: None)
            handle.last_used, handle.hits = g.last_used, g.hits
            handle.open_gate(watched=False)
            handles.append((handle, g))
            desk.open_handles[name] = handle
    lease = LeaseSet(desk, tuple(caller.names), 0.0)
    given = lease.take(sys._getframe())
    lease._is_open = False
    unused = [(h.hits, h.last_used, h.refs) == (g.hits, g.last_used, 0) for h, g in handles]
    require(given or all(unused), "13: only a lease that was given is a use", world)


def ask(world: World, index: int, report: Report | None) -> World:
    """Put a caller into the queue."""
    state, caller = world.state, world.callers[index]
    number = 1 + max((e.number for e in state.queue), default=0)
    asking = frozenset(caller.tenant)
    under = () if caller.under is None else (world.callers[caller.under].admission,)
    request = signals.Request(
        number, world.keys(caller), state.now + caller.timeout, world.spared(caller), asking, under
    )
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
        watched |= not generation.is_open or (config.ttl_s == 0 and not config.pinned) or state.watches_leases
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
