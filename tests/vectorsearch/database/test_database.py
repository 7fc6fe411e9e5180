"""Writing, reopening, and what is refused."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.errors import InvalidInput
from vectorsearch.errors import (
    DatabaseLocked,
    DimensionMismatch,
    DuplicateId,
    InvalidDocument,
    NonFiniteVector,
    ReadOnlyDatabase,
)

from ..conftest import EMBEDDER, fake_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..conftest import OpenDatabase

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]

DOCS = [{"id": word, "text": f"{word} text"} for word in WORDS]


def test_everything_is_found_when_reopened(open_database: OpenDatabase, tmp_path: Path) -> None:
    """A reopened path has every document, its vector, and finds it with either retriever."""
    with open_database(tmp_path / "db") as db:
        assert db.add(DOCS) == len(DOCS)
        vector = db.get("beta").vector  # type: ignore[union-attr]  # it was just added
    db = open_database(tmp_path / "db")
    assert db.count() == len(DOCS) == len(db)
    assert [document.id for document in db.iter()] == WORDS
    assert db.search("beta", mode="lexical")[0].id == "beta"
    assert db.search("beta text", mode="dense")[0].id == "beta"
    np.testing.assert_array_equal(db.get("beta").vector, vector)  # type: ignore[union-attr]  # it is there
    assert "beta" in db
    assert "omega" not in db


def test_embedder_is_remembered_when_reopened(tmp_path: Path) -> None:
    """The default at reopening is what the database was made with, be it a catalogue model or none."""
    for name, embed, stored in (("none", None, None), ("named", "default", "bge-small-en-v1.5-int8")):
        vs.open(tmp_path / name, embed=embed, language=None).close()
        with vs.open(tmp_path / name) as db:
            assert str(db.info()["embed"]).split("@")[0] == str(stored)
            assert db.info()["language"] is None


def test_second_writer_is_refused_at_once(open_database: OpenDatabase, tmp_path: Path) -> None:
    """A database that is open for writing can be opened once more only to read."""
    db = open_database(tmp_path / "db")
    db.add(DOCS)
    with pytest.raises(DatabaseLocked):
        open_database(tmp_path / "db")
    reader = open_database(tmp_path / "db", read_only=True)
    assert reader.search("beta")[0].id == "beta"
    with pytest.raises(ReadOnlyDatabase):
        reader.add([{"id": "x", "text": "y"}])


def test_temporary_folder_is_removed_when_closed(open_database: OpenDatabase) -> None:
    """A database without a path leaves nothing behind."""
    db = open_database()
    db.add(DOCS)
    folder = Path(str(db.info()["path"]))
    assert folder.exists()
    db.close()
    db.close()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ({"id": "alpha", "text": "again"}, DuplicateId, "'alpha'"),
        ({"id": "new"}, InvalidDocument, "row 2"),
        ({"id": "new", "text": "x", "vector": [1.0]}, DimensionMismatch, "row 2"),
        ({"id": "new", "text": "x", "vector": [float("nan")] * 64}, NonFiniteVector, "row 2"),
        ({"id": "new", "text": "\ud800"}, InvalidInput, "row 2"),
        ({"id": "new", "text": "x", "metadata": {"n": float("inf")}}, InvalidInput, "row 2"),
        ({"id": "new", "text": "x", "metadata": {"n": object()}}, InvalidInput, "row 2"),
    ],
)
def test_chunk_is_left_out_when_a_row_is_bad(
    open_database: OpenDatabase, row: dict[str, Any], error: type[Exception], message: str
) -> None:
    """S48: a bad row names itself, and nothing of its chunk is stored."""
    db = open_database()
    db.add(DOCS[:1])
    with pytest.raises(error, match=message):
        db.add([{"id": "one", "text": "x"}, {"id": "two", "text": "x"}, row])
    assert [document.id for document in db.iter()] == ["alpha"]


def test_chunks_before_a_bad_row_stay(open_database: OpenDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """S36: each chunk is a transaction; rows are numbered over the whole input, and a note says what is stored."""
    monkeypatch.setattr("vectorsearch.config.EMBED_CHUNK_DOCUMENTS", 3)
    db = open_database()
    rows = [*DOCS[:7], {"id": "bad", "text": "x", "vector": [float("nan")] * 64}]
    with pytest.raises(NonFiniteVector, match="row 7") as caught:
        db.add(rows)
    assert db.count() == 6
    assert "6 documents" in caught.value.__notes__[0]


def test_documents_are_read_in_chunks_when_they_come_from_a_generator(
    open_database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S36: a generator is never listed whole: when its fifth row is asked for, the first four are stored."""
    monkeypatch.setattr("vectorsearch.config.WRITE_CHUNK_DOCUMENTS", 2)
    db = open_database(embed=None)
    stored = []

    def rows() -> Iterator[dict[str, Any]]:
        for i in range(6):
            stored.append(db.count())
            yield {"id": str(i), "text": "x"}

    assert db.add(rows()) == 6
    assert stored == [0, 0, 2, 2, 4, 4]


def test_upsert_replaces_changed_and_leaves_unchanged_alone(open_database: OpenDatabase) -> None:
    """What is stored unchanged is not embedded again; what changed is replaced; what is new is added."""
    fake = fake_backend()
    db = open_database(fake=fake)
    db.add(DOCS[:3])
    before = fake.inferred
    assert db.upsert(DOCS[:3]) == 0
    assert fake.inferred == before
    assert db.upsert([{"id": "alpha", "text": "omega"}, DOCS[1], DOCS[3]]) == 2
    assert db.count() == 4
    assert db.search("omega", mode="lexical")[0].id == "alpha"
    assert not any(hit.text == "alpha text" for hit in db.search("alpha"))


@pytest.mark.parametrize("chunk", [1, 100])
def test_last_row_counts_when_an_id_comes_twice(
    open_database: OpenDatabase, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Upserting an id twice keeps the last row, wherever chunks end; adding it twice is an error."""
    monkeypatch.setattr("vectorsearch.config.WRITE_CHUNK_DOCUMENTS", chunk)
    db = open_database(embed=None)
    rows = [{"id": "a", "text": "first"}, {"id": "a", "text": "last"}]
    db.upsert(rows)
    assert [document.text for document in db.iter()] == ["last"]
    with pytest.raises(DuplicateId, match="'b'"):
        db.add({**row, "id": "b"} for row in rows)


def test_upsert_replaces_a_vector_only_when_it_differs(open_database: OpenDatabase) -> None:
    """A new vector of the caller's own is stored though the text is unchanged; the same one is left alone."""
    db = open_database(embed=None)
    db.add([{"id": "a", "text": "x", "vector": [1.0, 0.0]}])
    assert db.upsert([{"id": "a", "text": "x", "vector": [0.0, 1.0]}]) == 1
    assert db.search(vector=[0.0, 1.0])[0].score == pytest.approx(1.0)
    assert db.upsert([{"id": "a", "text": "x", "vector": [0.0, 1.0]}]) == 0


def test_deleted_documents_are_not_found(open_database: OpenDatabase) -> None:
    """S15: after deleting the nearest, k=1 gives the next nearest; unknown ids count for nothing."""
    db = open_database(embed=None)
    db.add({"id": name, "text": "", "vector": vector} for name, vector in (("a", [1.0, 0.0]), ("b", [1.0, 0.2])))
    assert db.search(vector=[1.0, 0.0], k=1)[0].id == "a"
    assert db.delete(["a", "nobody"]) == 1
    assert db.search(vector=[1.0, 0.0], k=1)[0].id == "b"
    assert db.delete("b") == 1
    assert list(db.search(vector=[1.0, 0.0])) == []


def test_threads_read_and_write_together(open_database: OpenDatabase) -> None:
    """Searches beside writes give whole results, and every write is found at the end."""
    db = open_database()
    db.add(DOCS)
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            barrier.wait(600)
            for i in range(15):
                if number % 2:
                    db.upsert([{"id": f"t{number}-{i}", "text": f"gamma t{number}x{i}"}])
                    db.delete([f"t{number}-{i - 5}"])
                else:
                    assert db.search("gamma", rerank=True, k=3)[0].text
        except BaseException as exc:  # noqa: BLE001 -- reported by the assertion below
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert failures == []
    assert db.count() == len(DOCS) + 2 * 5
    assert db.search("t1x14", mode="lexical")[0].id == "t1-14"


def test_more_ids_than_sqlite_has_variables(open_database: OpenDatabase) -> None:
    """S51: adding, finding and deleting tens of thousands of ids in one call works."""
    db = open_database(embed=None)
    ids = [f"id{i}" for i in range(40_000)]
    assert db.add({"id": doc_id, "text": ""} for doc_id in ids) == len(ids)
    assert db.delete(ids[1:]) == len(ids) - 1
    assert db.count() == 1


def test_embedders_digest_is_what_counts_when_reopened(open_database: OpenDatabase, tmp_path: Path) -> None:
    """The same model under another name or path opens the database; the digest decides."""
    with open_database(tmp_path / "db") as db:
        db.add(DOCS)
    renamed = replace(EMBEDDER, name="renamed")
    assert open_database(tmp_path / "db", embed=renamed).search("beta text", mode="dense")[0].id == "beta"


def test_ids_mean_the_same_in_every_call_when_they_are_numbers(open_database: OpenDatabase) -> None:
    """A whole number is stored as its digits, and `get`, `in` and `delete` find it by either."""
    db = open_database(embed=None)
    db.add([{"id": 5, "text": "five"}, {"id": np.int64(6), "text": "six"}])
    for key in (5, "5", np.int64(6)):
        found = db.get(key)  # type: ignore[arg-type]  # numbers, as callers without a type checker pass them
        assert found is not None
        assert key in db
    assert db.delete([5, np.int64(6)]) == 2  # type: ignore[list-item]  # as above


def test_rows_stored_before_are_told_when_the_iterator_raises(open_database: OpenDatabase) -> None:
    """An error of the caller's own generator goes through, with a note of what is stored."""

    def rows() -> Iterator[dict[str, Any]]:
        yield from ({"id": str(i), "text": "x"} for i in range(300))
        raise RuntimeError("the source broke")

    db = open_database()
    with pytest.raises(RuntimeError, match="broke") as caught:
        db.add(rows())
    assert db.count() == 256
    assert "256 documents before this chunk are stored" in caught.value.__notes__[0]


def test_folder_stays_the_same_when_the_current_one_changes(
    open_database: OpenDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path means the folder that it named at opening, for every later connection and index file."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    db = open_database("db")
    db.add(DOCS)
    monkeypatch.chdir(elsewhere)
    views = [db.iter() for _ in range(3)]
    assert [next(view).id for view in views] == ["alpha"] * 3  # three connections at once: two are new ones
    assert db.search("beta", mode="lexical")[0].id == "beta"
    db.close()
    assert list(elsewhere.iterdir()) == []
    assert open_database(tmp_path / "db").count() == len(DOCS)


def test_documents_are_deleted_and_changed_when_asked_for_by_filter_or_id(open_database: OpenDatabase) -> None:
    """`delete` takes ids or a filter, never both or neither; `update_metadata` changes what filters see."""
    with open_database() as db:
        db.add([{"id": f"d{i}", "text": "apple", "year": 2000 + i} for i in range(5)])
        assert db.delete(filter={"year": {"$lt": 2002}}) == 2
        assert db.update_metadata({"d3": {"year": 1999}, "gone": {}}) == 1
        assert [hit.id for hit in db.search("apple", filter={"year": {"$lt": 2002}}, mode="lexical")] == ["d3"]
        for wrong in ({}, {"ids": ["d3"], "filter": {"year": 1}}):
            with pytest.raises(InvalidInput, match="either by ids or by a filter"):
                db.delete(**wrong)
        with pytest.raises(InvalidInput, match="mapping from id to metadata"):
            db.update_metadata([("d3", {})])  # type: ignore[arg-type]  # the mistake


def test_a_copy_holds_everything_when_a_snapshot_is_taken(open_database: OpenDatabase, tmp_path: Path) -> None:
    """`snapshot`, `verify`, `repair` and `compact` are the database's own methods."""
    with open_database() as db:
        db.add([{"id": "a", "text": "apple"}, {"id": "b", "text": "pear"}])
        db.delete("b")
        assert db.compact().forgotten == 1
        assert db.repair().ok
        assert db.verify().documents == 1
        db.snapshot(tmp_path / "copy")
    with vs.open(tmp_path / "copy", embed=EMBEDDER, backend="fake") as copy:
        assert [doc.id for doc in copy.iter()] == ["a"]


def test_repr_tells_what_a_database_holds(tmp_path: Path) -> None:
    """In a session one sees where it is, how much it holds, by which model, and whether it is closed."""
    db = vs.open(tmp_path / "my.db", embed=None)
    db.add([{"id": "a", "text": "one"}])
    assert repr(db) == f"<Database {str(tmp_path / 'my.db')!r}: 1 documents, vectors of the caller's own, 0 tenants>"
    db.close()
    assert repr(db) == f"<Database {str(tmp_path / 'my.db')!r}: closed>"
