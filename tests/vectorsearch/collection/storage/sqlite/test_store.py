"""The document store."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import threading
from contextlib import closing
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
import pytest

from backends.errors import InvalidInput
from vectorsearch.collection.storage.errors import (
    DatabaseClosed,
    DatabaseLocked,
    DimensionMismatch,
    DuplicateId,
    NewerFormat,
    NonFiniteVector,
    NotADatabase,
    ReadOnlyDatabase,
)
from vectorsearch.collection.storage.sqlite import schema
from vectorsearch.collection.storage.sqlite.store import Store
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = Store(tmp_path / "db", durable=False)
    yield opened
    opened.close()


def doc(number: int, text: str = "text", dim: int = 3) -> Document:
    """Give a document with a vector."""
    return Document(f"d{number}", text, vector=np.full(dim, number, np.float32))


def content(store: Store) -> list[tuple[str, str]]:
    """Return ids and texts of all that is stored."""
    with store.snapshot() as snapshot:
        return [(stored.id, stored.text) for stored in snapshot.iter(vectors=False)]


def listing(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_documents_are_found_again_when_the_store_is_reopened(tmp_path: Path) -> None:
    """What was written is there after closing, the numbering goes on, and the identity stays."""
    store = Store(tmp_path / "db")
    store.write([doc(1), doc(2)])
    store.delete(["d1"])
    seq, identity = store.seq, store.uuid
    store.close()
    store.close()
    again = Store(tmp_path / "db")
    assert content(again) == [("d2", "text")]
    assert (again.seq, again.uuid, again.dim) == (seq, identity, 3)
    again.close()


def test_each_change_has_its_own_number_when_documents_are_replaced_and_deleted(store: Store) -> None:
    """Insertions and deletions share one counter, and no row number is used twice."""
    store.write([doc(1), doc(2)])
    store.write([doc(2, "new"), doc(3)], on_conflict="replace")
    store.delete(["d1", "unknown"])
    with store.snapshot() as snapshot:
        assert snapshot.seq == store.seq == 6
        assert snapshot.deleted_after(0).tolist() == [1, 2]
        assert snapshot.deleted_after(3).tolist() == [1]
        assert [row for batch in snapshot.texts(0) for row, *_ in batch] == [4, 5]
        assert [row for batch in snapshot.texts(4) for row, *_ in batch] == [5]
        assert np.concatenate([rows for rows, _ in snapshot.vectors(0)]).tolist() == [4, 5]
        assert (snapshot.documents, snapshot.n_vectors) == (2, 2)
        assert snapshot.inserted_after(0) == 2
        assert snapshot.inserted_after(2) == 2


def test_nothing_is_stored_when_one_id_exists(store: Store) -> None:
    """A batch with a known id is refused whole, and the first few known ids are named."""
    store.write([doc(i) for i in range(8)])
    seq = store.seq
    named = r"ids 'd7' \(row 1\), 'd6' \(row 2\), .*, 'd3' \(row 5\) and 3 more are already in the database"
    with pytest.raises(DuplicateId, match=named):
        store.write([doc(i, "other") for i in (9, 7, 6, 5, 4, 3, 2, 1, 0)])
    assert store.seq == seq
    assert len(content(store)) == 8


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Document("x", "", vector=np.ones(4, np.float32)), DimensionMismatch),
        (Document("x", "", vector=np.array([0, np.nan, 0], np.float32)), NonFiniteVector),
        (Document("x", "", metadata={"a": float("inf")}), InvalidInput),
        (Document("d2", ""), DuplicateId),
    ],
)
@pytest.mark.parametrize("on_conflict", ["error", "replace"])
def test_nothing_is_stored_when_one_document_is_bad(store: Store, bad: Document, error: type, on_conflict: str) -> None:
    """S48: a batch with one bad document changes nothing, whatever is done with known ids."""
    store.write([doc(1)])
    before, seq = content(store), store.seq
    with pytest.raises(error):
        store.write([doc(1, "other"), doc(2), bad], on_conflict="replace") if on_conflict == "replace" else store.write(
            [doc(2), bad]
        )
    assert (content(store), store.seq) == (before, seq)


def test_more_ids_than_variables_are_handled_when_a_call_names_them(store: Store) -> None:
    """S51: writing, getting, deleting and digesting 40,000 ids in one call works, past SQLite's variable limit."""
    ids = [f"d{i}" for i in range(40_000)]
    assert store.write([Document(doc_id, "x") for doc_id in ids]) == 40_000
    assert [found.id for found in store.get(ids, vectors=False) if found] == ids
    assert len(store.digests(ids)) == 40_000
    assert store.write([Document(doc_id, "y") for doc_id in ids], on_conflict="replace") == 40_000
    assert store.delete(ids) == 40_000
    assert content(store) == []


def test_rank_order_is_kept_when_rows_are_fetched(store: Store) -> None:
    """S52: documents come in the order of the rows asked for, with None for a row that is gone."""
    store.write([doc(i) for i in range(2000)])
    rows = [1500, 3, 2000, 700, 1]
    fetched = store.fetch(rows)
    assert [found and found.id for found in fetched] == ["d1499", "d2", "d1999", "d699", "d0"]
    store.delete(["d2"])
    assert store.fetch([3, 1])[0] is None
    assert [found and found.id for found in store.get(["d9", "none", "d4"])] == ["d9", None, "d4"]


def test_a_snapshot_stays_as_it_was_when_a_writer_commits(store: Store) -> None:
    """A reader's view is one moment; a writer never waits for it."""
    store.write([doc(1)])
    with store.snapshot() as snapshot:
        store.write([doc(1, "new"), doc(2)], on_conflict="replace")
        assert [(found.id, found.text) for found in snapshot.iter(vectors=False)] == [("d1", "text")]
        assert snapshot.deleted_after(0).size == 0
    assert content(store) == [("d1", "new"), ("d2", "text")]


def test_a_second_writer_is_refused_when_the_first_is_open(tmp_path: Path) -> None:
    """S20: another handle, in this process too, gets DatabaseLocked at once; after closing it may write."""
    first = Store(tmp_path / "db")
    with pytest.raises(DatabaseLocked, match="read_only=True"):
        Store(tmp_path / "db")
    first.write([doc(1)])
    first.close()
    second = Store(tmp_path / "db")
    assert len(content(second)) == 1
    second.close()


def test_a_reader_sees_commits_when_it_was_opened_before_them(tmp_path: Path) -> None:
    """A read-only handle takes no lock, sees what the writer commits later, and can't write."""
    writer = Store(tmp_path / "db")
    writer.write([doc(1)])
    reader = Store(tmp_path / "db", read_only=True)
    writer.write([doc(2)])
    assert len(content(reader)) == 2
    assert reader.seq == writer.seq
    with pytest.raises(ReadOnlyDatabase):
        reader.write([doc(3)])
    with pytest.raises(ReadOnlyDatabase):
        reader.delete(["d1"])
    reader.close()
    writer.close()


@pytest.mark.parametrize("name", ["documents.sqlite", "notes.txt"])
def test_nothing_is_created_when_the_folder_holds_something_else(tmp_path: Path, name: str) -> None:
    """A folder that is no database is refused and left as it was."""
    (tmp_path / name).write_text("something of the user's, longer than a header" * 10)
    before = listing(tmp_path)
    for read_only in (False, True):
        with pytest.raises(NotADatabase):
            Store(tmp_path, read_only=read_only)
    assert listing(tmp_path) == before


def test_nothing_is_created_when_the_path_is_no_folder(tmp_path: Path) -> None:
    """A file in the folder's place, and a missing folder opened to read, are refused."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADatabase, match="is a file"):
        Store(tmp_path / "file")
    with pytest.raises(NotADatabase, match="no database at"):
        Store(tmp_path / "missing", read_only=True)
    assert not (tmp_path / "missing").exists()


def test_nothing_is_changed_when_the_file_is_another_applications(tmp_path: Path) -> None:
    """An SQLite file of someone else's, marked as such or not, is refused and left as it was."""
    for application_id in (0, 1234):
        folder = tmp_path / str(application_id)
        folder.mkdir()
        with closing(sqlite3.connect(folder / schema.FILE_NAME)) as conn:
            conn.executescript(f"PRAGMA application_id = {application_id}; CREATE TABLE theirs (x)")
        before = listing(folder)
        with pytest.raises(NotADatabase):
            Store(folder)
        after = {name: data for name, data in listing(folder).items() if name != "writer.lock"}
        assert after == before


def test_nothing_is_changed_when_the_format_is_newer(tmp_path: Path) -> None:
    """A database of a later release is refused, with both format numbers, and left as it was."""
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as conn:
        conn.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
        conn.commit()
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = listing(tmp_path)
    for read_only in (False, True):
        with pytest.raises(NewerFormat, match=f"format {schema.FORMAT + 1}, this release reads up to {schema.FORMAT}"):
            Store(tmp_path, read_only=read_only)
    assert listing(tmp_path) == before


def test_a_database_is_made_when_an_earlier_creation_was_cut_off(tmp_path: Path) -> None:
    """An empty file, and an SQLite file without tables, are what a kill during creation leaves: it is made anew."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / schema.FILE_NAME).touch()
    (tmp_path / "b").mkdir()
    with closing(sqlite3.connect(tmp_path / "b" / schema.FILE_NAME)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
    for name in "ab":
        store = Store(tmp_path / name)
        store.write([doc(1)])
        store.close()


def test_nothing_is_created_when_the_folder_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed database on read-only media opens for reading, without the files that SQLite makes for sharing."""
    with closing(Store(tmp_path)) as store:
        store.write([doc(1)])
    before = listing(tmp_path)
    monkeypatch.setattr(schema.os, "access", lambda *_: False)
    with closing(Store(tmp_path, read_only=True)) as reader:
        assert content(reader) == [("d1", "text")]
        assert listing(tmp_path) == before


def test_every_call_is_refused_when_the_store_is_closed(store: Store) -> None:
    """After close(), a clear error, not SQLite's."""
    store.write([doc(1)])
    store.close()
    for call in (
        lambda: store.write([doc(2)]),
        lambda: store.delete(["d1"]),
        lambda: store.get(["d1"]),
        lambda: store.fetch([1]),
        lambda: store.digests(["d1"]),
        lambda: store.seq,
    ):
        with pytest.raises(DatabaseClosed):
            call()


def test_all_writes_succeed_when_threads_contend(store: Store) -> None:
    """S19: 60 of 60 writes by six threads that read before they write succeed, waiting for one another."""
    faults: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for i in range(10):
                store.get([f"t{thread}-{i}"])
                store.write([Document(f"t{thread}-{i}", "x")])
        except BaseException as exc:  # noqa: BLE001 -- whatever it is, the test shows it
            faults.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(content(store)) == 60


def test_a_folder_can_only_be_read_when_the_system_forbids_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where this process may not write, opening for writing says so and names the way that works."""
    Store(tmp_path / "db").close()

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ReadOnlyDatabase, match="read_only=True"):
        Store(tmp_path / "db")
    Store(tmp_path / "db", read_only=True).close()


@pytest.mark.skipif(sys.platform == "win32", reason="no process is forked there")
def test_the_lock_is_given_back_when_a_forked_child_still_has_it_open(tmp_path: Path) -> None:
    """S40: a child that was forked meanwhile doesn't keep its parent's database locked; nor does it unlock it."""
    store = Store(tmp_path / "db")
    kept = os.dup(store._lock._descriptor)
    store.close()
    Store(tmp_path / "db").close()
    os.close(kept)

    parent = Store(tmp_path / "db")
    with pytest.MonkeyPatch.context() as child:
        lock = copy(parent._lock)
        lock._descriptor = os.dup(lock._descriptor)
        child.setattr(os, "getpid", lambda: 1)
        lock.release()
    with pytest.raises(DatabaseLocked):
        Store(tmp_path / "db")
    parent.close()
