"""Who writes proves before each write that the folder, the file and the lock are those that it opened."""

from __future__ import annotations

import errno
import shutil
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.storage.disk import lock
from vectorsearch.collection.storage.disk.lock import LOCK_NAME
from vectorsearch.collection.storage.errors import DatabaseLocked, DatabaseMoved, StoreError
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="an open file can't be removed there")
SETTINGS = CollectionSettings(dense="Flat")


def document(number: int) -> Document:
    """Give a document with a word and a vector of its own."""
    vector = np.random.default_rng(number).standard_normal(4).astype(np.float32)
    return Document(f"d{number}", f"apple unique{number}", vector=vector)


def content(folder: Path) -> dict[str, bytes]:
    """Return what lies in a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def delete(folder: Path) -> None:
    """Delete a folder."""
    shutil.rmtree(folder)


def move(folder: Path) -> None:
    """Move a folder away."""
    folder.rename(folder.with_name("moved"))


def replace(folder: Path) -> None:
    """Put another database in a folder's place."""
    shutil.rmtree(folder)
    with Collection.open(folder, SETTINGS) as other:
        other.write([document(100)])


def remove_lock(folder: Path) -> None:
    """Remove the writer's lock."""
    (folder / LOCK_NAME).unlink()


def remove_log(folder: Path) -> None:
    """Remove what isn't yet in the file."""
    (folder / f"{FILE_NAME}-wal").unlink()


def replace_file(folder: Path) -> None:
    """Put a copy in the place of the documents' file."""
    copy = folder / "copy"
    shutil.copy(folder / FILE_NAME, copy)
    copy.rename(folder / FILE_NAME)


@pytest.mark.parametrize("harm", [delete, move, replace, remove_lock, remove_log, replace_file])
def test_a_write_is_an_error_when_the_database_is_not_what_was_opened(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """D4, D5: nothing is acknowledged, and nothing is written, neither into what is there now nor elsewhere."""
    collection = Collection.open(tmp_path / "db", SETTINGS)
    collection.write([document(1)])
    harm(tmp_path / "db")
    before = content(tmp_path)
    for write in (
        lambda: collection.write([document(2)]),
        lambda: collection.delete(["d1"]),
        lambda: collection.lexical("apple", 5),  # its index lacks a change, and would be written
        lambda: collection.dense(np.ones(4, np.float32), 5),
        collection.flush,
        collection.upkeep.compact,
        collection.upkeep.repair,
        collection.close,
    ):
        with pytest.raises(DatabaseMoved, match=r"deleted, moved or replaced .*; nothing was written"):
            write()
    collection.close()
    after = content(tmp_path)
    # SQLite folds its log in where the file is its own still: that was acknowledged.
    own = ("-shm", "-wal", *((FILE_NAME,) if harm in (remove_lock, remove_log) else ()))
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {name for name in changed if not name.endswith(own)} == set()


def test_the_first_writer_is_refused_when_a_second_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: where no lock keeps them apart, the store's token tells whose turn is over; nothing is mixed."""
    monkeypatch.setattr(lock, "_try_lock", lambda _: None)
    monkeypatch.setattr(lock, "_locks_twice", lambda _: False)
    first, second = (Collection.open(tmp_path / "db", SETTINGS) for _ in range(2))
    first.write([document(1)])
    second.write([document(2)])
    for write in (lambda: first.write([document(3)]), first.flush):
        with pytest.raises(DatabaseLocked, match="another process has written"):
            write()
    second.write([document(4)])
    second.close()
    with pytest.raises(DatabaseLocked):
        first.close()
    monkeypatch.undo()
    with Collection.open(tmp_path / "db", SETTINGS) as collection:
        assert [doc.id for doc in collection.iter()] == ["d1", "d2", "d4"]
        assert collection.upkeep.verify().ok


def test_opening_to_write_is_refused_when_locks_do_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: a file system that refuses locks, or grants the same one twice, gets no writer; readers it may have."""
    with Collection.open(tmp_path / "db", SETTINGS) as collection:
        collection.write([document(1)])

    def refuse(_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    for pretended in (lambda _: None, refuse):
        monkeypatch.setattr(lock, "_try_lock", pretended)
        with pytest.raises(StoreError, match="locks don't work in this file system"):
            Collection.open(tmp_path / "db", SETTINGS)
        with Collection.open(tmp_path / "db", SETTINGS, read_only=True) as reader:
            assert reader.count() == 1
    monkeypatch.undo()
    Collection.open(tmp_path / "db", SETTINGS).close()
