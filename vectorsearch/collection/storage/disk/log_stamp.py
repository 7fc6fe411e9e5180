"""Which log belongs to which file: SQLite folds in whatever log lies beside one, so both say which they are of.

A log holds what has changed since the file was as it lies there. Put beside another copy of the file, it makes pages of
two moments, which may well fit together in a small database. So every change has a stamp, and names the change that the
log began upon: the file alone must be of that one, or of one of the log's own, as a checkpoint that was cut off leaves
it. Where a log begins, stamps count on from a random number, so copies that went their own ways have none in common.
"""

from __future__ import annotations

import secrets
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from pathlib import Path

COLUMNS = ("stamp", "log_after", "log_from")  # of `state`: of this change; of what the log began upon; of its first one
WITH_STAMPS = 5  # the format since which there are stamps
_HEADER_NBYTES = 32  # of a log; it has another number each time that the log begins anew
_BITS = 48
_TRIES = 3


def header_of(log: Path) -> bytes:
    """Return what tells a log from the one that was in the same file before; b"" where there is none."""
    try:
        with log.open("rb") as file:
            return file.read(_HEADER_NBYTES)
    except FileNotFoundError:
        return b""


def stamp_change(conn: sqlite3.Connection, *, begins: bool) -> None:
    """Give the change of this transaction its stamp; with `begins`, the log is empty and begins with it."""
    if begins:
        first = secrets.randbits(_BITS)
        conn.execute("UPDATE state SET log_after = stamp, stamp = ?, log_from = ?", (first, first))
    else:
        conn.execute("UPDATE state SET stamp = stamp + 1")


def note_beginning(conn: sqlite3.Connection) -> None:
    """Note, in a change of its own, that SQLite began the log anew with the last one, as it does when it likes."""
    with _changing(conn):
        conn.execute("UPDATE state SET log_after = stamp - 1, log_from = stamp, stamp = stamp + 1")


def note_other_pages(conn: sqlite3.Connection, *, begins: bool) -> None:
    """Give a change of its own its stamp, before all pages are written anew with the same content."""
    with _changing(conn):
        stamp_change(conn, begins=begins)


@contextmanager
def _changing(conn: sqlite3.Connection) -> Iterator[None]:
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


def stamp_copy(conn: sqlite3.Connection) -> None:
    """Let a new file, or a copy, be of no log that there is."""
    if conn.execute("PRAGMA user_version").fetchone()[0] >= WITH_STAMPS:
        conn.execute("UPDATE state SET stamp = ?1, log_after = ?1, log_from = ?1", (secrets.randbits(_BITS),))


def stray_log(conn: sqlite3.Connection, connect_alone: Callable[[], sqlite3.Connection]) -> str:
    """Return how the log that `conn` sees isn't of the file as it lies there, "" if it is, or is of an earlier format.

    `connect_alone()` opens the file without its log. Another process may write meanwhile.
    """
    if any(_fits(conn, connect_alone) for _ in range(_TRIES)):  # the log may begin anew between the two looks
        return ""
    return "it began upon another copy of the file"


def _fits(conn: sqlite3.Connection, connect_alone: Callable[[], sqlite3.Connection]) -> bool:
    with closing(connect_alone()) as alone:
        if alone.execute("PRAGMA user_version").fetchone()[0] < WITH_STAMPS:  # what upgrades it is in the log
            return True
        (found,) = alone.execute("SELECT stamp FROM state").fetchone()
    if conn.execute("PRAGMA user_version").fetchone()[0] < WITH_STAMPS:
        return True
    stamp, log_after, log_from = conn.execute("SELECT stamp, log_after, log_from FROM state").fetchone()
    return bool(found == log_after or log_from <= found <= stamp)
