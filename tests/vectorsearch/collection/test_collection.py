"""Documents and both indexes together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from vectorsearch.collection.collection import Collection, CollectionSettings, stored_settings
from vectorsearch.collection.storage.errors import (
    DatabaseClosed,
    DatabaseLocked,
    DimensionMismatch,
    NonFiniteVector,
    NotADatabase,
    ReadOnlyDatabase,
    SettingsMismatch,
)
from vectorsearch.types import Document

from ..small_documents import DIM, doc, ids, vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=["tantivy", "rank-bm25"])
def collection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Collection]:
    """Give an empty collection that isn't made to last, with each lexical engine."""
    with Collection.open(tmp_path / "db", CollectionSettings(lexical=request.param), durable=False) as opened:
        yield opened


def test_a_write_is_found_when_it_has_just_returned(collection: Collection) -> None:
    """A search first applies the committed tail: the writer reads its own writes, upserts and deletions."""
    collection.write([doc(1), doc(2)])
    assert ids(collection, collection.lexical("unique1", 5)) == ["d1"]
    assert ids(collection, collection.dense(vector(2), 1)) == ["d2"]
    collection.write([Document("d1", "pear", vector=vector(9))], on_conflict="replace")
    assert ids(collection, collection.lexical("unique1", 5)) == []
    assert ids(collection, collection.dense(vector(9), 1)) == ["d1"]
    assert collection.delete(["d1", "unknown"]) == 1
    assert ids(collection, collection.dense(vector(9), 5)) == ["d2"]
    assert collection.count() == 1


def test_all_is_found_when_a_collection_is_opened_again(tmp_path: Path) -> None:
    """Closing writes the indexes and opening reads them; the settings need not be repeated."""
    with Collection.open(tmp_path, CollectionSettings(embed="m@1", dense="Flat")) as first:
        first.write([doc(i) for i in range(20)])
        first.delete(["d3"])
    with Collection.open(tmp_path, CollectionSettings(embed="m@1", dense="Flat")) as again:
        assert ids(again, again.lexical("unique7", 5)) == ["d7"]
        assert ids(again, again.dense(vector(11), 1)) == ["d11"]
        assert len(ids(again, again.lexical("apple", 50))) == 19
        for index in ("lexical", "dense"):
            assert "loaded at change 21" in again.info()[index]["origin"]  # type: ignore[index]  # it is a mapping
    with Collection.open(tmp_path) as plain:
        assert plain.settings == CollectionSettings(embed="m@1", dim=DIM)


def test_documents_come_back_whole_when_they_are_asked_for(collection: Collection) -> None:
    """get, iter and fetch give what was written, in order; only fetch leaves the vectors out."""
    written = [Document(f"d{i}", f"text {i}", f"title {i}", {"n": i, "tags": ["a", None]}, vector(i)) for i in range(5)]
    collection.write(written)
    for found, wanted in zip(collection.get(["d4", "d0"]), (written[4], written[0]), strict=True):
        assert found is not None
        assert (found.id, found.title, found.metadata) == (wanted.id, wanted.title, wanted.metadata)
        assert np.array_equal(found.vector, wanted.vector)
    assert [found.id for found in collection.iter()] == [f"d{i}" for i in range(5)]
    fetched = collection.fetch(collection.lexical("text", 5).rows)
    assert [found and found.vector for found in fetched] == [None] * 5


@pytest.mark.parametrize("k", [1, 3, 100])
def test_a_filter_means_the_same_when_either_branch_applies_it(collection: Collection, k: int) -> None:
    """S27: equality on metadata limits lexical and dense hits alike; lists match by element, 2020 is 2020.0."""
    collection.write([doc(i, lang="en" if i % 2 else "de", year=2020 + i % 3) for i in range(30)])
    collection.write([Document("listed", "apple", metadata={"lang": ["fr", "en"], "year": None}, vector=vector(99))])
    cases: list[tuple[dict[str, str | float | None], set[str]]] = [
        ({"lang": "en"}, {f"d{i}" for i in range(1, 30, 2)} | {"listed"}),
        ({"lang": "en", "year": 2020.0}, {f"d{i}" for i in range(3, 30, 6)}),
        ({"year": None}, {"listed"}),
        ({"year": True}, set()),
        ({"unknown": 1}, set()),
    ]
    for wanted, matching in cases:
        for found in (collection.lexical("apple", k, wanted), collection.dense(vector(50), k, wanted)):
            assert len(found.rows) == min(k, len(matching))
            assert set(ids(collection, found)) <= matching


def test_a_filter_follows_when_documents_change(collection: Collection) -> None:
    """What a filter allows is remembered for one state of the index only."""
    collection.write([doc(1, lang="en"), doc(2, lang="en")])
    assert len(collection.dense(vector(1), 5, {"lang": "en"}).rows) == 2
    collection.write([doc(1, lang="de"), doc(3, lang="en")], on_conflict="replace")
    collection.delete(["d2"])
    assert ids(collection, collection.dense(vector(1), 5, {"lang": "en"})) == ["d3"]


def test_exactly_k_are_found_when_few_of_many_match(tmp_path: Path) -> None:
    """S10: 20 of 5,000 documents match a filter, and k=10 gives the 10 nearest of them, from a graph too."""
    with Collection.open(tmp_path / "db", CollectionSettings(dense="HNSW16"), durable=False) as opened:
        opened.write([doc(i, rare=i % 250 == 0) for i in range(5000)])
        query = vector(77_777)
        unit = query / np.linalg.norm(query)
        cosine = {f"d{i}": float(vector(i) @ unit / np.linalg.norm(vector(i))) for i in range(0, 5000, 250)}
        assert ids(opened, opened.dense(query, 10, {"rare": True})) == sorted(cosine, key=lambda i: -cosine[i])[:10]


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (np.ones(DIM + 1, np.float32), DimensionMismatch, r"shape \(9,\), the database's vectors have \(8,\)"),
        (np.ones((1, DIM), np.float32), DimensionMismatch, "shape"),
        (np.full(DIM, np.nan, np.float32), NonFiniteVector, "embed the query again"),
    ],
)
def test_a_query_is_refused_when_its_vector_does_not_fit(
    collection: Collection, query: np.ndarray, error: type[Exception], message: str
) -> None:
    """S48: a query's vector of another dimension, or with NaN, gets a clear error."""
    collection.write([doc(1)])
    with pytest.raises(error, match=message):
        collection.dense(query, 5)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (CollectionSettings(embed="m@2", dim=DIM), "embed='m@1' and is opened with embed='m@2'"),
        (CollectionSettings(embed=None), "embed='m@1' and is opened with embed=None"),
        (CollectionSettings(embed="m@1", dim=9), "dim=8 and is opened with dim=9"),
        (CollectionSettings(embed="m@1", lexical="rank-bm25"), "lexical='tantivy' and is opened with"),
    ],
)
def test_opening_is_refused_when_the_settings_are_others(
    tmp_path: Path, other: CollectionSettings, message: str
) -> None:
    """S48: another model, dimension or engine is refused with both values; the lock is given back."""
    with Collection.open(tmp_path, CollectionSettings(embed="m@1")) as first:
        first.write([doc(1)])
    for read_only in (False, True):
        with pytest.raises(SettingsMismatch, match=message):
            Collection.open(tmp_path, other, read_only=read_only)
    Collection.open(tmp_path, CollectionSettings(embed="m@1", dense="exact")).close()


@pytest.mark.parametrize(
    "bad",
    [
        CollectionSettings(language="tlh"),
        CollectionSettings(k1=-1),
        CollectionSettings(b=1.5),
        CollectionSettings(stop_words=("two words",)),
        CollectionSettings(lexical="fts5"),
        CollectionSettings(dense="IVF"),
        CollectionSettings(dim=0),
    ],
)
def test_nothing_is_created_when_a_setting_is_unknown(tmp_path: Path, bad: CollectionSettings) -> None:
    """A setting that can't be served is refused before anything is made on disk."""
    with pytest.raises(ValueError, match=r".+"):
        Collection.open(tmp_path / "db", bad)
    assert not (tmp_path / "db").exists()


def test_stored_settings_are_told_when_a_folder_is_looked_at(tmp_path: Path) -> None:
    """They are read without taking the writer's lock; a new or empty folder has none; another folder is refused."""
    assert stored_settings(tmp_path / "db") is None
    assert not (tmp_path / "db").exists()
    with Collection.open(tmp_path / "db", CollectionSettings(embed="m", language="de")):
        assert stored_settings(tmp_path / "db") == CollectionSettings(embed="m", language="de")
    (tmp_path / "notes").write_text("x")
    with pytest.raises(NotADatabase):
        stored_settings(tmp_path)


def test_work_grows_linearly_when_documents_are_added_singly(collection: Collection) -> None:
    """S65: for 500 single adds with a search after each, every document is analysed and appended once, never again."""
    steps: list[int] = []
    for i in range(500):
        collection.write([doc(i)])
        collection.refresh(lambda _, total: steps.append(total))
    # Two indexes, one row each per add; each call reports at most once per index and once at its end.
    assert max(steps) == 2
    assert len(ids(collection, collection.lexical("apple", 1000))) == 500


def test_progress_counts_both_indexes_when_they_are_refreshed(collection: Collection) -> None:
    """It rises to the total, which is the rows of the two indexes together."""
    collection.write([doc(i) for i in range(2500)])
    seen: list[tuple[int, int]] = []
    collection.refresh(lambda done, total: seen.append((done, total)))
    assert seen[-1] == (5000, 5000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert all(done <= total for done, total in seen)
    collection.refresh(lambda done, total: seen.append((done, total)))
    assert seen[-1] == (0, 0)


def test_chunks_are_stored_when_documents_come_from_a_generator(tmp_path: Path) -> None:
    """S36: chunks are atomic one by one: after a bad chunk, those before it are stored and nothing of it is."""
    with Collection.open(tmp_path, durable=False) as opened:
        for start in range(0, 3000, 1000):
            opened.write([doc(i) for i in range(start, start + 1000)])
        with pytest.raises(NonFiniteVector, match="row 500, id 'd3500'"):
            opened.write(
                [doc(i) if i != 3500 else Document("d3500", "", vector=vector(0) * np.nan) for i in range(3000, 4000)]
            )
        assert opened.count() == 3000
        assert opened.get(["d3000"]) == [None]


def test_a_reader_follows_when_a_writer_commits_beside_it(tmp_path: Path) -> None:
    """A read-only collection finds later commits, deletions too, writes no file, and refuses to write."""
    with Collection.open(tmp_path, CollectionSettings(dense="Flat")) as writer:
        writer.write([doc(i) for i in range(10)])
        writer.flush()
        with Collection.open(tmp_path, CollectionSettings(dense="Flat"), read_only=True) as reader:
            assert ids(reader, reader.dense(vector(4), 1)) == ["d4"]
            writer.write([doc(10)])
            writer.delete(["d4"])
            before = sorted(path.name for path in (tmp_path / "lexical").rglob("*"))
            assert ids(reader, reader.lexical("unique10", 1)) == ["d10"]
            assert "d4" not in ids(reader, reader.dense(vector(4), 20))
            assert len(ids(reader, reader.lexical("apple", 20))) == 10
            assert sorted(path.name for path in (tmp_path / "lexical").rglob("*")) == before
            with pytest.raises(ReadOnlyDatabase):
                reader.write([doc(11)])
        with pytest.raises(DatabaseLocked):
            Collection.open(tmp_path)


def test_a_clear_error_comes_when_a_closed_collection_is_used(collection: Collection) -> None:
    """Closing twice is harmless; every use after it says that the database is closed."""
    collection.write([doc(1)])
    collection.dense(vector(1), 1)
    collection.close()
    collection.close()
    calls: list[Callable[[], object]] = [
        lambda: collection.lexical("apple", 1),
        lambda: collection.dense(vector(1), 1),
        lambda: collection.write([doc(2)]),
        lambda: collection.get(["d1"]),
        collection.count,
        lambda: list(collection.iter()),
        collection.refresh,
        collection.info,
    ]
    for call in calls:
        with pytest.raises(DatabaseClosed):
            call()


def test_each_search_is_right_when_threads_write_and_read(collection: Collection) -> None:
    """Readers on three threads always find their own anchor document while a writer adds, replaces and deletes."""
    collection.write([doc(i) for i in range(50)])
    faults: list[str] = []
    done = threading.Event()

    def read(anchor: int) -> None:
        try:
            while not done.is_set():
                if ids(collection, collection.dense(vector(anchor), 1)) != [f"d{anchor}"]:
                    faults.append("dense")
                if ids(collection, collection.lexical(f"unique{anchor}", 1)) != [f"d{anchor}"]:
                    faults.append("lexical")
        except BaseException as exc:  # noqa: BLE001 -- whatever it is, the test shows it
            faults.append(repr(exc))

    readers = [threading.Thread(target=read, args=(anchor,)) for anchor in (3, 17, 42)]
    for reader in readers:
        reader.start()
    for i in range(60):
        collection.write([doc(1000 + i)])
        collection.write([doc(1000 + i // 2)], on_conflict="replace")
        if i % 3 == 0:
            collection.delete([f"d{1000 + i}"])
    done.set()
    for reader in readers:
        reader.join()
    assert faults == []
