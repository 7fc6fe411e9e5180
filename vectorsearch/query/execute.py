"""Run a plan, stage by stage, left to right. No stage reaches back.

A stage that fails is left out and named in `degraded`, if the plan can go on without it: the dense list of a
hybrid query, and the reranker unless the caller asked for `on_rerank_error="raise"`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InferenceError, ModelUnavailable, VectorSearchError
from lifecycle import BudgetExhausted, LeaseTimeout, LifecycleError, LoadFailed, QueueFull
from rerank import RerankError
from vectorsearch.query.fusion import fuse_rrf
from vectorsearch.results import Hit, SearchResult, StageStats
from vectorsearch.types import Candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rerank import Reranker
    from vectorsearch.collection import Collection
    from vectorsearch.encoder import Encoder
    from vectorsearch.query.plan import QueryPlan, RetrieverPlan, SearchRequest
    from vectorsearch.types import Document, ScoreKind


@dataclass(frozen=True, slots=True)
class Resources:
    """What a plan runs on. `clock` is monotonic, in seconds."""

    collection: Collection
    encoder: Encoder | None = None
    reranker: Reranker | None = None
    clock: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class _Trace:
    """What has happened so far in one query."""

    stats: list[StageStats] = field(default_factory=list)
    degraded: list[str] = field(default_factory=list)


def execute(plan: QueryPlan, request: SearchRequest, resources: Resources) -> SearchResult:
    """Run the plan and return the hits with what each stage cost.

    Raises:
        VectorSearchError: a stage failed that the plan can't go without.
    """
    start = resources.clock()
    trace = _Trace(degraded=list(plan.left_out))
    lists = _retrieve(plan, request, resources, trace) if plan.k else {}
    merged = _fuse(plan, lists, resources, trace)
    wanted = max(plan.k, plan.rerank.depth if plan.rerank else 0)
    rows = merged.rows[:wanted]
    rows, documents = _fetch(rows, resources, trace)
    logits = _rerank(plan, request, resources, documents, trace)
    order = rerank_order(logits, len(rows)) if logits is not None else np.arange(len(rows))
    hits = _hits(order=order[: plan.k], rows=rows, documents=documents, merged=merged, lists=lists, logits=logits)
    return SearchResult(
        query=request.query,
        hits=hits,
        plan=plan,
        stats=tuple(trace.stats),
        degraded=tuple(trace.degraded),
        latency_ms=(resources.clock() - start) * 1000.0,
    )


def rerank_order(logits: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """Order n fused hits, of which the first `len(logits)` were reranked: int64[n], positions of the fused order.

    Reranked hits are sorted by logit, equal ones in fused order. A hit without a score (NaN) keeps the place that
    the first stage gave it; hits past the depth follow in fused order.
    """
    order = np.arange(n)
    scored = np.flatnonzero(~np.isnan(logits))
    order[scored] = scored[np.argsort(-logits[scored], kind="stable")]
    return order


def degradation(stage: str, error: VectorSearchError) -> str:
    """Name why a stage was left out: `stage:budget`, `:timeout`, `:busy`, `:unavailable` or `:error`."""
    cause: BaseException | None = error
    while isinstance(cause, LoadFailed) and cause.__cause__ is not None:
        cause = cause.__cause__
    match cause:
        case BudgetExhausted() | LeaseTimeout(waited_for="room"):
            return f"{stage}:budget"
        case LeaseTimeout():
            return f"{stage}:timeout"
        case QueueFull():
            return f"{stage}:busy"
        case ModelUnavailable() | ImportError():
            return f"{stage}:unavailable"
        case _:
            return f"{stage}:error"


def _retrieve(
    plan: QueryPlan, request: SearchRequest, resources: Resources, trace: _Trace
) -> dict[RetrieverPlan, Candidates]:
    lists = {}
    for retriever in plan.retrievers:
        start = resources.clock()
        try:
            if retriever.kind == "lexical":
                found = resources.collection.lexical(request.query or "", retriever.depth, plan.filter)
            else:
                vector = _query_vector(retriever, request, resources, trace)
                start = resources.clock()
                found = resources.collection.dense(vector, retriever.depth, plan.filter)
        except (LifecycleError, InferenceError) as exc:
            if not plan.fused:
                raise
            trace.degraded.append(degradation("dense", exc))
            model = retriever.model.name if retriever.model else None
            trace.stats.append(StageStats("encode", 1, 0, _ms(resources, start), model=model, error=str(exc)))
            continue
        lists[retriever] = found
        trace.stats.append(StageStats(retriever.kind, plan.documents, len(found.rows), _ms(resources, start)))
    return lists


def _query_vector(
    retriever: RetrieverPlan, request: SearchRequest, resources: Resources, trace: _Trace
) -> NDArray[np.float32]:
    if request.vector is not None:
        return request.vector
    if resources.encoder is None or retriever.model is None or request.query is None:
        raise InferenceError("a dense stage was planned without an embedder")
    start = resources.clock()
    encoding = resources.encoder.encode_query(request.query)
    trace.stats.append(
        StageStats(
            "encode",
            1,
            1,
            _ms(resources, start),
            model=resources.encoder.spec.name,
            backend=encoding.backend,
            device=encoding.device,
            cold=encoding.cold or not retriever.model.resident,
            load_ms=encoding.load_ms,
            truncated=encoding.truncated,
        )
    )
    vector: NDArray[np.float32] = encoding.vectors[0]
    return vector


def _fuse(plan: QueryPlan, lists: dict[RetrieverPlan, Candidates], resources: Resources, trace: _Trace) -> Candidates:
    if not plan.fused:
        return next(iter(lists.values()), Candidates(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)))
    start = resources.clock()
    weights = [retriever.weight for retriever in lists]
    fused = fuse_rrf(list(lists.values()), weights=weights, rrf_k=plan.rrf_k)
    entered = sum(len(found.rows) for found in lists.values())
    trace.stats.append(StageStats("fuse", entered, len(fused.rows), _ms(resources, start)))
    return fused


def _fetch(rows: NDArray[np.int64], resources: Resources, trace: _Trace) -> tuple[NDArray[np.int64], list[Document]]:
    """Return the rows that are still there, and their documents: another thread may have deleted some meanwhile."""
    start = resources.clock()
    fetched = resources.collection.fetch(rows)
    documents = [document for document in fetched if document is not None]
    there = np.array([document is not None for document in fetched], dtype=np.bool_)
    trace.stats.append(StageStats("fetch", len(rows), len(documents), _ms(resources, start)))
    return rows[there], documents


def _rerank(
    plan: QueryPlan, request: SearchRequest, resources: Resources, documents: Sequence[Document], trace: _Trace
) -> NDArray[np.float32] | None:
    if plan.rerank is None or resources.reranker is None or not documents:
        return None
    texts = [document.full_text for document in documents[: plan.rerank.depth]]
    start = resources.clock()
    try:
        answer = resources.reranker.score_detailed(request.query or "", texts)
    except VectorSearchError as exc:
        if request.on_rerank_error == "raise":
            raise
        trace.degraded.append(degradation("rerank", exc))
        latency_ms = _ms(resources, start)
        trace.stats.append(StageStats("rerank", len(texts), 0, latency_ms, model=plan.rerank.name, error=str(exc)))
        return None
    missing = int(np.isnan(answer.scores).sum())
    if missing and request.on_rerank_error == "raise":
        raise RerankError(f"reranker {plan.rerank.name!r} gave no score for {missing} of {len(texts)} texts")
    if missing:
        trace.degraded.append("rerank:missing-scores")
    trace.stats.append(
        StageStats(
            "rerank",
            len(texts),
            len(texts) - missing,
            _ms(resources, start),
            model=plan.rerank.name,
            backend=answer.backend,
            device=answer.device,
            cold=answer.cold or (plan.rerank.model is not None and not plan.rerank.model.resident),
            load_ms=answer.load_ms,
            truncated=answer.truncated,
            error=f"{missing} of {len(texts)} texts got no score" if missing else None,
        )
    )
    return answer.scores


def _hits(
    *,
    order: NDArray[np.int64],
    rows: NDArray[np.int64],
    documents: Sequence[Document],
    merged: Candidates,
    lists: dict[RetrieverPlan, Candidates],
    logits: NDArray[np.float32] | None,
) -> tuple[Hit, ...]:
    by_kind: dict[ScoreKind, dict[int, float]] = {
        retriever.kind: dict(zip(found.rows.tolist(), found.scores.tolist(), strict=True))
        for retriever, found in lists.items()
    }
    if len(by_kind) > 1:
        by_kind["fused"] = dict(zip(merged.rows.tolist(), merged.scores.tolist(), strict=True))
    if logits is not None:
        by_kind["rerank"] = {int(rows[i]): float(s) for i, s in enumerate(logits) if not np.isnan(s)}
    hits = []
    for rank, position in enumerate(order.tolist(), start=1):
        row, document = int(rows[position]), documents[position]
        scores = {kind: scores_of[row] for kind, scores_of in by_kind.items() if row in scores_of}
        kind: ScoreKind = "rerank" if "rerank" in scores else next(reversed(scores))
        hits.append(
            Hit(document.id, scores[kind], rank, document.text, document.title, document.metadata, kind, scores)
        )
    return tuple(hits)


def _ms(resources: Resources, start: float) -> float:
    return (resources.clock() - start) * 1000.0
