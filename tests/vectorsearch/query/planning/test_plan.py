"""The planner is a pure function: request and state in, plan out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.errors import InvalidInput
from lifecycle import ModelRef
from vectorsearch.models.model_state import ModelState
from vectorsearch.query.planning.planner import plan_search
from vectorsearch.query.planning.request import EmptyQuery, RerankRequest, RerankStage, SearchRequest, UnknownMode
from vectorsearch.query.planning.states import FilterState, PlanState

MIB = 1024**2
EMBEDDER = ModelState(ModelRef("", "embedder"), "fake", resident=True, nbytes=60 * MIB)
RERANKER = ModelState(ModelRef("", "reranker"), "fake", resident=False, nbytes=50 * MIB)
STATE = PlanState(documents=1000, embedder=EMBEDDER, rerankers=(RERANKER,), budget_nbytes=200 * MIB)
VECTOR = np.ones(4, dtype=np.float32)


def reranked(name: str, depth: int | None = None) -> RerankRequest:
    """Ask for one rerank stage with one reranker."""
    return RerankRequest((RerankStage(names=(name,), depth=depth),))


def kinds(request: SearchRequest, state: PlanState = STATE) -> list[str]:
    """Give the retrievers that the plan names."""
    return [retriever.kind for retriever in plan_search(request, state).retrievers]


@pytest.mark.parametrize(
    ("request_", "state", "expected"),
    [
        (SearchRequest(query="a"), STATE, ["lexical", "dense"]),
        (SearchRequest(query="a"), replace(STATE, embedder=None), ["lexical"]),
        (SearchRequest(query="a", vector=VECTOR), replace(STATE, embedder=None), ["lexical", "dense"]),
        (SearchRequest(vector=VECTOR), STATE, ["dense"]),
        (SearchRequest(query="a", mode="lexical"), STATE, ["lexical"]),
        (SearchRequest(query="a", mode="dense"), STATE, ["dense"]),
    ],
)
def test_retrievers_follow_what_is_there(request_: SearchRequest, state: PlanState, expected: list[str]) -> None:
    """Auto mode takes both retrievers where it can, and a named mode takes just what it names."""
    assert kinds(request_, state) == expected


@pytest.mark.parametrize(
    "request_",
    [
        SearchRequest(query=None),
        SearchRequest(query=""),
        SearchRequest(query=" \n\t"),
    ],
)
def test_query_is_refused_when_empty(request_: SearchRequest) -> None:
    """An empty query without a vector has its own error."""
    with pytest.raises(EmptyQuery, match="the query is empty"):
        plan_search(request_, STATE)


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (SearchRequest(query="a", mode="fuzzy"), UnknownMode, "use one of auto, hybrid, dense, lexical"),
        (SearchRequest(vector=VECTOR, mode="hybrid"), UnknownMode, "needs a query text"),
        (SearchRequest(vector=VECTOR, rerank=reranked("r")), InvalidInput, "needs the query's text"),
        (SearchRequest(query="a", k=-1), InvalidInput, "k is -1"),
        (SearchRequest(query="a", rerank=reranked("r", -2)), InvalidInput, "rerank_depth is -2"),
        (SearchRequest(query="a", rrf_k=0), InvalidInput, "rrf_k is 0"),
        (SearchRequest(query="a", weights={"sparse": 1.0}), InvalidInput, "keys are 'lexical' and 'dense'"),
        (SearchRequest(query="a", weights={"dense": float("nan")}), InvalidInput, "values from 0 to"),
        (SearchRequest(query="a", on_rerank_error="ignore"), InvalidInput, "use 'degrade' or 'raise'"),
    ],
)
def test_argument_is_refused_when_out_of_range(request_: SearchRequest, error: type[Exception], message: str) -> None:
    """Each argument that can't be used has an error that names it and its value."""
    with pytest.raises(error, match=message):
        plan_search(request_, STATE)


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_mode_is_refused_when_there_is_no_embedder(mode: str) -> None:
    """Dense retrieval without an embedder or a vector names the next step."""
    with pytest.raises(UnknownMode, match="pass vector="):
        plan_search(SearchRequest(query="a", mode=mode), replace(STATE, embedder=None))


def test_depths_cover_k_and_the_reranker() -> None:
    """Hybrid lists are 100 deep, or as deep as k or the reranker wants."""
    assert plan_search(SearchRequest(query="a", k=5), STATE).retrievers[0].depth == 100
    assert plan_search(SearchRequest(query="a", k=250), STATE).retrievers[0].depth == 250
    assert plan_search(SearchRequest(query="a", k=7, mode="dense"), STATE).retrievers[0].depth == 7
    deep = SearchRequest(query="a", k=5, mode="lexical", rerank=reranked("reranker", 20))
    assert plan_search(deep, STATE).retrievers[0].depth == 20


def test_rerank_depth_is_fifty_or_k_when_not_given() -> None:
    """An unset rerank depth is max(k, 50)."""
    for k, depth in ((10, 50), (80, 80)):
        plan = plan_search(SearchRequest(query="a", k=k, rerank=reranked("reranker")), STATE)
        assert [stage.depth for stage in plan.rerank] == [depth]


def test_cold_models_are_prefetched_when_all_fit_together() -> None:
    """Only models that are not in memory are prefetched, and only if no one would evict another."""
    request = SearchRequest(query="a", rerank=reranked("reranker"))
    assert plan_search(request, STATE).prefetch == (ModelRef("", "reranker"),)
    assert plan_search(request, replace(STATE, budget_nbytes=100 * MIB)).prefetch == ()


def test_plan_names_each_model_once_and_whether_all_fit() -> None:
    """The models of the stages that are asked first, in the stages' order; together they fit to the byte or not."""
    request = SearchRequest(query="a", rerank=reranked("reranker"))
    plan = plan_search(request, replace(STATE, budget_nbytes=110 * MIB))
    assert [model.name for model in plan.models] == ["embedder", "reranker"]
    assert plan.together
    assert not plan_search(request, replace(STATE, budget_nbytes=110 * MIB - 1)).together
    stages = RerankRequest((RerankStage(names=("reranker",), depth=9), RerankStage(names=("reranker",), depth=3)))
    twice = plan_search(replace(request, rerank=stages), replace(STATE, rerankers=(RERANKER, RERANKER)))
    assert [model.name for model in twice.models] == ["embedder", "reranker"]
    assert plan_search(SearchRequest(query="a", mode="lexical"), STATE).models == ()


def test_plan_says_what_it_leaves_out_when_a_model_never_fits() -> None:
    """With less room than one model, both stages are left out, and the plan says so before it runs."""
    request = SearchRequest(query="a", rerank=reranked("reranker"))
    plan = plan_search(request, replace(STATE, budget_nbytes=10 * MIB))
    assert plan.left_out == ("dense:budget", "rerank:budget")
    assert [retriever.kind for retriever in plan.retrievers] == ["lexical"]
    assert plan.rerank == ()
    assert plan.mode == "hybrid"


def test_stage_is_kept_when_the_caller_wants_an_error() -> None:
    """Dense mode and on_rerank_error="raise" keep a stage that can't fit, so that running it raises."""
    small = replace(STATE, budget_nbytes=10 * MIB)
    dense = plan_search(SearchRequest(query="a", mode="dense"), small)
    assert [retriever.kind for retriever in dense.retrievers] == ["dense"]
    strict = SearchRequest(query="a", rerank=reranked("reranker"), on_rerank_error="raise")
    assert len(plan_search(strict, small).rerank) == 1


def test_plan_says_unavailable_when_no_backend_serves_the_model() -> None:
    """A model that no installed backend serves is left out of a hybrid query by name."""
    missing = ModelState(
        ModelRef("", "embedder"), "none", resident=False, nbytes=0, unavailable="onnxruntime is not installed"
    )
    plan = plan_search(SearchRequest(query="a"), replace(STATE, embedder=missing))
    assert plan.left_out == ("dense:unavailable",)


@pytest.mark.parametrize(
    ("rows", "kind", "strategy"),
    [
        (20, "HNSW32", "their vectors scanned"),
        (400_000, "HNSW32", "HNSW32 searched among them"),
        (400_000, "exact", "their vectors scanned"),
        (2_100, "HNSW32,SQ8", "HNSW32,SQ8 searched among them"),
        (1_000, "IVF64,Flat", "their vectors scanned"),
    ],
)
def test_filter_is_applied_as_its_selectivity_asks(rows: int, kind: str, strategy: str) -> None:
    """S10: the plan says how each branch applies the filter: few rows, or an exact index, are scanned."""
    state = replace(STATE, documents=1_000_000, filter=FilterState(rows, 1_000_000), dense_kind=kind)
    lexical, dense = plan_search(SearchRequest(query="a", filter={"lang": "en"}), state).retrievers
    assert lexical.strategy == "pushed down into the term query"
    assert dense.strategy.endswith(strategy)
