"""What a tenant may see of the models that all tenants share: its own, and nothing that tells of another's doings."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from lifecycle import InstanceKey, ManagerSnapshot, ModelRef, ModelStatus

_OF_ALL_USERS = ("leases", "idle_s", "loads", "hits", "misses", "ready_at", "load_s")


@dataclass(frozen=True, slots=True)
class TenantModel:
    """One of a tenant's models, as `lifecycle.ModelStatus` has it; `charged_nbytes` is the tenant's part.

    Where others have registered the same weights there is one instance for all of them (`shared`). How many leases it
    has, when it was last used or loaded, and how often, would tell what they do, and is None.
    """

    refs: tuple[ModelRef, ...]
    key: InstanceKey
    backend: str
    device: str | None
    state: str
    resident: bool
    shared: bool
    nbytes: int
    charged_nbytes: int
    leases: int | None
    idle_s: float | None
    loads: int | None
    hits: int | None
    misses: int | None
    ready_at: float | None
    load_s: float | None

    @classmethod
    def of(cls, model: ModelStatus, tenant: str) -> Self:
        """Return what the tenant may see of an instance that it uses."""
        users = {ref.tenant for ref in model.refs}
        known = {field.name: getattr(model, field.name) for field in fields(cls) if field.name != "shared"}
        known |= dict.fromkeys(_OF_ALL_USERS) if len(users) > 1 else {}
        known |= {
            "refs": tuple(ref for ref in model.refs if ref.tenant == tenant),
            "charged_nbytes": math.ceil(model.charged_nbytes / len(users)),  # as the manager parts it
        }
        return cls(**known, shared=len(users) > 1)

    @property
    def hit_ratio(self) -> float | None:
        """Return the share of leases that waited for nothing; None before the first, and where it isn't told."""
        leases = (self.hits or 0) + (self.misses or 0)
        return (self.hits or 0) / leases if leases else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON has them."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        key = {**self.key._asdict(), "options": dict(self.key.options)}
        return {**own, "refs": [ref._asdict() for ref in self.refs], "key": key, "hit_ratio": self.hit_ratio}


@dataclass(frozen=True, slots=True)
class TenantSnapshot:
    """What a tenant may see of the models in memory: its own, and what it is charged, in all and by backend.

    `budget_nbytes` is what all tenants share.
    """

    tenant: str
    budget_nbytes: int
    charged_nbytes: int
    by_backend: dict[str, int]
    models: tuple[TenantModel, ...]

    @classmethod
    def of(cls, snapshot: ManagerSnapshot, tenant: str) -> Self:
        """Return the tenant's part of a snapshot."""
        used = (model for model in snapshot.models if any(ref.tenant == tenant for ref in model.refs))
        models = tuple(TenantModel.of(model, tenant) for model in used)
        by_backend: dict[str, int] = {}
        for model in models:
            by_backend[model.backend] = by_backend.get(model.backend, 0) + model.charged_nbytes
        return cls(tenant, snapshot.budget_nbytes, snapshot.by_tenant.get(tenant, 0), by_backend, models)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON has them."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own, "models": [model.to_dict() for model in self.models]}
