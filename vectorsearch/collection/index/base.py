"""What every index offers: search at a sequence number, and catching up with the store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from vectorsearch.collection.storage.errors import IndexUnwritable
from vectorsearch.types import Candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from vectorsearch.collection.index.filtering.filters import Condition
    from vectorsearch.collection.index.lexical.bm25 import BM25
    from vectorsearch.collection.storage.sqlite.snapshot import Snapshot

    Advance = Callable[[int], None]


class DerivedIndex(Protocol):
    """An index that follows the store. Readers take no lock: they use the state that was current when they began.

    `catch_up`, `save` and `close` are called by one thread at a time; searches by any number, at any time.
    """

    @property
    def seq(self) -> int:
        """Return the last change of the store that a search sees."""

    def catch_up(self, snapshot: Snapshot, advance: Advance, *, build: bool = True) -> None:
        """Apply every change after `seq` and move to the snapshot's; `advance(n)` tells of n more rows done.

        Without `build`, whatever takes long and can be done beside searches is left out: see `BuildsAside`.
        """

    @property
    def keeps_files(self) -> bool:
        """Tell whether there are to be files of what it holds now, if it is given a folder."""

    def save(self, *, durable: bool) -> None:
        """Write what a later opening can start from, if there is enough new to be worth it."""

    @property
    def nbytes(self) -> int:
        """Return the bytes that it takes in memory, files that are mapped included."""

    def info(self) -> dict[str, object]:
        """Return counts and how the index came to be: loaded, or built again and why."""

    def close(self) -> None:
        """Let go of files and memory; a second call does nothing."""


@runtime_checkable
class BuildsAside(DerivedIndex, Protocol):
    """An index whose heavy part can be made by another thread, beside searches, and then be swapped in."""

    @property
    def pending(self) -> bool:
        """Tell whether the heavy part lacks something that `catch_up` with `build` would put into it."""

    @property
    def outgrown(self) -> bool:
        """Tell whether it lacks so much that it should be made again beside searches."""

    def build_aside(self, snapshot: Snapshot, advance: Advance) -> Any:  # noqa: ANN401 -- each index's own, with `seq`
        """Make the heavy part from the snapshot; the index stays as it is."""

    def adopt(self, built: Any, gone: NDArray[np.int64]) -> None:  # noqa: ANN401 -- what `build_aside` gave
        """Serve from what was made; `gone` int64[m] ascending are the rows deleted since its snapshot."""


class DenseIndex(DerivedIndex, Protocol):
    """Nearest vectors by cosine."""

    def search(self, vector: NDArray[np.float32], k: int, allowed: NDArray[np.int64] | None = None) -> Candidates:
        """Return the `k` live rows nearest to `vector` float32[dim], or fewer if there are fewer.

        `allowed` int64[m], ascending, limits the rows. Scores are cosines in [-1, 1]; equal ones are ordered by row.
        """

    def rows(self) -> NDArray[np.int64]:
        """Return the live rows int64[n], ascending."""

    def kept(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Return those of the rows' unit vectors float32[dim] that were read from the index's own files."""


class LexicalIndex(DerivedIndex, Protocol):
    """BM25 over words."""

    def search(
        self,
        query: str,
        k: int,
        condition: Condition | None = None,
        *,
        phrases: Sequence[str] = (),
        title_weight: float = 0.0,
        constants: BM25 | None = None,
    ) -> Candidates:
        """Return the `k` live rows that match best, or fewer: a row without any word of the query is no match.

        A row must hold each of `phrases`: its words side by side, as `Analyzer.sequences` cuts them. A row's score is
        that of its title and text together, plus `title_weight` times the score of its title among all titles.
        `condition` limits the rows, and adds nothing to a score. A word that the query repeats counts as often.
        Scores are positive; equal ones are ordered by row. `constants` of None are the index's own.
        """

    def marks(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the live rows int64[n], ascending, and uint64[n], the mark of the content each was indexed with."""

    def rows_where(self, condition: Condition) -> NDArray[np.int64]:
        """Return the live rows for which the condition holds, ascending."""

    def count_where(self, condition: Condition) -> int:
        """Return the number of live rows for which the condition holds."""


def no_candidates() -> Candidates:
    """Return an empty result."""
    return Candidates(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))


def best(rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> Candidates:
    """Return the `k` best of `rows` int64[n] with `scores` float32[n]; equal scores by row."""
    if 0 < k < len(rows):  # sorting all takes most of a search over many
        kept = scores >= np.partition(scores, -k)[-k]
        rows, scores = rows[kept], scores[kept]
    order = np.lexsort((rows, -scores))[:k]
    return Candidates(rows[order], scores[order])


@contextmanager
def writing(folder: Path | None) -> Iterator[None]:
    """Turn what an engine raises while it writes below `folder` into IndexUnwritable.

    FAISS reports a failed write as RuntimeError, Tantivy as ValueError.
    """
    try:
        yield
    except (OSError, RuntimeError, ValueError) as exc:
        raise IndexUnwritable(
            f"index files in {str(folder)!r} can't be written ({exc}): free disk space; no document is lost, and the "
            "next opening builds the index again"
        ) from exc
