"""What the document store can raise."""

from __future__ import annotations

from backends.errors import InvalidInput, VectorSearchError


class StoreError(VectorSearchError):
    """The database can't be opened, read or written; the message names it and the next step."""


class NotADatabase(StoreError):
    """The path holds something else than a database; nothing was created in it."""


class NewerFormat(StoreError):
    """A later release wrote this database; this one can't read it and has changed nothing."""


class DatabaseLocked(StoreError):
    """Another process, or another handle in this one, has the database open for writing."""


class DatabaseMoved(StoreError):
    """The database was deleted, moved or replaced while it was open; nothing was written."""


class DatabaseClosed(StoreError):
    """The database was used after `close()`."""


class ReadOnlyDatabase(StoreError):
    """A write was asked of a database that is open with `read_only=True`, or that this process may only read."""


class SettingsMismatch(StoreError):
    """The database was made with other settings than it is opened with; the message names both values."""


class SpaceChanged(StoreError):
    """The vectors to be written are of a model whose vectors were exchanged for another's meanwhile; embed again."""


class StorageFull(StoreError):
    """No room is left on the disk; the write was undone and everything acknowledged before it is kept."""


class IndexUnwritable(StoreError):
    """A derived index can't be written to disk; no document is lost, and the index is built again when needed."""


class DamagedDatabase(StoreError):
    """The document store itself is damaged: SQLite can't read it."""


class DuplicateId(InvalidInput):
    """An id is in the batch twice, or already in the database; the whole batch was left out."""


class DimensionMismatch(InvalidInput):
    """A vector has another length than the vectors of this database."""


class NonFiniteVector(InvalidInput):
    """A vector holds NaN or infinity; the message names the row and the id."""
