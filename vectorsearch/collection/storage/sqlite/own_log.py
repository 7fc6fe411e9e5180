"""Whether a log that a killed process has left belongs to the file beside it, and the counts of both agree."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from vectorsearch.collection.storage.disk.log_stamp import stray_log
from vectorsearch.collection.storage.errors import DamagedDatabase
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME, connect, connect_alone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LAST_CHANGE = """
SELECT max(coalesce((SELECT max(row) FROM documents), 0), coalesce((SELECT max(seq) FROM deletions), 0))
"""


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
                wrong = [pages] if pages != "ok" else list(wrong_numbers(conn))
        except sqlite3.DatabaseError as exc:
            wrong = [str(exc)]
    if wrong:
        raise DamagedDatabase(
            f"database {str(folder)!r} can't be opened: {log.name} doesn't belong to {FILE_NAME} ({wrong[0]}): put "
            "back both from one copy, or move the log away to have what the file alone holds; nothing was changed"
        )


def wrong_numbers(conn: sqlite3.Connection) -> Iterator[str]:
    """Yield what is wrong with the counts and the numbers of changes, in words."""
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
