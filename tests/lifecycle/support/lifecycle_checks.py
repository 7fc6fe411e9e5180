"""What must hold in every state of a world, and of every step: each check names the invariant of LIFECYCLE."""

from __future__ import annotations

import math
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

from lifecycle_world import key

from lifecycle.events import ModelEvicted, ModelExpired, ModelQuarantined
from lifecycle.heart import signals
from lifecycle.heart.states import IN_FLIGHT, Generation, Job, Phase, State
from lifecycle.heart.transitions import step
from lifecycle.keeping.keeper import Watch

if TYPE_CHECKING:
    from lifecycle_world import World

    from lifecycle.config import InstanceKey


class Violation(AssertionError):
    """An invariant doesn't hold."""


def require(holds: object, invariant: str, world: World) -> None:
    """Raise with the world if something that must hold doesn't."""
    if not holds:
        raise Violation(f"{invariant}\n{world}")


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
    check_reservations(world)
    for number, until in world.unloads:
        over = Watch(lambda state, number=number: not state.is_leaving(number), until, Event()).is_over(state)
        require(over or state.now < until, "14: an unload waits no longer than its own time", world)
    again, effects = step(state, signals.Tick(), state.now)
    require(world.mail or (not effects and again == state), "a step leaves nothing for the next to do", world)


def check_reservations(world: World) -> None:
    """Check that nobody waits for the bytes of loads that have not begun and that nobody waits for."""
    state = world.state
    first = next((e for e in state.queue if e.generations is None), None)
    if first is None or first.deadline <= state.now or any(t.quota_nbytes is not None for t in state.tenants.values()):
        return
    missing = {k for k in first.keys if not is_live(state, k)}
    undecided = any(g.key in missing and g.is_blocking for g in state.generations.values())
    kept = {*first.keys, *first.spared}
    unbegun = [
        g
        for g in state.generations.values()
        if g.phase is Phase.RESERVED and g.number not in state.held() and g.key not in kept
        and state.now - g.reserved_at < state.limits.ageing_s
    ]  # fmt: skip
    short = -surplus(state, wishes=False, last=first.number)
    short -= sum(g.charged_nbytes for g in state.generations.values() if g.claimed_by == first.number)
    held_up = unbegun and 0 < short <= sum(g.charged_nbytes for g in unbegun)
    require(undecided or not held_up, "reservations give way to who waits", world)


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
        limits = (None, *world.state.models[g.key].tenants)
        enough = all(surplus(world.state, wishes=False, last=g.claimed_by, tenant=limit) >= 0 for limit in limits)
        require(world.mail or in_use or enough, "8: a claimed one is closed at its last release, if needed", world)
        require(not world.state.models[g.key].config.pinned, "8: a pinned model is not claimed", world)
        require(all(g.key not in (*e.keys, *e.spared) for e in claimers), "8: nobody claims his own", world)


def check_step(before: State, event: signals.Input, after: World, effects: tuple[signals.Effect, ...]) -> None:
    """Check what must hold of every step."""
    state = after.state
    evicted = [state.generations[e.generation] for e in effects if isinstance(e, ModelEvicted)]
    if isinstance(event, signals.Request) and not after.mail and all(is_live(before, k) for k in event.keys):
        require(not evicted and state.charged_nbytes == before.charged_nbytes, "7: a hit never evicts", after)
    room = surplus(state, wishes=True)
    for g in evicted:
        require(not g.refs, "4: nobody in use is evicted", after)
        require(g.number not in state.held(), "6: nobody held is evicted", after)
        require(not before.models[g.key].config.pinned, "8: nobody pinned is evicted", after)
        spare = {tenant: surplus(state, wishes=True, tenant=tenant) for tenant in state.models[g.key].tenants}
        for_quota = any(charge(state, tenant, [g]) > left for tenant, left in spare.items())
        require(for_quota or g.charged_nbytes > room, "8: no victim more than needed", after)
        waiting = [e for e in (*before.queue, *state.queue) if e.generations is None]
        others = before.wishes or isinstance(event, signals.Request | signals.Prefetch | signals.Redirect)
        others = others or before.shrinking or isinstance(event, signals.SetBudget | signals.SetTenant)
        require(others or any(g.key not in e.spared for e in waiting), "a swap spares what it replaces", after)
    granted = [number for e in effects if isinstance(e, signals.Grant) for number in e.generations]
    require(all(state.generations[number].is_loaded for number in granted), "6: granted, and already gone", after)
    most = max(before.charged_nbytes, state.limits.budget_nbytes)
    grown = state.charged_nbytes > most and not isinstance(event, signals.Loaded)
    require(not grown, "2: whoever is over the budget takes no more", after)
    for number in state.generations.keys() - before.generations.keys():
        g = state.generations[number]
        require(g.charged_nbytes == before.models[g.key].nbytes, "1: what is loaded was reserved before", after)
    claimed = [g for n, g in state.generations.items() if g.claimed_by and not before.generations[n].claimed_by]
    unclaimed = [g for g in evicted if before.generations[g.number].claimed_by is None]
    check_residency(state, unclaimed)
    check_guarantees(before, after, [*unclaimed, *claimed])  # what was claimed earlier was checked then
    if isinstance(event, signals.Loaded):
        require(state.generations[event.generation].charged_nbytes == event.nbytes, "1: the measured is charged", after)
    if isinstance(event, signals.Cancel):
        require(not any(isinstance(e, signals.Refuse) for e in effects), "5: a caller's leaving fails nobody", after)
    if any(isinstance(e, signals.Refuse) and isinstance(e.why, signals.Exhausted) for e in effects):
        shrinking = before.shrinking or state.shrinking
        require(not evicted or shrinking or len(before.queue) > 0, "8: nobody is evicted for one who is refused", after)
    for effect in effects:
        if isinstance(effect, ModelExpired):
            g, config = before.generations[effect.generation], before.models[effect.key].config
            require(config.ttl_s is not None and g.last_used + config.ttl_s <= state.now, "13: TTL", after)
            require(not g.refs and not config.pinned, "13: nobody in use expires", after)
    if isinstance(event, signals.UnloadAsked):
        drains = [(g, state.generations.get(n)) for n, g in before.generations.items() if g.drain_by < math.inf]
        kept_its_time = all(now is None or now.drain_by >= g.drain_by for g, now in drains)
        require(kept_its_time, "14: a drain ends by its own deadline, not another's", after)
    given_up = {n for n, g in state.generations.items() if g.phase is Phase.QUARANTINED}
    given_up -= {n for n, g in before.generations.items() if g.phase is Phase.QUARANTINED}
    alarms = {effect.generation for effect in effects if isinstance(effect, ModelQuarantined)}
    require(given_up <= alarms, "9: what is quarantined raises an alarm", after)
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
    """Check that a tenant within its guarantee loses nothing unless it asks for a load, or may be who asks."""
    state = after.state
    known = {**before.models, **state.models}
    asked = [(k, e.tenants) for e in (*before.queue, *state.queue) for k in e.keys]
    asked += [(w.key, w.tenants) for w in (*before.wishes, *state.wishes)]
    asking = {tenant for k, who in asked if not is_live(before, k) for tenant in (who or known[k].tenants)}
    for tenant in {t for g in taken for t in state.models[g.key].tenants} & state.tenants.keys() - asking:
        live = [g for g in before.generations.values() if g.is_live]
        within = 0 < charge(before, tenant, live) <= state.tenants[tenant].guaranteed_nbytes
        require(not within or before.shrinking, "a guarantee is kept", after)


def charge(state: State, tenant: str, generations: list[Generation]) -> int:
    """Return a tenant's part of what is charged for these generations."""
    models = [(state.models[g.key].tenants, g.charged_nbytes) for g in generations]
    return sum(math.ceil(nbytes / len(users)) for users, nbytes in models if tenant in users)


def surplus(state: State, *, wishes: bool, last: float = math.inf, tenant: str | None = None) -> float:
    """Return the bytes that are free or leaving beyond what admissions, up to the last, (and wishes) wait for.

    Of the budget, or of a tenant's quota.
    """
    queue = [e for e in state.queue if e.generations is None and e.number <= last]
    waiting = {k for e in queue for k in e.keys if not is_live(state, k)}
    if wishes:
        waiting |= {wish.key for wish in state.wishes if state.models[wish.key].retry_at <= state.now}
    stays = [g for g in state.generations.values() if g.phase not in {Phase.DRAINING, Phase.UNLOADING}]
    if tenant is None:
        taken = sum(g.charged_nbytes for g in stays) + sum(state.models[k].nbytes for k in waiting)
        return state.limits.budget_nbytes - taken
    settings = state.tenants.get(tenant)
    if settings is None or settings.quota_nbytes is None:
        return math.inf
    wanted = [(state.models[k].tenants, state.models[k].nbytes) for k in waiting]
    taken = sum(math.ceil(nbytes / len(users)) for users, nbytes in wanted if tenant in users)
    return settings.quota_nbytes - charge(state, tenant, stays) - taken


def check_bytes(before: State, event: signals.Input, after: World) -> None:
    """Check that bytes become free only when backend code has said so."""
    if isinstance(event, signals.Unloaded) or (isinstance(event, signals.JobFailed) and not event.loaded):
        require(event.generation not in after.state.generations, "9: once nothing is loaded, bytes are free", after)
    for number, g in before.generations.items():
        now = after.state.generations.get(number)
        if now is None:
            closed = isinstance(event, signals.Unloaded) and event.generation == number
            failed = isinstance(event, signals.JobFailed) and event.generation == number and g.job is not Job.UNLOAD
            wanted = any(number in (e.generations or ()) for e in after.state.queue)
            dropped = g.phase is Phase.RESERVED and not wanted  # nothing of it was there yet
            require(closed or failed or dropped, "9: bytes are free when close() has returned", after)
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
