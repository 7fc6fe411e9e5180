"""Looking after a store: is everything in it sound, can it be mended, what can be forgotten, a copy of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vectorsearch.storage.errors import DamagedDatabase
from vectorsearch.storage.log_stamp import stamp_copy, stray_log
from vectorsearch.storage.mending import stored_documents, wrong_vectors
from vectorsearch.storage.schema import FILE_NAME, connect, connect_alone, translated

if TYPE_CHECKING:
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
        with store.reading() as conn:
            conn.execute("BEGIN")
            pages = [line for (line,) in conn.execute(f"PRAGMA integrity_check({_SHOWN_FAULTS})") if line != "ok"]
            if pages:  # what lies on damaged pages can't be looked at
                return [Fault("file", f"is damaged: {line}", mendable=False) for line in pages]
            faults = [Fault("documents", message, mendable=True) for message in _wrong_numbers(conn)]
            faults += [Fault("documents", wrong.what, mendable=True) for wrong in wrong_vectors(conn)]
            return faults + list(_wrong_documents(conn, advance_by))
    except DamagedDatabase as exc:
        return [Fault("file", f"is damaged: {exc.__cause__}", mendable=False)]


def require_own_log(folder: Path, *, is_written: bool = False) -> None:
    """Insist that a log that a killed process has left belongs to the file beside it, before it is folded in.

    Where another process seems to write to it, only stamps are compared: reading all takes its time.

    SQLite folds in whatever lies there; `log_stamp` tells a log of another moment or file. In earlier formats, and
    where one of the two is damaged, pages don't fit together, or there aren't as many documents as are counted.

    Raises:
        DamagedDatabase: it doesn't; both stay as they are.
    """
    log = folder / f"{FILE_NAME}-wal"
    if not log.exists() or not log.stat().st_size or not (folder / FILE_NAME).stat().st_size:
        return
    with closing(connect(folder, read_only=True)) as conn:  # which folds nothing in
        try:
            if conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                return
            wrong = list(filter(None, [stray_log(conn, lambda: connect_alone(folder))]))
            if not wrong and not is_written:
                conn.execute("BEGIN")
                pages = conn.execute("PRAGMA integrity_check(1)").fetchone()[0]
                wrong = [pages] if pages != "ok" else list(_wrong_numbers(conn))
        except sqlite3.DatabaseError as exc:
            wrong = [str(exc)]
    if wrong:
        raise DamagedDatabase(
            f"database {str(folder)!r} can't be opened: {log.name} doesn't belong to {FILE_NAME} ({wrong[0]}): put "
            "back both from one copy, or move the log away to have what the file alone holds; nothing was changed"
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
    with translated(folder), closing(connect(folder, read_only=False)) as copy:
        stamp_copy(copy)


def _wrong_numbers(conn: sqlite3.Connection) -> Iterator[str]:
    (stated,) = conn.execute("SELECT documents, vectors FROM state").fetchall()
    for name, count in zip(("documents", "vectors"), stated, strict=True):
        (found,) = conn.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608 -- two constants, no input
        if found != count:
            yield f"{count} {name} are counted, and {found} are there"
    newest = conn.execute("SELECT seq FROM state").fetchone()[0]
    (last,) = conn.execute(_LAST_CHANGE).fetchone()
    if last > newest:
        yield f"a change has number {last}, and the last is {newest}"
    for seq, row in conn.execute("SELECT seq, row FROM deletions WHERE row IN (SELECT row FROM documents)"):
        yield f"row {row} was deleted by change {seq}, and is there"


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


_LAST_CHANGE = """
SELECT max(coalesce((SELECT max(row) FROM documents), 0), coalesce((SELECT max(seq) FROM deletions), 0))
"""
