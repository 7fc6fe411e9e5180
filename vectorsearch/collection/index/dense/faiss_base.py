"""An immutable FAISS index with the rows that its vectors belong to."""

from __future__ import annotations

import mmap
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import faiss
import numpy as np

from backends.errors import InvalidInput
from vectorsearch.collection.index.base import best, no_candidates
from vectorsearch.collection.index.dense.base_plan import is_scanned
from vectorsearch.collection.index.dense.cosine import cosines, nearest, positions_of, unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from vectorsearch.collection.index.dense.base_plan import BasePlan, Reach
    from vectorsearch.collection.storage.sqlite.snapshot import VectorBatch
    from vectorsearch.types import Candidates

    Fetch = Callable[[NDArray[np.int64]], VectorBatch]

_EF_CONSTRUCTION = 40
_PARTS = ("faiss", "rows", "asked.npy")  # the files of a base: FAISS's, the rows of its vectors, and `Base.asked`
_MARGIN = 16  # asked for beyond k, so that exact scores and ties by row can settle the order at the end


@dataclass(frozen=True)
class Base:
    """Unit vectors in `index`, row by row: `rows` int64[n] ascending, `alive` bool[n].

    `matrix` float32[n, dim] is a view of FAISS's own copy, None where FAISS holds codes or lists: whole vectors then
    come from the store by `fetch`. It is read directly wherever a search is exact. A `reach` of None means that every
    search is exact. `asked` int64[m, 1 + n] is what the recall was measured with, see `recall.tuned`. `mapped` is the
    file whose memory FAISS looks at, None where it has memory of its own: only that can be added to.
    """

    plan: BasePlan
    index: Any
    rows: NDArray[np.int64]
    alive: NDArray[np.bool_]
    matrix: NDArray[np.float32] | None
    fetch: Fetch
    reach: Reach | None = None
    recall: float = 1.0
    asked: NDArray[np.int64] | None = None
    mapped: mmap.mmap | None = None

    @property
    def nbytes(self) -> int:
        """Return the bytes of vectors or codes, of a graph's links, and of the rows."""
        per_vector = _storage(self.index).code_size + self.rows.itemsize + self.alive.itemsize
        links = 0
        if self.plan.family == "graph":
            graph = self.index.hnsw
            links = 4 * graph.neighbors.size() + 8 * graph.offsets.size()
        return links + len(self.rows) * int(per_vector + (8 if self.plan.family == "lists" else 0))

    @property
    def n_live(self) -> int:
        """Return how many vectors a search can find."""
        return self.live.size

    @cached_property
    def live(self) -> NDArray[np.int64]:
        """Return the positions int64[n_live] of the vectors that a search can find."""
        return np.flatnonzero(self.alive)

    @cached_property
    def _live_selector(self) -> Any:  # noqa: ANN401 -- FAISS ships no types
        return None if self.n_live == len(self.rows) else _selector(self.live, len(self.rows))

    def without(self, gone: NDArray[np.int64]) -> Self:
        """Return the same with the rows `gone` int64[m] ascending dead; rows that aren't here are ignored."""
        at = positions_of(self.rows, gone)
        if not at.size:
            return self
        alive = self.alive.copy()
        alive[at] = False
        return replace(self, alive=alive)

    def search(self, vector: NDArray[np.float32], k: int, allowed: NDArray[np.int64] | None) -> Candidates:
        """Return the `k` live, allowed rows nearest to the unit vector `vector`.

        Exact for a flat index and for few allowed rows, and where whole vectors are held for a `k` near their number
        too; else as good as the index finds, and never fewer than there are. Scores are exact always.
        """
        if allowed is None:
            at = self.live
        else:
            at = positions_of(self.rows, allowed)
            at = at[self.alive[at]]
        if not at.size or k <= 0:
            return no_candidates()
        few = is_scanned(at.size, len(self.rows), in_memory=self.matrix is not None)
        most = self.matrix is not None and k + _MARGIN > at.size // 10
        if few or most or self.reach is None or self.plan.family == "flat":
            return self._scan(vector, k, at)
        return self._approximate(vector, k, at, self.reach)

    def _scan(self, vector: NDArray[np.float32], k: int, at: NDArray[np.int64]) -> Candidates:
        if self.matrix is not None:
            return nearest(self.matrix, self.rows, vector, k, at)
        found = self.fetch(self.rows[at])
        return nearest(unit(found.vectors), found.rows, vector, k)

    def _approximate(self, vector: NDArray[np.float32], k: int, at: NDArray[np.int64], reach: Reach) -> Candidates:
        n = len(self.rows)
        share = at.size / n
        selector = self._live_selector if at is self.live else _selector(at, n)
        wanted = min(n, (k + _MARGIN) * reach.refine)
        # A graph's queue holds forbidden vectors too, and lists do, so both must be longer by the share of them.
        scores, kept = self._found(vector, wanted, int(reach.breadth / share), selector)
        if self.matrix is None:
            if kept.size < min(k, at.size):  # the others are in lists that weren't visited, or cut off from the graph
                _, kept = self._found(vector, wanted, 0, selector)
            return self._scan(vector, k, kept)
        if kept.size < k + _MARGIN or scores[-1] >= scores[k - 1]:
            # Too little was reached, or more ties at the end than the margin holds: only a scan settles it.
            return self._scan(vector, k, at)
        return best(self.rows[kept], cosines(self.matrix[kept], vector), k)

    def _found(
        self,
        vector: NDArray[np.float32],
        wanted: int,
        breadth: int,
        selector: Any,  # noqa: ANN401 -- FAISS ships no types
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return FAISS's scores, best first, and the positions, ascending; a `breadth` of 0 looks at every code."""
        index, parameters = self.index, faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]  # stubs lack it
        match self.plan.family:
            case "graph" if breadth:
                parameters = faiss.SearchParametersHNSW(efSearch=max(breadth, wanted), sel=selector)  # type: ignore[attr-defined]  # as above
            case "graph":
                index = _storage(index)
            case "lists":
                nprobe = min(self.plan.n_lists, breadth or self.plan.n_lists)
                parameters = faiss.SearchParametersIVF(nprobe=nprobe, sel=selector)  # type: ignore[call-arg]  # as above
        scores, found = index.search(vector[None, :], wanted, params=parameters)
        return scores[0], np.sort(found[0][found[0] >= 0])


def build(plan: BasePlan, batches: Callable[[], Iterable[VectorBatch]], capacity: int, fetch: Fetch) -> Base | None:
    """Return a base over the batches, each vector held once; None if there are none.

    `batches` gives them from the start each time it is called: an index that learns reads some of them first.

    Raises:
        InvalidInput: the plan doesn't fit vectors of this length.
    """
    index, rows = None, []
    for batch in batches():
        index = index or _empty(plan, batch.vectors.shape[1], batches, capacity)
        index.add(unit(batch.vectors))
        rows.append(batch.rows)
    return None if index is None else _base(plan, index, np.concatenate(rows), fetch)


def extend(base: Base, batches: Iterable[VectorBatch]) -> Base:
    """Return a new base with the batches added behind the old one's vectors; the old one stays as it is."""
    index = faiss.clone_index(base.index) if base.mapped is None else _copied(base.mapped)
    rows = [base.rows]
    for batch in batches:
        index.add(unit(batch.vectors))
        rows.append(batch.rows)
    extended = _base(base.plan, index, np.concatenate(rows), base.fetch)
    return replace(extended, reach=base.reach, recall=base.recall).without(base.rows[~base.alive])


def save(base: Base, folder: Path, name: str) -> list[str]:
    """Write the base to `folder` and return the names of its files."""
    names = [f"{name}.{part}" for part in _PARTS]
    for old in names:  # never cut in place: a reader that has it mapped would be killed
        (folder / old).unlink(missing_ok=True)
    faiss.write_index(base.index, str(folder / names[0]))
    # Rows count from 1, so a negative one says that the vector was dead already.
    np.where(base.alive, base.rows, -base.rows).astype("<i8").tofile(folder / names[1])
    asked = np.empty((0, 1), np.int64) if base.asked is None else base.asked
    np.save(folder / names[2], asked.astype("<i8"))
    return names


def load(plan: BasePlan, folder: Path, names: Sequence[str], fetch: Fetch) -> Base:
    """Read the files that `save` wrote, whose checksums the caller has verified.

    The vectors are mapped: what no search has looked at yet takes no memory and no time.
    """
    index, rows, asked = (next(folder / name for name in names if name.endswith(part)) for part in _PARTS)
    signed = np.fromfile(rows, dtype="<i8").astype(np.int64)
    with index.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    content = np.frombuffer(mapped, dtype=np.uint8)
    reader = faiss.ZeroCopyIOReader(faiss.swig_ptr(content), content.nbytes)  # type: ignore[attr-defined]  # stubs lack it
    base = _base(plan, faiss.read_index(reader), np.abs(signed), fetch)
    base = replace(base, asked=np.load(asked).astype(np.int64), mapped=mapped)
    return base.without(base.rows[signed < 0])


def _empty(plan: BasePlan, dim: int, batches: Callable[[], Iterable[VectorBatch]], capacity: int) -> Any:  # noqa: ANN401 -- FAISS ships no types
    try:
        index: Any = faiss.index_factory(dim, plan.factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as exc:
        raise InvalidInput(
            f"dense index {plan.factory!r} doesn't fit vectors of {dim} numbers ({str(exc).rpartition(': ')[2]}): "
            "the bytes of a PQ must divide them"
        ) from exc
    if plan.family == "graph":
        index.hnsw.efConstruction = _EF_CONSTRUCTION
    if plan.holds_vectors:
        _reserve(index, capacity)
    if not index.is_trained:
        index.train(unit(_sample(batches(), plan.n_training, capacity)))
    return index


def _sample(batches: Iterable[VectorBatch], n: int, capacity: int) -> NDArray[np.float32]:
    """Return up to `n` vectors float32[n, dim], spread evenly over the batches."""
    step = max(1, capacity // n)
    return np.concatenate([batch.vectors[::step].copy() for batch in batches])


def _copied(mapped: mmap.mmap) -> Any:  # noqa: ANN401 -- as above
    """Return the index that a file holds, in memory of its own; FAISS ends the process that adds to a mapped one."""
    mapped.seek(0)
    return faiss.read_index(faiss.PyCallbackIOReader(mapped.read))  # type: ignore[attr-defined]  # as above


def _base(plan: BasePlan, index: Any, rows: NDArray[np.int64], fetch: Fetch) -> Base:  # noqa: ANN401 -- as above
    matrix = None
    if plan.holds_vectors:
        flat = _storage(index)
        matrix = faiss.rev_swig_ptr(flat.get_xb(), len(rows) * index.d).reshape(len(rows), index.d)
    return Base(plan, index, rows, np.ones(len(rows), dtype=bool), matrix, fetch)


def _storage(index: Any) -> Any:  # noqa: ANN401 -- FAISS ships no types
    return faiss.downcast_index(index.storage) if hasattr(index, "hnsw") else index


def _reserve(index: Any, capacity: int) -> None:  # noqa: ANN401 -- FAISS ships no types
    # Growing to the full size and back keeps the memory: without it the vectors are held twice while they are moved.
    codes = _storage(index).codes
    codes.resize(capacity * index.d * 4)
    codes.resize(0)


def _selector(at: NDArray[np.int64], n: int) -> Any:  # noqa: ANN401 -- FAISS ships no types
    member = np.zeros(n, dtype=bool)
    member[at] = True
    bits = np.packbits(member, bitorder="little")
    return faiss.IDSelectorBitmap(bits)  # type: ignore[call-arg,arg-type]  # its wrapper takes an array and keeps it
