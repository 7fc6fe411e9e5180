"""One tenant's documents and indexes: the only user of the store and of the indexes."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from backends.errors import InvalidInput
from vectorsearch.index.filter_terms import filter_terms
from vectorsearch.index.keeper import Keeper
from vectorsearch.storage.errors import DimensionMismatch, NonFiniteVector, SettingsMismatch
from vectorsearch.storage.records import content_digest
from vectorsearch.storage.schema import holds_database, read_meta
from vectorsearch.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from vectorsearch.index.base import DenseIndex, LexicalIndex
    from vectorsearch.storage.store import OnConflict
    from vectorsearch.types import Candidates, Document, Filter

    Progress = Callable[[int, int], None]

__all__ = ["Collection", "CollectionSettings", "content_digest", "stored_settings"]

_REMEMBERED_FILTERS = 32
_ENGINES = ("tantivy", "rank-bm25")
_SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """What a collection is made with, and must be opened with again.

    Args:
        embed: identifies the model that made the vectors (its name and digest); None for the caller's own.
        dim: length of the vectors; None until the first one is stored.
        language: of stemming and stop words; None for neither.
        lexical: `tantivy` or `rank-bm25`.
        dense: `auto`, `exact`, `Flat` or `HNSW<links>`; derived, so it may change between openings.
    """

    embed: str | None = None
    dim: int | None = None
    language: str | None = "en"
    lexical: str = "tantivy"
    dense: str = "auto"


def stored_settings(path: Path) -> CollectionSettings | None:
    """Return the settings of the collection in the folder `path`, or None if one may be made there.

    Raises:
        NotADatabase, NewerFormat: as `Collection.open`.
    """
    meta = read_meta(path) if holds_database(path, read_only=False) else {}
    return _settings_of(meta) if _SETTINGS in meta else None


class Collection:
    """Documents with their lexical and dense indexes; open it with `Collection.open`. Threads may share it.

    A write is acknowledged once it is in the store. The indexes follow from there: a search first applies what was
    committed since, so a writer finds its own writes, and a lost or damaged index file is built again.
    """

    def __init__(
        self, store: Store, settings: CollectionSettings, lexical: Keeper[LexicalIndex], dense: Keeper[DenseIndex]
    ) -> None:
        self._store = store
        self._settings = settings
        self._lexical = lexical
        self._dense = dense
        self._filters = _FilterCache()

    @classmethod
    def open(
        cls,
        path: Path,
        settings: CollectionSettings | None = None,
        *,
        read_only: bool = False,
        durable: bool = True,
    ) -> Self:
        """Open the collection in the folder `path`, or make one. The caller closes it.

        `settings` of None takes those that it was made with. With `read_only` any number of processes may read beside
        one that writes; they see its commits. `durable=False` is for a folder that is thrown away: nothing waits for
        the disk, and the indexes are kept in memory.

        Raises:
            NotADatabase, NewerFormat: the folder holds something that can't be opened; nothing in it was changed.
            DatabaseLocked: it is open for writing elsewhere.
            SettingsMismatch: it was made with other settings.
        """
        if settings is not None:
            _check(settings)
        store = Store(path, read_only=read_only, durable=durable)
        try:
            agreed = _agree(store, settings)
        except BaseException:
            store.close()
            raise
        return cls(store, agreed, *_keepers(store, agreed, in_memory=not durable))

    @property
    def settings(self) -> CollectionSettings:
        """Return the settings that the collection was made with; `dim` as of opening."""
        return self._settings

    @property
    def dim(self) -> int | None:
        """Return the length of the vectors, None until there is one."""
        return self._store.dim

    def write(self, docs: Sequence[Document], *, on_conflict: OnConflict = "error") -> int:
        """Store documents with their vectors in one transaction and return how many.

        It is acknowledged once this returns. `on_conflict="replace"` replaces documents whose id is known.

        Raises:
            DuplicateId, DimensionMismatch, NonFiniteVector, InvalidInput: nothing of the batch was stored.
            StorageFull: likewise.
        """
        return self._store.write(docs, on_conflict=on_conflict)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents in one transaction and return how many there were."""
        return self._store.delete(ids)

    def get(self, ids: Sequence[str], *, vectors: bool = True) -> list[Document | None]:
        """Return documents in the order of `ids`, None for an unknown one."""
        return self._store.get(ids, vectors=vectors)

    def fetch(self, rows: Sequence[int] | NDArray[np.int64]) -> list[Document | None]:
        """Return documents, without their vectors, in the order of `rows`; None for one deleted since it was found."""
        return self._store.fetch([int(row) for row in rows])

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the `content_digest` of each known id."""
        return self._store.digests(ids)

    def count(self) -> int:
        """Return the number of documents."""
        with self._store.snapshot() as snapshot:
            return int(snapshot.documents)

    def iter(self, *, vectors: bool = True) -> Iterator[Document]:
        """Yield the documents of this moment, in the order in which they were stored."""
        with self._store.snapshot() as snapshot:
            yield from snapshot.iter(vectors=vectors)

    def lexical(self, query: str, k: int, filter: Filter | None = None) -> Candidates:  # noqa: A002 -- the field's word
        """Return the `k` documents whose words match `query` best, by BM25; empty if no word does.

        No text can raise. `filter` holds metadata that a document must have.
        """
        return self._lexical.current().search(query, k, filter_terms(filter))

    def dense(self, vector: NDArray[np.float32], k: int, filter: Filter | None = None) -> Candidates:  # noqa: A002
        """Return the `k` documents whose vectors are nearest to `vector` float32[dim], by cosine.

        Raises:
            DimensionMismatch: the vector has another length than those stored.
            NonFiniteVector: it holds NaN or infinity.
        """
        query = self._checked(vector)
        terms = filter_terms(filter)
        allowed = self._filters.rows(self._lexical.current(), terms) if terms else None
        return self._dense.current().search(query, k, allowed)

    def refresh(self, progress: Progress | None = None) -> None:
        """Bring both indexes up to date; `progress(done, total)` counts the rows of the two together."""
        with self._store.snapshot() as snapshot:
            seqs = (self._lexical.opened().seq, self._dense.opened().seq)
            total = snapshot.inserted_after(seqs[0]) + min(snapshot.inserted_after(seqs[1]), snapshot.n_vectors)
        done = 0

        def advance(rows: int) -> None:
            nonlocal done, total
            done += rows
            total = max(total, done)  # an index that is built again reads more than it lacked
            if progress is not None:
                progress(done, total)

        self._lexical.current(advance)
        self._dense.current(advance)
        if progress is not None:
            progress(total, total)

    def flush(self) -> None:
        """Bring both indexes up to date and make their files last, so that the next opening starts from them.

        Raises:
            IndexUnwritable: the files can't be written. No document is lost: the next opening builds them again.
        """
        if not self._store.read_only:
            self._lexical.save()
            self._dense.save()

    def info(self) -> dict[str, object]:
        """Return settings, counts and the state of the indexes, as plain values."""
        with self._store.snapshot() as snapshot:
            counts = {"documents": snapshot.documents, "vectors": snapshot.n_vectors, "seq": snapshot.seq}
        folder = self._store.folder
        return {
            "path": str(folder),
            "read_only": self._store.read_only,
            **counts,
            "embed": self._settings.embed,
            "dim": self.dim,
            "language": self._settings.language,
            "disk_nbytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
            "lexical": self._lexical.info(),
            "dense": self._dense.info(),
        }

    def close(self) -> None:
        """Flush, close everything and let another process write; a second call does nothing."""
        if self._store.closed:
            return
        try:
            self.flush()
        finally:
            try:
                self._lexical.close()
                self._dense.close()
            finally:
                self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checked(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        query = np.asarray(vector, dtype=np.float32)
        if query.ndim != 1 or (self.dim is not None and query.size != self.dim):
            raise DimensionMismatch(
                f"the query's vector has shape {query.shape}, the database's vectors have ({self.dim},): "
                "embed the query with the model that the database was made with"
            )
        if not np.isfinite(query).all():
            raise NonFiniteVector("the query's vector holds NaN or infinity: embed the query again")
        return query


class _FilterCache:
    """The allowed rows of recent filters, each as of one state of the lexical index."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects the dictionary; nothing is called while it is held
        self._rows: OrderedDict[tuple[tuple[str, ...], int], NDArray[np.int64]] = OrderedDict()

    def rows(self, index: LexicalIndex, terms: tuple[str, ...]) -> NDArray[np.int64]:
        key = (terms, index.seq)
        with self._lock:
            if key in self._rows:
                self._rows.move_to_end(key)
                return self._rows[key]
        # The index may have moved on since `seq` was read; its rows are then newer than asked for, never older.
        found = index.rows_with(terms)
        with self._lock:
            self._rows[key] = found
            while len(self._rows) > _REMEMBERED_FILTERS:
                self._rows.popitem(last=False)
        return found


def _keepers(
    store: Store, settings: CollectionSettings, *, in_memory: bool
) -> tuple[Keeper[LexicalIndex], Keeper[DenseIndex]]:
    def lexical(folder: Path | None) -> LexicalIndex:
        # Tantivy, rank-bm25 and FAISS are loaded by the first search, not by opening.
        from vectorsearch.index.analyzer import Analyzer  # noqa: PLC0415 -- as above

        analyzer = Analyzer(settings.language)
        if settings.lexical == "rank-bm25":
            from vectorsearch.index.lexical_rank_bm25 import RankBM25Index  # noqa: PLC0415 -- as above

            return RankBM25Index(analyzer)
        from vectorsearch.index.lexical_tantivy import TantivyIndex  # noqa: PLC0415 -- as above

        return TantivyIndex(analyzer, folder, database=store.uuid, newest_seq=store.seq, read_only=store.read_only)

    def dense(folder: Path | None) -> DenseIndex:
        from vectorsearch.index.dense_exact import ExactIndex  # noqa: PLC0415 -- as above
        from vectorsearch.index.dense_faiss import FaissIndex, base_plan  # noqa: PLC0415 -- as above

        if settings.dense == "exact":
            return ExactIndex()
        plan = base_plan(settings.dense)
        return FaissIndex(plan, folder, database=store.uuid, newest_seq=store.seq, read_only=store.read_only)

    folder = None if in_memory else store.folder
    return (
        Keeper(store, lexical, folder and folder / "lexical"),
        Keeper(store, dense, folder and folder / "dense"),
    )


def _agree(store: Store, wanted: CollectionSettings | None) -> CollectionSettings:
    """Return the settings to work with; those of a new collection are stored.

    Raises:
        SettingsMismatch: `wanted` differs from what the collection was made with.
    """
    meta = store.meta()
    if _SETTINGS not in meta:
        agreed = wanted or CollectionSettings()
        chosen = {"embed": agreed.embed, "language": agreed.language, "lexical": agreed.lexical}
        store.set_meta({_SETTINGS: json.dumps(chosen)} | ({} if agreed.dim is None else {"dim": str(agreed.dim)}))
        return agreed
    stored = _settings_of(meta)
    if wanted is None:
        return stored
    for name in ("embed", "dim", "language", "lexical"):
        was, asked = getattr(stored, name), getattr(wanted, name)
        if was != asked and not (name == "dim" and None in {was, asked}):
            raise SettingsMismatch(
                f"database {str(store.folder)!r} was made with {name}={was!r} and is opened with {name}={asked!r}: "
                f"open it with {name}={was!r}, or index the documents into a new folder"
            )
    return replace(stored, dense=wanted.dense)


def _settings_of(meta: dict[str, str]) -> CollectionSettings:
    dim = int(meta["dim"]) if "dim" in meta else None
    return CollectionSettings(dim=dim, **json.loads(meta[_SETTINGS]))


def _check(settings: CollectionSettings) -> None:
    """Raise InvalidInput for a setting that no index can serve, before anything is made on disk."""
    from vectorsearch.index.analyzer import Analyzer  # noqa: PLC0415 -- loads no engine itself
    from vectorsearch.index.dense_faiss import base_plan  # noqa: PLC0415 -- likewise

    Analyzer(settings.language)
    if settings.dense != "exact":
        base_plan(settings.dense)
    if settings.lexical not in _ENGINES:
        raise InvalidInput(f"lexical engine {settings.lexical!r} is unknown: use one of {', '.join(_ENGINES)}")
    if settings.dim is not None and settings.dim < 1:
        raise InvalidInput(f"dim={settings.dim}: the length of a vector is 1 or more")
