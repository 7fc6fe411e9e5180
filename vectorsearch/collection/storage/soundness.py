"""Looking after a store: is everything in it sound, can it be mended, what can be forgotten, a copy of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vectorsearch.collection.storage.disk.log_stamp import stamp_copy
from vectorsearch.collection.storage.errors import DamagedDatabase
from vectorsearch.collection.storage.mending import stored_documents, wrong_vectors
from vectorsearch.collection.storage.sqlite.own_log import wrong_numbers
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME, connect, translated

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vectorsearch.collection.storage.sqlite.connections import Connections

_SHOWN_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it must be: in which `part`, what it is, and whether `repair` can mend it."""

    part: str
    message: str
    mendable: bool

    def __str__(self) -> str:
        return f"{self.part}: {self.message}"


def find_faults(store: Connections, advance_by: Callable[[int], None]) -> list[Fault]:
    """Check the file's pages, the counts, and every document and vector; `advance_by(n)` tells of n more documents."""
    try:
        with store.reading() as conn:
            conn.execute("BEGIN")
            pages = [line for (line,) in conn.execute(f"PRAGMA integrity_check({_SHOWN_FAULTS})") if line != "ok"]
            if pages:  # what lies on damaged pages can't be looked at
                return [Fault("file", f"is damaged: {line}", mendable=False) for line in pages]
            faults = [Fault("documents", message, mendable=True) for message in wrong_numbers(conn)]
            faults += [Fault("documents", wrong.what, mendable=True) for wrong in wrong_vectors(conn)]
            return faults + list(_wrong_documents(conn, advance_by))
    except DamagedDatabase as exc:
        return [Fault("file", f"is damaged: {exc.__cause__}", mendable=False)]


def forget_deletions(store: Connections, up_to: int) -> int:
    """Forget which rows were deleted up to change `up_to`, and return how many that were.

    An index that has seen less must be built again; `Snapshot.floor` tells it so.
    """
    with store.transaction() as conn:
        forgotten = conn.execute("DELETE FROM deletions WHERE seq <= ?", (up_to,)).rowcount
        if forgotten:
            conn.execute("INSERT OR REPLACE INTO meta VALUES ('floor', ?)", (str(up_to),))
    return int(forgotten)


def copy_documents(store: Connections, folder: Path) -> None:
    """Write a packed copy of the store's file as of this moment into `folder`; writers go on meanwhile.

    Raises:
        StorageFull: there is no room for it.
    """
    with store.reading() as conn:
        conn.execute("VACUUM INTO ?", (str(folder / FILE_NAME),))
    with translated(folder), closing(connect(folder, read_only=False)) as copy:
        stamp_copy(copy)


def _wrong_documents(conn: sqlite3.Connection, advance_by: Callable[[int], None]) -> Iterator[Fault]:
    for document in stored_documents(conn):
        advance_by(1)
        if document.given_up:
            what = "was damaged beyond repair"
        elif not document.is_sound():
            what = "is not what was written"
        else:
            continue
        yield Fault("documents", f"{document} {what}: upsert it again", mendable=not document.given_up)
