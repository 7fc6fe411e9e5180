"""A base that is made beside searches, and how well it finds."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import InvalidInput
from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.index.dense import faiss_base, recall
from vectorsearch.collection.index.dense.base_plan import BasePlan, Reach, base_plan
from vectorsearch.collection.index.dense.cosine import nearest, unit
from vectorsearch.collection.index.dense.dense_faiss import FaissIndex
from vectorsearch.collection.storage.sqlite.store import Store
from vectorsearch.types import Document

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

GRAPH = CollectionSettings(dense="HNSW16")
WAIT_S = 60


def vectors(n: int, seed: int = 0) -> NDArray[np.float32]:
    """Give n random vectors."""
    return np.random.default_rng(seed).standard_normal((n, 16)).astype(np.float32)


def documents(n: int, start: int = 0) -> list[Document]:
    """Give documents, each with a vector of its own."""
    return [Document(f"d{i}", "", vector=vector) for i, vector in enumerate(vectors(n, start), start)]


class Gate:
    """Holds builds of a base until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        build = faiss_base.build

        def gated(*arguments: Any) -> Any:
            self.reached.set()
            assert self.opened.wait(WAIT_S)
            return build(*arguments)

        monkeypatch.setattr(faiss_base, "build", gated)


def finished(collection: Collection) -> None:
    """Wait until the builder of the dense index has ended."""
    with collection._dense._without_builder():  # what close and flush wait for as well
        pass


def found(collection: Collection, vector: NDArray[np.float32], k: int = 5) -> list[str]:
    """Return the ids of the nearest."""
    return [doc.id for doc in collection.fetch(collection.dense(vector, k).rows) if doc]


def test_a_search_is_answered_when_a_base_is_being_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches and writes go on exactly while the graph is made, and what they changed is right once it is there."""
    gate = Gate(monkeypatch)
    given = documents(3000)
    with Collection.open(tmp_path / "db", GRAPH) as collection:
        collection.write(given)
        assert found(collection, given[7].vector)[0] == "d7"  # type: ignore[arg-type]  # it has one
        assert gate.reached.wait(WAIT_S)
        info: Any = collection.info()["dense"]
        assert (info["kind"], info["base"], info["tail"], info["state"]) == (
            "exact",
            0,
            3000,
            "building beside searches",
        )
        collection.delete(["d7"])
        collection.write(documents(10, start=5000))
        assert found(collection, given[7].vector)[0] != "d7"  # type: ignore[arg-type]  # as above
        gate.opened.set()
        finished(collection)
        info = collection.info()["dense"]
        assert (info["kind"], info["base"], info["tail"], info["tombstones"]) == ("HNSW16", 3000, 10, 1)
        assert "state" not in info
        assert "d7" not in found(collection, given[7].vector, 50)  # type: ignore[arg-type]  # as above
        for doc in (given[0], given[2999], *documents(10, start=5000)):
            assert found(collection, doc.vector, 1) == [doc.id]  # type: ignore[arg-type]  # as above


def test_the_base_is_given_up_when_the_collection_is_closed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a reader, which has nothing to write, ends its builder at the next batch, and nothing of it is kept."""
    gate = Gate(monkeypatch)
    with Collection.open(tmp_path / "db", GRAPH) as writer:
        writer.write(documents(3000))
        reader = Collection.open(tmp_path / "db", GRAPH, read_only=True)
        reader.dense(vectors(1)[0], 1)
        assert gate.reached.wait(WAIT_S)
        closing = threading.Thread(target=reader.close)
        closing.start()
        assert reader._dense._stopping.wait(WAIT_S)
        gate.opened.set()
        closing.join(WAIT_S)
        assert not closing.is_alive()
        assert not (tmp_path / "db" / "dense").exists()


def test_the_base_is_there_when_a_collection_is_refreshed_or_flushed(tmp_path: Path) -> None:
    """Who asks for complete indexes waits for the graph, also if a search has started it."""
    with Collection.open(tmp_path / "db", GRAPH) as collection:
        collection.write(documents(3000))
        collection.dense(vectors(1)[0], 1)
        collection.refresh()
        info: Any = collection.info()["dense"]
        assert (info["base"], info["tail"]) == (3000, 0)
        collection.write(documents(2500, start=3000))
        collection.flush()
        info = collection.info()["dense"]
        assert (info["base"], info["tail"]) == (5500, 0)


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_nothing_is_lost_when_a_builder_starts_as_a_refresh_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """Another thread starts a builder and writes, just before the refresh gets the lock: what was written is found."""
    built, go_on = threading.Event(), threading.Event()
    build_aside = FaissIndex.build_aside

    def held(self: FaissIndex, snapshot: Any, advance: Any) -> Any:
        base = build_aside(self, snapshot, advance)
        if threading.current_thread().name == "index-builder":
            built.set()
            assert go_on.wait(WAIT_S)
        return base

    monkeypatch.setattr(FaissIndex, "build_aside", held)
    with Collection.open(tmp_path / "db", GRAPH) as collection:
        collection.write(documents(3000))
        keeper, refreshing, entered = collection._dense, threading.current_thread(), []

        def others_come_first() -> None:
            collection.dense(vectors(1)[0], 1)  # starts the builder
            assert built.wait(WAIT_S)
            collection.write(documents(500, start=3000))

        class Lock:
            """The keeper's lock; at the refresh's turn others come first."""

            def __enter__(self) -> None:
                if threading.current_thread() is refreshing and not built.is_set():
                    entered.append(1)
                    if len(entered) == turn:
                        beside = threading.Thread(target=others_come_first)
                        beside.start()
                        beside.join()
                real.acquire()
                if built.is_set():
                    go_on.set()  # the builder wants the lock now

            def __exit__(self, *_: object) -> None:
                real.release()

        real, keeper._lock = keeper._lock, Lock()  # type: ignore[assignment]
        collection.refresh()
        keeper._lock = real
        finished(collection)
        expected = documents(3000) + (documents(500, start=3000) if built.is_set() else [])
        lost = [doc.id for doc in expected[::50] if found(collection, doc.vector, 1) != [doc.id]]  # type: ignore[arg-type]
        assert lost == []
        assert built.is_set() or turn > 1  # it may take the lock only once


def test_a_search_goes_on_when_a_base_cannot_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the builder raised is told by `info`; hits are exact meanwhile."""
    monkeypatch.setattr("vectorsearch.collection.index.engines.base_plan", lambda _: BasePlan("IVF4,PQ7", 200))
    given = documents(300)
    collection = Collection.open(tmp_path / "db", GRAPH)
    collection.write(given)
    assert found(collection, given[3].vector, 1) == ["d3"]  # type: ignore[arg-type]  # it has one
    finished(collection)
    info: Any = collection.info()["dense"]
    assert "'IVF4,PQ7' doesn't fit vectors of 16 numbers" in info["fault"]
    with pytest.raises(InvalidInput, match="doesn't fit"):
        collection.close()


def test_a_search_goes_on_when_no_thread_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is exact, `info` says why there is no graph, and the next search that finds a thread has one made."""
    given = documents(3000)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Collection.open(tmp_path / "db", GRAPH) as collection:
        collection.write(given)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            assert found(collection, given[3].vector, 1) == ["d3"]  # type: ignore[arg-type]  # it has one
        info: Any = collection.info()["dense"]
        assert (info["kind"], info["fault"]) == ("exact", "can't start new thread")
        collection.write(documents(1, start=5000))
        found(collection, vectors(1)[0], 1)
        finished(collection)
        info = collection.info()["dense"]
        assert (info["kind"], info["base"]) == ("HNSW16", 3001)


def test_a_deletion_is_not_forgotten_when_the_base_is_extended_from_a_later_moment(tmp_path: Path) -> None:
    """What was deleted between the index's moment and the builder's is dead in the base that is adopted."""
    store = Store(tmp_path / "db", durable=False)
    index = FaissIndex(BasePlan("HNSW16", 1000), None, lineage=store, fetch=store.vectors_of)
    store.write(documents(3000))
    with store.snapshot() as snapshot:
        index.catch_up(snapshot, lambda _: None)
    store.write(documents(3000, start=3000))
    store.delete(["d7"])
    with store.snapshot() as snapshot:
        index.adopt(index.build_aside(snapshot, lambda _: None), np.empty(0, np.int64))
        assert index.seq == snapshot.seq
    assert 8 not in index.search(vectors(3000)[7], 50).rows
    assert index.info()["vectors"] == 5999
    store.close()


def test_a_base_is_thrown_away_when_its_vectors_were_exchanged_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A builder that began before another model's vectors came in adopts nothing of the old ones."""
    gate = Gate(monkeypatch)
    with Collection.open(tmp_path / "db", CollectionSettings(embed="old@1", dense="HNSW16")) as collection:
        given = documents(3000)
        collection.write(given)
        collection.dense(vectors(1)[0], 1)
        assert gate.reached.wait(WAIT_S)
        new = collection.new_vectors("2")
        others = np.random.default_rng(5).standard_normal((3000, 8)).astype(np.float32)
        new.append(range(1, 3001), (others, np.zeros(3000, np.bool_)))
        collection.exchange_vectors(new, embed="new@2", dim=8, make=lambda _: (others[:0], np.zeros(0, np.bool_)))
        assert found(collection, others[7], 1) == ["d7"]
        gate.opened.set()
        finished(collection)
        assert found(collection, others[7], 1) == ["d7"]
        collection.refresh()
        assert found(collection, others[9], 1) == ["d9"]
        assert collection.info()["dense"]["base"] == 3000  # type: ignore[index]  # plain values


@pytest.mark.parametrize("factory", ["HNSW16", "HNSW16,SQ8", "SQ8", "SQfp16", "IVF16,Flat", "IVF16,SQ8", "IVF4,PQ2"])
def test_a_base_finds_what_is_nearest_when_it_was_tuned(tmp_path: Path, factory: str) -> None:
    """Each kind is searched so widely that its recall is what is wanted, keeps that on disk, and grows from there."""
    store = Store(tmp_path / "db", durable=False)
    store.write(documents(6000))

    def opened() -> FaissIndex:
        plan = BasePlan(factory, 1000)
        return FaissIndex(plan, tmp_path / "dense", lineage=store, fetch=store.vectors_of)

    index = opened()
    with store.snapshot() as snapshot:
        index.catch_up(snapshot, lambda _: None)
    assert index.info()["kind"] == factory
    assert float(str(index.info()["recall"])) >= recall.WANTED
    index.save(durable=True)
    again = opened()
    assert again.info() == {**index.info(), "origin": "loaded at change 6000"}
    for query in vectors(5, seed=77):
        assert again.search(query, 10).rows.tolist() == index.search(query, 10).rows.tolist()
    newer = documents(3000, start=6000)
    store.write(newer)
    with store.snapshot() as snapshot:
        again.catch_up(snapshot, lambda _: None)  # the base that was read is copied and extended
    assert again.info()["base"] == 9000
    for document in newer[::500]:
        assert again.search(document.vector, 1).rows.tolist() == [int(document.id[1:]) + 1]  # type: ignore[arg-type]  # it has one
    store.close()


@pytest.mark.parametrize(("factory", "exact"), [("HNSW16", True), ("HNSW16,SQ8", False)])
def test_a_base_that_finds_too_little_is_told_or_scanned_when_it_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: str, *, exact: bool
) -> None:
    """Below the floor, whole vectors are scanned, or all codes of a graph; the recall says what that finds."""
    store = Store(tmp_path / "db", durable=False)
    store.write(documents(1000))
    with store.snapshot() as snapshot:
        base = faiss_base.build(BasePlan(factory, 1), lambda: snapshot.vectors(0), 1000, store.vectors_of)
        assert base is not None
        monkeypatch.setattr(recall, "_recall", lambda *_: 0.5)
        tuned = recall.tuned(base, snapshot.vectors(0))
    assert (tuned.reach, tuned.recall) == ((None, 1.0) if exact else (Reach(0, 64), 0.5))
    asked = replace(base, reach=Reach(16, 64), asked=tuned.asked)
    assert recall.checked(asked).reach == tuned.reach
    monkeypatch.undo()
    assert recall.checked(asked).reach == Reach(16, 64)
    store.close()


def test_all_codes_are_looked_at_when_their_graph_leads_to_too_few(tmp_path: Path) -> None:
    """As many hits as are wanted are found where the graph doesn't lead; a breadth of 0 finds the best."""
    store = Store(tmp_path / "db", durable=False)
    centres = 100 * vectors(40)
    given = centres[np.arange(6000) % 40] + vectors(6000)
    store.write([Document(f"d{i}", "", vector=vector) for i, vector in enumerate(given)])
    with store.snapshot() as snapshot:
        base = faiss_base.build(BasePlan("HNSW2,SQ8", 1), lambda: snapshot.vectors(0), 6000, store.vectors_of)
    assert base is not None
    allowed = 1 + np.flatnonzero(np.arange(6000) % 40 >= 30)  # rows count from 1
    query = unit(centres[0])
    found = replace(base, reach=Reach(1, 2)).search(query, 100, allowed)
    assert len(found.rows) == 100
    assert np.isin(found.rows, allowed).all()
    wanted = nearest(unit(given), np.arange(1, 6001), query, 10)
    assert replace(base, reach=Reach(0, 64)).search(query, 10, None).rows.tolist() == wanted.rows.tolist()
    store.close()


def test_a_base_is_tuned_when_all_its_vectors_have_gone_from_the_store(tmp_path: Path) -> None:
    """Codes whose vectors were deleted while they were built have nothing to be measured by, and nothing fails."""
    store = Store(tmp_path / "db", durable=False)
    store.write(documents(200))
    with store.snapshot() as snapshot:
        base = faiss_base.build(BasePlan("HNSW16,SQ8", 1), lambda: snapshot.vectors(0), 200, store.vectors_of)
        assert base is not None
        newer = snapshot.vectors(0)
        store.delete([document.id for document in documents(200)])
        assert recall.tuned(base, newer).recall == 1.0
    store.close()


def test_reaches_are_narrow_first_when_they_are_tried() -> None:
    """Lists are visited from few to all, codes refined from little to much, and a scan has nothing to choose."""
    assert [r.breadth for r in base_plan("IVF100,Flat").reaches(1000)] == [16, 32, 64, 100]
    assert [r.refine for r in base_plan("SQ8").reaches(1000)] == [2, 4, 16, 64]
    assert base_plan("HNSW32").reaches(1000)[0] == Reach(128)
    assert [base_plan("HNSW32").reaches(n)[-1].breadth for n in (1000, 500_000, 1_000_000)] == [1024, 2048, 4096]
    assert base_plan("Flat").reaches(1000) == [Reach(0)]
