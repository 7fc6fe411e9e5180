"""A plan's models are taken as a set where they fit together, and one by one where they don't; the plan says which."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import vectorsearch as vs
from backends.engines.fake_backend import fake_spec
from lifecycle import BudgetExhausted, ModelManager, ModelRef

from ..conftest import EMBEDDER, MODEL_NBYTES, RERANKER, fake_backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..conftest import OpenDatabase

DOCS = [{"id": word, "text": f"{word} text"} for word in ("alpha", "beta", "gamma", "delta")]
OTHER = fake_spec("other", task="cross-encode")


def test_set_stays_until_the_last_stage_when_it_fits(open_database: OpenDatabase) -> None:
    """L50: between the stages nobody evicts a model of the plan, even one whose stage is done; afterwards one can."""
    db = open_database(budget_nbytes=2 * MODEL_NBYTES)
    db.add(DOCS)
    manager = db._models.manager
    refused: list[BaseException] = []

    def last(_query: str, texts: Sequence[str]) -> list[float]:
        db._models.cross_encoder(OTHER)  # registered with the same manager
        try:
            with manager.lease(ModelRef("", "other"), 0.0):
                pass
        except BudgetExhausted as error:
            refused.append(error)
        return [0.0] * len(texts)

    stages = vs.Rerank(cascade=[vs.Rerank(RERANKER, depth=4), vs.Rerank(last, depth=2)])
    result = db.search("gamma", rerank=stages)
    assert result.degraded == ()
    assert result.together
    assert len(refused) == 1
    for told in (db.explain("gamma", rerank=RERANKER), db.explain("gamma", rerank=RERANKER, analyze=True)):
        assert "models are taken as a set: test-embedder, test-reranker" in str(told)
    assert db.search("gamma", rerank=OTHER).degraded == ()


def test_models_are_taken_one_by_one_when_they_do_not_fit(open_database: OpenDatabase) -> None:
    """With room for one, each stage takes its model in its turn, and the plan and the result say so."""
    db = open_database(budget_nbytes=MODEL_NBYTES + MODEL_NBYTES // 2)
    db.add(DOCS)
    done = db.explain("gamma", rerank=True, analyze=True)
    assert done.ran.degraded == ()
    assert done.ran[0].score_kind == "rerank"
    assert not done.ran.together
    for told in (str(done), str(db.explain("gamma", rerank=True))):
        assert "models are taken one after the other: together they don't fit into the budget" in told


def test_search_does_without_the_set_when_others_leave_no_room(open_database: OpenDatabase) -> None:
    """Where another's lease takes the room of one of two models, no stage waits for it: one leaves for the other."""
    fake = fake_backend()
    with ModelManager(2 * MODEL_NBYTES) as manager:
        db = open_database(fake=fake, manager=manager)
        db.add(DOCS)
        db._models.cross_encoder(OTHER)
        with manager.lease(ModelRef("", "other")):
            done = db.explain("gamma", rerank=True, analyze=True)
            assert done.plan.together
            assert done.ran.degraded == ()
            assert done.ran[0].score_kind == "rerank"
            assert not done.ran.together
            assert "models were taken one after the other" in str(done)
        assert db.search("gamma", rerank=True).together
        db.close()


def test_retrieval_waits_for_no_reranker_when_the_set_is_cold(open_database: OpenDatabase) -> None:
    """Words and vectors are found while the reranker still loads: it is let go only when the query is encoded."""
    reranker_may_load = threading.Event()
    fake = fake_backend(loads=[None, reranker_may_load])
    db = open_database(fake=fake, budget_nbytes=2 * MODEL_NBYTES)
    db.add(DOCS)  # loads the embedder
    encoded = fake.inferred

    def release_when_encoded() -> None:
        while fake.inferred == encoded:
            threading.Event().wait(0.001)
        reranker_may_load.set()

    helper = threading.Thread(target=release_when_encoded, daemon=True)
    helper.start()
    result = db.search("gamma", rerank=True)
    helper.join()
    assert result.degraded == ()
    assert result.together
    assert [load.model for load in result.loads] == ["test-reranker"]


@pytest.mark.parametrize("vector", [None, np.ones(64, dtype=np.float32)])
def test_set_is_what_the_plan_needs(open_database: OpenDatabase, vector: np.ndarray | None) -> None:
    """A query that brings its vector needs no embedder, so that none is loaded for the set."""
    fake = fake_backend()
    db = open_database(fake=fake)
    db.add([{"id": "a", "text": "alpha", "vector": np.ones(64)}])
    result = db.search("alpha", vector=vector, rerank=True)
    names = ["test-reranker"] if vector is not None else [EMBEDDER.name, RERANKER.name]
    assert [model.name for model in result.plan.models] == names
    assert fake.loaded == len(names)
