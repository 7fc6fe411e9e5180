"""The dense index that serves: an immutable FAISS base, a small exact tail, and tombstones over both."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.collection.index.base import best, no_candidates, writing
from vectorsearch.collection.index.dense import recall
from vectorsearch.collection.index.dense.base_plan import BasePlan, Reach, next_step
from vectorsearch.collection.index.dense.cosine import positions_of, unit
from vectorsearch.collection.index.dense.dense_exact import TailWriter
from vectorsearch.collection.storage.disk import failpoints, manifest
from vectorsearch.collection.storage.disk.files import fsync_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from vectorsearch.collection.index.base import Advance
    from vectorsearch.collection.index.dense.dense_exact import RowVectors
    from vectorsearch.collection.index.dense.faiss_base import Base, Fetch
    from vectorsearch.collection.storage.disk.manifest import Lineage, Manifest
    from vectorsearch.collection.storage.sqlite.snapshot import Snapshot, VectorBatch
    from vectorsearch.types import Candidates


@dataclass(frozen=True, slots=True)
class _State:
    """What a search sees. `clean` is, of a base that was only read so far, a change up to which none of it died."""

    seq: int
    base: Base | None
    tail: RowVectors | None
    clean: int = 0


@dataclass(frozen=True, slots=True)
class Built:
    """A base that was made beside the index, of the vectors as of change `seq`."""

    seq: int
    base: Base | None


class FaissIndex:
    """Cosine search over a base that FAISS holds and the tail written since.

    FAISS can't be added to while it is searched, so a base is never changed: a longer one is made beside it and
    swapped in by reference, by `catch_up` or, where searches must not wait for it, by `build_aside` and `adopt`. Its
    file is written once per base and reflects the change that the base was made at. `fetch` gives vectors of rows.
    """

    def __init__(
        self,
        plan: BasePlan,
        folder: Path | None,
        *,
        lineage: Lineage,
        fetch: Fetch,
        read_only: bool = False,
    ) -> None:
        self._plan = plan
        self._fetch = fetch
        self._folder = folder
        self._lineage = lineage
        self._writer = TailWriter()
        self._state = _State(0, None, None)  # swapped whole: a reader takes one reference and sees one moment
        self._built: tuple[int, Base] | None = None  # the base as its file has it, with the change it was made at
        self._saved: Manifest | None = None
        self._durable = True
        self._unchecked = False  # whether the base was read and not asked yet
        self._writable = folder is not None and not read_only
        self._origin = "built in memory" if folder is None else self._load(folder)

    @property
    def seq(self) -> int:
        """Return the last change of the store that a search sees."""
        return self._state.seq

    @property
    def pending(self) -> bool:
        """Tell whether another base should be made: what is in the tail needs none."""
        return self.outgrown

    @property
    def outgrown(self) -> bool:
        """Tell whether the tail or the dead are too many, so that another base should be made."""
        return self._step(self._state.base, self._state.tail, 0) != "append"

    def catch_up(self, snapshot: Snapshot, advance: Advance, *, build: bool = True) -> None:
        """Apply every change after `seq`; with `build`, make another base if this one is outgrown."""
        if max(self.seq, self._state.clean) < snapshot.vectors_floor:
            self.close()
        state, writer = self._state, self._writer
        gone = snapshot.deleted_after(state.seq)
        base = state.base.without(gone) if state.base else None
        if base is not None and self._unchecked:
            base, self._unchecked = recall.checked(base), False
        writer.remove(gone)
        new = min(snapshot.inserted_after(state.seq), snapshot.n_vectors)
        if build and self._step(base, writer.tail, new) != "append":
            self.adopt(self.build_aside(snapshot, advance), np.empty(0, np.int64))
            return
        for batch in snapshot.vectors(state.seq):
            writer.append(batch.rows, batch.vectors)
            advance(len(batch.rows))
        self._state = _State(snapshot.seq, base, writer.tail)

    def build_aside(self, snapshot: Snapshot, advance: Advance) -> Built:
        """Make the base that the index should have, of the vectors in the snapshot; the index stays as it is."""
        from vectorsearch.collection.index.dense import faiss_base  # noqa: PLC0415 -- FAISS is loaded by the first base, not before

        state, n = self._state, snapshot.n_vectors
        known = state.base.without(snapshot.deleted_after(state.seq)) if state.base else None
        if known is None or self._step(known, None, max(0, n - known.n_live)) == "rebuild":
            base = faiss_base.build(self._plan, lambda: _told(snapshot.vectors(0), advance), n, self._fetch)
        else:
            # All rows of the base came before all that it lacks.
            newer = snapshot.vectors(int(known.rows[-1]))
            base = faiss_base.extend(known, _told(newer, advance))
        if base is not None:
            base = recall.tuned(base, snapshot.vectors(0))
        return Built(snapshot.seq, base)

    def adopt(self, built: Built, gone: NDArray[np.int64]) -> None:
        """Serve from a base that was made aside; `gone` int64[m] ascending are the rows deleted since."""
        base = built.base.without(gone) if built.base else None
        writer, tail = TailWriter(), self._writer.tail
        if tail is not None:
            newer = tail.alive & (tail.rows > built.seq)
            if newer.any():
                writer.append(tail.rows[newer], tail.matrix[newer])
        self._built = (built.seq, base) if base else None
        self._writer = writer
        self._state = _State(max(self.seq, built.seq), base, writer.tail)

    def search(self, vector: NDArray[np.float32], k: int, allowed: NDArray[np.int64] | None = None) -> Candidates:
        """Return the `k` live rows nearest to `vector`."""
        state, query = self._state, unit(vector)
        found = [part.search(query, k, allowed) for part in (state.base, state.tail) if part is not None]
        if len(found) < 2:  # noqa: PLR2004 -- one part alone has them in order already
            return found[0] if found else no_candidates()
        return best(np.concatenate([f.rows for f in found]), np.concatenate([f.scores for f in found]), k)

    def rows(self) -> NDArray[np.int64]:
        """Return the live rows, ascending."""
        parts = [part for part in (self._state.base, self._state.tail) if part is not None]
        return np.concatenate([np.empty(0, np.int64), *(part.rows[part.alive] for part in parts)])

    def kept(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Return those of the rows' unit vectors that the base holds whole."""
        base = self._state.base
        if base is None or base.matrix is None:
            return {}
        wanted = np.array(sorted(rows), np.int64)
        return {int(base.rows[at]): base.matrix[at].copy() for at in positions_of(base.rows, wanted)}

    @property
    def keeps_files(self) -> bool:
        """Tell whether there is a base or should be one: a few vectors are read from the store."""
        return self._built is not None or self.pending

    def save(self, *, durable: bool) -> None:
        """Write the base, if it is another than the one on disk."""
        if self._folder is None or not self._writable or self._built is None:
            return
        with writing(self._folder):
            self._save(self._folder, *self._built, durable=durable)

    @property
    def nbytes(self) -> int:
        """Return the bytes of base and tail."""
        return sum(part.nbytes for part in (self._state.base, self._state.tail) if part is not None)

    def info(self) -> dict[str, object]:
        """Return counts, and whether the base was read from disk or why not."""
        base, tail = self._state.base, self._state.tail
        return {
            "kind": self._plan.factory if base else "exact",
            "vectors": (base.n_live if base else 0) + (tail.n_live if tail else 0),
            "base": len(base.rows) if base else 0,
            "tail": len(tail.rows) if tail else 0,
            "tombstones": len(base.rows) - base.n_live if base else 0,
            "recall": round(base.recall, 3) if base else 1.0,
            "origin": self._origin,
        }

    def close(self) -> None:
        """Let go of the vectors."""
        self._state, self._writer, self._built = _State(0, None, None), TailWriter(), None
        self._unchecked = False

    def _step(self, base: Base | None, tail: RowVectors | None, new: int) -> str:
        n_base, dead = (len(base.rows), len(base.rows) - base.n_live) if base else (None, 0)
        return next_step(self._plan, base=n_base, base_dead=dead, tail=tail.n_live if tail else 0, new=new)

    def _load(self, folder: Path) -> str:
        newest_seq = self._lineage.seq
        found = manifest.load(folder / manifest.NAME, lineage=self._lineage, layout=self._plan.factory)
        if isinstance(found, str):
            return f"built anew: {found}"
        from vectorsearch.collection.index.dense import faiss_base  # noqa: PLC0415 -- as above

        try:
            base = faiss_base.load(self._plan, folder, sorted(found.files), self._fetch)
        except (RuntimeError, OSError) as exc:  # FAISS raises RuntimeError for a file that went away under it
            return f"built anew: {exc}"
        breadth, refine, per_mille = (found.fields.get(name, 0) for name in ("breadth", "refine", "recall"))
        base = replace(base, reach=Reach(breadth, refine) if refine else None, recall=per_mille / 1000)
        if found.seq >= newest_seq:
            base = recall.checked(base)
        else:  # once what was deleted since is dead: asked for it, codes and lists would be found to find too little
            self._unchecked = True
        clean = min(found.fields.get("clean", 0), newest_seq)
        self._built, self._saved, self._state = (found.seq, base), found, _State(found.seq, base, None, clean)
        return f"loaded at change {found.seq}"

    def _save(self, folder: Path, seq: int, base: Base, *, durable: bool) -> None:
        if self._saved is None or self._saved.seq != seq:
            self._saved, self._durable = self._write(folder, seq, base), False
        if not durable:
            return
        if not self._durable:
            for name in self._saved.files:
                fsync_file(folder / name)
        state, saved = self._state, self._saved
        if state.base is not None and state.base.n_live == base.n_live:
            # None of it has died since, so deletions up to here may be forgotten without making it anew.
            saved = replace(saved, fields={**saved.fields, "clean": max(state.seq, state.clean)})
        if saved != self._saved or not self._durable:
            saved.save(folder / manifest.NAME, durable=True)
            self._saved, self._durable = saved, True

    def _write(self, folder: Path, seq: int, base: Base) -> Manifest:
        from vectorsearch.collection.index.dense import faiss_base  # noqa: PLC0415 -- as above

        folder.mkdir(parents=True, exist_ok=True)
        names = faiss_base.save(base, folder, f"base-{seq}")
        failpoints.reach("dense.before_manifest")
        reach = base.reach or Reach(0, 0)
        fields = {"breadth": reach.breadth, "refine": reach.refine, "recall": round(1000 * base.recall)}
        marks = manifest.mark_files(folder, names, {})
        written = manifest.Manifest(self._lineage.mark(seq), self._plan.factory, seq, marks, fields)
        written.save(folder / manifest.NAME, durable=False)
        for stale in folder.iterdir():
            if stale.name not in (*names, manifest.NAME):
                with suppress(OSError):  # Windows removes no file that is mapped still; the next write does
                    stale.unlink(missing_ok=True)
        return written


def _told(batches: Iterable[VectorBatch], advance: Advance) -> Iterable[VectorBatch]:
    for batch in batches:
        yield batch
        advance(len(batch.rows))
