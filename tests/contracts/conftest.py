"""Every dense and lexical index behind one face: a store to write to, and the index caught up with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from backends.text.analyzer import Analyzer
from vectorsearch.collection.index.dense.base_plan import BasePlan, base_plan
from vectorsearch.collection.index.dense.dense_exact import ExactIndex
from vectorsearch.collection.index.dense.dense_faiss import FaissIndex
from vectorsearch.collection.index.lexical.lexical_rank_bm25 import RankBM25Index
from vectorsearch.collection.index.lexical.lexical_tantivy import TantivyIndex
from vectorsearch.collection.storage.sqlite.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass
class Indexed:
    """A store and an index over it; `kind` names the implementation, `exact` tells whether it must find all."""

    kind: str
    exact: bool
    store: Store
    index: Any
    reopen: Callable[[], Any]

    def write(self, *docs: Any, replace: bool = False) -> None:
        """Store documents and let the index catch up."""
        self.store.write(docs, on_conflict="replace" if replace else "error")
        self.catch_up()

    def delete(self, *ids: str) -> None:
        """Delete documents and let the index catch up."""
        self.store.delete(ids)
        self.catch_up()

    def catch_up(self) -> None:
        """Apply what was committed."""
        with self.store.snapshot() as snapshot:
            self.index.catch_up(snapshot, lambda _: None)

    def ids(self, found: Any) -> list[str]:
        """Return the ids of candidates, best first."""
        return [doc.id for doc in self.store.fetch(found.rows.tolist())]


_DENSE = {
    "exact": None,
    "auto, below its graph": base_plan("auto"),
    "Flat": base_plan("Flat"),
    "HNSW16": base_plan("HNSW16"),
    "HNSW16, never scanned": BasePlan("HNSW16", 1),
    "HNSW16,SQ8, never scanned": BasePlan("HNSW16,SQ8", 1),
    "SQ8, never scanned": BasePlan("SQ8", 1),
    "IVF4,Flat, never scanned": BasePlan("IVF4,Flat", 200),
    "IVF4,SQ8, never scanned": BasePlan("IVF4,SQ8", 200),
}


@pytest.fixture(params=_DENSE)
def dense(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Indexed]:
    """Give each dense index over an empty store."""
    plan = _DENSE[request.param]
    never_scanned = request.param.endswith("never scanned")
    if never_scanned:  # a test's few vectors would all be scanned otherwise
        monkeypatch.setattr("vectorsearch.collection.index.dense.base_plan._SCANNED_VECTORS", 0)
        monkeypatch.setattr("vectorsearch.collection.index.dense.base_plan._FETCHED_VECTORS", 0)
    store = Store(tmp_path / "db", durable=False)

    def reopen() -> Any:
        if plan is None:
            return ExactIndex()
        folder = tmp_path / "dense"
        return FaissIndex(plan, folder, lineage=store, fetch=store.vectors_of)

    yield Indexed(request.param, not never_scanned, store, reopen(), reopen)
    store.close()


@pytest.fixture(params=["tantivy", "tantivy in memory", "rank-bm25"])
def lexical(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Indexed]:
    """Give each lexical index, English, over an empty store."""
    store = Store(tmp_path / "db", durable=False)

    def reopen() -> Any:
        if request.param == "rank-bm25":
            return RankBM25Index(Analyzer("en"))
        folder = None if request.param.endswith("memory") else tmp_path / "lexical"
        return TantivyIndex(Analyzer("en"), folder, lineage=store)

    yield Indexed(request.param, True, store, reopen(), reopen)
    store.close()
