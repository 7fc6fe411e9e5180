"""The statements that change and find rows, inside a transaction of the store's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.errors import InvalidInput
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.sqlite.records import vector_digest

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from vectorsearch.collection.storage.sqlite.records import Record

_VARIABLES = 500  # per statement; SQLite's own limit is 999 in older builds


def insert_rows(conn: sqlite3.Connection, records: Sequence[Record], seq: int) -> int:
    """Insert records as rows after `seq`, and return the last one's number."""
    numbered = list(enumerate(records, start=seq + 1))
    conn.executemany(
        "INSERT INTO documents (row, id, digest, title, metadata, text) VALUES (?, ?, ?, ?, ?, ?)",
        ((row, r.id, r.digest, r.title, r.metadata, r.text) for row, r in numbered),
    )
    failpoints.reach("store.after_documents")
    vectors = [(row, r.vector, r.truncated) for row, r in numbered if r.vector is not None]
    conn.executemany("INSERT INTO vectors VALUES (?, ?)", ((row, blob) for row, blob, _ in vectors))
    conn.executemany(
        "INSERT INTO vector_digests VALUES (?, ?, ?)",
        ((row, vector_digest(row, blob), truncated) for row, blob, truncated in vectors),
    )
    return seq + len(records)


def delete_rows(conn: sqlite3.Connection, rows: Sequence[int], seq: int) -> int:
    """Delete rows, each under a number of its own after `seq`, and return the last number."""
    for row in rows:
        seq += 1
        conn.execute("INSERT INTO deletions VALUES (?, ?)", (seq, row))
        conn.execute("DELETE FROM documents WHERE row = ?", (row,))
        had_vector = conn.execute("DELETE FROM vectors WHERE row = ?", (row,)).rowcount
        conn.execute("DELETE FROM vector_digests WHERE row = ?", (row,))
        conn.execute("UPDATE state SET documents = documents - 1, vectors = vectors - ?", (had_vector,))
    failpoints.reach("store.after_delete")
    return seq


def advance(conn: sqlite3.Connection, seq: int, *, documents: int = 0, vectors: int = 0) -> None:
    """Set the number of the last change, and add to the counts."""
    conn.execute(
        "UPDATE state SET seq = ?, documents = documents + ?, vectors = vectors + ?", (seq, documents, vectors)
    )


def seq_of(conn: sqlite3.Connection) -> int:
    """Return the number of the last change."""
    return int(conn.execute("SELECT seq FROM state").fetchone()[0])


def dim_of(conn: sqlite3.Connection) -> int | None:
    """Return the length of the vectors, None until there is one."""
    stored = conn.execute("SELECT value FROM meta WHERE key = 'dim'").fetchone()
    return int(stored[0]) if stored else None


def meta_of(conn: sqlite3.Connection) -> dict[str, str]:
    """Return the settings that were stored with the database."""
    return dict(conn.execute("SELECT key, value FROM meta").fetchall())


def select_in(conn: sqlite3.Connection, query: str, values: Iterable[str | int]) -> list[tuple]:  # type: ignore[type-arg]  # rows of the query's own columns
    """Run a query that ends in IN for any number of values, each of which counts once.

    Raises:
        InvalidInput: a value is not valid Unicode.
    """
    wanted = list(dict.fromkeys(values))  # a value in two chunks would find its row twice
    found: list[tuple] = []  # type: ignore[type-arg]  # as above
    for start in range(0, len(wanted), _VARIABLES):
        chunk = wanted[start : start + _VARIABLES]
        try:
            found += conn.execute(f"{query} ({','.join('?' * len(chunk))})", chunk).fetchall()
        except UnicodeEncodeError as exc:
            raise InvalidInput(f"an id is not valid Unicode ({exc.reason}): {exc.object!r}") from exc
    return found
