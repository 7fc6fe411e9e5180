"""Plan a query: which stages run, how deep, with which models, in which time, and what is left out. Pure.

`plan_search(request, state)` looks at nothing but its arguments: no clock, no lock, no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vectorsearch.collection.index.dense.base_plan import BasePlan, is_scanned
from vectorsearch.query.planning.plan import (
    DEFAULT_RERANK_DEPTH,
    FUSION_DEPTH,
    Member,
    QueryPlan,
    RerankPlan,
    RetrieverPlan,
    models_of,
)
from vectorsearch.query.planning.request import RetrieverKind, SearchRequest, UnknownMode, check_request
from vectorsearch.query.planning.timing import timed

if TYPE_CHECKING:
    from vectorsearch.models.model_state import ModelState
    from vectorsearch.query.planning.states import PlanState
    from vectorsearch.types import Mode


def plan_search(request: SearchRequest, state: PlanState) -> QueryPlan:
    """Decide the stages of one query.

    Raises:
        EmptyQuery: there is nothing to search with.
        UnknownMode: the mode is unknown, or needs what this database doesn't have.
        InvalidInput: `k`, a depth, a weight or another number is out of range.
    """
    check_request(request)
    kinds = _retriever_kinds(request, state)
    left_out: list[str] = []
    embedder = None if request.vector is not None else state.embedder
    stages = _rerank_stages(request, state, left_out=left_out)
    if len(kinds) > 1 and embedder is not None and (reason := embedder.left_out(state.budget_nbytes)):
        kinds = ("lexical",)
        left_out.insert(0, f"dense:{reason}")
    asked = _rerank_depth(request)
    depth = max(request.k, asked, FUSION_DEPTH if len(kinds) > 1 else 0)
    retrievers = tuple(_retriever(kind, request, state=state, depth=depth, embedder=embedder) for kind in kinds)
    models = models_of(retrievers, stages)
    # Only where all fit together, since loading one would evict another.
    together = sum(model.nbytes for model in models) <= state.budget_nbytes
    plan = QueryPlan(
        mode=_mode_of(request.mode, kinds, left_out),
        k=request.k,
        retrievers=retrievers,
        fusion=request.fusion,
        rrf_k=request.rrf_k,
        rerank=stages,
        min_score=request.rerank.min_score if request.rerank else None,
        filter=request.filter,
        filtered=state.filter,
        documents=state.documents,
        together=together,
        prefetch=tuple(model.ref for model in models if not model.resident) if together else (),
        left_out=tuple(left_out),
    )
    return timed(plan, request.timeout_s)


def _retriever_kinds(request: SearchRequest, state: PlanState) -> tuple[RetrieverKind, ...]:
    can_dense = request.vector is not None or (state.embedder is not None and bool(request.query))
    if request.mode in ("dense", "hybrid") and not can_dense:
        raise UnknownMode(
            f"mode {request.mode!r} needs an embedder or a vector, and this database has no embedder: "
            "pass vector=…, or use mode='lexical'"
        )
    if request.mode in ("lexical", "hybrid") and not request.has_text:
        raise UnknownMode(f"mode {request.mode!r} needs a query text beside the vector: give one, or use mode='dense'")
    if request.mode in ("lexical", "dense"):
        return (request.mode,)
    if request.phrases:  # the vectors know nothing of words side by side
        return ("lexical",)
    kinds: list[RetrieverKind] = []
    if request.has_text:
        kinds.append("lexical")
    if can_dense:
        kinds.append("dense")
    return tuple(kinds)


def _retriever(
    kind: RetrieverKind, request: SearchRequest, *, state: PlanState, depth: int, embedder: ModelState | None
) -> RetrieverPlan:
    return RetrieverPlan(
        kind,
        depth,
        float(request.weights.get(kind, 1.0)),
        embedder if kind == "dense" else None,
        _strategy(kind, state) if request.filter else "",
        state.unit_ms.get(kind),
        request.bm25 if kind == "lexical" else None,
    )


def _strategy(kind: RetrieverKind, state: PlanState) -> str:
    """Say how a retriever applies the filter; the dense index decides by the same rule."""
    if kind == "lexical":
        return "pushed down into the term query"
    selected = "ids selected by their terms beforehand"
    if state.filter is None:
        return selected
    is_exact = state.dense_kind in ("exact", "Flat")
    in_memory = is_exact or BasePlan(state.dense_kind, 1).holds_vectors
    if is_exact or is_scanned(state.filter.rows, state.documents, in_memory=in_memory):
        return f"{selected}, their vectors scanned"
    return f"{selected}, {state.dense_kind} searched among them"


def _rerank_depth(request: SearchRequest) -> int:
    if request.rerank is None:
        return 0
    depth = request.rerank.stages[0].depth
    return max(request.k, DEFAULT_RERANK_DEPTH) if depth is None else depth


def _rerank_stages(request: SearchRequest, state: PlanState, *, left_out: list[str]) -> tuple[RerankPlan, ...]:
    if request.rerank is None:
        return ()
    asked = request.rerank.stages
    number = 0
    plans = []
    for position, stage in enumerate(asked, start=1):
        name = "rerank" if len(asked) == 1 else f"rerank.{position}"
        depth = _rerank_depth(request) if stage.depth is None else stage.depth
        models = state.rerankers[number : number + len(stage.names)] or (None,) * len(stage.names)
        members = [
            Member(of, number + at, model, _expected_ms(of, model, depth=depth, state=state))
            for at, (of, model) in enumerate(zip(stage.names, models, strict=True))
        ]
        number += len(members)
        able, reason = _able(members, request, budget_nbytes=state.budget_nbytes)
        if not able:
            left_out.append(f"{name}:{reason}")
            continue
        if able[0] is not members[0]:
            left_out.append(f"{name}:fallback")
        plans.append(RerankPlan(name, depth, tuple(able), stage.field, stage.passages, stage.blend))
    return tuple(plans)


def _able(members: list[Member], request: SearchRequest, *, budget_nbytes: int) -> tuple[list[Member], str]:
    """Return the members that can run here, and why the first that can't is left out.

    Where the caller wants errors the first is always tried, so that it raises its own.
    """
    reasons = [member.model.left_out(budget_nbytes) if member.model else None for member in members]
    able = [member for member, reason in zip(members, reasons, strict=True) if reason is None]
    if not able and request.on_rerank_error == "raise":
        return members[:1], ""
    return able, next((reason for reason in reasons if reason), "")


def _expected_ms(name: str, model: ModelState | None, *, depth: int, state: PlanState) -> float | None:
    units = min(depth, state.documents)
    if model is not None:
        return model.expected_ms(units)
    unit_ms = state.unit_ms.get(f"rerank:{name}")
    return None if unit_ms is None else units * unit_ms


def _mode_of(asked: Mode, kinds: tuple[RetrieverKind, ...], left_out: list[str]) -> Mode:
    if asked != "auto":
        return asked
    went_without = any(reason.startswith("dense:") for reason in left_out)
    return "hybrid" if len(kinds) > 1 or went_without else kinds[0]
