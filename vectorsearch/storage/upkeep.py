"""Looking after a store: is everything in it sound, can it be mended, what can be forgotten, a copy of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.storage.errors import DamagedDatabase
from vectorsearch.storage.records import content_digest, to_document, vector_of
from vectorsearch.storage.schema import FILE_NAME

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vectorsearch.storage.store import Store

_SHOWN_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it must be: in which `part`, what it is, and whether `repair` can mend it."""

    part: str
    message: str
    mendable: bool

    def __str__(self) -> str:
        return f"{self.part}: {self.message}"


def find_faults(store: Store, advance_by: Callable[[int], None]) -> list[Fault]:
    """Check the file's pages, the counts, and every document and vector; `advance_by(n)` tells of n more documents."""
    try:
        return _faults(store, advance_by)
    except DamagedDatabase as exc:
        return [Fault("file", f"is damaged: {exc.__cause__}", mendable=False)]


def _faults(store: Store, advance_by: Callable[[int], None]) -> list[Fault]:
    with store.reading() as conn:
        conn.execute("BEGIN")
        pages = [line for (line,) in conn.execute(f"PRAGMA integrity_check({_SHOWN_FAULTS})") if line != "ok"]
        if pages:  # what lies on damaged pages can't be looked at
            return [Fault("file", f"is damaged: {line}", mendable=False) for line in pages]
        faults = [Fault("documents", message, mendable=True) for message in _wrong_counts(conn)]
        faults += [Fault("documents", f"{message} (row {row})", mendable=True) for row, message in _wrong_rows(conn)]
        return faults + list(_wrong_documents(conn, advance_by))


def mend(store: Store) -> None:
    """Make counts true, digests fit their documents, and drop vectors that belong to none or can't be used.

    What a document has lost can't be brought back: an `upsert` of it stores it again, since its digest is a new one.
    """
    with store.reading() as conn:
        conn.execute("BEGIN")
        dropped = [row for row, _ in _wrong_rows(conn)]
        every = conn.execute(_EVERY)
        digests = [(fresh, row) for row, *stored, old in every if (fresh := _digest(*stored)) not in (None, old)]
    with store.transaction() as conn:
        conn.executemany("DELETE FROM vectors WHERE row = ?", ((row,) for row in dropped))
        conn.executemany("UPDATE documents SET digest = ? WHERE row = ?", digests)
        conn.execute(
            "UPDATE state SET documents = (SELECT count(*) FROM documents), vectors = (SELECT count(*) FROM vectors)"
        )


def forget_deletions(store: Store, up_to: int) -> int:
    """Forget which rows were deleted up to change `up_to`, and return how many that were.

    An index that has seen less must be built again; `Snapshot.floor` tells it so.
    """
    with store.transaction() as conn:
        forgotten = conn.execute("DELETE FROM deletions WHERE seq <= ?", (up_to,)).rowcount
        if forgotten:
            conn.execute("INSERT OR REPLACE INTO meta VALUES ('floor', ?)", (str(up_to),))
    return int(forgotten)


def copy_documents(store: Store, folder: Path) -> None:
    """Write a packed copy of the store's file as of this moment into `folder`; writers go on meanwhile.

    Raises:
        StorageFull: there is no room for it.
    """
    with store.reading() as conn:
        conn.execute("VACUUM INTO ?", (str(folder / FILE_NAME),))


def _wrong_counts(conn: sqlite3.Connection) -> Iterator[str]:
    (stated,) = conn.execute("SELECT documents, vectors FROM state").fetchall()
    for name, count in zip(("documents", "vectors"), stated, strict=True):
        (found,) = conn.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608 -- two constants, no input
        if found != count:
            yield f"{count} {name} are counted, and {found} are there"


def _wrong_rows(conn: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    for (row,) in conn.execute("SELECT row FROM vectors WHERE row NOT IN (SELECT row FROM documents)"):
        yield row, "a vector belongs to no document"
    dim = conn.execute("SELECT value FROM meta WHERE key = 'dim'").fetchone()
    for row, blob in conn.execute("SELECT row, vector FROM vectors ORDER BY row"):
        if dim is None or len(blob) != 4 * int(dim[0]):
            yield row, f"a vector has {len(blob)} bytes, and the database's have {dim and 4 * int(dim[0])}"
        elif not np.isfinite(vector_of(blob)).all():
            yield row, "a vector holds NaN or infinity"


def _wrong_documents(conn: sqlite3.Connection, advance_by: Callable[[int], None]) -> Iterator[Fault]:
    (newest,) = conn.execute("SELECT seq FROM state").fetchone()
    for row, *stored, digest in conn.execute(_EVERY):
        advance_by(1)
        where = f"id {stored[0]!r}"
        if row > newest:
            yield Fault("documents", f"{where} has row {row}, and the last change is {newest}", mendable=False)
        fresh = _digest(*stored)
        if fresh is None:
            yield Fault("documents", f"{where} has unreadable metadata: upsert it again", mendable=False)
        elif fresh != digest:
            yield Fault("documents", f"{where} is not what was written: upsert it again", mendable=True)


def _digest(doc_id: str, title: str, text: str, metadata: str) -> bytes | None:
    try:
        return bytes.fromhex(content_digest(to_document(doc_id, title, text, metadata)))
    except ValueError:  # it is no JSON
        return None


_EVERY = "SELECT row, id, title, text, metadata, digest FROM documents ORDER BY row"
