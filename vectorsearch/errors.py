"""Every error that this project raises on purpose, in one tree, importable from here.

```
VectorSearchError
├── InvalidInput (ValueError)      an argument can't be used; nothing has changed
│   ├── DimensionMismatch
│   ├── DuplicateId
│   ├── EmptyQuery
│   ├── InvalidDocument
│   ├── NonFiniteVector
│   ├── UnknownMode
│   └── UnknownTenant
├── StoreError                     the database can't be opened, read or written
│   ├── DamagedDatabase
│   ├── DatabaseClosed
│   ├── DatabaseLocked
│   ├── DatabaseMoved
│   ├── IndexUnwritable
│   ├── NewerFormat
│   ├── NotADatabase
│   ├── ReadOnlyDatabase
│   ├── SettingsMismatch
│   ├── SpaceChanged
│   └── StorageFull
├── BackendError                   a runtime, or a model's files
│   ├── ChildEnded                 a process that measured or tried a model gave no answer
│   ├── CannotServe
│   ├── InferenceError
│   │   ├── DeadlineExceeded (TimeoutError)
│   │   └── TransientBackendError
│   ├── InvalidModel
│   ├── MissingExtra (ImportError)
│   ├── ModelUnavailable
│   └── UnknownModel (LookupError)
├── LifecycleError                 a model could not be had
│   ├── BudgetExhausted
│   │   └── QuotaExhausted
│   ├── FallbackExhausted (ExceptionGroup)
│   ├── KeeperSilent
│   ├── LeaseReused
│   ├── LeaseTimeout (TimeoutError)
│   │   └── LoadTooSlow
│   ├── LoadFailed
│   ├── ManagerClosed
│   ├── ModelNotRegistered (LookupError)
│   ├── OtherVectors
│   ├── QueueFull
│   ├── ReplaceOvertaken
│   ├── UnloadFailed
│   └── UnloadTimeout (TimeoutError)
├── RerankError                    a reranker of the caller's own failed
└── EvaluationFailed               a stage failed while quality was measured
```
"""

from backends.errors import (
    BackendError,
    CannotServe,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    InvalidModel,
    MissingExtra,
    ModelUnavailable,
    TransientBackendError,
    UnknownModel,
    VectorSearchError,
)
from lifecycle.errors import (
    BudgetExhausted,
    FallbackExhausted,
    KeeperSilent,
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
from lifecycle.measuring.child import ChildEnded
from rerank.base import RerankError
from vectorsearch.collection.storage.errors import (
    DamagedDatabase,
    DatabaseClosed,
    DatabaseLocked,
    DatabaseMoved,
    DimensionMismatch,
    DuplicateId,
    IndexUnwritable,
    NewerFormat,
    NonFiniteVector,
    NotADatabase,
    ReadOnlyDatabase,
    SettingsMismatch,
    SpaceChanged,
    StorageFull,
    StoreError,
)
from vectorsearch.database.tenants import UnknownTenant
from vectorsearch.evaluation.systems import EvaluationFailed
from vectorsearch.ingestion.documents import InvalidDocument
from vectorsearch.query.planning.request import EmptyQuery, UnknownMode

__all__ = [
    "BackendError",
    "BudgetExhausted",
    "CannotServe",
    "ChildEnded",
    "DamagedDatabase",
    "DatabaseClosed",
    "DatabaseLocked",
    "DatabaseMoved",
    "DeadlineExceeded",
    "DimensionMismatch",
    "DuplicateId",
    "EmptyQuery",
    "EvaluationFailed",
    "FallbackExhausted",
    "IndexUnwritable",
    "InferenceError",
    "InvalidDocument",
    "InvalidInput",
    "InvalidModel",
    "KeeperSilent",
    "LeaseReused",
    "LeaseTimeout",
    "LifecycleError",
    "LoadFailed",
    "LoadTooSlow",
    "ManagerClosed",
    "MissingExtra",
    "ModelNotRegistered",
    "ModelUnavailable",
    "NewerFormat",
    "NonFiniteVector",
    "NotADatabase",
    "OtherVectors",
    "QueueFull",
    "QuotaExhausted",
    "ReadOnlyDatabase",
    "ReplaceOvertaken",
    "RerankError",
    "SettingsMismatch",
    "SpaceChanged",
    "StorageFull",
    "StoreError",
    "TransientBackendError",
    "UnknownMode",
    "UnknownModel",
    "UnknownTenant",
    "UnloadFailed",
    "UnloadTimeout",
    "VectorSearchError",
]
