"""Interrupts of a write: whatever they meet, the object knows what its file holds, and the next write succeeds."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

import vectorsearch as vs
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.sqlite.store import Store
from vectorsearch.errors import DatabaseLocked, DuplicateId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Leave no failpoint armed."""
    yield
    failpoints.disarm_all()


def interrupt_once(point: str) -> None:
    """Raise what Ctrl-C does, the first time the point is reached."""

    def interrupt() -> None:
        failpoints.disarm_all()
        raise KeyboardInterrupt

    failpoints.arm(point, interrupt)


def docs(*ids: str) -> list[dict[str, Any]]:
    """Give documents that all have one word."""
    return [{"id": id_, "text": f"common {id_}"} for id_ in ids]


@pytest.mark.parametrize("next_write", ["add", "delete"])
@pytest.mark.parametrize(("point", "stored"), [("store.before_commit", 1), ("store.after_commit", 3)])
def test_writes_go_on_when_an_interrupt_came_with_a_commit(
    tmp_path: Path, point: str, stored: int, next_write: str
) -> None:
    """All or nothing is stored and found, numbers never go back, and nothing is damaged, here and after reopening."""
    with vs.open(tmp_path / "db", embed=None) as db:
        db.add(docs("a"))
        interrupt_once(point)
        with pytest.raises(KeyboardInterrupt):
            db.add(docs("b", "c"))
        assert db.count() == len(db.search("common")) == stored
        if next_write == "delete":
            assert db.delete(["a"]) == 1
        assert db.add(docs("d", "e")) == 2
        expected = stored + (1 if next_write == "delete" else 2)
        assert db.count() == len(db.search("common")) == expected
        assert db.verify().ok
    with vs.open(tmp_path / "db", embed=None) as db:
        assert db.add(docs("f")) == 1
        assert len(db.search("common")) == expected + 1
        assert db.verify().ok


def test_what_is_stored_of_a_chunk_is_not_promised_when_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error means that nothing of the chunk is stored; an interrupt may have come after its commit."""
    monkeypatch.setattr("vectorsearch.config.WRITE_CHUNK_DOCUMENTS", 2)
    with vs.open(tmp_path / "db", embed=None) as db:
        with pytest.raises(DuplicateId) as failed:
            db.add(docs("a", "b", "a"))
        assert failed.value.__notes__ == ["2 documents before this chunk are stored, and nothing of the chunk itself"]

        def interrupt_second() -> None:
            interrupt_once("store.after_commit")

        failpoints.arm("store.after_commit", interrupt_second)
        with pytest.raises(KeyboardInterrupt) as stopped:
            db.add(docs("c", "d", "e"))
        assert "all or nothing of the chunk itself" in stopped.value.__notes__[0]
        assert db.count() == 5


def test_a_transaction_is_undone_when_its_beginning_was_interrupted(tmp_path: Path) -> None:
    """An interrupt that comes as a transaction begins leaves none open."""
    store = Store(tmp_path / "db", durable=False)
    real = store._writer

    class Interrupted:
        """The connection, of which the first BEGIN returns into an interrupt."""

        def execute(self, sql: str, *parameters: Any) -> Any:
            done = real.execute(sql, *parameters)  # type: ignore[union-attr]  (it is open)
            if sql.startswith("BEGIN"):
                store._writer = real
                raise KeyboardInterrupt
            return done

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    store._writer = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt), store.transaction():
        pytest.fail("it was entered")
    store.set_meta({"key": "value"})
    assert store.meta()["key"] == "value"
    store.close()


def test_a_database_opens_when_its_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock's note of who holds it is a courtesy; without it the lock is held and given back all the same."""
    Store(tmp_path / "db").close()
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if data.strip() == str(os.getpid()).encode():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        store = Store(tmp_path / "db")
        with pytest.raises(DatabaseLocked):
            Store(tmp_path / "db")
        store.close()
