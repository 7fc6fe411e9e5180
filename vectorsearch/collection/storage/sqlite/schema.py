"""The database file: its tables, its format number, and how a connection to it is set up."""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from backends.errors import InvalidInput
from vectorsearch.collection.storage.disk import lineage
from vectorsearch.collection.storage.disk.lock import LOCK_NAME
from vectorsearch.collection.storage.disk.log_stamp import header_of, stamp_copy
from vectorsearch.collection.storage.errors import (
    DamagedDatabase,
    NewerFormat,
    NotADatabase,
    ReadOnlyDatabase,
    StorageFull,
    StoreError,
)
from vectorsearch.collection.storage.sqlite.upgrade import VECTOR_DIGESTS, upgrade

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What this release writes, and brings earlier ones to. 2 was 1 with deletions forgotten; 3 knows its generations, and
# has a digest of each vector; 4 knows of each vector whether the embedder read the whole text; 5 knows its log.
FORMAT = 5
FILE_NAME = "documents.sqlite"
_APPLICATION_ID = 0x56534442  # "VSDB", at byte 68 of the file, so that `file` and we know it without opening it
_KEPT = "nothing of an unfinished write was kept, and everything before it was"
_MAGIC = b"SQLite format 3\x00"
_HEADER_NBYTES = 100
_PAGE_NBYTES = 8192  # five vectors of 384 dimensions to a page; SQLite's default would hold two and waste a quarter

# `row` is the sequence number of the insertion. An upsert deletes the row and inserts another, and a deletion takes a
# number of the same counter, so whatever is derived from this file catches up from one number by two range scans.
# Vectors have their own table: they stream into an index without dragging the texts through the page cache.
_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL, documents INTEGER NOT NULL, vectors INTEGER NOT NULL,
    stamp INTEGER NOT NULL, log_after INTEGER NOT NULL, log_from INTEGER NOT NULL
);
CREATE TABLE documents (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, digest BLOB NOT NULL,
    title TEXT NOT NULL, metadata TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE deletions (seq INTEGER PRIMARY KEY, row INTEGER NOT NULL);
{lineage.TABLES};
{VECTOR_DIGESTS};
INSERT INTO state VALUES (1, 0, 0, 0, 0, 0, 0);
-- Ties the derived files to this database: those of a folder with other documents don't fit.
INSERT INTO meta VALUES ('uuid', lower(hex(randomblob(16))));
"""  # noqa: S608 -- two constants, no input


@contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Turn SQLite's errors into this project's, naming the database."""
    try:
        yield
    except sqlite3.ProgrammingError:  # a mistake in this package, not in the file
        raise
    except sqlite3.DatabaseError as exc:
        where = f"database {str(folder)!r}"
        if not hasattr(exc, "sqlite_errorcode"):  # Python's own: what is stored as text isn't any
            raise DamagedDatabase(f"{where} is damaged ({exc}): `vectorsearch repair` names the document") from exc
        code = exc.sqlite_errorcode & 0xFF  # the rest tells which system call
        if code == sqlite3.SQLITE_FULL:
            raise StorageFull(f"no room left for {where}: free disk space and write again; {_KEPT}") from exc
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise DamagedDatabase(f"{where} is damaged ({exc}): restore it from a snapshot") from exc
        raise StoreError(
            f"{where} can't be read or written ({exc}): check the disk and the permissions; {_KEPT}"
        ) from exc


@contextmanager
def reachable(folder: Path) -> Iterator[None]:
    """Turn what the file system says of a path that can't be used into this project's errors.

    Raises:
        ReadOnlyDatabase: this process may not write there.
        StoreError: it is no usable path.
    """
    try:
        yield
    except PermissionError as exc:
        raise ReadOnlyDatabase(
            f"database {str(folder)!r} can't be opened for writing ({exc.strerror}): change the folder's permissions, "
            "or open it with read_only=True"
        ) from exc
    except (OSError, ValueError) as exc:  # ValueError: a path with NUL or a lone surrogate
        if getattr(exc, "errno", None) == errno.EROFS:
            raise ReadOnlyDatabase(
                f"database {str(folder)!r} is on read-only media: open it with read_only=True"
            ) from exc
        raise StoreError(f"database {str(folder)!r} can't be opened ({exc}): check the path") from exc


def require_outside(folder: Path) -> None:
    """Insist that a new folder doesn't lie within a database, where it would pass for a part of that.

    Raises:
        InvalidInput: it does.
    """
    if within := next((above for above in folder.resolve().parents if (above / FILE_NAME).exists()), None):
        raise InvalidInput(f"{str(folder)!r} lies within the database {str(within)!r}: name a folder outside of it")


def holds_database(folder: Path, *, read_only: bool) -> bool:
    """Tell whether `folder` holds a database; False if one may be made there. Creates and changes nothing.

    Raises:
        NotADatabase: something else is there, or nothing is and `read_only` is set.
        NewerFormat: a later release made it.
        DamagedDatabase: its file is empty, and others lie beside it.
    """
    path = folder / FILE_NAME
    if folder.exists() and not folder.is_dir():
        raise NotADatabase(f"{str(folder)!r} is a file, and a database is a folder: name a folder")
    if not path.exists():
        if foreign := _beside(folder):
            raise NotADatabase(f"{str(folder)!r} is no database: it holds {foreign[0]!r}: name a new or empty folder")
        if read_only:
            raise NotADatabase(f"no database at {str(folder)!r}: check the path, or open it without read_only")
        return False
    with path.open("rb") as file:
        header = file.read(_HEADER_NBYTES)
    if not header:  # killed between creating the file and its first page, before anything else was made
        if beside := _beside(folder):
            raise DamagedDatabase(
                f"{str(path)!r} is empty, and {beside[0]!r} lies beside it: the documents are lost; restore it from a "
                "snapshot"
            )
        return False
    if len(header) < _HEADER_NBYTES or not header.startswith(_MAGIC):
        raise NotADatabase(f"{str(path)!r} is not an SQLite file: restore it from a snapshot, or name another folder")
    version, application_id = struct.unpack(">4xI4xI", header[56:72])
    _check_identity(folder, application_id, version)
    return True


def _beside(folder: Path) -> list[str]:
    """Return what lies in a folder, besides what is made first there: the lock, the database file and SQLite's own."""
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    return [name for name in names if name != LOCK_NAME and not name.startswith(FILE_NAME)]


def connect(folder: Path, *, read_only: bool, create: bool = False) -> sqlite3.Connection:
    """Open a connection that any thread may use, one at a time; with `create`, the file is made if there is none."""
    path = folder / FILE_NAME
    mode = "mode=ro" if read_only else "mode=rwc" if create else "mode=rw"
    if read_only and not os.access(folder, os.W_OK) and not path.with_name(f"{FILE_NAME}-wal").exists():
        mode = "immutable=1"  # on read-only media SQLite can't make the file that readers and a writer share
    uri = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)


def connect_alone(folder: Path) -> sqlite3.Connection:
    """Open a connection that reads the file as it lies there, and not what its log adds."""
    return sqlite3.connect(f"{(folder / FILE_NAME).absolute().as_uri()}?immutable=1", uri=True, isolation_level=None)


def empty_log(conn: sqlite3.Connection, folder: Path) -> None:
    """Fold the log in and empty it, if nobody reads what was there before; else as much as can be."""
    if header_of(folder / f"{FILE_NAME}-wal"):
        (waits_ms,) = conn.execute("PRAGMA busy_timeout").fetchone()
        conn.execute("PRAGMA busy_timeout = 0")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        conn.execute(f"PRAGMA busy_timeout = {waits_ms}")


def prepare_writer(conn: sqlite3.Connection, folder: Path, *, durable: bool) -> None:
    """Make the tables if there are none, and set the connection up for acknowledged writes."""
    new = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not new:
        check_connection(conn, folder)  # before any of the below could change another application's file
    conn.execute(f"PRAGMA page_size = {_PAGE_NBYTES}")
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
    conn.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone leaves the write in the drive's cache
    conn.execute("PRAGMA checkpoint_fullfsync = ON")
    conn.execute("PRAGMA journal_size_limit = 67108864")
    if new:
        script = f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
        conn.executescript(f"BEGIN IMMEDIATE; {script} {_TABLES} COMMIT;")
        stamp_copy(conn)
        # Moves the identity from the log into the file's first page, where `holds_database` reads it.
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        upgrade(conn, folder, FORMAT)
        empty_log(conn, folder)


def read_meta(folder: Path) -> dict[str, str]:
    """Return the stored settings of the database in `folder`; none if its creation was cut off.

    Raises:
        NotADatabase, NewerFormat: as `check_connection`.
    """
    with translated(folder), closing(connect(folder, read_only=True)) as conn:
        if conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            return {}
        check_connection(conn, folder)
        return dict(conn.execute("SELECT key, value FROM meta").fetchall())


def count_documents(folder: Path) -> int:
    """Return how many documents the database in `folder` holds; 0 if there is none, or its creation was cut off."""
    if not (folder / FILE_NAME).exists() or not read_meta(folder):
        return 0
    with translated(folder), closing(connect(folder, read_only=True)) as conn:
        return int(conn.execute("SELECT documents FROM state").fetchone()[0])


def check_connection(conn: sqlite3.Connection, folder: Path) -> None:
    """Check the identity as SQLite sees it, its log included.

    Raises:
        NotADatabase: another application's file.
        NewerFormat: a later release made it.
    """
    application_id = conn.execute("PRAGMA application_id").fetchone()[0]
    version = conn.execute("PRAGMA user_version").fetchone()[0]
    _check_identity(folder, application_id, version)
    if application_id != _APPLICATION_ID:
        raise NotADatabase(f"no finished database at {str(folder)!r}: open it for writing once, or check the path")


def _check_identity(folder: Path, application_id: int, version: int) -> None:
    # Zero is a file whose creation was cut off before its first transaction; SQLite then shows no tables in it.
    if application_id not in (0, _APPLICATION_ID):
        raise NotADatabase(f"{str(folder)!r} holds another application's SQLite file: name another folder")
    if application_id and version > FORMAT:
        raise NewerFormat(
            f"database {str(folder)!r} has format {version}, this release reads up to {FORMAT}: upgrade vectorsearch"
        )
