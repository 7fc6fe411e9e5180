"""The plan of a query: which retrievers run, how deep, with which models, and what is left out. Pure.

`plan_search(request, state)` looks at nothing but its arguments: no clock, no lock, no file. What it decides is
data, so that `explain` prints exactly what `execute` does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Literal, get_args

from backends.errors import InvalidInput
from vectorsearch.query.fusion import RRF_K
from vectorsearch.types import Filter, Mode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lifecycle import ModelRef

FUSION_DEPTH = 100  # each list's depth in hybrid mode, as in the reference figures
DEFAULT_RERANK_DEPTH = 50

RetrieverKind = Literal["lexical", "dense"]
OnRerankError = Literal["degrade", "raise"]


class UnknownMode(InvalidInput):
    """`mode` is none of the modes, or asks for what this database doesn't have."""


class EmptyQuery(InvalidInput):
    """There is neither a query with at least one visible character nor a vector."""


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A reranker by name, and how many hits it shall read: None means max(k, 50)."""

    name: str
    depth: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A caller's query, checked for form. `vector` is float32[dim] or None."""

    query: str | None = None
    vector: NDArray[np.float32] | None = None
    k: int = 10
    filter: Filter | None = None
    mode: Mode = "auto"
    weights: Mapping[str, float] = field(default_factory=dict)
    rrf_k: float = RRF_K
    rerank: RerankRequest | None = None
    on_rerank_error: OnRerankError = "degrade"


@dataclass(frozen=True, slots=True)
class ModelState:
    """What the planner knows of a model: whether it is in memory, and the bytes that it takes.

    `unavailable` says why no backend here can serve it; None if one can.
    """

    ref: ModelRef
    backend: str
    resident: bool
    nbytes: int
    unavailable: str | None = None

    @property
    def name(self) -> str:
        """Return what callers call the model."""
        return str(self.ref)

    def left_out(self, budget_nbytes: int) -> str | None:
        """Return why this model can never run here, `unavailable` or `budget`, or None."""
        if self.unavailable is not None:
            return "unavailable"
        return "budget" if self.nbytes > budget_nbytes else None


@dataclass(frozen=True, slots=True)
class PlanState:
    """What the planner knows of the database at this moment."""

    documents: int
    embedder: ModelState | None
    reranker: ModelState | None
    budget_nbytes: int


@dataclass(frozen=True, slots=True)
class RetrieverPlan:
    """One retriever: its depth, its weight in the fusion, and the model that encodes the query, if one does."""

    kind: RetrieverKind
    depth: int
    weight: float = 1.0
    model: ModelState | None = None


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """The rerank stage: how many of the fused hits it reads. `model` is None for a function."""

    name: str
    depth: int
    model: ModelState | None = None


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What will run, left to right. `left_out` names stages that can't fit the budget, such as `dense:budget`."""

    mode: Mode
    k: int
    retrievers: tuple[RetrieverPlan, ...]
    rrf_k: float
    rerank: RerankPlan | None
    filter: Filter | None
    documents: int
    prefetch: tuple[ModelRef, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def fused(self) -> bool:
        """Return whether there are several lists to fuse."""
        return len(self.retrievers) > 1


def plan_search(request: SearchRequest, state: PlanState) -> QueryPlan:
    """Decide the stages of one query.

    Raises:
        EmptyQuery: there is nothing to search with.
        UnknownMode: the mode is unknown, or needs what this database doesn't have.
        InvalidInput: `k`, a depth, a weight or `rrf_k` is out of range.
    """
    _check(request)
    kinds = _retriever_kinds(request, state)
    rerank_depth = _rerank_depth(request)
    depth = max(request.k, rerank_depth, FUSION_DEPTH if len(kinds) > 1 else 0)
    left_out: list[str] = []
    embedder = None if request.vector is not None else state.embedder
    if len(kinds) > 1 and embedder is not None and (reason := embedder.left_out(state.budget_nbytes)):
        kinds = ("lexical",)
        left_out.append(f"dense:{reason}")
    retrievers = tuple(
        RetrieverPlan(kind, depth, float(request.weights.get(kind, 1.0)), embedder if kind == "dense" else None)
        for kind in kinds
    )
    rerank = RerankPlan(request.rerank.name, rerank_depth, state.reranker) if request.rerank else None
    if rerank and rerank.model and request.on_rerank_error == "degrade":
        reason = rerank.model.left_out(state.budget_nbytes)
        if reason:
            rerank = None
            left_out.append(f"rerank:{reason}")
    return QueryPlan(
        mode=_mode_of(request.mode, kinds, left_out),
        k=request.k,
        retrievers=retrievers,
        rrf_k=request.rrf_k,
        rerank=rerank,
        filter=request.filter,
        documents=state.documents,
        prefetch=_prefetch(retrievers, rerank, state),
        left_out=tuple(left_out),
    )


def _check(request: SearchRequest) -> None:
    _check_query(request)
    if not _is_count(request.k):
        raise InvalidInput(f"k is {request.k!r}: it is the number of hits wanted, 0 or more")
    if not _is_number(request.rrf_k) or request.rrf_k <= 0:
        raise InvalidInput(f"rrf_k is {request.rrf_k!r}: it must be above 0 (60 is usual)")
    if not isinstance(request.weights, Mapping):
        raise InvalidInput(f"weights is {request.weights!r}: give a mapping, such as {{'lexical': 1, 'dense': 2}}")
    for kind, weight in request.weights.items():
        if kind not in get_args(RetrieverKind) or not _is_number(weight) or weight < 0:
            raise InvalidInput(f"weights has {kind!r}: {weight!r}: keys are 'lexical' and 'dense', values 0 or more")
    if request.on_rerank_error not in get_args(OnRerankError):
        raise InvalidInput(f"on_rerank_error is {request.on_rerank_error!r}: use 'degrade' or 'raise'")
    if request.rerank is None:
        return
    if not request.query:
        raise InvalidInput(f"rerank {request.rerank.name!r} needs the query's text beside the vector: give both")
    if request.rerank.depth is not None and not _is_count(request.rerank.depth):
        raise InvalidInput(f"rerank_depth is {request.rerank.depth!r}: it is a number of hits, 0 or more")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _check_query(request: SearchRequest) -> None:
    if request.mode not in get_args(Mode):
        raise UnknownMode(f"mode {request.mode!r} is unknown: use one of {', '.join(get_args(Mode))}")
    if not isinstance(request.query, str | None):
        raise InvalidInput(f"the query is a {type(request.query).__name__}, not text: {request.query!r}")
    if request.vector is None and not (request.query and request.query.strip()):
        raise EmptyQuery(f"the query is empty ({request.query!r}): give some text, or a vector")


def _retriever_kinds(request: SearchRequest, state: PlanState) -> tuple[RetrieverKind, ...]:
    can_dense = request.vector is not None or (state.embedder is not None and bool(request.query))
    has_text = bool(request.query and request.query.strip())
    if request.mode in ("dense", "hybrid") and not can_dense:
        raise UnknownMode(
            f"mode {request.mode!r} needs an embedder or a vector, and this database has no embedder: "
            "pass vector=…, or use mode='lexical'"
        )
    if request.mode in ("lexical", "hybrid") and not has_text:
        raise UnknownMode(f"mode {request.mode!r} needs a query text beside the vector: give one, or use mode='dense'")
    if request.mode in ("lexical", "dense"):
        return (request.mode,)
    kinds: list[RetrieverKind] = []
    if has_text:
        kinds.append("lexical")
    if can_dense:
        kinds.append("dense")
    return tuple(kinds)


def _rerank_depth(request: SearchRequest) -> int:
    if request.rerank is None:
        return 0
    if request.rerank.depth is None:
        return max(request.k, DEFAULT_RERANK_DEPTH)
    return request.rerank.depth


def _mode_of(asked: Mode, kinds: tuple[RetrieverKind, ...], left_out: list[str]) -> Mode:
    if asked != "auto":
        return asked
    return "hybrid" if len(kinds) > 1 or left_out else kinds[0]


def _prefetch(
    retrievers: tuple[RetrieverPlan, ...], rerank: RerankPlan | None, state: PlanState
) -> tuple[ModelRef, ...]:
    """Name the models to load ahead: only where all fit together, since prefetching one would evict another."""
    models = [stage.model for stage in (*retrievers, rerank) if stage is not None and stage.model is not None]
    if sum(model.nbytes for model in models) > state.budget_nbytes:
        return ()
    return tuple(model.ref for model in models if not model.resident)
