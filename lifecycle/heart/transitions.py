"""`step(state, event, now) -> (state, effects)`: every transition of the lifecycle, and nothing else.

An input makes one small change; then the rules run, in order, until nothing changes any more. Since all rules run
after every input, there is no wake-up to forget.
"""

from __future__ import annotations

import math
from dataclasses import replace

from lifecycle.config import InstanceKey, LoadPolicy
from lifecycle.events import DeficitOpened, ModelExpired, ModelReady, ModelUnloaded, Overpromised
from lifecycle.heart import admission, pressure, signals, tenants
from lifecycle.heart.draft import Draft
from lifecycle.heart.states import IN_FLIGHT, Admission, Generation, Job, Model, Phase, State, after, ttl_of


def step(state: State, event: signals.Input, now: float) -> tuple[State, tuple[signals.Effect, ...]]:
    """Return the state after `event`, and what must be done about it. Time never runs backwards here."""
    draft = Draft(state, max(now, state.now))
    _apply(draft, event)
    while draft.changed:
        draft.changed = False
        for rule in RULES:
            rule(draft)
    if isinstance(event, signals.SetBudget | signals.SetTenant | signals.Register | signals.Loaded):
        _tell_what_is_promised(draft, state)
    return draft.freeze(), tuple(draft.effects)


def _tell_what_is_promised(draft: Draft, before: State) -> None:
    """Tell once that guarantees and pins are more than the budget, and again when either changes."""
    now = tenants.promised(draft.models, draft.tenants), draft.limits.budget_nbytes
    was = tenants.promised(before.models, before.tenants), before.limits.budget_nbytes
    if now[0] > now[1] and now != was:
        draft.effects.append(Overpromised(InstanceKey("", ""), 0, *now))


def _apply(draft: Draft, event: signals.Input) -> None:  # noqa: C901, PLR0912 - one flat case per input
    match event:
        case signals.Register():
            _register(draft, event)
        case signals.Request():
            _request(draft, event)
        case signals.Redirect(number, keys, spared):
            for entry in draft.admissions([number]):
                draft.redirect(entry, keys, spared)
        case signals.Cancel(number):
            for entry in draft.admissions([number]):
                draft.end(entry)
                _go_on_without(draft, entry)
        case signals.Prefetch(keys, asking):
            for key in keys:
                draft.wish(key, eager=False, tenants=asking)
        case signals.Loaded(number, nbytes):
            _loaded(draft, draft.generations[number], nbytes)
        case signals.Warmed(number):
            _loaded_and_warm(draft, draft.generations[number])
        case signals.JobFailed(number, error, loaded):
            _job_failed(draft, draft.generations[number], error, loaded=loaded)
        case signals.Unloaded(number):
            gone = draft.generations[number]
            draft.remove(gone)
            draft.effects.append(ModelUnloaded(gone.key, number, gone.charged_nbytes))
        case signals.Keep(number, ttl_s):
            if number in draft.generations:
                draft.put(draft.generations[number], own_ttl_s=ttl_s)
        case signals.UnloadAsked(key, drain_by):
            _unload_asked(draft, key, drain_by)
        case signals.Retire(key, drain_by):
            _retire(draft, key, drain_by)
        case signals.SetBudget(nbytes):
            draft.limits = replace(draft.limits, budget_nbytes=nbytes)
            draft.shrinking = True
        case signals.SetTenant(name, settings):
            draft.tenants[name] = settings
            draft.shrinking = True
        case signals.CloseAsked(drain_by):
            _close_asked(draft, drain_by)


def _register(draft: Draft, event: signals.Register) -> None:
    key = event.key
    known = draft.models.get(key) or Model(key, event.nbytes, event.config)
    draft.shrinking |= known.tenants != event.tenants and draft.live(key) is not None  # everybody's part has changed
    draft.models[key] = replace(known, config=event.config, tenants=event.tenants, retired=False)
    if event.config.load_policy is LoadPolicy.EAGER:
        draft.wish(key, eager=True)


def _request(draft: Draft, event: signals.Request) -> None:
    entry = Admission(
        event.admission,
        event.keys,
        draft.now,
        event.deadline,
        spared=event.spared,
        tenants=event.tenants,
        under=event.under,
    )
    draft.queue.append(entry)
    why = signals.Closed() if draft.closing else pressure.hopeless(draft, entry)
    if why is not None:
        draft.refuse(entry, why)
    if isinstance(why, signals.TooSlow):
        _go_on_without(draft, entry)


def _go_on_without(draft: Draft, entry: Admission) -> None:
    """Load what a caller waited for even though it is gone, if idle models make the room: the next one finds it."""
    if entry.deadline > entry.since:
        for key in entry.keys:
            draft.wish(key, eager=False, tenants=entry.tenants, left=True)


def _loaded(draft: Draft, generation: Generation, nbytes: int) -> None:
    """Charge what was measured; the difference to the reservation is thereby paid or given back."""
    model = draft.models[generation.key]
    draft.models[model.key] = replace(model, nbytes=nbytes)
    generation = draft.put(generation, charged_nbytes=nbytes, job=None)
    if nbytes > generation.reserved_nbytes and draft.free < 0:
        draft.effects.append(DeficitOpened(model.key, generation.number, -draft.free))
    if generation.phase is Phase.QUARANTINED:
        return
    if model.config.warm_up and generation.drain_by == math.inf:
        draft.start(generation, Phase.WARMING, Job.WARM_UP, generation.deadline)
    else:
        _loaded_and_warm(draft, generation)


def _loaded_and_warm(draft: Draft, generation: Generation) -> None:
    """Open the generation. A quarantined one is only finished with: it leaves once nobody uses it."""
    if generation.phase is Phase.QUARANTINED:
        draft.put(generation, job=None)
        return
    draft.put(generation, phase=Phase.READY, job=None, deadline=math.inf, ready_at=draft.now, last_used=draft.now)
    load_s = draft.now - generation.loading_since
    model = draft.models[generation.key]
    fastest_s = load_s if model.load_s is None else min(load_s, model.load_s)
    draft.models[model.key] = replace(model, failures=0, retry_at=-math.inf, error=None, load_s=fastest_s)
    draft.effects.append(
        ModelReady(generation.key, generation.number, generation.charged_nbytes, load_s, eager=generation.eager)
    )


def _job_failed(draft: Draft, generation: Generation, error: BaseException, *, loaded: bool) -> None:
    if generation.job is Job.UNLOAD:
        draft.quarantine(draft.put(generation, job=None, is_lost=True), error)
        return
    if loaded:
        draft.unload(generation)
    else:
        draft.remove(generation)
    if generation.phase is not Phase.QUARANTINED:  # else the key has failed already, when the deadline passed
        draft.fail(generation, error)


def _unload_asked(draft: Draft, key: InstanceKey, drain_by: float) -> None:
    draft.wishes = [wish for wish in draft.wishes if wish.key != key]
    generation = draft.live(key) or next(
        (g for g in draft.generations.values() if g.key == key and g.is_blocking), None
    )
    if generation is None:
        return
    in_use = draft.in_use(generation)
    if generation.phase is Phase.RESERVED and not in_use:
        draft.remove(generation)
    elif drain_by > draft.now or not (generation.phase in IN_FLIGHT or in_use):
        earlier = generation.drain_by if generation.drain_by < math.inf else drain_by
        draft.put(generation, drain_by=max(drain_by, earlier))  # another's drain keeps the time that it was given


def _retire(draft: Draft, key: InstanceKey, drain_by: float) -> None:
    draft.models[key] = replace(draft.models[key], retired=True)
    draft.wishes = [wish for wish in draft.wishes if wish.key != key]
    for generation in [g for g in draft.generations.values() if g.key == key]:
        if generation.phase is Phase.RESERVED and not draft.in_use(generation):
            draft.remove(generation)
        else:
            draft.put(generation, drain_by=min(generation.drain_by, drain_by))


def _close_asked(draft: Draft, drain_by: float) -> None:
    draft.closing = True
    draft.wishes = []
    for entry in draft.queue.copy():
        draft.refuse(entry, signals.Closed())
    for generation in list(draft.generations.values()):
        if generation.phase is Phase.RESERVED:
            draft.remove(generation)
        elif generation.phase is not Phase.QUARANTINED:
            draft.put(generation, drain_by=drain_by, deadline=min(generation.deadline, drain_by))


# Rules: what follows from the state alone. ------------------------------------------------------------------------


def _quarantine_the_overdue(draft: Draft) -> None:
    """End every job and every drain that is past its deadline; nothing stays LOADING or DRAINING for ever."""
    for generation in list(draft.generations.values()):
        match generation.phase:
            case Phase.LOADING | Phase.WARMING | Phase.UNLOADING if generation.deadline <= draft.now:
                late = TimeoutError(f"{generation.phase.value} was not done in time")
                draft.quarantine(generation, late)
                if generation.job is not Job.UNLOAD:
                    draft.fail(generation, late)
            case Phase.DRAINING if generation.drain_by <= draft.now and draft.in_use(generation):
                draft.quarantine(generation)


def _let_go(draft: Draft) -> None:
    """Drain whoever must leave, expire whoever may, and close whoever nobody uses any more."""
    for generation in list(draft.generations.values()):
        idle = not draft.in_use(generation)
        ttl_s = ttl_of(draft.models[generation.key], generation)
        match generation.phase:
            case Phase.READY if generation.drain_by < math.inf:
                draft.put(generation, phase=Phase.DRAINING, claimed_by=None)
            case Phase.READY if generation.is_open and idle and generation.last_used + ttl_s <= draft.now:
                draft.effects.append(ModelExpired(generation.key, generation.number, generation.charged_nbytes))
                draft.unload(generation)
            case Phase.DRAINING | Phase.QUARANTINED if idle and generation.is_loaded:
                draft.unload(generation)
            case Phase.RESERVED if idle and generation.drain_by < math.inf:
                draft.remove(generation)


def _shrink(draft: Draft) -> None:
    """Evict idle models for a lowered budget or quota: what it takes, or all and, later, whatever becomes idle.

    For a quota nothing leaves that a tenant uses which is within its own.
    """
    if draft.shrinking:
        over = {
            tenant for tenant, quota in tenants.quotas(draft, draft.models) if tenants.charged(draft, tenant) > quota
        }
        idle = [*draft.unbegun(frozenset()), *(c for c in draft.candidates(frozenset()) if c.idle)]
        if draft.free >= 0:
            idle = [c for c in idle if over.issuperset(draft.models[draft.generations[c.number].key].tenants)]
        victims, _ = admission.choose(draft, (), (), idle, draft.models)
        draft.shrinking = draft.free < 0 or bool(over)
        for number in victims:
            draft.evict(draft.generations[number])


def _fill_load_slots(draft: Draft) -> None:
    """Start reserved loads, as many as may run at once, those first that somebody waits for or that waited for long."""
    running = sum(g.phase in {Phase.LOADING, Phase.WARMING} for g in draft.generations.values())
    reserved = [g for g in draft.generations.values() if g.phase is Phase.RESERVED]
    aged = {g.number for g in reserved if draft.now - g.reserved_at >= draft.limits.ageing_s}
    reserved.sort(key=lambda g: (not draft.in_use(g) and g.number not in aged, g.number))
    for generation in reserved[: max(0, draft.limits.max_parallel_loads - running)]:
        timeout_s = draft.models[generation.key].config.load_timeout_s
        begun = draft.put(generation, loading_since=draft.now)
        draft.start(begun, Phase.LOADING, Job.LOAD, after(draft.now, timeout_s))


def _grant(draft: Draft) -> None:
    """Turn an admission whose models are all loaded into leases; they exist before its hold on them ends."""
    newly_held, draft.newly_held = set(draft.newly_held), []
    if not (newly_held or draft.has_loaded):
        return
    for entry in draft.queue.copy() if draft.has_loaded else draft.admissions(sorted(newly_held)):
        if entry.generations and all(draft.generations[number].is_loaded for number in entry.generations):
            for number in entry.generations:
                generation = draft.generations[number]
                draft.put(generation, refs=generation.refs + 1)
            draft.end(entry)
            draft.effects.append(signals.Grant(entry.number, entry.generations))


def _refuse_the_late(draft: Draft) -> None:
    """Refuse whoever's deadline has passed. It had its chance: this rule is the last one."""
    for entry in [entry for entry in draft.queue if entry.deadline <= draft.now]:
        if entry.generations is not None:
            draft.refuse(entry, signals.TimedOut("load"))
        elif entry.deadline > entry.since:
            draft.refuse(entry, signals.TimedOut("room"))
            _go_on_without(draft, entry)
        else:
            draft.refuse(entry, admission.no_room(draft, entry))


def _forget_the_retired(draft: Draft) -> None:
    """Drop every retired key of which nothing is left and for which nobody waits."""
    retired = [key for key, model in draft.models.items() if model.retired]
    if not retired:
        return
    wanted = {g.key for g in draft.generations.values()} | {key for entry in draft.queue for key in entry.keys}
    for key in [key for key in retired if key not in wanted]:
        del draft.models[key]


RULES = (
    _quarantine_the_overdue,
    _let_go,
    admission.admit,
    _shrink,
    admission.grant_wishes,
    _fill_load_slots,
    _grant,
    _refuse_the_late,
    _forget_the_retired,
)
