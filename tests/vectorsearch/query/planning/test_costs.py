"""What stages are expected to cost, learned from what they took."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from backends.engines.fake_backend import fake_spec
from lifecycle import ModelRef
from lifecycle.measuring import profile
from vectorsearch.models.model_state import ModelState
from vectorsearch.query.planning.costs import Costs
from vectorsearch.query.results import ModelLoad, SearchResult, StageStats

if TYPE_CHECKING:
    from backends.base import ModelSpec

MODEL = ModelState(ModelRef("", "m"), "fake", resident=True, nbytes=1)
SPEC = fake_spec("m", task="cross-encode")


def ran(*stats: StageStats, loads: tuple[ModelLoad, ...] = ()) -> SearchResult:
    """Return a search that did this."""
    plan: Any = None
    return SearchResult("q", (), plan, stats=stats, loads=loads)


def unit_ms(costs: Costs) -> float | None:
    """Return what the model is expected to cost for each text."""
    return costs.of(MODEL, SPEC).unit_ms


def test_cost_is_a_running_average_per_text() -> None:
    """The newest search counts a third, so that a cost follows what the machine does, and no single one decides it."""
    costs = Costs()
    assert unit_ms(costs) is None
    costs.learn(ran(StageStats("rerank", 10, 10, 100.0, model="m")))
    assert unit_ms(costs) == pytest.approx(10.0)
    costs.learn(ran(StageStats("rerank.2", 20, 20, 400.0, model="m")))
    assert unit_ms(costs) == pytest.approx(13.0)
    assert costs.of(MODEL, SPEC).learned


def test_loads_and_remembered_scores_are_no_part_of_a_texts_cost() -> None:
    """A load has a cost of its own; what was in the cache cost nothing, and says nothing."""
    costs = Costs()
    stage = StageStats("rerank", 10, 10, 350.0, model="m", cold=True, load_ms=300.0, cached=5)
    costs.learn(ran(stage, loads=(ModelLoad("m", 0.0, 310.0),)))
    assert unit_ms(costs) == pytest.approx(10.0)
    assert costs.of(MODEL, SPEC).load_ms == pytest.approx(310.0)
    costs.learn(ran(StageStats("rerank", 10, 10, 1.0, model="m", cached=10)))
    assert unit_ms(costs) == pytest.approx(10.0)


def test_late_stage_is_taken_to_cost_more_than_it_had() -> None:
    """A stage that was left out says only that it costs more; one that failed at once teaches nothing."""
    costs = Costs()
    costs.learn(ran(StageStats("rerank", 10, 0, 200.0, model="m", error="late")))
    assert unit_ms(costs) == pytest.approx(30.0)
    costs.learn(ran(StageStats("rerank", 10, 0, 0.1, model="m", error="broken")))
    assert unit_ms(costs) == pytest.approx(30.0)
    costs.learn(ran(StageStats("rerank", 10, 9, 100.0, model="m", error="1 of 10 texts got no score")))
    assert unit_ms(costs) == pytest.approx(24.0)


def test_profile_speaks_until_something_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first search a model's profile on this machine says what it costs, and it is read once."""
    reads: list[str] = []
    measured = SimpleNamespace(load_s=0.5, query_ms=300.0, bulk_ms=7.0)

    def read(spec: ModelSpec, _backend: str) -> Any:
        reads.append(spec.name)
        return measured

    monkeypatch.setattr(profile, "read", read)
    costs = Costs()
    for _ in range(2):
        state = costs.of(MODEL, SPEC)
        assert (state.unit_ms, state.load_ms, state.learned) == (7.0, 500.0, False)
    assert reads == ["m"]
    assert costs.of(replace(MODEL, ref=ModelRef("", "e")), fake_spec("e")).unit_ms == 300.0
    costs.learn(ran(StageStats("rerank", 10, 10, 100.0, model="m")))
    assert (unit_ms(costs), costs.of(MODEL, SPEC).load_ms) == (10.0, 500.0)
