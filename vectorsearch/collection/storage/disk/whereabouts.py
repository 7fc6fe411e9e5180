"""Where a database lies: the files that were opened must be those at their paths, or what is written goes astray."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vectorsearch.collection.storage.disk.lock import require_same
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME

if TYPE_CHECKING:
    from pathlib import Path


class Place:
    """Remembers which files are open below `folder`, and insists on them: a deleted file takes writes without a word.

    SQLite's log is one of them: it is there as long as a connection is, and what was committed to a log that somebody
    has removed is lost with the process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, tuple[int, int]] = {}

    def remember(self, *, with_log: bool = True) -> None:
        """Take the files that are there now for those that were opened."""
        for suffix in ("", "-wal") if with_log else ("",):
            path = self._folder / f"{FILE_NAME}{suffix}"
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            self._known[path] = (found.st_dev, found.st_ino)

    def pages(self) -> tuple[int, int]:
        """Return what changes when somebody writes into the documents' file itself: its time and its size."""
        found = (self._folder / FILE_NAME).stat()
        return found.st_mtime_ns, found.st_size

    def require(self) -> None:
        """Insist on them.

        Raises:
            DatabaseMoved: one is gone, or another file has its place.
        """
        for path, identity in self._known.items():
            require_same(path, identity)
