"""Run a plan, stage by stage, left to right. No stage reaches back.

A stage that fails or is late is left out and named in `degraded`, if the search can go on without it: a list of a
hybrid query, and a reranker unless the caller asked for `on_rerank_error="raise"`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.query.execution.fusion import fuse
from vectorsearch.query.execution.ranking import kept_order, make_hits
from vectorsearch.query.execution.reranking import Reranking
from vectorsearch.query.execution.retrieval import Retrieval, retrieve
from vectorsearch.query.execution.trace import Trace
from vectorsearch.query.results import SearchResult
from vectorsearch.types import Candidates

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from lifecycle.leasing.hold import Hold
    from rerank import Reranker
    from vectorsearch.collection.collection import Collection
    from vectorsearch.models.encoder import Encoder
    from vectorsearch.query.execution.branches import Branches
    from vectorsearch.query.planning.plan import QueryPlan, RetrieverPlan
    from vectorsearch.query.planning.request import SearchRequest
    from vectorsearch.query.results import Hit
    from vectorsearch.types import Document

# A document that another thread replaces may have another row before it is fetched: then all is looked up again, so
# that it isn't missing, at most so often. What others replace all the time may still be, which is said.
_LOOKED_AGAIN = 2


@dataclass(frozen=True, slots=True)
class Resources:
    """What a plan runs on: `rerankers` in the order of the request's names, `held` its models as a set, if they fit.

    `clock` is monotonic, in seconds, and the search began at `begun` by it.
    """

    collection: Collection
    encoder: Encoder | None
    rerankers: tuple[Reranker | None, ...]
    held: Hold | None
    branches: Branches
    clock: Callable[[], float]
    begun: float


def execute(plan: QueryPlan, request: SearchRequest, *, resources: Resources) -> SearchResult:
    """Run the plan and return the hits with what each stage cost.

    Raises:
        VectorSearchError: a stage failed that the plan can't go without.
    """
    trace = Trace(resources.clock, resources.begun, degraded=list(plan.left_out))
    due = trace.deadline(plan.retrieval_budget_ms)
    retrieval = Retrieval(plan, request, resources.collection, resources.encoder, due)
    lists = retrieve(retrieval, trace, branches=resources.branches) if plan.k else {}
    merged = _merge(plan, lists, trace=trace)
    start = trace.now_ms
    rows, documents, scores = _fetch(merged, plan.depth, collection=resources.collection)
    for _ in range(_LOOKED_AGAIN):
        is_late = due is not None and due.left_s <= 0
        if is_late or len(documents) == _wanted(plan, lists, merged):
            break
        lists = {retriever: retrieval.run(retriever, trace.branch()) for retriever in lists}
        merged = _merge(plan, lists, trace=trace.branch())
        rows, documents, scores = _fetch(merged, plan.depth, collection=resources.collection)
    wanted = _wanted(plan, lists, merged)
    if len(documents) < wanted:
        trace.degraded.append("fetch:changed")
    trace.note("fetch", start, wanted, len(documents))
    if resources.held is not None:
        resources.held.settle()
    reranked = Reranking(plan, request, resources.rerankers, trace).run(documents, scores)
    order = kept_order(plan, reranked, trace=trace)
    hits = make_hits(order, rows, documents=documents, merged=merged, lists=lists, reranked=reranked)
    if request.highlight and request.query:
        hits = _highlighted(hits, request.query, collection=resources.collection)
    return SearchResult(
        query=request.query,
        hits=hits,
        plan=plan,
        stats=tuple(trace.stats),
        degraded=tuple(trace.degraded),
        latency_ms=trace.now_ms,
        together=resources.held is not None and resources.held.given,
    )


def _wanted(plan: QueryPlan, lists: dict[RetrieverPlan, Candidates], merged: Candidates) -> int:
    """Return how many documents there should be; where a list is not of one moment, as many as were asked for."""
    is_changed = any(found.changed for found in lists.values())
    return plan.depth if is_changed else min(plan.depth, len(merged.rows))


def _merge(plan: QueryPlan, lists: dict[RetrieverPlan, Candidates], *, trace: Trace) -> Candidates:
    if not plan.fused:
        return next(iter(lists.values()), Candidates(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)))
    start = trace.now_ms
    weights = [retriever.weight for retriever in lists]
    fused = fuse(list(lists.values()), plan.fusion, weights=weights, rrf_k=plan.rrf_k)
    trace.note("fuse", start, sum(len(found.rows) for found in lists.values()), len(fused.rows))
    return fused


def _highlighted(hits: tuple[Hit, ...], query: str, *, collection: Collection) -> tuple[Hit, ...]:
    return tuple(replace(hit, highlights=tuple(collection.highlights(query, hit.text))) for hit in hits)


def _fetch(
    merged: Candidates, depth: int, *, collection: Collection
) -> tuple[NDArray[np.int64], list[Document], NDArray[np.float32]]:
    """Return the best rows that are still there, their documents and scores.

    Another thread may have deleted some: then the list is read on until there are as many as were wanted.
    """
    places: list[int] = []
    documents: list[Document] = []
    read = 0
    while len(documents) < depth and read < len(merged.rows):
        rows = merged.rows[read : read + depth - len(documents)]
        for place, document in enumerate(collection.fetch(rows), read):
            if document is not None:
                places.append(place)
                documents.append(document)
        read += len(rows)
    return merged.rows[places], documents, merged.scores[places]
