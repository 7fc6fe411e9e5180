"""Vectors of another model, collected beside the store until there is one for every document, then exchanged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from vectorsearch.storage import failpoints
from vectorsearch.storage.schema import reachable, translated
from vectorsearch.types import full_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from vectorsearch.storage.store import Store

    Make = Callable[[list[str]], NDArray[np.float32]]

FILE_NAME = "new-vectors.sqlite"
_TABLES = """
CREATE TABLE made_by (model TEXT NOT NULL);
CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);
"""


class NewVectors:
    """A file beside the store's, with vectors by row; what another model has left there is thrown away.

    It survives a kill, so that a run goes on where it was cut off.
    """

    def __init__(self, store: Store, made_by: str) -> None:
        self._store = store
        self._folder = store.folder
        self.path = store.folder / FILE_NAME
        if self._model() != made_by:
            self.remove()
            with self._connection() as conn:
                conn.executescript(f"BEGIN; {_TABLES} COMMIT;")
                conn.execute("INSERT INTO made_by VALUES (?)", (made_by,))
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

    def append(self, rows: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Keep vectors float32[n, dim] of these rows."""
        blobs = (vector.astype("<f4").tobytes() for vector in vectors)
        with translated(self._folder), self._connection() as conn:
            conn.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", zip(rows, blobs, strict=True))
            conn.commit()
        failpoints.reach("new_vectors.after_append")

    def exchange(self, *, meta: dict[str, str], make: Make) -> int:
        """Put the vectors in the place of the store's, in one transaction, and return how many there are.

        Writers wait meanwhile. Documents that were written since `last_row` are embedded here: `make(texts)` gives
        float32[n, dim]. `meta` are the settings to store with them. The dense index must be built again.
        """
        query, since = "SELECT row, title, text FROM documents WHERE row > ? ORDER BY row", self.last_row
        with self._store.transaction(attach=self.path) as conn:
            rest = conn.execute(query, (since,)).fetchall()
            if rest:
                vectors = make([full_text(title, text) for _, title, text in rest])
                blobs = (vector.astype("<f4").tobytes() for vector in vectors)
                conn.executemany(
                    "INSERT INTO attached.vectors VALUES (?, ?)",
                    ((row, blob) for (row, *_), blob in zip(rest, blobs, strict=True)),
                )
            conn.execute("DELETE FROM vectors")
            conn.execute(
                "INSERT INTO vectors SELECT v.row, v.vector FROM attached.vectors v JOIN documents d ON d.row = v.row"
            )
            conn.execute("UPDATE state SET seq = seq + 1, vectors = (SELECT count(*) FROM vectors)")
            seq, n = conn.execute("SELECT seq, vectors FROM state").fetchone()
            values = {**meta, "vectors_floor": str(seq)}
            conn.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
            conn.execute("PRAGMA user_version = 2")
        self.remove()
        return int(n)

    def remove(self) -> None:
        """Delete the file, if there is one."""
        with reachable(self._folder):
            for suffix in ("", "-journal", "-wal", "-shm"):
                self.path.with_name(FILE_NAME + suffix).unlink(missing_ok=True)

    def _model(self) -> str | None:
        if not self.path.exists():
            return None
        try:
            with self._connection() as conn:
                (model,) = conn.execute("SELECT model FROM made_by").fetchone()
        except (sqlite3.DatabaseError, TypeError):  # cut off while it was made, or damaged: it is only a cache
            return None
        return str(model)

    def _connection(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(self.path))
