"""One model on several backends: the order by workload, falling back, and what the database says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from backends.choosing import registry
from backends.engines.fake_backend import FakeBackend, Fault
from backends.errors import TransientBackendError
from lifecycle import LoadFailed, LoadPolicy, ModelConfig, ModelManager
from lifecycle.chains.text_chain import text_chain
from rerank import CrossEncoder
from vectorsearch.models.resolving import Models

from ..conftest import EMBEDDER, MODEL_NBYTES, RERANKER

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = [{"id": word, "text": f"{word} text"} for word in ("alpha", "beta", "gamma")]
OOM = Fault.OUT_OF_MEMORY


def only(monkeypatch: pytest.MonkeyPatch, *backends: FakeBackend) -> None:
    """Let these be the only backends, in this order of priority; a backend named `jax` is the default for bulk work."""
    for rank, backend in enumerate(backends):
        backend.priority = rank
    monkeypatch.setattr(registry, "_known", {backend.name: backend for backend in backends})


def fake(name: str, **script: object) -> FakeBackend:
    """Return a fake backend of this name."""
    return FakeBackend(name, nbytes=MODEL_NBYTES, **script)  # type: ignore[arg-type]  (scripts)


@pytest.fixture
def manager() -> Iterator[ModelManager]:
    """Give a manager with room for ten models."""
    with ModelManager(10 * MODEL_NBYTES) as made:
        yield made


def test_query_and_bulk_use_their_own_backends_of_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are embedded on the backend for bulk work, queries on the one for queries; each is registered once."""
    one, jax = fake("one"), fake("jax")
    only(monkeypatch, one, jax)
    with vs.open(embed=EMBEDDER, rerank=RERANKER) as db:
        db.add([{"id": "much", "text": "alpha " * 20_000}, *DOCS])
        assert (one.loaded, jax.loaded) == (0, 1)
        result = db.search("gamma")
        assert (one.loaded, jax.loaded) == (1, 1)
        assert [stage.backend for stage in result.stats if stage.stage == "encode"] == ["one"]
        assert {str(ref) for model in db.models().models for ref in model.refs} == {
            "test-embedder",
            "test-embedder+jax",
        }
        assert "default for bulk" in db._models.choice(EMBEDDER, "bulk").reason


def test_search_goes_on_elsewhere_when_a_backend_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out: the next backend embeds and reranks, and the database tells who is ill."""
    one, two = fake("one", loads=[OOM] * 9), fake("two")
    only(monkeypatch, one, two)
    with vs.open(embed=EMBEDDER, rerank=RERANKER) as db:
        db.add(DOCS)
        result = db.search("gamma", rerank=True)
        assert result.degraded == ()
        assert result[0].id == "gamma"
        assert {stage.backend for stage in result.stats if stage.model} == {"two"}
        (ill,) = db.check_health()
        assert (ill.backend, ill.failures, ill.fallbacks) == ("one", 3, 3)
        assert db.models().counters.fallbacks == 3
        assert db.check_health(1.0) == ()


def test_stage_is_left_out_for_the_last_reason_when_no_backend_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first backend is out of memory and the second has no room, a query goes on without: `budget`."""
    only(monkeypatch, fake("one", loads=[OOM]), FakeBackend("two", nbytes=9 * MODEL_NBYTES))
    with vs.open(embed=None, rerank=RERANKER, budget_nbytes=2 * MODEL_NBYTES) as db:
        db.add(DOCS)
        assert db.search("gamma", rerank=True).degraded == ("rerank:budget",)


def test_nothing_else_is_tried_when_the_backend_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `backend=` the database, and a cross-encoder of one's own, stay with that backend, whatever it raises."""
    one, two = fake("one", loads=[OOM], infers=[None, None, OOM]), fake("two")
    only(monkeypatch, one, two)
    with vs.open(embed=EMBEDDER, backend="one") as db:
        with pytest.raises(LoadFailed, match="out of memory"):
            db.add(DOCS)
        assert two.loaded == 0
    monkeypatch.setattr("rerank.cross_encoder.catalogue.resolve", lambda _: RERANKER)
    with CrossEncoder("any", backend="one") as encoder, pytest.raises(TransientBackendError):
        encoder.score("alpha", ["alpha text"])
    assert two.loaded == 0


def test_cross_encoder_of_ones_own_falls_back_within_its_own_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its manager has room for the largest of its backends, and the scores tell which one gave them."""
    only(monkeypatch, fake("one", loads=[OOM]), FakeBackend("two", nbytes=3 * MODEL_NBYTES))
    monkeypatch.setattr("rerank.cross_encoder.catalogue.resolve", lambda _: RERANKER)
    with CrossEncoder("any") as encoder:
        answer = encoder.score_detailed("alpha", ["alpha text", "beta text"])
        assert (answer.backend, encoder.name) == ("two", RERANKER.name)
        assert answer.scores[0] > answer.scores[1]


def test_only_the_first_backend_loads_eagerly(monkeypatch: pytest.MonkeyPatch, manager: ModelManager) -> None:
    """A tenant's eager, pinned model is loaded and pinned where it is used, and not on what it may fall back to."""
    only(monkeypatch, fake("one"), fake("two"))
    eager = ModelConfig(load_policy=LoadPolicy.EAGER, pinned=True, eviction_rank=3)
    chain = text_chain(manager, EMBEDDER, ["one", "two"], tenant="acme", config=eager)
    assert [str(ref) for ref in chain.refs] == ["acme/test-embedder", "acme/test-embedder+two"]
    assert manager.key_of(chain.refs[1]).backend == "two"
    with manager.lease(chain.refs[0]):
        assert manager.ready()
    assert manager.status(chain.refs[1]).state == "registered"


def test_planner_sees_the_backend_that_is_tried_first(monkeypatch: pytest.MonkeyPatch, manager: ModelManager) -> None:
    """While the first backend's breaker is open the plan names, and prefetches, the second."""
    only(monkeypatch, fake("one"), fake("two"))
    models = Models(manager)
    assert (models.state(EMBEDDER).backend, models.state(EMBEDDER).name) == ("one", "test-embedder")
    for _ in range(5):
        manager.health.of("one").failed()
    assert (models.state(EMBEDDER).backend, models.state(EMBEDDER).name) == ("two", "test-embedder+two")
    assert models.encoder(EMBEDDER).encode_query("alpha").backend == "two"
    assert models.state(EMBEDDER).resident


def test_fallback_is_left_out_when_it_cannot_say_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, manager: ModelManager, caplog: pytest.LogCaptureFixture
) -> None:
    """A second backend whose estimate fails costs the fallback, with a warning; a first one's is an error."""
    two = fake("two")
    monkeypatch.setattr(two, "estimate", lambda _spec: 1 // 0)
    only(monkeypatch, fake("one"), two)
    assert Models(manager).encoder(EMBEDDER).encode_query("alpha").backend == "one"
    assert "no fallback on two" in caplog.text
    only(monkeypatch, two)
    with pytest.raises(LoadFailed):
        Models(manager).encoder(EMBEDDER)
