"""An embeddable hybrid search engine: FAISS and BM25, a query planner, and models under one memory budget.

    import vectorsearch as vs

    with vs.open("./my.db") as db:
        db.add([{"id": "csv.reader", "text": "Return a reader object that will process lines …"}])
        for hit in db.search("how do I parse a csv file", k=10, rerank=True):
            print(hit.rank, hit.id, hit.score)

Importing this loads no runtime: FAISS, Tantivy, ONNX Runtime and the tokenizers load when they are first used.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING


def _require_siblings() -> None:
    """Fail where a package of the same name, installed by something else, stands in for one of ours."""
    home = Path(__file__).resolve().parents[1]
    for name in ("backends", "lifecycle", "rerank"):
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve().parents[1] if spec and spec.origin else None
        if found != home:
            raise ImportError(
                f"vectorsearch needs its own package {name!r} beside it in {home}, but Python finds "
                f"{found or 'none'}: uninstall or rename what provides the other one, or put {home} first on sys.path"
            )


_require_siblings()

__version__ = "0.1.0"

__all__ = [
    "BM25",
    "Agreement",
    "BackendError",
    "BackendHealth",
    "BreakerState",
    "BudgetExhausted",
    "CannotServe",
    "ChildEnded",
    "Choice",
    "Compaction",
    "Comparison",
    "Considered",
    "Counters",
    "CrossEncoder",
    "DamagedDatabase",
    "Database",
    "DatabaseClosed",
    "DatabaseLocked",
    "DatabaseMoved",
    "Deadline",
    "DeadlineExceeded",
    "Deleted",
    "Difference",
    "DimensionMismatch",
    "Distillation",
    "Distilled",
    "Document",
    "DuplicateId",
    "EmptyQuery",
    "EvaluationFailed",
    "Explanation",
    "FallbackExhausted",
    "Fault",
    "Figure",
    "Filter",
    "FilterState",
    "FineTuning",
    "Fit",
    "Fusion",
    "HeadStep",
    "Hit",
    "IndexUnwritable",
    "InferenceError",
    "IngestReport",
    "InstanceKey",
    "InvalidDocument",
    "InvalidInput",
    "InvalidModel",
    "Judged",
    "KeeperSilent",
    "LeaseReused",
    "LeaseTimeout",
    "LifecycleError",
    "LoadFailed",
    "LoadPolicy",
    "LoadTooSlow",
    "ManagerClosed",
    "ManagerSnapshot",
    "Member",
    "Metadata",
    "MiningPlan",
    "MissingExtra",
    "Mode",
    "ModelConfig",
    "ModelLoad",
    "ModelManager",
    "ModelNotRegistered",
    "ModelRef",
    "ModelRow",
    "ModelSpec",
    "ModelState",
    "ModelStatus",
    "ModelUnavailable",
    "NewerFormat",
    "NonFiniteVector",
    "NotADatabase",
    "OnConflict",
    "OnRerankError",
    "Origin",
    "OtherVectors",
    "Passages",
    "Pooling",
    "QueryPlan",
    "QueueFull",
    "QuotaExhausted",
    "RankedText",
    "ReadOnlyDatabase",
    "Readiness",
    "Recipe",
    "RegisteredModel",
    "ReplaceOvertaken",
    "Rerank",
    "RerankError",
    "RerankPlan",
    "RerankScores",
    "RetrieverKind",
    "RetrieverPlan",
    "Rows",
    "ScoreKind",
    "SearchDefaults",
    "SearchResult",
    "SettingsMismatch",
    "Similarity",
    "SpaceChanged",
    "StageStats",
    "StorageFull",
    "StoreError",
    "Target",
    "Task",
    "TenantInfo",
    "TenantModel",
    "TenantSnapshot",
    "TextKind",
    "Trained",
    "Training",
    "TrainingPlan",
    "TransientBackendError",
    "Trial",
    "UnknownMode",
    "UnknownModel",
    "UnknownTenant",
    "UnloadFailed",
    "UnloadTimeout",
    "VectorSearchError",
    "Vectors",
    "Verification",
    "Waiter",
    "Workload",
    "Written",
    "distil_reranker",
    "fit_features",
    "ingest",
    "open",
    "train_reranker",
]

if TYPE_CHECKING:
    from backends.base import HeadStep, ModelSpec, Pooling, Similarity, Task
    from backends.choosing.health import BackendHealth, BreakerState
    from backends.choosing.selection import Choice, Considered, Workload
    from backends.running.deadline import Deadline
    from backends.running.text_model import TextKind
    from lifecycle.config import InstanceKey, LoadPolicy, ModelConfig, ModelRef
    from lifecycle.manager import ModelManager
    from lifecycle.measuring.trial import Trial
    from lifecycle.snapshot import Counters, ManagerSnapshot, ModelStatus, Readiness, Waiter
    from rerank.base import RerankScores
    from rerank.cross_encoder import CrossEncoder, RankedText
    from rerank.distilling.distil import Distilled, Recipe
    from rerank.distilling.distil_agreement import Agreement
    from rerank.distilling.distil_training import Training
    from rerank.reading.windows import Passages
    from rerank.training.train import Trained
    from rerank.training.train_plan import Fit, TrainingPlan
    from vectorsearch.collection.index.lexical.bm25 import BM25
    from vectorsearch.collection.storage.registry import ModelRow
    from vectorsearch.collection.storage.soundness import Fault
    from vectorsearch.collection.storage.sqlite.store import OnConflict
    from vectorsearch.collection.upkeep import Compaction, Verification
    from vectorsearch.database.database import Database
    from vectorsearch.database.engine import open  # noqa: A004 -- reads as `gzip.open` does
    from vectorsearch.database.tenants import TenantInfo
    from vectorsearch.database.tenants_view import TenantModel, TenantSnapshot
    from vectorsearch.errors import (
        BackendError,
        BudgetExhausted,
        CannotServe,
        ChildEnded,
        DamagedDatabase,
        DatabaseClosed,
        DatabaseLocked,
        DatabaseMoved,
        DeadlineExceeded,
        DimensionMismatch,
        DuplicateId,
        EmptyQuery,
        EvaluationFailed,
        FallbackExhausted,
        IndexUnwritable,
        InferenceError,
        InvalidDocument,
        InvalidInput,
        InvalidModel,
        KeeperSilent,
        LeaseReused,
        LeaseTimeout,
        LifecycleError,
        LoadFailed,
        LoadTooSlow,
        ManagerClosed,
        MissingExtra,
        ModelNotRegistered,
        ModelUnavailable,
        NewerFormat,
        NonFiniteVector,
        NotADatabase,
        OtherVectors,
        QueueFull,
        QuotaExhausted,
        ReadOnlyDatabase,
        ReplaceOvertaken,
        RerankError,
        SettingsMismatch,
        SpaceChanged,
        StorageFull,
        StoreError,
        TransientBackendError,
        UnknownMode,
        UnknownModel,
        UnknownTenant,
        UnloadFailed,
        UnloadTimeout,
        VectorSearchError,
    )
    from vectorsearch.evaluation.collecting.topics import Judged
    from vectorsearch.evaluation.comparing.comparison import Comparison, Difference, Figure
    from vectorsearch.ingestion.bulk import IngestReport, Target, ingest
    from vectorsearch.ingestion.rows import Rows, Vectors
    from vectorsearch.models.model_state import ModelState
    from vectorsearch.models.registration import RegisteredModel
    from vectorsearch.query.execution.fusion import Fusion
    from vectorsearch.query.explaining.explain import Explanation
    from vectorsearch.query.planning.defaults import Origin, SearchDefaults
    from vectorsearch.query.planning.plan import Member, QueryPlan, RerankPlan, RetrieverPlan
    from vectorsearch.query.planning.request import OnRerankError, RetrieverKind
    from vectorsearch.query.planning.rerankers import Rerank
    from vectorsearch.query.planning.states import FilterState
    from vectorsearch.query.results import Hit, ModelLoad, SearchResult, StageStats
    from vectorsearch.training.distillation import Distillation, distil_reranker
    from vectorsearch.training.features import fit_features
    from vectorsearch.training.fine_tuning import FineTuning, train_reranker
    from vectorsearch.training.hard_negatives import MiningPlan
    from vectorsearch.types import Deleted, Document, Filter, Metadata, Mode, ScoreKind, Written

_HOMES = {
    "Agreement": "rerank.distilling.distil_agreement",
    "BM25": "vectorsearch.collection.index.lexical.bm25",
    "BackendError": "vectorsearch.errors",
    "BackendHealth": "backends.choosing.health",
    "BreakerState": "backends.choosing.health",
    "BudgetExhausted": "vectorsearch.errors",
    "CannotServe": "vectorsearch.errors",
    "ChildEnded": "vectorsearch.errors",
    "Choice": "backends.choosing.selection",
    "Compaction": "vectorsearch.collection.upkeep",
    "Comparison": "vectorsearch.evaluation.comparing.comparison",
    "Considered": "backends.choosing.selection",
    "Counters": "lifecycle.snapshot",
    "CrossEncoder": "rerank.cross_encoder",
    "DamagedDatabase": "vectorsearch.errors",
    "Database": "vectorsearch.database.database",
    "DatabaseClosed": "vectorsearch.errors",
    "DatabaseLocked": "vectorsearch.errors",
    "DatabaseMoved": "vectorsearch.errors",
    "Deadline": "backends.running.deadline",
    "DeadlineExceeded": "vectorsearch.errors",
    "Deleted": "vectorsearch.types",
    "Difference": "vectorsearch.evaluation.comparing.comparison",
    "DimensionMismatch": "vectorsearch.errors",
    "Distillation": "vectorsearch.training.distillation",
    "Distilled": "rerank.distilling.distil",
    "Document": "vectorsearch.types",
    "DuplicateId": "vectorsearch.errors",
    "EmptyQuery": "vectorsearch.errors",
    "EvaluationFailed": "vectorsearch.errors",
    "Explanation": "vectorsearch.query.explaining.explain",
    "FallbackExhausted": "vectorsearch.errors",
    "Fault": "vectorsearch.collection.storage.soundness",
    "Figure": "vectorsearch.evaluation.comparing.comparison",
    "Filter": "vectorsearch.types",
    "FilterState": "vectorsearch.query.planning.states",
    "FineTuning": "vectorsearch.training.fine_tuning",
    "Fit": "rerank.training.train_plan",
    "Fusion": "vectorsearch.query.execution.fusion",
    "HeadStep": "backends.base",
    "Hit": "vectorsearch.query.results",
    "IndexUnwritable": "vectorsearch.errors",
    "InferenceError": "vectorsearch.errors",
    "IngestReport": "vectorsearch.ingestion.bulk",
    "InstanceKey": "lifecycle.config",
    "InvalidDocument": "vectorsearch.errors",
    "InvalidInput": "vectorsearch.errors",
    "InvalidModel": "vectorsearch.errors",
    "Judged": "vectorsearch.evaluation.collecting.topics",
    "KeeperSilent": "vectorsearch.errors",
    "LeaseReused": "vectorsearch.errors",
    "LeaseTimeout": "vectorsearch.errors",
    "LifecycleError": "vectorsearch.errors",
    "LoadFailed": "vectorsearch.errors",
    "LoadPolicy": "lifecycle.config",
    "LoadTooSlow": "vectorsearch.errors",
    "ManagerClosed": "vectorsearch.errors",
    "ManagerSnapshot": "lifecycle.snapshot",
    "Member": "vectorsearch.query.planning.plan",
    "Metadata": "vectorsearch.types",
    "MiningPlan": "vectorsearch.training.hard_negatives",
    "MissingExtra": "vectorsearch.errors",
    "Mode": "vectorsearch.types",
    "ModelConfig": "lifecycle.config",
    "ModelLoad": "vectorsearch.query.results",
    "ModelManager": "lifecycle.manager",
    "ModelNotRegistered": "vectorsearch.errors",
    "ModelRef": "lifecycle.config",
    "ModelRow": "vectorsearch.collection.storage.registry",
    "ModelSpec": "backends.base",
    "ModelState": "vectorsearch.models.resolving.model_state",
    "ModelStatus": "lifecycle.snapshot",
    "ModelUnavailable": "vectorsearch.errors",
    "NewerFormat": "vectorsearch.errors",
    "NonFiniteVector": "vectorsearch.errors",
    "NotADatabase": "vectorsearch.errors",
    "OnConflict": "vectorsearch.collection.storage.sqlite.store",
    "OnRerankError": "vectorsearch.query.planning.request",
    "Origin": "vectorsearch.query.planning.defaults",
    "OtherVectors": "vectorsearch.errors",
    "Passages": "rerank.reading.windows",
    "Pooling": "backends.base",
    "QueryPlan": "vectorsearch.query.planning.plan",
    "QueueFull": "vectorsearch.errors",
    "QuotaExhausted": "vectorsearch.errors",
    "RankedText": "rerank.cross_encoder",
    "ReadOnlyDatabase": "vectorsearch.errors",
    "Readiness": "lifecycle.snapshot",
    "Recipe": "rerank.distilling.distil",
    "RegisteredModel": "vectorsearch.models.registration",
    "ReplaceOvertaken": "vectorsearch.errors",
    "Rerank": "vectorsearch.query.planning.rerankers",
    "RerankError": "vectorsearch.errors",
    "RerankPlan": "vectorsearch.query.planning.plan",
    "RerankScores": "rerank.base",
    "RetrieverKind": "vectorsearch.query.planning.request",
    "RetrieverPlan": "vectorsearch.query.planning.plan",
    "Rows": "vectorsearch.ingestion.rows",
    "ScoreKind": "vectorsearch.types",
    "SearchDefaults": "vectorsearch.query.planning.defaults",
    "SearchResult": "vectorsearch.query.results",
    "SettingsMismatch": "vectorsearch.errors",
    "Similarity": "backends.base",
    "SpaceChanged": "vectorsearch.errors",
    "StageStats": "vectorsearch.query.results",
    "StorageFull": "vectorsearch.errors",
    "StoreError": "vectorsearch.errors",
    "Target": "vectorsearch.ingestion.bulk",
    "Task": "backends.base",
    "TenantInfo": "vectorsearch.database.tenants",
    "TenantModel": "vectorsearch.database.tenants_view",
    "TenantSnapshot": "vectorsearch.database.tenants_view",
    "TextKind": "backends.running.text_model",
    "Trained": "rerank.training.train",
    "Training": "rerank.distilling.distil_training",
    "TrainingPlan": "rerank.training.train_plan",
    "TransientBackendError": "vectorsearch.errors",
    "Trial": "lifecycle.measuring.trial",
    "UnknownMode": "vectorsearch.errors",
    "UnknownModel": "vectorsearch.errors",
    "UnknownTenant": "vectorsearch.errors",
    "UnloadFailed": "vectorsearch.errors",
    "UnloadTimeout": "vectorsearch.errors",
    "VectorSearchError": "vectorsearch.errors",
    "Vectors": "vectorsearch.ingestion.rows",
    "Verification": "vectorsearch.collection.upkeep",
    "Waiter": "lifecycle.snapshot",
    "Workload": "backends.choosing.selection",
    "Written": "vectorsearch.types",
    "distil_reranker": "vectorsearch.training.distillation",
    "fit_features": "vectorsearch.training.features",
    "ingest": "vectorsearch.ingestion.bulk",
    "open": "vectorsearch.database.engine",
    "train_reranker": "vectorsearch.training.fine_tuning",
}


def __getattr__(name: str) -> object:
    """Import a public name's module when the name is first used, so that the command line's help comes at once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    if isinstance(value, type):
        value.__module__ = __name__  # where callers import it from, in `repr` and tracebacks
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
