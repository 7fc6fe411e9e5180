"""Which retrievers run beside each other, and what becomes of one that fails there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import InferenceError
from backends.running.deadline import Deadline
from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.storage.errors import DatabaseClosed, DimensionMismatch
from vectorsearch.query.execution.branches import Branches
from vectorsearch.query.execution.retrieval import Retrieval, retrieve
from vectorsearch.query.execution.trace import Trace
from vectorsearch.query.planning.planner import plan_search
from vectorsearch.query.planning.request import SearchRequest
from vectorsearch.query.planning.states import PlanState
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vectorsearch.types import Candidates

VECTOR = np.array([1.0, 0.0], np.float32)
DEAR = {"lexical": 5.0, "dense": 5.0}  # milliseconds, as if learned


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    """Give a collection of two documents with vectors."""
    with Collection.open(tmp_path / "db", CollectionSettings(), durable=False) as opened:
        opened.write([Document("a", "alpha", vector=VECTOR), Document("b", "beta", vector=VECTOR[::-1])])
        yield opened


def run(
    collection: Collection,
    branches: Branches,
    *,
    unit_ms: dict[str, float] | None = None,
    vector: Any = VECTOR,
    deadline: Deadline | None = None,
) -> tuple[dict[str, Candidates], Trace]:
    """Retrieve by the words and the vector of the first document."""
    request = SearchRequest(query="alpha", vector=vector)
    state = PlanState(documents=2, embedder=None, budget_nbytes=0, unit_ms=DEAR if unit_ms is None else unit_ms)
    trace = Trace(lambda: 0.0, 0.0)
    retrieval = Retrieval(plan_search(request, state), request, collection, None, deadline)
    return {r.kind: found for r, found in retrieve(retrieval, trace, branches=branches).items()}, trace


def threads_of(collection: Collection, branches: Branches, **options: Any) -> set[int]:
    """Return the threads on which the lists were found, checked to be the right ones."""
    used = set()
    patched = pytest.MonkeyPatch()

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any, **given: Any) -> Any:
            used.add(threading.get_ident())
            return function(*arguments, **given)

        return noting

    with patched.context() as patch:
        for kind in ("lexical", "dense"):
            patch.setattr(Collection, kind, noted(getattr(Collection, kind)))
        lists, trace = run(collection, branches, **options)
    assert {kind: found.rows.tolist() for kind, found in lists.items()} == {"lexical": [1], "dense": [1, 2]}
    assert [stage.stage for stage in trace.stats] == ["lexical", "dense"]
    return used


def test_both_lists_are_found_at_once_when_a_core_is_free(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two begins before the other has ended: both meet at a barrier."""
    both = threading.Barrier(2, timeout=600)

    def met(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: (both.wait(), function(*arguments, **options))[1]

    for kind in ("lexical", "dense"):
        monkeypatch.setattr(Collection, kind, met(getattr(Collection, kind)))
    lists, trace = run(collection, Branches(cores=2))
    assert sorted(lists) == ["dense", "lexical"]
    assert not trace.degraded


def test_no_thread_is_begun_when_no_core_is_free(collection: Collection) -> None:
    """With one core, or as many searches as cores, each search finds its lists one after the other."""
    here = {threading.get_ident()}
    assert threads_of(collection, Branches(cores=1)) == here
    branches = Branches(cores=2)
    with branches.calling() as has_core:
        assert has_core
        assert threads_of(collection, branches) == here


@pytest.mark.parametrize("unit_ms", [{}, {"lexical": 5.0}, {"lexical": 0.1, "dense": 5.0}])
def test_no_thread_is_begun_when_a_list_costs_next_to_nothing(
    collection: Collection, unit_ms: dict[str, float]
) -> None:
    """A list that is found in the time that a thread takes is not waited for, nor one of unknown cost."""
    assert threads_of(collection, Branches(cores=2), unit_ms=unit_ms) == {threading.get_ident()}


def test_dense_list_is_left_out_when_it_fails_beside_the_lexical_one(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure on the other thread is named, and the words' hits come; a mistake of the caller's is raised."""
    branches = Branches(cores=2)
    with pytest.raises(DimensionMismatch):
        run(collection, branches, vector=np.ones(3, np.float32))

    def failing(*_: Any) -> Any:
        raise InferenceError("no vectors today")

    monkeypatch.setattr(Collection, "dense", failing)
    lists, trace = run(collection, branches)
    assert [*lists] == ["lexical"]
    assert trace.degraded == ["dense:error"]
    assert [(stage.stage, stage.error) for stage in trace.stats] == [("lexical", None), ("dense", "no vectors today")]


def test_late_dense_list_is_left_out_and_counts_as_busy(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a deadline it is left behind and named; until it is done no core is free for another branch."""
    gate, dense, branches = threading.Event(), Collection.dense, Branches(cores=2)
    monkeypatch.setattr(Collection, "dense", lambda *given: (gate.wait(600), dense(*given))[1])
    lists, trace = run(collection, branches, deadline=Deadline.after(0.5))
    assert [*lists] == ["lexical"]
    assert trace.degraded == ["dense:timeout"]
    with branches.calling() as has_core:
        assert not has_core
    gate.set()


def test_search_raises_when_the_database_is_closed_beside_it(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dense list that comes after the end is an error, never a result without it."""
    dense = Collection.dense
    monkeypatch.setattr(Collection, "dense", lambda *given: (collection.close(), dense(*given))[1])
    with pytest.raises(DatabaseClosed):
        run(collection, Branches(cores=2))
