"""Keep one derived index in step with the store, and say what became of it."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from vectorsearch.collection.index.base import BuildsAside, DerivedIndex
from vectorsearch.collection.storage.disk import manifest
from vectorsearch.collection.storage.errors import DatabaseClosed, IndexUnwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vectorsearch.collection.index.base import Advance
    from vectorsearch.collection.index.index_budget import IndexBudget
    from vectorsearch.collection.storage.sqlite.store import Store

FileState = Literal["there", "lost", "none"]
I = TypeVar("I", bound=DerivedIndex)  # noqa: E741 -- the kind of index


class _Stopped(Exception):
    pass


class Keeper(Generic[I]):
    """Hold an index of `store`, opened on first use by `open_index(folder)`; a folder of None means in memory.

    Many threads may ask for `current()`. Whoever finds the index behind the store brings it up, the others wait for
    that and nothing else: a search on an index that is up to date takes no lock. What takes long, such as a graph over
    many vectors, is then made by a thread of its own and swapped in: no search waits for it.

    An index that was given out is never closed under its user: the keeper only lets go of it. `budget` may have it let
    go of one that is not used; the next use opens it again.
    """

    def __init__(
        self, store: Store, open_index: Callable[[Path | None], I], folder: Path | None, *, budget: IndexBudget
    ) -> None:
        self._store = store
        self._open_index = open_index
        self._folder = folder
        self._budget = budget
        self.last_use = 0
        # Protects opening, catching up, adopting and saving; the store's locks are taken inside it.
        self._lock = threading.Lock()
        self._index: I | None = None
        self._fault: Exception | None = None  # why index or files are not as they should be
        self._builder: threading.Thread | None = None  # makes the heavy part aside; takes the lock to swap it in
        self._stopping = threading.Event()
        budget.join(self)

    def current(self) -> I:
        """Return the index with every change in it that was committed before the call."""
        self.last_use = self._budget.next_use()
        index = self._index
        if index is None or index.seq < self._store.seq:
            with self._lock:
                index = self._caught_up(_ignore, build=False)
                self._build_beside(index)
            self._budget.settle(self)
        return index

    def complete(self, advance: Advance | None = None) -> I:
        """Return the index with every change in it and its heavy part made, by this thread or after waiting for it."""
        with self._without_builder():
            index = self._caught_up(advance or _ignore, build=True)
            if isinstance(index, BuildsAside) and index.pending:
                self._apply(index, advance or _ignore, build=True)
                self._save(index)
        self._budget.settle(self)
        return index

    def opened(self) -> I:
        """Return the index as it is, opened if need be."""
        with self._lock:
            return self._opened()

    def save(self) -> None:
        """Bring the index up to date and make its files last.

        Raises:
            IndexUnwritable: they can't be written; a later opening builds the index again.
        """
        index = self.complete()
        with self._lock:
            self._prove()
            if isinstance(self._fault, IndexUnwritable) and self._folder is None:
                raise IndexUnwritable(str(self._fault)) from self._fault
            index.save(durable=True)
            self._fault = None

    def rebuild(self, advance: Advance | None = None) -> None:
        """Build the index again from the store alone and make its files last; searches go on meanwhile.

        Raises:
            IndexUnwritable: the files can't be written.
        """
        with self._without_builder():
            self._prove()
            self._index = None  # if this fails, the next search starts over
            if self._folder is not None and not self._store.read_only:
                shutil.rmtree(self._folder, ignore_errors=True)
            fresh = self._open_index(self._folder)
            self._apply(fresh, advance or _ignore, build=True)
            fresh.save(durable=True)
            self._index, self._fault = fresh, None
        self._budget.settle(self)

    def copy_files(self, folder: Path) -> None:
        """Copy the index's files, if there are any, below `folder`: they fit a copy of the store that is made later."""
        with self._without_builder():
            if self._folder is not None and self._folder.exists():
                shutil.copytree(self._folder, folder / self._folder.name)

    def faults(self) -> list[str]:
        """Compare the files on disk with their manifest, and return what differs; no files are no fault."""
        with self._without_builder():
            folder = self._folder
            return [] if folder is None or not folder.exists() else manifest.faults(folder / manifest.NAME, self._store)

    @property
    def in_memory(self) -> bool:
        """Tell whether it writes no files."""
        return self._folder is None

    def files(self) -> FileState:
        """Tell whether there are files to begin from, or some that nothing vouches for any more."""
        with self._without_builder():
            folder = self._folder
            if folder is None or not folder.exists():
                return "none"
            return "there" if (folder / manifest.NAME).exists() else "lost" if any(folder.iterdir()) else "none"

    def info(self) -> dict[str, object]:
        """Return what the index says of itself; an index that was not used yet isn't opened for it."""
        index = self._index
        if index is None:
            return {"state": "closed while idle" if self.last_use else "not opened yet"}
        behind = self._store.seq - index.seq
        building = {"state": "building beside searches"} if self._builder is not None else {}
        fault = {} if self._fault is None else {"fault": str(self._fault) or type(self._fault).__name__}
        return {**index.info(), "memory_nbytes": index.nbytes, "seq": index.seq, "behind": behind, **building, **fault}

    @property
    def nbytes(self) -> int:
        """Return the bytes that the index takes, 0 if it is closed."""
        index = self._index
        return 0 if index is None else index.nbytes

    def release(self) -> bool:
        """Close the index, unless it is being changed or only memory holds it; the next use opens it again."""
        if self._folder is None or self._builder is not None or not self._lock.acquire(blocking=False):
            return False
        try:
            if self._index is not None:
                self._save(self._index)
            self._index = None
            self._store.trim()
        finally:
            self._lock.release()
        return True

    def close(self) -> None:
        """Let go of the index without writing anything; a second call does nothing."""
        self._stopping.set()
        with self._without_builder():
            self._index = None
        self._budget.leave(self)

    def _opened(self) -> I:
        if self._stopping.is_set():
            raise DatabaseClosed("the database is closed: open it again")
        # A forked child writes nothing: the files are its parent's.
        self._index = self._index or self._open_index(None if self._store.forked else self._folder)
        return self._index

    def _caught_up(self, advance: Advance, *, build: bool) -> I:
        index = self._opened()
        if index.seq >= self._store.seq:
            return index
        self._prove()
        try:
            self._apply(index, advance, build=build)
        except IndexUnwritable as exc:
            index = self._in_memory(exc, advance, build=build)
        except BaseException:
            self._index = None  # it may hold half a change; the files still hold a whole one
            raise
        self._save(index)
        return index

    def _prove(self) -> None:
        """Insist, before a file is written, that this process is the one that may; the lock is held.

        Raises:
            DatabaseMoved, DatabaseLocked: the folder was replaced, or another process has written.
        """
        if self._folder is not None and not (self._store.read_only or self._store.forked):
            self._store.prove_writer()

    def _save(self, index: DerivedIndex) -> None:
        if self._store.forked:
            return
        self._prove()
        try:
            index.save(durable=False)
        except IndexUnwritable as exc:  # what is in memory is whole, so the search goes on
            self._fault = exc

    def _apply(self, index: DerivedIndex, advance: Advance, *, build: bool) -> None:
        with self._store.snapshot() as snapshot:
            index.catch_up(snapshot, advance, build=build)

    def _in_memory(self, fault: IndexUnwritable, advance: Advance, *, build: bool) -> I:
        """Serve from memory where the derived files can't be written, as on a full disk: the store has everything."""
        self._fault = fault
        self._folder = None
        index = self._index = self._open_index(None)
        self._apply(index, advance, build=build)
        return index

    def _build_beside(self, index: DerivedIndex) -> None:
        """Start the builder if there is something for it to do; the lock is held."""
        if isinstance(index, BuildsAside) and index.outgrown and self._builder is None and not self._stopping.is_set():
            self._builder = threading.Thread(target=self._run_builder, args=(index,), name="index-builder", daemon=True)
            try:
                self._builder.start()
            except RuntimeError as exc:  # no thread to be had: the next search tries again
                self._builder, self._fault = None, exc

    def _run_builder(self, index: BuildsAside) -> None:
        def advance(_: int) -> None:
            if self._stopping.is_set():
                raise _Stopped

        try:
            with self._store.snapshot() as snapshot:
                built = index.build_aside(snapshot, advance)
            with self._lock:
                if self._index is index:  # else it was built again meanwhile
                    with self._store.snapshot() as snapshot:
                        if built.seq >= snapshot.vectors_floor:  # else of vectors that were exchanged meanwhile
                            index.adopt(built, snapshot.deleted_after(built.seq))
                    self._save(index)
        except _Stopped:
            pass
        except Exception as exc:  # noqa: BLE001 -- this thread's end: searches go on with what there is, `info` says why
            self._fault = exc
        finally:
            self._builder = None

    @contextmanager
    def _without_builder(self) -> Iterator[None]:
        """Hold the lock at a moment when no builder is at work, which could swap in what it began before."""
        while True:
            with self._lock:  # under which it is started
                builder = self._builder
                if builder is None:
                    yield
                    return
            builder.join()


def _ignore(_: int) -> None:
    pass
