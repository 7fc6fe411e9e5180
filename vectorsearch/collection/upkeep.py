"""Looking after a collection: verify, repair, compact, and a snapshot of it while it is in use."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vectorsearch.collection.index.dense.recall import FLOOR
from vectorsearch.collection.storage import registry_faults
from vectorsearch.collection.storage.disk.files import folder_nbytes, fsync_file, fsync_folder
from vectorsearch.collection.storage.errors import DamagedDatabase, NotADatabase
from vectorsearch.collection.storage.mending import mend
from vectorsearch.collection.storage.registry import FILE_NAME as REGISTRY
from vectorsearch.collection.storage.soundness import Fault, copy_documents, find_faults, forget_deletions
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME
from vectorsearch.collection.storage.sqlite.upgrade import upgraded_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from vectorsearch.collection.index.base import DenseIndex, LexicalIndex
    from vectorsearch.collection.index.keeper import FileState, Keeper
    from vectorsearch.collection.storage.sqlite.store import Store

    Progress = Callable[[int, int], None]

_CHECKED_VECTORS = 100
_SHOWN_ROWS = 5
_ABSENT = "the index has no files (deleted, or not made yet): the next search or `repair` builds it from the documents"
_SAME = 0.999  # cosine; that of a vector with itself is 1 but for rounding


@dataclass(frozen=True, slots=True)
class Verification:
    """What was looked at, every fault that was found, and in words what a repair restored.

    `absent` is what isn't there and is no fault, since it is made again from the documents: an index without files,
    which were deleted, or which nobody has needed yet.
    """

    documents: int
    vectors: int
    faults: tuple[Fault, ...]
    restored: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether there is no fault."""
        return not self.faults


@dataclass(frozen=True, slots=True)
class Compaction:
    """Bytes on disk before and after, and how many deletions are forgotten now."""

    before_nbytes: int
    after_nbytes: int
    forgotten: int


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Looks after the store and the indexes of one collection; searches and writes go on meanwhile."""

    store: Store
    lexical: Keeper[LexicalIndex]
    dense: Keeper[DenseIndex]

    def info(self) -> dict[str, object]:
        """Return counts, sizes and the state of the indexes, as plain values."""
        with self.store.snapshot() as snapshot:
            counts = {"documents": snapshot.documents, "vectors": snapshot.n_vectors, "seq": snapshot.seq}
        return {
            "path": str(self.store.folder),
            "read_only": self.store.read_only,
            **counts,
            **upgraded_from(self.store.meta()),
            "disk_nbytes": folder_nbytes(self.store.folder),
            "lexical": self.lexical.info(),
            "dense": self.dense.info(),
        }

    def refresh(self, progress: Progress | None = None) -> None:
        """Bring both indexes up to date; `progress(done, total)` counts the rows of the two together."""
        with self.store.snapshot() as snapshot:
            seqs = (self.lexical.opened().seq, self.dense.opened().seq)
            total = snapshot.inserted_after(seqs[0]) + min(snapshot.inserted_after(seqs[1]), snapshot.n_vectors)
        done = 0

        def advance(rows: int) -> None:
            nonlocal done, total
            done += rows
            total = max(total, done)  # an index that is built again reads more than it lacked
            if progress is not None:
                progress(done, total)

        self.lexical.complete(advance)
        self.dense.complete(advance)
        if progress is not None:
            progress(total, total)

    def verify(self, progress: Progress | None = None) -> Verification:
        """Check the file, every document and vector, the derived files, and that the indexes find what is stored.

        `progress(done, total)` counts documents. Nothing is mended, but an index that is behind is brought up.
        """
        with self.store.snapshot() as snapshot:
            documents, vectors = snapshot.documents, snapshot.n_vectors
        done = 0

        def advance(n: int) -> None:
            nonlocal done
            done += n
            if progress is not None:
                progress(done, max(done, documents))

        files = {part: keeper.files() for part, keeper in self._keepers()}  # before a search makes them
        faults = find_faults(self.store, advance)
        for part, keeper in self._keepers():
            faults += [Fault(part, message, mendable=True) for message in keeper.faults()]
        if not any(fault.part in ("file", "documents") for fault in faults):  # else the indexes follow what is wrong
            faults += [Fault("lexical", message, mendable=True) for message in self._lexical_faults()]
            faults += [Fault("dense", message, mendable=True) for message in self._dense_faults()]
            absent = tuple(f"{part}: {_ABSENT}" for part, keeper in self._keepers() if _is_absent(files[part], keeper))
            return Verification(documents, vectors, tuple(faults), absent=absent)
        return Verification(documents, vectors, tuple(faults))

    def repair(self, progress: Progress | None = None) -> Verification:
        """Mend what can be, build both indexes again from the documents, and return what is still at fault.

        What is not as it was written is restored from what else there is: a digest tells which one bit was flipped, and
        an index's sound file has the direction of a vector. What can't be restored is named until it is stored anew.

        Raises:
            DamagedDatabase: pages of the documents' file are damaged, which nothing can mend; nothing was changed.
            ReadOnlyDatabase, DatabaseLocked: it can't be written.
        """
        self.store.check_writable()
        for fault in find_faults(self.store, lambda _: None):
            if fault.part == "file":
                raise DamagedDatabase(f"{fault}: restore {str(self.store.folder)!r} from a snapshot")
        wrong = {part: keeper.faults() for part, keeper in self._keepers()}  # mending makes all of another history
        files = {part: keeper.files() for part, keeper in self._keepers()}
        restored = mend(self.store, lambda rows: self.dense.opened().kept(rows) if rows else {})
        for part, keeper in self._keepers():
            keeper.rebuild()
            if wrong[part] or _is_absent(files[part], keeper):
                why = "; ".join(wrong[part]) or "its files were not there"
                restored += (f"the {part} index is built again from the documents: {why}",)
        return replace(self.verify(progress), restored=restored)

    def compact(self) -> Compaction:
        """Build the indexes without what was deleted, forget the deletions, and give the room back to the disk.

        Raises:
            StorageFull, IndexUnwritable: there is no room for the copies that it makes; no document is lost.
            ReadOnlyDatabase, DatabaseLocked: it can't be written.
        """
        self.store.check_writable()
        before_nbytes = folder_nbytes(self.store.folder)
        for _, keeper in self._keepers():
            if keeper.current().info().get("tombstones"):
                keeper.rebuild()
            else:
                keeper.save()
        seen = min(keeper.current().seq for _, keeper in self._keepers())
        forgotten = forget_deletions(self.store, seen)
        self.store.vacuum()
        return Compaction(before_nbytes, folder_nbytes(self.store.folder), forgotten)

    def snapshot(self, path: Path, *, also: Callable[[Path], None] | None = None) -> None:
        """Write a copy of the collection as of this moment to the new folder `path`.

        The indexes' files go with it, so the copy opens as fast as the original. `also(folder)` may add to it.

        Raises:
            NotADatabase: there is something at `path` already.
            StorageFull: there is no room; nothing is left at `path`.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise NotADatabase(f"{str(path)!r} exists already: name a new folder for the snapshot")
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            # The files first: what they reflect is then never newer than the documents.
            for _, keeper in self._keepers():
                keeper.copy_files(unfinished)
            copy_documents(self.store, unfinished)
            if also is not None:
                also(unfinished)
            registry_faults.tie(unfinished, unfinished / REGISTRY)
            fsync_file(unfinished / FILE_NAME)
            fsync_folder(unfinished)
            unfinished.replace(path)  # also over an empty folder
            fsync_folder(path.parent)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise

    def _keepers(self) -> tuple[tuple[str, Keeper[Any]], ...]:
        return (("lexical", self.lexical), ("dense", self.dense))

    def _lexical_faults(self) -> Iterator[str]:
        index = self.lexical.current()
        with self.store.snapshot() as snapshot:
            if index.seq != snapshot.seq:  # somebody writes meanwhile
                return
            rows, marks = index.marks()
            stored, stored_marks = snapshot.marks()
        if stray := _differing(rows, stored):
            yield f"the index holds {len(rows)} documents, and {len(stored)} are stored: {stray}"
            return
        wrong = stored[(marks != stored_marks) & (stored_marks != 0)]  # 0: given up, with whatever it holds now
        if wrong.size:
            yield f"the index has {wrong.size} documents with another text or metadata than stored: {_some(wrong)}"

    def _dense_faults(self) -> Iterator[str]:
        index = self.dense.current()
        with self.store.snapshot() as snapshot:
            if index.seq == snapshot.seq and (stray := _differing(index.rows(), snapshot.vector_rows())):
                yield f"the index holds other vectors than are stored: {stray}"
                return
            step = max(1, snapshot.n_vectors // _CHECKED_VECTORS)
            checked = missed = absent = 0
            for batch in snapshot.vectors(0):
                for row, vector in zip(batch.rows[::step].tolist(), batch.vectors[::step], strict=True):
                    if row > index.seq or not np.any(vector):
                        continue
                    checked += 1
                    if not _finds(index, vector, None):
                        missed += 1
                        absent += not _finds(index, vector, np.array([row]))
        if absent or missed > (1 - FLOOR) * checked:  # a graph may miss a few that it holds
            yield f"{missed} of about {_CHECKED_VECTORS} vectors are not found by themselves"


def _is_absent(files: FileState, keeper: Keeper[Any]) -> bool:
    """Tell whether files are gone that an index should have; in memory it has none."""
    return files == "lost" or (files == "none" and not keeper.in_memory and keeper.current().keeps_files)


def _differing(held: NDArray[np.int64], stored: NDArray[np.int64]) -> str:
    """Return which rows are held and not stored, or the other way; "" if none is."""
    strange, lacking = np.setdiff1d(held, stored), np.setdiff1d(stored, held)
    parts = [f"{what} {_some(rows)}" for what, rows in (("without", lacking), ("beside them", strange)) if rows.size]
    return ", ".join(parts)


def _some(rows: NDArray[np.int64]) -> str:
    shown = ", ".join(map(str, rows[:_SHOWN_ROWS].tolist()))
    more = f" and {rows.size - _SHOWN_ROWS} more" if rows.size > _SHOWN_ROWS else ""
    return f"row{'s' if rows.size > 1 else ''} {shown}{more}"


def _finds(index: DenseIndex, vector: NDArray[np.float32], allowed: NDArray[np.int64] | None) -> bool:
    found = index.search(vector, 1, allowed).scores
    return bool(found.size and found[0] >= _SAME)
