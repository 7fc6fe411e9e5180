"""The model lifecycle manager: load on first use, lease with a reference count, evict within one budget.

It knows nothing of what a model computes: any object with `nbytes` and `close()` is a model, and anything with `name`,
`estimate(spec)` and `load_model(spec)` loads one. See this package's README.md.
"""

from lifecycle.chains.fallback import Chain
from lifecycle.config import InstanceKey, Loader, LoadPolicy, ModelConfig, ModelRef
from lifecycle.errors import (
    BudgetExhausted,
    FallbackExhausted,
    Holder,
    LeaseReused,
    LeaseTimeout,
    LifecycleError,
    LoadFailed,
    LoadTooSlow,
    ManagerClosed,
    ModelNotRegistered,
    OtherVectors,
    QueueFull,
    QuotaExhausted,
    ReplaceOvertaken,
    UnloadFailed,
    UnloadTimeout,
)
from lifecycle.leasing.lease import Lease, LeaseSet
from lifecycle.manager import ModelManager
from lifecycle.snapshot import Counters, ManagerSnapshot, ModelStatus, Readiness, Waiter

__all__ = [
    "BudgetExhausted",
    "Chain",
    "Counters",
    "FallbackExhausted",
    "Holder",
    "InstanceKey",
    "Lease",
    "LeaseReused",
    "LeaseSet",
    "LeaseTimeout",
    "LifecycleError",
    "LoadFailed",
    "LoadPolicy",
    "LoadTooSlow",
    "Loader",
    "ManagerClosed",
    "ManagerSnapshot",
    "ModelConfig",
    "ModelManager",
    "ModelNotRegistered",
    "ModelRef",
    "ModelStatus",
    "OtherVectors",
    "QueueFull",
    "QuotaExhausted",
    "Readiness",
    "ReplaceOvertaken",
    "UnloadFailed",
    "UnloadTimeout",
    "Waiter",
]
