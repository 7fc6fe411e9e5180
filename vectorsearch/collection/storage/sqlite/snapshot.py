"""One consistent view of the store, for what reads much of it: index builds and iteration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vectorsearch.collection.storage.sqlite.records import to_document
from vectorsearch.types import full_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from vectorsearch.types import Document, Metadata

_BATCH_ROWS = 4096
_TEXT_BATCH_ROWS = 1000


class IndexedText(NamedTuple):
    """What a lexical index needs of one document."""

    row: int
    title: str
    text: str  # the title included, as in `Document.full_text`
    metadata: Metadata
    mark: int  # what an index keeps to tell of which content it knows the row, see `mark_of`


class VectorBatch(NamedTuple):
    """Vectors by row: `rows` int64[n] ascending, `vectors` float32[n, dim] as they were given."""

    rows: NDArray[np.int64]
    vectors: NDArray[np.float32]


def to_batch(stored: Sequence[tuple[int, bytes]]) -> VectorBatch:
    """Return stored (row, vector) pairs as arrays."""
    rows = np.fromiter((row for row, _ in stored), dtype=np.int64, count=len(stored))
    flat = np.frombuffer(b"".join(blob for _, blob in stored), dtype="<f4")
    return VectorBatch(rows, flat.reshape(len(stored), -1 if stored else 0))


def mark_of(digest: bytes) -> int:
    """Return the first 8 bytes of a document's digest as a number, 0 for one that was given up as damaged."""
    return int.from_bytes(digest[:8], "little")


def _indexed(row: int, title: str, metadata: str, text: str, digest: bytes) -> IndexedText:
    plain = json.loads(metadata) if metadata != "{}" else {}
    return IndexedText(row, title, full_text(title, text), plain, mark_of(digest))


class Snapshot:
    """The store as one read transaction sees it: nothing committed later appears, and no writer waits for it."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        conn.execute("BEGIN")
        self._conn = conn
        self.seq, self.documents, self.n_vectors = conn.execute("SELECT seq, documents, vectors FROM state").fetchone()

    @property
    def floor(self) -> int:
        """Return the change up to which deletions are forgotten: an index that has seen less must be built again."""
        return self._floor("floor")

    @property
    def vectors_floor(self) -> int:
        """Return the same for what holds vectors: all of them may have been exchanged by a later change."""
        return max(self.floor, self._floor("vectors_floor"))

    def _floor(self, key: str) -> int:
        stored = self._conn.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return int(stored[0]) if stored else 0

    def deleted_after(self, since: int) -> NDArray[np.int64]:
        """Return the rows deleted after sequence number `since`, ascending."""
        found = self._conn.execute("SELECT row FROM deletions WHERE seq > ?", (since,))
        return np.sort(np.fromiter((row for (row,) in found), dtype=np.int64))

    def inserted_after(self, since: int) -> int:
        """Return how many rows were inserted after `since`, those deleted again included."""
        if since == 0:
            return int(self.documents)
        # Every number went to an insertion or a deletion, so no table of texts needs counting.
        (deletions,) = self._conn.execute("SELECT count(*) FROM deletions WHERE seq > ?", (since,)).fetchone()
        return int(self.seq - since - deletions)

    def vectors(self, since: int) -> Iterator[VectorBatch]:
        """Yield the live vectors inserted after `since`, by row."""
        cursor = self._conn.execute("SELECT row, vector FROM vectors WHERE row > ? ORDER BY row", (since,))
        while batch := cursor.fetchmany(_BATCH_ROWS):
            yield to_batch(batch)

    def texts(self, since: int) -> Iterator[list[IndexedText]]:
        """Yield what the lexical indexes need of the live documents inserted after `since`, by row."""
        query = "SELECT row, title, metadata, text, digest FROM documents WHERE row > ? ORDER BY row"
        cursor = self._conn.execute(query, (since,))
        while batch := cursor.fetchmany(_TEXT_BATCH_ROWS):
            yield [_indexed(*stored) for stored in batch]

    def marks(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the live rows int64[n], ascending, and the mark of each, uint64[n]."""
        found = self._conn.execute("SELECT row, digest FROM documents ORDER BY row").fetchall()
        rows = np.fromiter((row for row, _ in found), np.int64, len(found))
        return rows, np.fromiter((mark_of(digest) for _, digest in found), np.uint64, len(found))

    def vector_rows(self) -> NDArray[np.int64]:
        """Return the rows int64[n] that have vectors, ascending."""
        found = self._conn.execute("SELECT row FROM vectors ORDER BY row")
        return np.fromiter((row for (row,) in found), np.int64)

    def iter(self, *, vectors: bool) -> Iterator[Document]:
        """Yield every live document, in the order of insertion."""
        column, join = ("v.vector", "LEFT JOIN vectors v ON v.row = d.row") if vectors else ("NULL", "")
        query = f"SELECT d.id, d.title, d.text, d.metadata, {column} FROM documents d {join} ORDER BY d.row"  # noqa: S608 -- two constants, no input
        for stored in self._conn.execute(query):
            yield to_document(*stored)
