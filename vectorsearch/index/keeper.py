"""Keep one derived index in step with the store, and say what became of it."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from vectorsearch.index.base import DerivedIndex
from vectorsearch.storage import manifest
from vectorsearch.storage.errors import IndexUnwritable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vectorsearch.index.base import Advance
    from vectorsearch.storage.store import Store

I = TypeVar("I", bound=DerivedIndex)  # noqa: E741 -- the kind of index


class Keeper(Generic[I]):
    """Hold an index of `store`, opened on first use by `open_index(folder)`; a folder of None means in memory.

    Many threads may ask for `current()`. Whoever finds the index behind the store brings it up, the others wait for
    that and nothing else: a search on an index that is up to date takes no lock.
    """

    def __init__(self, store: Store, open_index: Callable[[Path | None], I], folder: Path | None) -> None:
        self._store = store
        self._open_index = open_index
        self._folder = folder
        self._lock = threading.Lock()  # protects opening, catching up and saving; the store's locks are taken inside it
        self._index: I | None = None
        self._fault: IndexUnwritable | None = None  # why the files are older than the index

    def current(self, advance: Advance | None = None) -> I:
        """Return the index with every change in it that was committed before the call."""
        index = self._index
        if index is None or index.seq < self._store.seq:
            with self._lock:
                index = self._caught_up(advance or _ignore)
        return index

    def opened(self) -> I:
        """Return the index as it is, opened if need be."""
        with self._lock:
            self._index = self._index or self._open_index(self._folder)
            return self._index

    def save(self) -> None:
        """Bring the index up to date and make its files last.

        Raises:
            IndexUnwritable: they can't be written; a later opening builds the index again.
        """
        index = self.current()
        with self._lock:
            if self._fault is not None and self._folder is None:
                raise IndexUnwritable(str(self._fault)) from self._fault
            index.save(durable=True)
            self._fault = None

    def rebuild(self, advance: Advance | None = None) -> None:
        """Build the index again from the store alone and make its files last; searches go on meanwhile.

        Raises:
            IndexUnwritable: the files can't be written.
        """
        with self._lock:
            old, self._index = self._index, None  # if this fails, the next search starts over
            if self._folder is not None and not self._store.read_only:
                shutil.rmtree(self._folder, ignore_errors=True)
            fresh = self._open_index(self._folder)
            self._apply(fresh, advance or _ignore)
            fresh.save(durable=True)
            self._index, self._fault = fresh, None
            if old is not None:
                old.close()

    def copy_files(self, folder: Path) -> None:
        """Copy the index's files, if there are any, below `folder`: they fit a copy of the store that is made later."""
        with self._lock:
            if self._folder is not None and self._folder.exists():
                shutil.copytree(self._folder, folder / self._folder.name)

    def faults(self) -> list[str]:
        """Compare the files on disk with their manifest, and return what differs; no files are no fault."""
        with self._lock:
            folder = self._folder
            return [] if folder is None or not folder.exists() else manifest.faults(folder / manifest.NAME)

    def info(self) -> dict[str, object]:
        """Return what the index says of itself; an index that was not used yet isn't opened for it."""
        index = self._index
        if index is None:
            return {"state": "not opened yet"}
        behind = self._store.seq - index.seq
        fault = {} if self._fault is None else {"fault": str(self._fault)}
        return {**index.info(), "seq": index.seq, "behind": behind, **fault}

    def close(self) -> None:
        """Close the index without writing anything; a second call does nothing."""
        with self._lock:
            index, self._index = self._index, None
            if index is not None:
                index.close()

    def _caught_up(self, advance: Advance) -> I:
        index = self._index or self._open_index(self._folder)
        self._index = index
        if index.seq >= self._store.seq:
            return index
        try:
            self._apply(index, advance)
        except IndexUnwritable as exc:
            index = self._in_memory(exc, advance)
        except BaseException:
            # It may hold half a change; the files still hold a whole one.
            self._index = None
            index.close()
            raise
        try:
            index.save(durable=False)
        except IndexUnwritable as exc:  # what is in memory is whole, so the search goes on
            self._fault = exc
        return index

    def _apply(self, index: I, advance: Advance) -> None:
        with self._store.snapshot() as snapshot:
            index.catch_up(snapshot, advance)

    def _in_memory(self, fault: IndexUnwritable, advance: Advance) -> I:
        """Serve from memory where the derived files can't be written, as on a full disk: the store has everything."""
        self._fault = fault
        self._folder = None
        if self._index is not None:
            self._index.close()
        index = self._index = self._open_index(None)
        self._apply(index, advance)
        return index


def _ignore(_: int) -> None:
    pass
