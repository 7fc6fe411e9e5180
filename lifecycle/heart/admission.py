"""Who gets room, and in which order: the two rules of `transitions` that decide over the budget.

Admissions are served in the order in which they came. A later one may overtake only with bytes that no earlier one
waits for: each is weighed as if all earlier ones had already taken theirs. Sets hold nothing while they wait, so two
of them can't block each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lifecycle.heart import policy, tenants
from lifecycle.heart.signals import Broken, Exhausted
from lifecycle.heart.states import Admission, Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lifecycle.config import InstanceKey
    from lifecycle.heart.draft import Draft
    from lifecycle.heart.states import Generation, Wish

_LONGEST_PROTECTION_S = 60.0  # of what was loaded and not used, even where `ageing_s` is longer


@dataclass(slots=True)
class _Earlier:
    """What the admissions before this one wait for."""

    admissions: set[int] = field(default_factory=set)
    missing: set[InstanceKey] = field(default_factory=set)
    keys: set[InstanceKey] = field(default_factory=set)
    wants: set[object] = field(default_factory=set)  # of those who are patient: for them all was done that can be


def admit(draft: Draft) -> None:
    """Reserve the whole set of every admission that fits, and make room for those that don't yet.

    One that wants what an earlier one waits for can only wait as well, and nothing more can be done for it: else the
    work would grow with the square of those who wait for one model.
    """
    waiting = [entry for entry in draft.queue if entry.generations is None]
    if not waiting:
        return
    earlier = _Earlier()
    claimers = {g.claimed_by for g in draft.generations.values()}
    for entry in waiting:
        wants = (entry.keys, entry.spared, entry.tenants, entry.under)
        if wants in earlier.wants and entry.number not in claimers:
            continue
        why = _hopeless(draft, entry)
        if why is not None:
            draft.refuse(entry, why)
            continue
        missing = {key for key in entry.keys if draft.joined(entry, key) is None}
        if any(draft.is_blocked(key) for key in missing):
            fits = False
        else:
            if missing and entry.deadline > draft.now:
                _make_room(draft, entry, missing, earlier)
            fits = not missing or _fits(draft, missing, earlier, entry.tenants)
        if fits:
            held = [draft.joined(entry, key) or draft.reserve(key, eager=False) for key in entry.keys]
            draft.hold(entry, tuple(generation.number for generation in held))
        else:
            earlier.admissions.add(entry.number)
            earlier.missing |= missing
            earlier.keys |= set(entry.keys)
            if entry.deadline > draft.now:
                earlier.wants.add(wants)


def _hopeless(draft: Draft, entry: Admission) -> Exhausted | Broken | None:
    """Say why waiting can't help: a key is backing off, or the set is larger than all that can ever be freed."""
    missing = [key for key in entry.keys if draft.joined(entry, key) is None]
    for key in missing:
        model = draft.models[key]
        if draft.is_failed(key) and model.error is not None:
            return Broken(key, model.error, model.retry_at - draft.now)
    others = tenants.guaranteed(draft, tenants.beneficiaries(draft, missing, entry.tenants))
    fixed = [
        g
        for g in draft.generations.values()
        if g.phase is Phase.QUARANTINED or (g.is_live and g.key not in entry.keys and _stays(draft, entry, g, others))
    ]
    for tenant, quota in tenants.quotas(draft, missing, entry.tenants):
        stays = sum(tenants.share(draft.models[g.key], g.charged_nbytes, tenant) for g in fixed)
        needed = sum(tenants.share(draft.models[key], draft.set_nbytes((key,)), tenant) for key in entry.keys)
        if needed > quota - stays:
            return Exhausted(needed, tenant)
    needed = draft.set_nbytes(entry.keys)
    fixed_nbytes = sum(g.charged_nbytes for g in fixed)
    return Exhausted(needed) if missing and needed > draft.limits.budget_nbytes - fixed_nbytes else None


def _stays(draft: Draft, entry: Admission, generation: Generation, others: set[int]) -> bool:
    is_pinned = draft.models[generation.key].config.pinned and not draft.gives_way(generation)
    return is_pinned or generation.key in entry.spared or generation.number in others


def no_room(draft: Draft, entry: Admission) -> Exhausted:
    """Say why an admission without patience gets nothing: a tenant's quota, or the budget."""
    missing = {key for key in entry.keys if draft.live(key) is None}
    for tenant, quota in tenants.quotas(draft, missing, entry.tenants):
        needed = tenants.wanted(draft, tenant, missing)
        if tenants.charged(draft, tenant) + needed > quota:
            return Exhausted(needed, tenant)
    return Exhausted(draft.set_nbytes(entry.keys))


def _fits(draft: Draft, missing: set[InstanceKey], earlier: _Earlier, asking: Collection[str] = ()) -> bool:
    """Return whether the keys fit now, without taking what an earlier admission waits for."""
    for tenant, quota in tenants.quotas(draft, missing, asking):
        if tenants.charged(draft, tenant) + tenants.wanted(draft, tenant, missing) > quota:
            return False
    can_follow = choose(draft, missing | earlier.missing, earlier.admissions, [], missing, asking=asking)[1]
    return draft.nbytes(missing) <= draft.free and can_follow


def choose(
    draft: Draft,
    missing: Collection[InstanceKey],
    claims: Collection[int],
    pool: list[policy.Candidate],
    concerned: Iterable[InstanceKey],
    *,
    asking: Collection[str] = (),
) -> tuple[list[int], bool]:
    """Return who of a pool must leave so that these keys can load, and whether that is enough; if not, it is everybody.

    What is leaving or claimed counts as gone. Quotas come first (those of the tenants that ask and use the concerned
    keys, or of all that use them), since only a tenant's own instances can help there; what the budget needs beyond
    that comes from all.
    """
    taken: dict[int, policy.Candidate] = {}
    enough = True
    for tenant, quota in tenants.quotas(draft, concerned, asking):
        shares = {c.number: _share(draft, c, tenant) for c in pool}
        short = tenants.charged(draft, tenant, claims) + tenants.wanted(draft, tenant, missing) - quota
        own = [replace(c, nbytes=shares[c.number]) for c in pool if shares[c.number] and c.number not in taken]
        plan = policy.choose_victims(short - sum(shares[number] for number in taken), own)
        enough &= plan is not None
        numbers = {c.number for c in own} if plan is None else set(plan)
        taken |= {c.number: c for c in pool if c.number in numbers}
    short = draft.nbytes(missing) - draft.free - draft.leaving - draft.claimed(claims)
    rest = [c for c in pool if c.number not in taken]
    plan = policy.choose_victims(short - sum(c.nbytes for c in taken.values()), rest)
    return [*taken, *([c.number for c in rest] if plan is None else plan)], enough and plan is not None


def _share(draft: Draft, candidate: policy.Candidate, tenant: str) -> int:
    return tenants.share(draft.models[draft.generations[candidate.number].key], candidate.nbytes, tenant)


def _pool(
    draft: Draft, missing: Collection[InstanceKey], protected: set[InstanceKey], asking: Collection[str]
) -> list[policy.Candidate]:
    """Return whom a load of these keys may drive out: nobody that others than those who ask are sure of.

    A tenant's own come first if it would be over its share, and last if it would still be within its guarantee.
    """
    gainers = tenants.beneficiaries(draft, missing, asking)
    others = tenants.guaranteed(draft, gainers)
    over = tenants.over_share(draft, missing, asking)
    sure = tenants.guaranteed(draft, draft.tenants.keys() - (gainers - over))
    return [
        replace(
            c,
            own=not over.isdisjoint(draft.models[draft.generations[c.number].key].tenants),
            sure=c.number in sure,
        )
        for c in draft.candidates(protected)
        if c.number not in others
    ]


def _make_room(draft: Draft, entry: Admission, missing: set[InstanceKey], earlier: _Earlier) -> None:
    """Evict idle models and claim leased ones: the whole plan, or nothing if it would not be enough."""
    protected = earlier.keys | {*entry.keys, *entry.spared}
    pool = draft.unbegun(protected) + _pool(draft, missing, protected, entry.tenants)
    wanted, claims = missing | earlier.missing, earlier.admissions | {entry.number}
    plan, is_enough = choose(draft, wanted, claims, pool, missing, asking=entry.tenants)
    for generation in [draft.generations[number] for number in plan if is_enough]:
        if generation.phase is Phase.RESERVED:
            draft.give_way(generation)
        else:
            draft.put(generation, claimed_by=entry.number)
    # A claimed model is closed at its last release, unless the room has come from elsewhere by then.
    idle = draft.claimed_and_idle(entry)
    for number in choose(draft, wanted, earlier.admissions, idle, missing, asking=entry.tenants)[0]:
        draft.evict(draft.generations[number])


def grant_wishes(draft: Draft) -> None:
    """Load what nobody waits for, behind everybody who does: into free room, or for a prefetch that of idle models.

    A prefetch that can't have its room now is dropped, and costs no model that was loaded just now and not yet used.
    """
    if not draft.wishes:
        return
    waiting = [entry for entry in draft.queue if entry.generations is None]
    keys = {key for entry in waiting for key in entry.keys}
    earlier = _Earlier(
        admissions={entry.number for entry in waiting},
        missing={key for key in keys if draft.live(key) is None},
        keys=keys,
    )
    for wish in draft.wishes.copy():
        key = wish.key
        undecided = draft.is_failed(key) or draft.is_blocked(key) or key in draft.given_way
        wanted = {key} | earlier.missing
        has_room = choose(draft, wanted, earlier.admissions, [], {key}, asking=wish.tenants)[1]
        if not (undecided or wish.eager or draft.live(key) or has_room):
            idle = [c for c in _pool(draft, {key}, earlier.keys, wish.tenants) if c.idle and not _lasts(draft, c, wish)]
            plan, has_room = choose(draft, wanted, earlier.admissions, idle, {key}, asking=wish.tenants)
            for number in plan if has_room else ():
                draft.evict(draft.generations[number])
        if draft.live(key) or (not wish.eager and (undecided or not has_room)):
            draft.wishes.remove(wish)
        elif not undecided and _fits(draft, {key}, earlier, wish.tenants):
            draft.wishes.remove(wish)
            draft.put(draft.reserve(key, eager=True), asked_by=wish.tenants)
        elif not undecided and has_room:
            earlier.missing.add(key)


def _lasts(draft: Draft, candidate: policy.Candidate, wish: Wish) -> bool:
    """Return whether a model stays, though it is idle, since a wish is no reason for it to leave.

    What was loaded and not yet used has some time for that. One in its minimum residency stays for a prefetch; for a
    caller that can't wait as long as a load takes, it has that time as well: else such callers would never be served.
    """
    limit_s = min(draft.limits.ageing_s, _LONGEST_PROTECTION_S)
    is_old = draft.now - candidate.ready_at >= limit_s
    is_unused = candidate.last_used <= candidate.ready_at
    return (candidate.young and not (wish.left and is_old)) or (is_unused and not is_old)
