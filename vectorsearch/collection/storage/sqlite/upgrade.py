"""Bring a database of an earlier format to this one, in steps that a killed run's successor goes on with."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vectorsearch.collection.storage.disk import failpoints, lineage, log_stamp
from vectorsearch.collection.storage.sqlite.records import vector_digest

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from pathlib import Path

VECTOR_DIGESTS = "CREATE TABLE vector_digests (row INTEGER PRIMARY KEY, digest BLOB NOT NULL, truncated INTEGER)"
_STAMPS = tuple(f"ALTER TABLE state ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0" for name in log_stamp.COLUMNS)
_TRUNCATED = "ALTER TABLE vector_digests ADD COLUMN truncated INTEGER"  # null: the embedder wasn't asked, so not known
WITH_DIGESTS = 3  # the format since which each vector has its digest
WITH_TRUNCATED = 4  # and since which it says whether the embedder read the beginning alone
_CHUNK_ROWS = 4096
_FROM = "upgraded_from"
_LEFT = "vectors_to_vouch_for"  # the last row whose vector has its digest; gone when all have

_log = logging.getLogger(__name__)


def upgrade(conn: sqlite3.Connection, folder: Path, new_format: int) -> None:
    """Make what formats 1 to 4 lack, then vouch for the vectors that are there, some thousand at a time.

    Nothing that was stored is changed. The first step raises the format: an earlier release refuses the file from then
    on. The settings say from which format it came, and `info()` does.
    """
    version = conn.execute("PRAGMA user_version").fetchone()[0]
    if version < new_format:
        _log.warning("database %r is upgraded from format %d to %d", str(folder), version, new_format)
        conn.execute("BEGIN IMMEDIATE")
        if version < WITH_DIGESTS:
            conn.execute(lineage.TABLES)
            conn.execute(VECTOR_DIGESTS)
            lineage.begin(conn, 0)
            conn.execute("INSERT OR REPLACE INTO meta VALUES (?, '0')", (_LEFT,))
        elif version < WITH_TRUNCATED:
            conn.execute(_TRUNCATED)
        for statement in _STAMPS:
            conn.execute(statement)
        conn.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (_FROM, str(version)))
        conn.execute(f"PRAGMA user_version = {new_format}")
        failpoints.reach("upgrade.before_commit")
        conn.execute("COMMIT")
        failpoints.reach("upgrade.after_tables")
    while _vouch(conn):
        failpoints.reach("upgrade.after_vectors")


def upgraded_from(meta: Mapping[str, str]) -> dict[str, int]:
    """Return the format that a database was made with, by a name for `info()`, if that was an earlier one."""
    return {_FROM: int(meta[_FROM])} if _FROM in meta else {}


def _vouch(conn: sqlite3.Connection) -> bool:
    """Vouch for the next vectors, and tell whether there were any left to vouch for."""
    left = conn.execute("SELECT value FROM meta WHERE key = ?", (_LEFT,)).fetchone()
    if left is None:
        return False
    conn.execute("BEGIN IMMEDIATE")
    query = "SELECT row, vector FROM vectors WHERE row > ? ORDER BY row LIMIT ?"
    found = conn.execute(query, (int(left[0]), _CHUNK_ROWS)).fetchall()
    digests = ((row, vector_digest(row, blob)) for row, blob in found)
    conn.executemany("INSERT OR REPLACE INTO vector_digests (row, digest) VALUES (?, ?)", digests)
    if found:
        conn.execute("UPDATE meta SET value = ? WHERE key = ?", (str(found[-1][0]), _LEFT))
    else:
        conn.execute("DELETE FROM meta WHERE key = ?", (_LEFT,))
    failpoints.reach("upgrade.before_commit")
    conn.execute("COMMIT")
    return bool(found)
