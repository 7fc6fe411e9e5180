"""What tenants are charged, may take and are sure of: pure questions about a draft.

A tenant uses a key if one of its refs means it. The bytes of an instance are charged in equal parts (rounded up) to
the tenants that use its key, whoever asked first and whoever leases it: so what a tenant is charged follows from the
states and the registrations alone. A guarantee covers the most valuable instances of a tenant that fit into it
together, those that it has asked for itself first, those in use or loading before idle ones; no load that another asks
for may drive these out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.heart import policy
from lifecycle.heart.states import Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lifecycle.config import InstanceKey, Tenant
    from lifecycle.heart.draft import Draft
    from lifecycle.heart.states import Generation, Model


def share(model: Model, nbytes: int, tenant: str) -> int:
    """Return a tenant's part of the bytes of an instance of this model."""
    return -(-nbytes // len(model.tenants)) if tenant in model.tenants else 0


def charged(draft: Draft, tenant: str, claims: Collection[int] | None = None) -> int:
    """Return what a tenant is charged; given claims, without what is leaving or claimed by these admissions."""
    out = (Phase.DRAINING, Phase.UNLOADING)
    return sum(
        share(draft.models[g.key], g.charged_nbytes, tenant)
        for g in draft.generations.values()
        if claims is None or (g.phase not in out and g.claimed_by not in claims)
    )


def wanted(draft: Draft, tenant: str, keys: Iterable[InstanceKey]) -> int:
    """Return a tenant's part of what loading these keys would reserve."""
    return sum(share(draft.models[key], draft.models[key].nbytes, tenant) for key in keys)


def users(draft: Draft, keys: Iterable[InstanceKey]) -> set[str]:
    """Return the tenants that use one of these keys."""
    return {tenant for key in keys for tenant in draft.models[key].tenants}


def beneficiaries(draft: Draft, keys: Iterable[InstanceKey], asking: Collection[str] = ()) -> set[str]:
    """Return for whose sake these keys are loaded: those who ask, and not who merely uses them; all, if nobody asks."""
    return set(asking) or users(draft, keys)


def quotas(draft: Draft, keys: Iterable[InstanceKey], asking: Collection[str] = ()) -> list[tuple[str, int]]:
    """Return the quota of every tenant that uses one of these keys and has one; of those that ask, if any does."""
    concerned = users(draft, keys).intersection(asking or draft.tenants)
    settings = [(tenant, draft.tenants[tenant].quota_nbytes) for tenant in concerned if tenant in draft.tenants]
    return sorted((tenant, quota) for tenant, quota in settings if quota is not None)


def promised(models: Mapping[InstanceKey, Model], settings: Mapping[str, Tenant]) -> int:
    """Return what guarantees and pins need together; what a tenant has pinned counts within its own guarantee."""
    needs = {name: tenant.guaranteed_nbytes for name, tenant in settings.items()}
    pinned: dict[str, int] = {}
    for model in models.values():
        if model.config.pinned and not model.retired:
            for tenant in model.tenants:
                pinned[tenant] = pinned.get(tenant, 0) + share(model, model.nbytes, tenant)
    return sum(max(needs.get(name, 0), pinned.get(name, 0)) for name in needs.keys() | pinned.keys())


def guaranteed(draft: Draft, beneficiaries: Collection[str]) -> set[int]:
    """Return the instances that may not leave for the sake of these tenants, because others are sure of them."""
    found: set[int] = set()
    for tenant, settings in draft.tenants.items():
        left = 0 if tenant in beneficiaries else settings.guaranteed_nbytes
        own = [
            g
            for g in draft.generations.values()
            if g.is_live and tenant in draft.models[g.key].tenants and not draft.gives_way(g)
        ]
        own.sort(key=lambda g: (_is_own(g, tenant), policy.eviction_order(draft.candidate(g))), reverse=True)
        for generation in own if left else ():
            part = share(draft.models[generation.key], generation.charged_nbytes, tenant)
            if part <= left:
                left -= part
                found.add(generation.number)
    return found


def _is_own(generation: Generation, tenant: str) -> bool:
    """Return whether a tenant has asked for an instance: what strangers load doesn't fill up its guarantee."""
    return tenant in generation.asked_by or not generation.asked_by


def over_share(draft: Draft, keys: Collection[InstanceKey], asking: Collection[str] = ()) -> set[str]:
    """Return the tenants with settings for whose sake these keys are loaded, and who would be over their guarantee."""
    return {
        tenant
        for tenant in beneficiaries(draft, keys, asking) & draft.tenants.keys()
        if charged(draft, tenant) + wanted(draft, tenant, keys) > draft.tenants[tenant].guaranteed_nbytes
    }
