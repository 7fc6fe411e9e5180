"""Which history a store has: a random token for each run of changes, so that what is derived knows whose it is.

The counter alone doesn't tell: a file put back from an older copy counts on from there, and comes to the same numbers
with other documents. So the first change of each opening begins a generation, `since` the change before it, with a
token of its own. What is derived names the change that it reflects and the token of that change's generation; a store
that has another token there, or none, has another history.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

TABLES = "CREATE TABLE generations (since INTEGER PRIMARY KEY, token TEXT NOT NULL)"


def begin(conn: sqlite3.Connection, seq: int) -> str:
    """Let another generation begin after change `seq`, and return its token."""
    token = secrets.token_hex(8)
    conn.execute("INSERT OR REPLACE INTO generations VALUES (?, ?)", (seq, token))  # one that had no change is none
    return token


def begin_anew(conn: sqlite3.Connection) -> str:
    """Let all changes so far be of one new generation, and return its token: all that is derived is then another's."""
    conn.execute("DELETE FROM generations")
    return begin(conn, 0)


def current(conn: sqlite3.Connection) -> str | None:
    """Return the token of the last generation, None if there was no change yet."""
    found = conn.execute("SELECT token FROM generations ORDER BY since DESC LIMIT 1").fetchone()
    return found and str(found[0])


def token_at(conn: sqlite3.Connection, seq: int) -> str:
    """Return the token of the generation that change `seq` is of; "" before the first change, and in old formats."""
    if conn.execute("PRAGMA user_version").fetchone()[0] < 3:  # noqa: PLR2004 -- a format, see `schema`
        return ""
    query = "SELECT token FROM generations WHERE since < ? ORDER BY since DESC LIMIT 1"
    found = conn.execute(query, (seq,)).fetchone()
    return str(found[0]) if found else ""
