"""Vectors of another model, collected beside the store until there is one for every document, then exchanged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.sqlite.records import vector_digest
from vectorsearch.collection.storage.sqlite.schema import reachable, translated
from vectorsearch.types import Written, full_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from vectorsearch.collection.storage.sqlite.store import Store

    # Of texts, the vectors float32[n, dim], and bool[n]: whether the model read no more than the beginning.
    Made = tuple[NDArray[np.float32], NDArray[np.bool_]]
    Make = Callable[[list[str]], Made]

FILE_NAME = "new-vectors.sqlite"
_TABLES = """
CREATE TABLE made_by (model TEXT NOT NULL, lineage TEXT NOT NULL);
CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL, digest BLOB NOT NULL, truncated INTEGER NOT NULL);
"""


class NewVectors:
    """A file beside the store's, with vectors by row; what another model has left there is thrown away.

    It survives a kill, so that a run goes on where it was cut off; not where the documents have another history by now,
    in which a row may be of another text.
    """

    def __init__(self, store: Store, made_by: str) -> None:
        self._store = store
        self._folder = store.folder
        self.path = store.folder / FILE_NAME
        if not self._goes_on(made_by):
            self.remove()
            with self._connection() as conn:
                conn.executescript(f"BEGIN; {_TABLES} COMMIT;")
                conn.execute("INSERT INTO made_by VALUES (?, ?)", (made_by, store.mark(0)))
                conn.commit()

    @property
    def last_row(self) -> int:
        """Return the row of the last vector, 0 if there is none."""
        with self._connection() as conn:
            return int(conn.execute("SELECT coalesce(max(row), 0) FROM vectors").fetchone()[0])

    def left(self) -> int:
        """Return how many documents have no vector here yet."""
        with self._store.reading() as conn:
            return int(conn.execute("SELECT count(*) FROM documents WHERE row > ?", (self.last_row,)).fetchone()[0])

    def next_texts(self, n: int) -> list[tuple[int, str]]:
        """Return row and full text of the next `n` documents that have no vector here."""
        query = "SELECT row, title, text FROM documents WHERE row > ? ORDER BY row LIMIT ?"
        with self._store.reading() as conn:
            return [(row, full_text(title, text)) for row, title, text in conn.execute(query, (self.last_row, n))]

    def append(self, rows: Sequence[int], made: Made) -> None:
        """Keep what was made of these rows' texts."""
        with translated(self._folder), self._connection() as conn:
            conn.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", _stored(rows, made))
            conn.execute("UPDATE made_by SET lineage = ?", (self._store.mark(max(rows, default=0)),))
            conn.commit()
        failpoints.reach("new_vectors.after_append")

    def exchange(self, *, meta: dict[str, str], make: Make) -> Written:
        """Put the vectors in the place of the store's, in one transaction, and return how many there are.

        Writers wait meanwhile. Documents that were written since `last_row` are embedded here by
        `make(texts)`. `meta` are the settings to store with them. The dense index must be built again.
        """
        query, since = "SELECT row, title, text FROM documents WHERE row > ? ORDER BY row", self.last_row
        with self._store.transaction(attach=self.path) as conn:
            rest = conn.execute(query, (since,)).fetchall()
            if rest:
                made = make([full_text(title, text) for _, title, text in rest])
                conn.executemany(
                    "INSERT INTO attached.vectors VALUES (?, ?, ?, ?)", _stored([row for row, *_ in rest], made)
                )
            for table, columns in (("vectors", "v.vector"), ("vector_digests", "v.digest, v.truncated")):
                conn.execute(f"DELETE FROM {table}")  # noqa: S608 -- constants, no input
                conn.execute(
                    f"INSERT INTO {table} SELECT v.row, {columns} "  # noqa: S608 -- as above
                    "FROM attached.vectors v JOIN documents d ON d.row = v.row"
                )
            conn.execute("UPDATE state SET seq = seq + 1, vectors = (SELECT count(*) FROM vectors)")
            seq, n = conn.execute("SELECT seq, vectors FROM state").fetchone()
            truncated = conn.execute("SELECT coalesce(sum(truncated), 0) FROM vector_digests").fetchone()[0]
            values = {**meta, "vectors_floor": str(seq)}
            conn.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
        self.remove()
        return Written(n, truncated)

    def remove(self) -> None:
        """Delete the file, if there is one."""
        with reachable(self._folder):
            for suffix in ("", "-journal", "-wal", "-shm"):
                self.path.with_name(FILE_NAME + suffix).unlink(missing_ok=True)

    def _goes_on(self, made_by: str) -> bool:
        """Tell whether what is there is of this model, and of the documents that the store has."""
        if not self.path.exists():
            return False
        try:
            with self._connection() as conn:
                found = conn.execute("SELECT model, lineage FROM made_by").fetchone()
                conn.execute("SELECT truncated FROM vectors LIMIT 1")  # else of an earlier format
            return bool(found == (made_by, self._store.mark(self.last_row)))
        except sqlite3.DatabaseError:  # cut off while it was made, damaged, or of an earlier format: it is only a cache
            return False

    def _connection(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(self.path))


def _stored(rows: Sequence[int], made: Made) -> Iterator[tuple[int, bytes, bytes, bool]]:
    for row, vector, truncated in zip(rows, *made, strict=True):
        blob = vector.astype("<f4").tobytes()
        yield row, blob, vector_digest(row, blob), bool(truncated)
