"""Living within a budget, and without models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import vectorsearch as vs
from backends.choosing import registry
from backends.engines.fake_backend import Fault, fake_spec
from backends.errors import InferenceError
from lifecycle import BudgetExhausted, ModelManager

from .conftest import MODEL_NBYTES, fake_backend

if TYPE_CHECKING:
    from .conftest import OpenDatabase

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
DOCS = [{"id": word, "text": f"{word} text"} for word in WORDS]
ROOM_FOR_BOTH = 2 * MODEL_NBYTES
ROOM_FOR_ONE = MODEL_NBYTES + MODEL_NBYTES // 2
ROOM_FOR_NONE = MODEL_NBYTES // 2


def test_lexical_search_needs_no_model(open_database: OpenDatabase) -> None:
    """A database without an embedder takes texts alone, and auto mode is then lexical."""
    fake = fake_backend()
    db = open_database(fake=fake, embed=None)
    db.add(DOCS)
    result = db.search("gamma")
    assert result.plan.mode == "lexical"
    assert result[0].id == "gamma"
    assert fake.loaded == 0


def test_each_model_loads_once_when_both_fit(open_database: OpenDatabase) -> None:
    """L23: embedder and reranker alternate within a budget that holds both: two loads in all; L22: no evictions."""
    fake = fake_backend()
    db = open_database(fake=fake, budget_nbytes=ROOM_FOR_BOTH)
    db.add(DOCS)
    for _ in range(10):
        assert db.search("gamma", rerank=True).degraded == ()
    assert fake.loaded == 2
    assert db.models().counters.evictions == 0
    assert db.models().charged_nbytes == ROOM_FOR_BOTH


def test_queries_succeed_stage_by_stage_when_one_model_fits(open_database: OpenDatabase) -> None:
    """With room for one, the embedder leaves for the reranker and comes back; nothing is left out."""
    fake = fake_backend()
    db = open_database(fake=fake, budget_nbytes=ROOM_FOR_ONE)
    db.add(DOCS)
    for _ in range(3):
        result = db.search("gamma", rerank=True)
        assert result.degraded == ()
        assert result[0].score_kind == "rerank"
        assert db.models().charged_nbytes <= ROOM_FOR_ONE
    assert fake.loaded == 6


def test_search_goes_on_without_models_when_none_fits(open_database: OpenDatabase) -> None:
    """With less than one, hybrid search is lexical and says so; what can't do without its model raises."""
    db = open_database(embed=None)
    db.add(DOCS)
    small = open_database(budget_nbytes=ROOM_FOR_NONE)
    with pytest.raises(BudgetExhausted, match="raise budget_nbytes"):
        small.add(DOCS)
    assert small.count() == 0
    small.add({**doc, "vector": np.ones(64)} for doc in DOCS)
    result = small.search("gamma", rerank=True)
    assert result.degraded == ("dense:budget", "rerank:budget")
    assert result[0].id == "gamma"
    with pytest.raises(BudgetExhausted):
        small.search("gamma", mode="dense")
    with pytest.raises(BudgetExhausted):
        small.search("gamma", rerank=True, on_rerank_error="raise")


def test_document_is_not_stored_when_embedding_fails(open_database: OpenDatabase) -> None:
    """L47: a failed embedding is an error, never a vector of zeros."""
    db = open_database(fake=fake_backend(infers=[None, None, Fault.NAN]))  # the first two are the warm-up's
    with pytest.raises(InferenceError, match=r"NaN|finite"):
        db.add(DOCS)
    assert db.count() == 0
    assert db.add(DOCS) == len(DOCS)


def test_hybrid_goes_on_when_the_embedder_fails(open_database: OpenDatabase) -> None:
    """A failing dense stage is left out of a hybrid query and named; dense mode raises."""
    fake = fake_backend(infers=[None, None, None, Fault.CRASH, Fault.CRASH])
    db = open_database(fake=fake)
    db.add(DOCS)
    result = db.search("gamma")
    assert result.degraded == ("dense:error",)
    assert result[0].id == "gamma"
    with pytest.raises(InferenceError):
        db.search("gamma", mode="dense")


def test_models_are_shared_when_two_databases_share_a_manager(open_database: OpenDatabase) -> None:
    """One manager's budget holds one instance for both, and outlives either database."""
    fake = fake_backend()
    with ModelManager(ROOM_FOR_BOTH) as manager:
        first, second = (open_database(fake=fake, manager=manager) for _ in range(2))
        first.add(DOCS)
        second.add(DOCS)
        assert fake.loaded == 1
        first.close()
        assert second.search("gamma")[0].id == "gamma"
        second.close()
        assert manager.snapshot().charged_nbytes == MODEL_NBYTES


def test_model_is_told_apart_when_two_have_one_name(open_database: OpenDatabase) -> None:
    """Two models that share a name but not their digest are two models."""
    one = fake_spec("same", task="cross-encode")
    other = replace(one, digest="f" * 64)
    db = open_database(embed=None)
    db.add(DOCS)
    for spec in (one, other, one):
        assert db.search("gamma", rerank=spec)[0].score_kind == "rerank"
    assert len(db.models().models) == 2


def test_search_names_what_is_missing_when_no_backend_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the only backend lacks its runtime, search is lexical and says so, and adding says what to install."""
    monkeypatch.setattr(registry, "_known", {"onnx": registry.get("onnx")})
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    db = vs.open()
    try:
        with pytest.raises(vs.VectorSearchError, match="pip install onnxruntime"):
            db.add(DOCS)
        db.add({**doc, "vector": np.ones(384)} for doc in DOCS)
        result = db.search("gamma", rerank=True)
        assert result.degraded == ("dense:unavailable", "rerank:unavailable")
        assert result[0].id == "gamma"
        with pytest.raises(vs.VectorSearchError, match="pip install onnxruntime"):
            db.search("gamma", mode="dense")
        with pytest.raises(vs.VectorSearchError, match="pip install onnxruntime"):
            db.search("gamma", rerank=True, on_rerank_error="raise")
    finally:
        db.close()
