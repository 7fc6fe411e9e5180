"""The document store: one SQLite file, one writer, many readers."""

from __future__ import annotations

from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Literal

from vectorsearch.collection.storage.errors import SpaceChanged
from vectorsearch.collection.storage.mending import require_sound
from vectorsearch.collection.storage.sqlite.connections import Connections
from vectorsearch.collection.storage.sqlite.records import (
    check_dims,
    existing_ids,
    to_document,
    to_records,
    with_metadata,
)
from vectorsearch.collection.storage.sqlite.settings import embed_of
from vectorsearch.collection.storage.sqlite.snapshot import to_batch
from vectorsearch.collection.storage.sqlite.statements import (
    advance,
    delete_rows,
    dim_of,
    insert_rows,
    meta_of,
    select_in,
)
from vectorsearch.collection.storage.sqlite.upgrade import WITH_TRUNCATED
from vectorsearch.types import Written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    import numpy as np
    from numpy.typing import NDArray

    from vectorsearch.collection.storage.sqlite.records import Record
    from vectorsearch.collection.storage.sqlite.snapshot import VectorBatch
    from vectorsearch.types import Document, Metadata

OnConflict = Literal["error", "skip", "replace"]  # of an id that is stored already


class Store(Connections):
    """The documents of one database folder; each write is one transaction. Opened and raised as `Connections`."""

    def write(
        self,
        docs: Sequence[Document],
        *,
        on_conflict: OnConflict = "error",
        made_by: str | None = None,
        truncated: AbstractSet[str] = frozenset(),
    ) -> Written:
        """Store a batch in one transaction and return how many; it is acknowledged once this returns.

        `made_by` is the digest of the model that made the vectors, if it was the database's own, and `truncated` are
        the ids of those documents of which it read the beginning alone.

        Raises:
            SpaceChanged: the database's vectors are of another model by now.
            InvalidInput: a document can't be stored, or its id exists; nothing of the batch was stored.
            StorageFull: the disk is full; nothing of the batch was stored.
        """
        records = [replaced(r, truncated=True) if r.id in truncated else r for r in to_records(docs)]
        return self.write_records(records, on_conflict=on_conflict, made_by=made_by)

    def write_records(
        self, records: Sequence[Record], *, on_conflict: OnConflict = "error", made_by: str | None = None
    ) -> Written:
        """Store a batch that is in the store's form already, as `write` does; no id may be in it twice."""
        with self.transaction() as conn:
            if made_by is not None and not (embed_of(meta_of(conn)) or "").endswith(made_by):
                raise SpaceChanged("the vectors were exchanged for another model's: embed the documents again")
            known = dim_of(conn)
            dim = check_dims(records, known)
            present = dict(select_in(conn, "SELECT id, row FROM documents WHERE id IN", [r.id for r in records]))
            if present and on_conflict == "error":
                raise existing_ids({r.id: row for row, r in enumerate(records) if r.id in present})
            if on_conflict == "skip":
                records = [r for r in records if r.id not in present]
                present = {}
            seq = delete_rows(conn, sorted(present.values()), self._seq)
            seq = insert_rows(conn, records, seq)
            if dim != known:
                conn.execute("INSERT OR REPLACE INTO meta VALUES ('dim', ?)", (str(dim),))
            n_vectors = sum(r.vector is not None for r in records)
            advance(conn, seq, documents=len(records), vectors=n_vectors)
        return Written(len(records), sum(bool(r.truncated) for r in records))

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents in one transaction and return how many there were; unknown ids count for nothing."""
        with self.transaction() as conn:
            found = select_in(conn, "SELECT id, row FROM documents WHERE id IN", ids)
            seq = delete_rows(conn, sorted(row for _, row in found), self._seq)
            advance(conn, seq)
        return len(found)

    def delete_rows(self, rows: Sequence[int]) -> int:
        """Delete the documents of these rows in one transaction, and return how many were still there."""
        with self.transaction() as conn:
            there = select_in(conn, "SELECT row FROM documents WHERE row IN", rows)
            advance(conn, delete_rows(conn, sorted(row for (row,) in there), self._seq))
        return len(there)

    def update_metadata(self, changes: Mapping[str, Metadata], *, replace: bool = False) -> int:
        """Change the metadata of documents by id in one transaction, and return how many there were.

        Their other fields are kept, unless `replace` is set. Texts and vectors stay as they are, and so does a document
        that already is as it would become.

        Raises:
            InvalidInput: metadata that can't be stored; nothing was changed.
            DamagedDatabase: a document isn't what was written: it would get a digest as if it were.
        """
        query = (
            "SELECT d.id, d.row, d.title, d.text, d.metadata, v.vector, d.digest, g.digest, g.truncated "
            "FROM documents d LEFT JOIN vectors v ON v.row = d.row LEFT JOIN vector_digests g ON g.row = d.row "
            "WHERE d.id IN"
        )
        with self.transaction() as conn:
            found = sorted(select_in(conn, query, changes), key=lambda stored: stored[1])
            require_sound(stored[:8] for stored in found)
            made = ((stored, with_metadata(stored[:6], changes[stored[0]], replace=replace)) for stored in found)
            changed = [
                (stored[1], replaced(record, truncated=stored[8]))
                for stored, record in made
                if record.digest != stored[6]
            ]
            if not changed:
                return len(found)
            records = [record for _, record in changed]
            seq = delete_rows(conn, [row for row, _ in changed], self._seq)
            n_vectors = sum(r.vector is not None for r in records)
            advance(conn, insert_rows(conn, records, seq), documents=len(records), vectors=n_vectors)
        return len(found)

    def get(self, ids: Sequence[str], *, vectors: bool = True) -> list[Document | None]:
        """Return documents in the order of `ids`, None where there is none."""
        column, join = ("v.vector", "LEFT JOIN vectors v ON v.row = d.row") if vectors else ("NULL", "")
        query = f"SELECT d.id, d.title, d.text, d.metadata, {column} FROM documents d {join} WHERE d.id IN"  # noqa: S608 -- two constants, no input
        with self.reading() as conn:
            found = {stored[0]: stored for stored in select_in(conn, query, ids)}
        return [to_document(*found[doc_id]) if doc_id in found else None for doc_id in ids]

    def fetch(self, rows: Sequence[int]) -> list[Document | None]:
        """Return documents without vectors in the order of `rows`, None for a row deleted since it was found."""
        query = "SELECT row, id, title, text, metadata FROM documents WHERE row IN"
        with self.reading() as conn:
            found = {stored[0]: stored[1:] for stored in select_in(conn, query, rows)}
        return [to_document(*found[row]) if row in found else None for row in rows]

    def vectors_of(self, rows: NDArray[np.int64]) -> VectorBatch:
        """Return the vectors of `rows` int64[n] that are there, ascending."""
        with self.reading() as conn:
            found = select_in(conn, "SELECT row, vector FROM vectors WHERE row IN", rows.tolist())
        return to_batch(sorted(found))

    def truncated(self) -> tuple[int, int]:
        """Return of how many vectors the embedder read the beginning of a text alone, and of how many nobody knows."""
        with self.reading() as conn:
            if conn.execute("PRAGMA user_version").fetchone()[0] < WITH_TRUNCATED:  # open to read
                return 0, int(conn.execute("SELECT count(*) FROM vectors").fetchone()[0])
            found = conn.execute("SELECT coalesce(sum(truncated), 0), count(*) - count(truncated) FROM vector_digests")
            truncated, unknown = found.fetchone()
        return int(truncated), int(unknown)

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the content digest of each known id, to leave out what is unchanged."""
        with self.reading() as conn:
            found = select_in(conn, "SELECT id, digest FROM documents WHERE id IN", ids)
        return {doc_id: digest.hex() for doc_id, digest in found}
