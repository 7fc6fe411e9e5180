"""What `snapshot`, `status` and error messages say about a keeper, read without stopping it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lifecycle.errors import (
    BudgetExhausted,
    Holder,
    LeaseTimeout,
    LifecycleError,
    LoadFailed,
    LoadTooSlow,
    ManagerClosed,
    QueueFull,
    QuotaExhausted,
    UnloadFailed,
    UnloadTimeout,
    format_nbytes,
)
from lifecycle.heart import signals
from lifecycle.heart.states import Generation, Job, Phase, State
from lifecycle.heart.tenants import share
from lifecycle.snapshot import ManagerSnapshot, ModelStatus, Waiter

if TYPE_CHECKING:
    from lifecycle.config import InstanceKey, ModelRef
    from lifecycle.keeping.keeper import Keeper
    from lifecycle.leasing.lease import LeaseBase


def name_of(keeper: Keeper, key: InstanceKey) -> str:
    """Return how callers know an instance: all its refs, quoted; its digest if it has none, being replaced or new."""
    return " = ".join(f"'{ref}'" for ref in _refs(keeper, key)) or f"'{key.digest}'"


def _refs(keeper: Keeper, key: InstanceKey) -> tuple[ModelRef, ...]:
    instance = keeper.instances.get(key)  # a reader may come when the keeper has just forgotten it
    return instance.refs if instance else ()


def holders(keeper: Keeper, state: State) -> tuple[Holder, ...]:
    """Return who is charged for what, the largest first."""
    found = [
        Holder(name_of(keeper, g.key), g.phase.value, _leases(state, g), g.charged_nbytes)
        for g in state.generations.values()
    ]
    return tuple(sorted(found, key=lambda holder: -holder.nbytes))


def _seen_by(lease: LeaseBase, keeper: Keeper, state: State) -> tuple[Holder, ...]:
    """Return the holders as a caller may see them: its tenants' own models by name, all others as one."""
    tenants = {ref.tenant for ref in lease.refs}
    if "" in tenants:  # the program's own models, not a tenant's
        return holders(keeper, state)
    own, leases, nbytes = [], 0, 0
    for g in state.generations.values():
        names = [f"'{ref}'" for ref in _refs(keeper, g.key) if ref.tenant in tenants]
        if names:
            own.append(Holder(" = ".join(names), g.phase.value, _leases(state, g), g.charged_nbytes))
        else:
            leases, nbytes = leases + _leases(state, g), nbytes + g.charged_nbytes
    others = [Holder("others", "in all", leases, nbytes)] if nbytes else []
    return (*sorted(own, key=lambda holder: -holder.nbytes), *others)


def waiting(keeper: Keeper, now: float) -> tuple[Waiter, ...]:
    """Return who waits, the first in the queue first."""
    return tuple(
        Waiter(
            names=" + ".join(name_of(keeper, key) for key in admission.keys),
            waited_s=now - admission.since,
            left_s=max(0.0, admission.deadline - now),
            waits_for="room" if admission.generations is None else "load",
        )
        for admission in keeper.state.queue
    )


def idle_nbytes(state: State) -> int:
    """Return the bytes of models that could be evicted at once."""
    return sum(
        g.charged_nbytes
        for g in state.generations.values()
        if g.is_open and not _leases(state, g) and not state.models[g.key].config.pinned
    )


def unmet_nbytes(state: State) -> int:
    """Return by how much the ledger will be over the budget when all that leaves is gone."""
    leaving = sum(g.charged_nbytes for g in state.generations.values() if g.phase in {Phase.DRAINING, Phase.UNLOADING})
    return max(0, state.charged_nbytes - leaving - state.limits.budget_nbytes)


def refusal(keeper: Keeper, lease: LeaseBase, why: signals.Why, state: State) -> LifecycleError:
    """Return the error that tells a caller why its lease was refused, in the state in which that was decided."""
    names = " + ".join(f"'{ref}'" for ref in lease.refs)
    match why:
        case signals.Exhausted(needed, str(tenant)):
            quota = state.tenants[tenant].quota_nbytes or 0
            used = by_tenant(state).get(tenant, 0)
            return QuotaExhausted(names, tenant=tenant, needed_nbytes=needed, quota_nbytes=quota, charged_nbytes=used)
        case signals.Exhausted(needed):
            return BudgetExhausted(
                names,
                needed_nbytes=needed,
                budget_nbytes=state.limits.budget_nbytes,
                idle_nbytes=idle_nbytes(state),
                holders=_seen_by(lease, keeper, state),
            )
        case signals.Broken(key, cause, retry_after_s):
            refs = (ref for ref, its in zip(lease.refs, lease.keys, strict=True) if its == key)
            broken = next(refs, lease.refs[0])
            failed = LoadFailed(f"'{broken}'", cause=cause, retry_after_s=retry_after_s)
            failed.__cause__ = cause
            return failed
        case signals.TimedOut(waited_for):
            held = _seen_by(lease, keeper, state)
            return LeaseTimeout(names, timeout_s=lease.timeout_s, waited_for=waited_for, holders=held)
        case signals.TooSlow() | signals.Full() | signals.Closed():
            return _not_queued(names, lease, why, state)


def _not_queued(
    names: str, lease: LeaseBase, why: signals.TooSlow | signals.Full | signals.Closed, state: State
) -> LifecycleError:
    match why:
        case signals.TooSlow(expected_s):
            return LoadTooSlow(names, timeout_s=lease.timeout_s, retry_after_s=expected_s)
        case signals.Full(retry_after_s):
            return QueueFull(names, max_waiters=state.limits.max_waiters, retry_after_s=retry_after_s)
        case signals.Closed():
            return ManagerClosed(f"model {names} can't be leased: the manager is closed")


def unload_error(keeper: Keeper, generation: Generation) -> LifecycleError:
    """Return the error that tells why a generation that should be gone is still there."""
    name, size = name_of(keeper, generation.key), format_nbytes(generation.charged_nbytes)
    if generation.is_lost:
        return UnloadFailed(f"model {name}: close() raised {generation.error!r}; its {size} stay charged")
    match generation:
        case Generation(error=BaseException() as error):
            why = f"{error}"
        case Generation(job=None, phase=phase) if phase is Phase.RESERVED:
            why = "its load has not begun"
        case Generation(job=Job(value=job)):
            why = f"its {job} has not returned"
        case _:
            why = f"{generation.refs} leases are open"
    return UnloadTimeout(
        f"model {name} is still there: {why}; its {size} stay charged until it is gone. A call that never ends goes "
        "only with its process: unregister the model, then restart that"
    )


def _leases(state: State, generation: Generation) -> int:
    """Return open leases, and those of admissions that hold the generation while it loads."""
    return generation.refs + sum(generation.number in (entry.generations or ()) for entry in state.queue)


def model_status(keeper: Keeper, state: State, key: InstanceKey, now: float) -> ModelStatus:
    """Return one instance's status, as of a state that knows it, with its leases and hits as of now."""
    generations = [g for g in state.generations.values() if g.key == key]
    handles = [handle for handle in keeper.handles.copy().values() if handle.key == key]
    resident = next((g for g in generations if g.is_open), None)
    current = next((handle for handle in handles if resident and handle.generation == resident.number), None)
    leases = sum(handle.refs for handle in handles)
    return ModelStatus(
        refs=_refs(keeper, key),
        key=key,
        backend=key.backend,
        device=current.device if current else None,
        state=state.phase_of(key, now).value,
        resident=resident is not None,
        leases=leases,
        nbytes=resident.charged_nbytes if resident else state.models[key].nbytes,
        charged_nbytes=sum(g.charged_nbytes for g in generations),
        idle_s=max(0.0, now - current.last_used) if current and not leases else None,
        loads=keeper.tally.loads[key],
        hits=keeper.tally.past_hits[key] + sum(handle.hits for handle in handles),
        misses=keeper.tally.past_misses[key] + sum(handle.misses for handle in handles),
        ready_at=resident.ready_at if resident else None,
        load_s=resident.ready_at - resident.loading_since if resident else None,
    )


def snapshot(keeper: Keeper, now: float) -> ManagerSnapshot:
    """Return everything at once."""
    state = keeper.state
    by_backend: dict[str, int] = {}
    for generation in state.generations.values():
        backend = generation.key.backend
        by_backend[backend] = by_backend.get(backend, 0) + generation.charged_nbytes
    return ManagerSnapshot(
        budget_nbytes=state.limits.budget_nbytes,
        charged_nbytes=state.charged_nbytes,
        idle_nbytes=idle_nbytes(state),
        deficit_nbytes=state.deficit_nbytes,
        quarantined_nbytes=sum(g.charged_nbytes for g in state.generations.values() if g.phase is Phase.QUARANTINED),
        waiters=len(state.queue),
        by_backend=MappingProxyType(by_backend),
        by_tenant=MappingProxyType(by_tenant(state)),
        residue=MappingProxyType(dict(keeper.residue.by_backend)),
        models=tuple(model_status(keeper, state, key, now) for key in state.models),
        counters=keeper.tally.counters(keeper.handles.copy().values(), dropped_events=keeper.notifier.dropped),
    )


def by_tenant(state: State) -> dict[str, int]:
    """Return what each tenant is charged: of an instance that several use, an equal part."""
    charged: dict[str, int] = {}
    for generation in state.generations.values():
        model = state.models[generation.key]
        for tenant in model.tenants:
            charged[tenant] = charged.get(tenant, 0) + share(model, generation.charged_nbytes, tenant)
    return charged
