"""A full disk: a clear error, nothing acknowledged lost, and searches that go on."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.errors import IndexUnwritable, StorageFull
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SETTINGS = CollectionSettings(dense="Flat")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm_all()


def no_space() -> None:
    """Fail as a write on a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def documents(first: int, last: int, size: int = 10) -> list[Document]:
    """Give documents of some size with vectors."""
    rng = np.random.default_rng(first)
    return [
        Document(f"d{i}", f"apple unique{i} " + "x" * size, vector=rng.standard_normal(8).astype(np.float32))
        for i in range(first, last)
    ]


def check(collection: Collection, n: int) -> None:
    """Both retrievers find all n documents."""
    assert collection.count() == n
    assert len(collection.lexical("apple", 1000).rows) == n
    assert len(collection.dense(np.ones(8, np.float32), 1000).rows) == n


def test_nothing_acknowledged_is_lost_when_the_database_cannot_grow(tmp_path: Path) -> None:
    """Writes are refused whole while there is no room; what was there is found, and writing works again later."""
    with Collection.open(tmp_path, SETTINGS) as collection:
        collection.write(documents(0, 50))
        writer = collection.store._writer
        assert writer is not None
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        for _ in range(3):
            with pytest.raises(StorageFull, match="free disk space"):
                collection.write(documents(50, 100, size=10_000))
            with pytest.raises(StorageFull):
                collection.write(documents(0, 50, size=10_000), on_conflict="replace")
        check(collection, 50)
        writer.execute("PRAGMA max_page_count = 1000000")
        collection.write(documents(50, 100, size=10_000))
        check(collection, 100)
    with Collection.open(tmp_path, SETTINGS) as collection:
        check(collection, 100)


@pytest.mark.parametrize("failpoint", ["files.before_replace", "dense.before_manifest", "lexical.after_commit"])
def test_searches_go_on_when_derived_files_cannot_be_written(tmp_path: Path, failpoint: str) -> None:
    """The index serves from memory and says so; flush and close raise; the next opening has everything."""
    collection = Collection.open(tmp_path, SETTINGS)
    collection.write(documents(0, 50))
    failpoints.arm(failpoint, no_space)
    check(collection, 50)
    collection.write(documents(50, 60))
    check(collection, 60)
    assert "No space left" in str(collection.info())
    with pytest.raises(IndexUnwritable, match="no document is lost"):
        collection.flush()
    with pytest.raises(IndexUnwritable):
        collection.close()
    collection.close()
    failpoints.disarm_all()
    with Collection.open(tmp_path, SETTINGS) as collection:
        check(collection, 60)
        assert "No space left" not in str(collection.info())


def test_the_index_is_whole_when_an_error_cut_its_catching_up_short(tmp_path: Path) -> None:
    """After an unexpected error in the middle of catching up, the next search starts from a whole state."""
    with Collection.open(tmp_path, SETTINGS) as collection:
        collection.write(documents(0, 50))
        check(collection, 50)
        collection.write(documents(50, 60))

        def stop_after(rows: int) -> Callable[[int, int], None]:
            def stop(done: int, total: int) -> None:
                if done > rows:
                    raise KeyboardInterrupt(total)

            return stop

        for rows in (0, 0, 10, 10):  # the words come first, ten rows of them, then the vectors
            with pytest.raises(KeyboardInterrupt):
                collection.refresh(stop_after(rows))
        check(collection, 60)
