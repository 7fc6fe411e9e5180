"""How a search's time is shared out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import ModelRef
from vectorsearch.models.model_state import ModelState
from vectorsearch.query.planning.planner import plan_search
from vectorsearch.query.planning.request import RerankRequest, RerankStage, SearchRequest
from vectorsearch.query.planning.states import PlanState
from vectorsearch.query.planning.timing import share_out, usable_ms

expected = st.lists(st.one_of(st.none(), st.floats(0, 1e4)), min_size=1, max_size=5)


@given(st.floats(0.1, 1e5), expected)
def test_shares_add_up_and_none_is_starved(total: float, costs: list[float | None]) -> None:
    """The whole time is shared out, and no stage gets less than half of an equal share."""
    shares = share_out(total, costs)
    assert sum(shares) == pytest.approx(total)
    assert min(shares) >= total / len(costs) / 2 * (1 - 1e-9)


@given(st.floats(0.1, 1e5), st.lists(st.floats(0, 1e4), min_size=2, max_size=5))
def test_dearer_stage_gets_more(total: float, costs: list[float]) -> None:
    """Shares rise with what stages are expected to cost, and equal costs get equal shares."""
    shares = share_out(total, costs)
    assert [shares[i] for i in sorted(range(len(costs)), key=costs.__getitem__)] == sorted(shares)


def test_shares_are_equal_when_nothing_is_known() -> None:
    """A first search shares its time out evenly; an unknown stage counts as the others do on average."""
    assert share_out(90.0, [None, None, None]) == (30.0, 30.0, 30.0)
    assert share_out(90.0, [10.0, None, 20.0])[1] == pytest.approx(30.0)


def test_some_time_is_kept_back_for_what_follows_the_last_stage() -> None:
    """A tenth, at least 10 ms, and of a very short time a quarter."""
    assert [usable_ms(ms) for ms in (1000.0, 100.0, 20.0)] == [900.0, 90.0, 15.0]


def model(name: str, *, unit_ms: float | None = None, resident: bool = True, load_ms: float = 40.0) -> ModelState:
    """Return a model's state with what it costs."""
    return ModelState(ModelRef("", name), "fake", resident, 1, unit_ms=unit_ms, load_ms=load_ms)


def test_budgets_follow_costs_and_cover_the_cascade() -> None:
    """Retrieval and each rerank stage have their share, and the members of a chain share their stage's."""
    stages = (RerankStage(names=("cheap",), depth=20), RerankStage(names=("dear", "other"), depth=10))
    state = PlanState(
        documents=100,
        embedder=model("embedder", unit_ms=5.0),
        budget_nbytes=10,
        rerankers=(model("cheap", unit_ms=1.0), model("dear", unit_ms=10.0), None),
        unit_ms={"lexical": 1.0, "dense": 2.0, "rerank:other": 5.0},
    )
    plan = plan_search(SearchRequest(query="a", rerank=RerankRequest(stages), timeout_s=1.0), state)
    assert plan.expected_ms == pytest.approx(7.0 + 20.0 + 100.0)
    assert plan.retrieval_budget_ms is not None
    cheap, dear = plan.rerank
    assert plan.retrieval_budget_ms + (cheap.budget_ms or 0) + (dear.budget_ms or 0) == pytest.approx(900.0)
    assert plan.retrieval_budget_ms < (cheap.budget_ms or 0) < (dear.budget_ms or 0)
    assert sum(member.budget_ms or 0 for member in dear.members) == pytest.approx(dear.budget_ms)
    assert [member.expected_ms for member in dear.members] == [100.0, 50.0]


def test_load_of_a_prefetched_model_overlaps_retrieval() -> None:
    """A cold reranker costs what is left of its load when retrieval is over; one that is not prefetched, all of it."""
    request = SearchRequest(query="a", rerank=RerankRequest((RerankStage(names=("r",), depth=10),)))
    state = PlanState(
        documents=100,
        embedder=model("embedder", unit_ms=29.0),
        budget_nbytes=10,
        rerankers=(model("r", unit_ms=1.0, resident=False),),
        unit_ms={"lexical": 2.0, "dense": 1.0},
    )
    assert plan_search(request, state).expected_ms == pytest.approx(30.0 + 10.0 + 40.0 - 30.0)
    alone = PlanState(state.documents, state.embedder, 1, state.rerankers, state.unit_ms)
    assert plan_search(request, alone).expected_ms == pytest.approx(30.0 + 10.0 + 40.0)


def timed_depths(unit_ms: float, timeout_s: float, **options: Any) -> tuple[int, int | None, tuple[str, ...]]:
    """Return the depth that the plan of a search with a reranker of this cost has, and what it says of it."""
    request = SearchRequest(query="a", rerank=RerankRequest((RerankStage(names=("r",)),)), timeout_s=timeout_s)
    state = PlanState(
        documents=100,
        embedder=None,
        budget_nbytes=10,
        rerankers=(replace(model("r", unit_ms=unit_ms), **{"learned": True, **options}),),
        unit_ms={"lexical": 1.0},
    )
    plan = plan_search(request, state)
    return plan.rerank[0].depth, plan.rerank[0].asked_depth, plan.left_out


def test_reranker_reads_what_there_is_time_for() -> None:
    """Where the depth that was asked for would be late, fewer hits are read, and the plan says so."""
    assert timed_depths(1.0, 1.0) == (50, None, ())
    depth, asked, left_out = timed_depths(10.0, 0.3)
    assert (asked, left_out) == (50, ("rerank:shortened",))
    assert 20 <= depth <= 24


def test_depth_stays_when_nothing_better_is_known() -> None:
    """A cost that nobody has learned here, or a load still to come, shorten nothing; one hit is always tried."""
    assert timed_depths(10.0, 0.3, learned=False)[0] == 50
    assert timed_depths(10.0, 0.3, resident=False)[0] == 50
    assert timed_depths(1000.0, 0.3)[0] == 1
