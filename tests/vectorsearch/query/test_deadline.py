"""Searches with a time limit, and what runs beside what. Gates stand for slow work: nothing here sleeps.

What isn't held must be in time, however slow the machine is: a search is tried with longer and longer limits.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import DeadlineExceeded, InvalidInput
from vectorsearch.collection.collection import Collection

from ..conftest import fake_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import vectorsearch as vs

    from ..conftest import OpenDatabase

DOCS = [{"id": word, "text": f"{word} text"} for word in ("alpha", "beta", "gamma")]
SOON_S = 0.5  # long enough for what is not held, unless the machine is busy
LIMITS_S = (SOON_S, 4.0, 30.0, 200.0)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Give an event that whoever is late waits for, and set it at the end."""
    event = threading.Event()
    yield event
    event.set()


def held(gate: threading.Event, function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function begin its work only when the gate opens."""

    def late(*arguments: Any, **options: Any) -> Any:
        assert gate.wait(800)
        return function(*arguments, **options)

    return late


def in_time(search: Callable[[float], vs.SearchResult], *degraded: str) -> vs.SearchResult:
    """Search until only that is late which is held, and so always is; fail with the last result if that never is so."""
    result = None
    for timeout_s in LIMITS_S:
        with suppress(DeadlineExceeded):
            result = search(timeout_s)
            if result.degraded == degraded:
                return result
    pytest.fail(f"{degraded} are held, and late were {result and result.degraded}")


def ids(result: vs.SearchResult) -> list[str]:
    return [hit.id for hit in result]


def falling(_query: str, texts: list[str]) -> list[float]:
    return [float(-i) for i in range(len(texts))]


def test_late_reranker_is_left_out_and_named(open_database: OpenDatabase, gate: threading.Event) -> None:
    """S43: a reranker that isn't done in time leaves the fused order; or it raises, as asked."""
    db = open_database()
    db.add(DOCS)
    late = held(gate, falling)
    result = in_time(
        lambda s: db.search("gamma text", rerank=late, timeout_s=s, min_score=0.5),
        "rerank:timeout",
        "min_score:skipped",
    )
    assert ids(result) == ids(db.search("gamma text"))
    assert "time was up" in (result.stats[-1].error or "")
    with pytest.raises(DeadlineExceeded):
        db.search("gamma text", rerank=late, timeout_s=SOON_S, on_rerank_error="raise")


def test_next_in_a_chain_has_time_of_its_own(open_database: OpenDatabase, gate: threading.Event) -> None:
    """A late reranker uses up its own share of the stage's time, not that of the one after it."""
    db = open_database(embed=None)
    db.add(DOCS)
    result = in_time(lambda s: db.search("text", rerank=[held(gate, falling), falling], timeout_s=s), "rerank:fallback")
    assert result[0].score_kind == "rerank"


def test_late_encoder_is_left_out_of_a_hybrid_search(open_database: OpenDatabase, gate: threading.Event) -> None:
    """A query that isn't encoded in time is searched by its words, and says so; dense mode has nothing else."""
    fake = fake_backend()
    db = open_database(fake=fake)
    db.add(DOCS)
    fake._scripts["infer"].extend([gate] * (len(LIMITS_S) + 1))
    result = in_time(lambda s: db.search("gamma", timeout_s=s), "dense:timeout")
    assert ids(result) == ["gamma"]
    assert [stage.stage for stage in result.stats if stage.error] == ["encode"]
    with pytest.raises(DeadlineExceeded):
        db.search("gamma", mode="dense", timeout_s=SOON_S)


@pytest.mark.parametrize("slow", ["lexical", "dense"])
def test_late_retriever_is_left_out(
    open_database: OpenDatabase, gate: threading.Event, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """A retriever that isn't done in time is left out of a hybrid search, and the other's hits come."""
    db = open_database()
    db.add(DOCS)
    monkeypatch.setattr(Collection, slow, held(gate, getattr(Collection, slow)))
    result = in_time(lambda s: db.search("gamma", timeout_s=s), f"{slow}:timeout")
    assert result[0].id == "gamma"
    assert [stage.stage for stage in result.stats if stage.error] == [slow]


def test_search_raises_when_no_retriever_is_in_time(
    open_database: OpenDatabase, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hits because of the time is never mistaken for no hits because nothing matches."""
    db = open_database()
    db.add(DOCS)
    for slow in ("lexical", "dense"):
        monkeypatch.setattr(Collection, slow, held(gate, getattr(Collection, slow)))
    for mode in ("hybrid", "lexical"):
        with pytest.raises(DeadlineExceeded):
            db.search("gamma", mode=mode, timeout_s=SOON_S)


def test_nothing_is_left_out_when_there_is_time(open_database: OpenDatabase) -> None:
    """With time enough a limit changes nothing."""
    db = open_database()
    db.add(DOCS)
    plain, timed = (db.search("gamma text", rerank=True, timeout_s=timeout_s) for timeout_s in (None, 600.0))
    assert timed.degraded == ()
    assert [(hit.id, hit.scores) for hit in timed] == [(hit.id, hit.scores) for hit in plain]
    assert ids(db.search("gamma", vector=np.ones(64), timeout_s=600.0)) == ids(db.search("gamma", vector=np.ones(64)))


def test_words_are_looked_up_while_the_model_loads(
    open_database: OpenDatabase, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lexical retrieval never waits for a model: here the load ends only after it has run."""
    db = open_database(fake=fake_backend(loads=[gate]))
    db.add({**doc, "vector": np.ones(64)} for doc in DOCS)
    search = Collection.lexical

    def opening(*arguments: Any, **options: Any) -> Any:
        found = search(*arguments, **options)
        gate.set()
        return found

    monkeypatch.setattr(Collection, "lexical", opening)
    result = db.search("gamma")
    assert result.degraded == ()
    stages = {stage.stage: stage for stage in result.stats}
    assert stages["encode"].cold
    assert stages["encode"].start_ms < stages["lexical"].start_ms + stages["lexical"].latency_ms


def test_reranker_loads_while_retrieval_runs(open_database: OpenDatabase) -> None:
    """The plan's models are prefetched: here the query is encoded only when the reranker has begun to load."""
    begun = threading.Event()
    fake = fake_backend()
    load = fake.load_model

    def watched(spec: Any) -> Any:
        if spec.task == "cross-encode":
            begun.set()
        return load(spec)

    fake.load_model = watched  # type: ignore[method-assign]  # the test's own fake
    db = open_database(fake=fake)
    db.add(DOCS)
    fake._scripts["infer"].append(begun)
    result = db.search("gamma", rerank=True)
    assert result.degraded == ()
    assert [load.model for load in result.loads] == ["test-reranker"]
    assert 0 <= result.loads[0].start_ms < result.latency_ms


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), float("inf"), "1", True])
def test_limit_is_refused_when_it_is_no_time(open_database: OpenDatabase, timeout_s: Any) -> None:
    """A limit is a finite number of seconds above 0."""
    with pytest.raises(InvalidInput, match="timeout_s"):
        open_database(embed=None).search("a", timeout_s=timeout_s)


def test_costs_are_learned_from_searches(open_database: OpenDatabase) -> None:
    """The first plan knows nothing of costs; after a search each stage has one, and budgets follow them."""
    db = open_database(embed=None)
    db.add(DOCS)
    assert db.explain("text", rerank=falling).plan.expected_ms is None
    db.search("text", rerank=falling)
    plan = db.explain("text", rerank=falling, timeout_s=1.0).plan
    assert plan.expected_ms is not None
    assert plan.expected_ms > 0
    assert plan.rerank[0].budget_ms is not None


async def _asked(db: vs.Database) -> vs.SearchResult:
    return await db.asearch("gamma", k=1)


def test_search_can_be_awaited(open_database: OpenDatabase) -> None:
    """`asearch` gives what `search` gives."""
    db = open_database()
    db.add(DOCS)
    assert ids(asyncio.run(_asked(db))) == ids(db.search("gamma", k=1))


def test_many_queries_are_encoded_at_once(open_database: OpenDatabase) -> None:
    """`search_many` gives each query's own result and asks the embedder once for all of them."""
    fake = fake_backend()
    db = open_database(fake=fake)
    db.add(DOCS)
    queries = ["alpha", "beta", "gamma text"]
    alone = [db.search(query, k=2) for query in queries]
    before = fake.inferred
    together = db.search_many(queries, k=2)
    assert fake.inferred == before + 1
    assert [ids(result) for result in together] == [ids(result) for result in alone]
    assert [result.query for result in together] == queries
    assert db.search_many([]) == []
    assert fake.inferred == before + 1
    with pytest.raises(TypeError, match="no option 'top_k'"):
        db.search_many(queries, top_k=3)  # type: ignore[call-arg]  # as callers without a type checker may
