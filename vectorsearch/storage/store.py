"""The document store: one SQLite file, one writer, many readers."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from vectorsearch.storage import failpoints
from vectorsearch.storage.errors import DatabaseClosed, DatabaseLocked, ReadOnlyDatabase, SpaceChanged
from vectorsearch.storage.lock import WriterLock
from vectorsearch.storage.pool import ReadPool
from vectorsearch.storage.records import (
    check_dims,
    existing_ids,
    to_document,
    to_records,
    with_metadata,
)
from vectorsearch.storage.schema import check_connection, connect, holds_database, prepare_writer, reachable, translated
from vectorsearch.storage.settings import embed_of
from vectorsearch.storage.snapshot import Snapshot, to_batch
from vectorsearch.storage.statements import advance, delete_rows, dim_of, insert_rows, meta_of, select_in

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from vectorsearch.storage.snapshot import VectorBatch
    from vectorsearch.types import Document, Metadata

OnConflict = Literal["error", "skip", "replace"]  # of an id that is stored already


class Store:
    """The documents of one database folder.

    Threads may share it. Reads take a connection of their own and no lock; writes are one at a time.

    Raises:
        NotADatabase: the folder holds something else.
        NewerFormat: a later release made it.
        DatabaseLocked: another handle may write to it.
    """

    def __init__(self, folder: Path, *, read_only: bool = False, durable: bool = True) -> None:
        folder = folder.absolute()  # connections and index files are opened later, maybe from another current folder
        with reachable(folder):
            holds_database(folder, read_only=read_only)
        self.folder = folder
        self.read_only = read_only
        self._process = os.getpid()
        self._write_lock = threading.Lock()  # one transaction at a time; taken before nothing else of this object
        self._writer: sqlite3.Connection | None = None
        self._lock: WriterLock | None = None
        self._known_dim: int | None = None  # changes with the first vector, and when all are exchanged
        self._pool = ReadPool(lambda: connect(folder, read_only=read_only))
        if not read_only:
            with reachable(folder):
                folder.mkdir(parents=True, exist_ok=True)
                self._lock = WriterLock(folder)
        try:
            with translated(folder):
                self._open(durable=durable)
        except BaseException:
            self.close()
            raise

    @property
    def seq(self) -> int:
        """Return the number of the last committed change.

        Raises:
            DatabaseClosed: after `close()`.
        """
        if not self.read_only and not self.closed:
            return self._seq  # this process is the only writer, so no query is needed
        with self.reading() as conn:
            return int(conn.execute("SELECT seq FROM state").fetchone()[0])

    @property
    def closed(self) -> bool:
        """Tell whether `close` was called."""
        return self._pool.closed

    @property
    def forked(self) -> bool:
        """Tell whether this process got the store by a fork: its parent goes on writing, unaware of it."""
        return os.getpid() != self._process

    @property
    def dim(self) -> int | None:
        """Return the length of the vectors, None until there is one."""
        if self._known_dim is None:
            with self.reading() as conn:
                self._known_dim = dim_of(conn)
        return self._known_dim

    def meta(self) -> dict[str, str]:
        """Return the settings that were stored with the database."""
        with self.reading() as conn:
            return meta_of(conn)

    def set_meta(self, values: dict[str, str]) -> None:
        """Store settings, all or none."""
        with self.transaction() as conn:
            conn.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def write(self, docs: Sequence[Document], *, on_conflict: OnConflict = "error", made_by: str | None = None) -> int:
        """Store a batch in one transaction and return how many; it is acknowledged once this returns.

        `made_by` is the digest of the model that made the vectors, if it was the database's own.

        Raises:
            SpaceChanged: the database's vectors are of another model by now.
            InvalidInput: a document can't be stored, or its id exists; nothing of the batch was stored.
            StorageFull: the disk is full; nothing of the batch was stored.
        """
        records = to_records(docs)
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
        return len(records)

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

        Their other fields are kept, unless `replace` is set. Texts and vectors stay as they are.

        Raises:
            InvalidInput: metadata that can't be stored; nothing was changed.
        """
        query = (
            "SELECT d.id, d.row, d.title, d.text, d.metadata, v.vector "
            "FROM documents d LEFT JOIN vectors v ON v.row = d.row WHERE d.id IN"
        )
        with self.transaction() as conn:
            found = sorted(select_in(conn, query, changes), key=lambda stored: stored[1])
            records = [with_metadata(stored, changes[stored[0]], replace=replace) for stored in found]
            seq = delete_rows(conn, [stored[1] for stored in found], self._seq)
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

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the content digest of each known id, to leave out what is unchanged."""
        with self.reading() as conn:
            found = select_in(conn, "SELECT id, digest FROM documents WHERE id IN", ids)
        return {doc_id: digest.hex() for doc_id, digest in found}

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a read connection for the length of a `with` block, for what looks after the store."""
        with translated(self.folder), self._pool.connection() as conn:
            yield conn

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open one consistent view of the whole store for the length of a `with` block."""
        with self.reading() as conn:
            yield Snapshot(conn)

    def vacuum(self) -> None:
        """Give the room of what was deleted back to the disk; writers wait meanwhile.

        Raises:
            StorageFull: there is no room for the second copy that it makes; nothing has changed.
        """
        self.check_writable()
        with self._write_lock, translated(self.folder):
            if self._writer is not None:
                self._writer.execute("VACUUM")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def trim(self) -> None:
        """Give back the memory of pages that were read or written, of every connection that nobody uses now."""
        self._pool.trim()
        if self._write_lock.acquire(blocking=False):
            try:
                if self._writer is not None:
                    self._writer.execute("PRAGMA shrink_memory")
            finally:
                self._write_lock.release()

    def close(self) -> None:
        """Close every connection and give the writer's lock back; a second call does nothing."""
        self._pool.close()
        with self._write_lock:
            writer, self._writer = self._writer, None
            lock, self._lock = self._lock, None
        try:
            if writer is not None:
                writer.close()  # the last connection moves the log into the file
        finally:
            if lock is not None:
                lock.release()

    def _open(self, *, durable: bool) -> None:
        if self.read_only:
            with self._pool.connection() as conn:
                check_connection(conn, self.folder)
            self._seq = 0
        else:
            self._writer = connect(self.folder, read_only=False)
            prepare_writer(self._writer, self.folder, durable=durable)
            self._seq = int(self._writer.execute("SELECT seq FROM state").fetchone()[0])
        self.uuid = self.meta()["uuid"]

    def check_writable(self) -> None:
        """Raise if no write can succeed.

        Raises:
            DatabaseClosed: after `close()`.
            ReadOnlyDatabase: it was opened with `read_only`.
            DatabaseLocked: this process was forked from the one that opened it.
        """
        if self.read_only:
            raise ReadOnlyDatabase(f"database {str(self.folder)!r} is open read-only: open it without read_only")
        if self.closed:
            raise DatabaseClosed("the database is closed: open it again")
        if self.forked:
            raise DatabaseLocked(
                f"database {str(self.folder)!r} is open for writing in process {self._process}, which this one was "
                "forked from: write there, or open it here with read_only=True"
            )

    @contextmanager
    def transaction(self, *, attach: Path | None = None) -> Iterator[sqlite3.Connection]:
        """Lend the writing connection inside a transaction that is committed at the block's end, or undone.

        `attach` names another SQLite file, whose tables are then those of `attached`.
        """
        self.check_writable()
        with self._write_lock, translated(self.folder):
            conn = self._writer
            if conn is None:
                raise DatabaseClosed("the database is closed: open it again")
            if attach is not None:
                conn.execute("ATTACH DATABASE ? AS attached", (str(attach),))
            conn.execute("BEGIN IMMEDIATE")
            try:
                yield conn
                failpoints.reach("store.before_commit")
                conn.execute("COMMIT")
            except BaseException:
                if conn.in_transaction:
                    conn.execute("ROLLBACK")
                raise
            finally:
                if attach is not None:
                    conn.execute("DETACH DATABASE attached")
            self._seq = int(conn.execute("SELECT seq FROM state").fetchone()[0])
            self._known_dim = dim_of(conn)
            failpoints.reach("store.after_commit")
