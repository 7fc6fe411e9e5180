"""The connections to one database's SQLite file: one that writes, in transactions, and any number that read."""

from __future__ import annotations

import os
import sqlite3
import threading
import warnings
import weakref
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from vectorsearch.collection.storage.disk import failpoints, lineage
from vectorsearch.collection.storage.disk.lock import WriterLock, holder_lives
from vectorsearch.collection.storage.disk.log_stamp import header_of, note_beginning, note_other_pages, stamp_change
from vectorsearch.collection.storage.disk.whereabouts import Place
from vectorsearch.collection.storage.errors import DamagedDatabase, DatabaseClosed, DatabaseLocked, ReadOnlyDatabase
from vectorsearch.collection.storage.sqlite.own_log import require_own_log
from vectorsearch.collection.storage.sqlite.pool import ReadPool
from vectorsearch.collection.storage.sqlite.schema import (
    FILE_NAME,
    check_connection,
    connect,
    empty_log,
    holds_database,
    prepare_writer,
    reachable,
    translated,
)
from vectorsearch.collection.storage.sqlite.snapshot import Snapshot
from vectorsearch.collection.storage.sqlite.statements import dim_of, meta_of, seq_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_PARENTS: list[object] = []  # connections that a forked child has let go of and must not close


def _release_dropped(lock: WriterLock, folder: str) -> None:
    """Give the lock of a database back that nobody has closed and nobody can any more."""
    lock.release()
    warnings.warn(f"database {folder!r} was dropped without close(): call it, or use `with`", ResourceWarning, 2)


class Connections:
    """Open a database folder, lend connections to it, and know what was committed last.

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
        self._place = Place(folder)
        self._log = folder / f"{FILE_NAME}-wal"
        self._dropped: weakref.finalize[[WriterLock, str], Connections] | None = None
        self._known_dim: int | None = None  # changes with the first vector, and when all are exchanged
        self._pages: tuple[int, int] | None = None  # of the file as this process left it: nobody else folds a log in
        self._generation: str | None = None  # the token of this opening's changes, once there is one
        self._pool = ReadPool(self._connect_to_read)
        if not read_only:
            with reachable(folder):
                folder.mkdir(parents=True, exist_ok=True)
                self._lock = WriterLock(folder)
            self._dropped = weakref.finalize(self, _release_dropped, self._lock, str(folder))
            self._dropped.atexit = False  # the lock dies with the process
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
            return seq_of(conn)

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

    def mark(self, seq: int) -> str:
        """Return what names the history up to change `seq`; see `lineage`."""
        with self.reading() as conn:
            return f"{self.uuid}:{lineage.token_at(conn, seq)}"

    def meta(self) -> dict[str, str]:
        """Return the settings that were stored with the database."""
        with self.reading() as conn:
            return meta_of(conn)

    def set_meta(self, values: dict[str, str]) -> None:
        """Store settings, all or none."""
        with self.transaction() as conn:
            conn.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

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
                empty_log(self._writer, self.folder)
                note_other_pages(self._writer, begins=not header_of(self._log))
                self._writer.execute("VACUUM")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._note_pages()

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
        """Close every connection and give the writer's lock back; a second call does nothing.

        A forked child only lets go of them: closing would fold the parent's log in, or wait for a thread of the parent.
        """
        if self._dropped is not None:
            self._dropped.detach()
        if self.forked:
            _PARENTS.append((self._pool, self._writer))
            self._pool = ReadPool(self._connect_to_read)
            self._pool.close()
            self._writer, lock, self._lock = None, self._lock, None
            if lock is not None:
                lock.release()
            return
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

    def _connect_to_read(self) -> sqlite3.Connection:
        self._place.require()
        return connect(self.folder, read_only=self.read_only)

    def _open(self, *, durable: bool) -> None:
        if self.read_only:
            require_own_log(self.folder, is_written=holder_lives(self.folder))
            self._place.remember(with_log=False)  # which comes and goes with the writers
            with self._pool.connection() as conn:
                check_connection(conn, self.folder)
            self._seq = 0
        else:
            require_own_log(self.folder)
            self._writer = connect(self.folder, read_only=False, create=True)
            prepare_writer(self._writer, self.folder, durable=durable)
            self._seq = seq_of(self._writer)
            self._place.remember()
            self._note_pages()
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

    def prove_writer(self) -> None:
        """Insist that this object still is the one that writes here, before a file is written beside the documents.

        Raises:
            DatabaseMoved: the folder, the database or its lock isn't what was opened.
            DatabaseLocked: another process has written.
            DatabaseClosed, ReadOnlyDatabase: it may not write at all.
        """
        self.check_writable()
        self._require_place()
        if self._generation is not None:
            with self.reading() as conn:
                self._require_own(lineage.current(conn))

    def _begin_change(self, conn: sqlite3.Connection) -> str | None:
        """Begin this opening's generation, unless it is begun, and return the token of the last one before."""
        before = lineage.current(conn)
        if self._generation is None:
            lineage.begin(conn, self._seq)
        else:
            self._require_own(before)
        return before

    def _require_own(self, generation: str | None) -> None:
        if generation != self._generation:
            raise DatabaseLocked(
                f"another process has written to database {str(self.folder)!r} though this one holds its lock: locks "
                "don't work in this file system, or writer.lock was removed; nothing was written: close it here"
            )

    def _require_place(self) -> None:
        """Insist that the files at their paths are those that were opened: a deleted folder takes writes as well."""
        if self._lock is not None:
            self._lock.prove()
        self._place.require()

    def _note_pages(self) -> None:
        with suppress(OSError):  # gone: the next change tells it
            self._pages = self._place.pages()

    def _require_pages(self) -> None:
        """Insist that nobody has put another copy's bytes into the file: pages of both would be mixed.

        Raises:
            DamagedDatabase: somebody has.
        """
        if self._place.pages() == self._pages:
            return
        with closing(connect(self.folder, read_only=True)) as conn:  # which has read nothing yet
            seq, uuid = seq_of(conn), meta_of(conn).get("uuid")
        if seq < self._seq or uuid != self.uuid:  # one that has more changes is told by its generation
            raise DamagedDatabase(
                f"the documents' file of {str(self.folder)!r} was overwritten while it was open (it is of change "
                f"{seq}, and {self._seq} was the last here): nothing was written; close it, and put a whole copy back"
            )

    @contextmanager
    def transaction(self, *, attach: Path | None = None) -> Iterator[sqlite3.Connection]:
        """Lend the writing connection inside a transaction that is committed at the block's end, or undone.

        `attach` names another SQLite file, whose tables are then those of `attached`. An interrupt that comes with the
        commit is raised though all is committed; what this object knows is read back in every case.
        """
        self.check_writable()
        with self._write_lock, translated(self.folder):
            conn = self._writer
            if conn is None:
                raise DatabaseClosed("the database is closed: open it again")
            if attach is not None:
                conn.execute("ATTACH DATABASE ? AS attached", (str(attach),))
            begun, before = False, None
            try:
                self._require_place()
                self._require_pages()
                conn.execute("BEGIN IMMEDIATE")
                self._seq = seq_of(conn)
                before, begun = self._begin_change(conn), True
                log = header_of(self._log)
                stamp_change(conn, begins=not log)
                yield conn
                failpoints.reach("store.before_commit")
                self._require_place()
                conn.execute("COMMIT")
                failpoints.reach("store.after_commit")
                if log and header_of(self._log) != log:
                    with suppress(sqlite3.OperationalError):  # no room; what was to be stored is
                        note_beginning(conn)
            except BaseException:
                if conn.in_transaction:
                    conn.execute("ROLLBACK")
                raise
            finally:
                if attach is not None:
                    conn.execute("DETACH DATABASE attached")
                self._seq, self._known_dim = seq_of(conn), dim_of(conn)
                self._note_pages()
                if begun and (now := lineage.current(conn)) != before:  # else the change was undone, or began none
                    self._generation = now
