"""One tenant's documents and indexes: the only user of the store and of the indexes."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Self

import numpy as np

from backends.errors import InvalidInput
from backends.text.languages import LANGUAGES
from vectorsearch.collection.index.base import no_candidates
from vectorsearch.collection.index.engines import analyzer_of, check_settings, open_indexes
from vectorsearch.collection.index.filtering.allowed_rows import AllowedRows
from vectorsearch.collection.index.filtering.filters import fields_of, has_field, parse_filter, plain_filter
from vectorsearch.collection.storage.errors import DimensionMismatch, NonFiniteVector, SettingsMismatch
from vectorsearch.collection.storage.sqlite.new_vectors import NewVectors
from vectorsearch.collection.storage.sqlite.records import check_dims, content_digest, existing_ids, to_records
from vectorsearch.collection.storage.sqlite.settings import (
    CollectionSettings,
    agree_settings,
    changed_embed,
    embed_of,
    stored_settings,
)
from vectorsearch.collection.storage.sqlite.store import Store
from vectorsearch.collection.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from numpy.typing import NDArray

    from vectorsearch.collection.index.base import DenseIndex, LexicalIndex
    from vectorsearch.collection.index.index_budget import IndexBudget
    from vectorsearch.collection.index.keeper import Keeper
    from vectorsearch.collection.index.lexical.bm25 import BM25
    from vectorsearch.collection.storage.sqlite.new_vectors import Make
    from vectorsearch.collection.storage.sqlite.records import Record
    from vectorsearch.collection.storage.sqlite.store import OnConflict
    from vectorsearch.types import Candidates, Document, Filter, Metadata, Written

    Progress = Callable[[int, int], None]

__all__ = ["Collection", "CollectionSettings", "content_digest", "stored_settings"]

_FEW = 1000  # rows, of which a list is made at once


class Collection:
    """Documents with their lexical and dense indexes; open it with `Collection.open`. Threads may share it.

    A write is acknowledged once it is in the store. The indexes follow from there: a search first applies what was
    committed since, so a writer finds its own writes, and a lost or damaged index file is built again.
    """

    def __init__(
        self, store: Store, settings: CollectionSettings, lexical: Keeper[LexicalIndex], dense: Keeper[DenseIndex]
    ) -> None:
        self.store = store
        self._settings = settings
        self._lexical = lexical
        self._dense = dense
        self._allowed = AllowedRows(store, lexical, dense)
        self._analyzer = analyzer_of(settings)  # remembers stems

    @classmethod
    def open(
        cls,
        path: Path,
        settings: CollectionSettings | None = None,
        *,
        read_only: bool = False,
        durable: bool = True,
        index_budget: IndexBudget | None = None,
    ) -> Self:
        """Open the collection in the folder `path`, or make one. The caller closes it.

        `settings` of None takes those that it was made with. With `read_only` any number of processes may read beside
        one that writes; they see its commits. `durable=False` is for a folder that is thrown away: nothing waits for
        the disk, and the indexes are kept in memory. Collections that share an `index_budget` share its memory.

        Raises:
            NotADatabase, NewerFormat: the folder holds something that can't be opened; nothing in it was changed.
            DatabaseLocked: it is open for writing elsewhere.
            SettingsMismatch: it was made with other settings.
        """
        if settings is not None:
            check_settings(settings)
        store = Store(path, read_only=read_only, durable=durable)
        try:
            agreed = agree_settings(store, settings)
        except BaseException:
            store.close()
            raise
        return cls(store, agreed, *open_indexes(store, agreed, in_memory=not durable, budget=index_budget))

    @property
    def settings(self) -> CollectionSettings:
        """Return the settings that the collection was made with; `dim` as of opening."""
        return self._settings

    @property
    def dim(self) -> int | None:
        """Return the length of the vectors, None until there is one."""
        return self.store.dim

    def check_writable(self) -> None:
        """Raise what every write would, whatever it holds.

        Raises:
            DatabaseClosed: after `close()`.
            ReadOnlyDatabase: it was opened with `read_only`.
            DatabaseLocked: this process was forked from the one that opened it.
        """
        self.store.check_writable()

    def check(self, docs: Sequence[Document], *, rows: Sequence[int], on_conflict: OnConflict) -> list[Record]:
        """Raise what `write` would for the documents themselves, before any is embedded; return them as it stores them.

        Messages name `rows`, one for each document.

        Raises:
            DuplicateId, DimensionMismatch, NonFiniteVector, InvalidInput: a document can't be stored.
        """
        records = to_records(docs, rows=rows)
        check_dims(records, self.dim, rows=rows)
        if on_conflict == "error" and (known := self.digests([doc.id for doc in docs])):
            raise existing_ids({doc.id: row for row, doc in zip(rows, docs, strict=True) if doc.id in known})
        return records

    def write(
        self,
        docs: Sequence[Document],
        *,
        on_conflict: OnConflict = "error",
        made_by: str | None = None,
        truncated: AbstractSet[str] = frozenset(),
    ) -> Written:
        """Store documents with their vectors in one transaction and return how many.

        It is acknowledged once this returns. `on_conflict` says what becomes of documents whose id is known: "replace"
        replaces them, "skip" leaves them as they are. `made_by` is the digest of the embedder that made vectors; it
        read the beginning alone of the documents whose ids are `truncated`.

        Raises:
            SpaceChanged: the vectors were exchanged for those of another embedder meanwhile; nothing was stored.
            DuplicateId, DimensionMismatch, NonFiniteVector, InvalidInput: nothing of the batch was stored.
            StorageFull: likewise.
        """
        return self.store.write(docs, on_conflict=on_conflict, made_by=made_by, truncated=truncated)

    def write_records(self, records: Sequence[Record], *, on_conflict: OnConflict, made_by: str | None) -> Written:
        """Store what `check` returned, or some of it, with vectors or without; otherwise as `write`."""
        return self.store.write_records(records, on_conflict=on_conflict, made_by=made_by)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents in one transaction and return how many there were."""
        return self.store.delete(ids)

    def delete_where(self, filter: Filter) -> int:  # noqa: A002 -- the field's word
        """Delete the documents that a filter lets through, as of this moment, in one transaction; return how many.

        Raises:
            InvalidInput: the filter can't be used, or lets everything through.
        """
        condition = parse_filter(filter)
        if condition is None:
            raise InvalidInput(f"the filter {filter!r} lets everything through: name what to delete")
        return self.store.delete_rows(self._lexical.current().rows_where(condition).tolist())

    def update_metadata(self, changes: Mapping[str, Metadata], *, replace: bool = False) -> int:
        """Change the metadata of documents by id in one transaction and return how many there were.

        Fields that a change doesn't name stay, unless `replace` is set. Nothing is embedded again.

        Raises:
            InvalidInput: metadata that can't be stored; nothing was changed.
        """
        return self.store.update_metadata(changes, replace=replace)

    def get(self, ids: Sequence[str], *, vectors: bool = True) -> list[Document | None]:
        """Return documents in the order of `ids`, None for an unknown one."""
        return self.store.get(ids, vectors=vectors)

    def fetch(self, rows: Sequence[int] | NDArray[np.int64]) -> list[Document | None]:
        """Return documents, without their vectors, in the order of `rows`; None for one deleted since it was found."""
        return self.store.fetch([int(row) for row in rows])

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the `content_digest` of each known id."""
        return self.store.digests(ids)

    def count(self) -> int:
        """Return the number of documents."""
        with self.store.snapshot() as snapshot:
            return int(snapshot.documents)

    def iter(self, *, vectors: bool = True) -> Iterator[Document]:
        """Yield the documents of this moment, in the order in which they were stored."""
        with self.store.snapshot() as snapshot:
            yield from snapshot.iter(vectors=vectors)

    def first(self, n: int) -> list[Document]:
        """Return the `n` documents that were stored first, without their vectors."""
        with self.store.snapshot() as snapshot:
            return list(islice(snapshot.iter(vectors=False), n))

    def lexical(
        self,
        query: str,
        k: int,
        filter: Filter | None = None,  # noqa: A002 -- the field's word
        *,
        phrases: Sequence[str] = (),
        title_weight: float = 0.0,
        constants: BM25 | None = None,
    ) -> Candidates:
        """Return the `k` documents whose words match `query` best, by BM25; empty if no word does.

        No text can raise. A document must fulfil `filter` and hold each of `phrases`. Its score is that of title and
        text together, plus `title_weight` times that of its title among titles. `constants` are the collection's own if
        None.
        """
        condition = parse_filter(filter)
        return self._lexical.current().search(
            query, k, condition, phrases=phrases, title_weight=title_weight, constants=constants
        )

    def has_words(self, text: str) -> bool:
        """Tell whether there is a word in a text that an index holds: stop words and signs alone are none."""
        return bool(self._analyzer.sequences(text))

    def highlights(self, query: str, text: str) -> list[tuple[int, int]]:
        """Return where in `text` the query's words are, in any form that counts as the same: (start, end), in order."""
        return self._analyzer.spans(text, set(self._analyzer.words(query)))

    def dense(self, vector: NDArray[np.float32], k: int, filter: Filter | None = None) -> Candidates:  # noqa: A002
        """Return the `k` documents whose vectors are nearest to `vector` float32[dim], by cosine; none if it is zero.

        Raises:
            DimensionMismatch: the vector has another length than those stored.
            NonFiniteVector: it holds NaN or infinity.
            SettingsMismatch: the writing process has exchanged the embedder since this collection was opened.
        """
        query = self._checked(vector)
        condition = parse_filter(filter)
        found = self._allowed.nearest(query, k, condition) if query.any() else no_candidates()
        if self.store.read_only and embed_of(self.store.meta()) != self._settings.embed:
            raise SettingsMismatch("another process has exchanged the embedder: open the database again")
        return found

    def count_where(self, filter: Filter | None) -> int:  # noqa: A002
        """Return the number of documents that a filter lets through; reads no document."""
        condition = parse_filter(filter)
        return self.count() if condition is None else self._lexical.current().count_where(condition)

    def unknown_fields(self, filter: Filter) -> list[str]:  # noqa: A002
        """Return the fields that a filter speaks of and no document has, sorted: a mistyped name finds nothing."""
        index = self._lexical.current()
        return [name for name in sorted(fields_of(plain_filter(filter))) if not index.count_where(has_field(name))]

    def examples(self, field: str, n: int) -> list[object]:
        """Return values of a field in at most `n` documents: of those that have it if they are few, else of the first.

        Which rows have a field is a list as long as there are; it isn't made for the sake of some examples.
        """
        index, condition = self._lexical.current(), has_field(field)
        if index.count_where(condition) > _FEW:
            documents = self.first(n)
        else:
            documents = [found for found in self.fetch(index.rows_where(condition)[:n]) if found is not None]
        return [document.metadata[field] for document in documents if field in document.metadata]

    def refresh(self, progress: Progress | None = None) -> None:
        """Bring both indexes up to date; `progress(done, total)` counts the rows of the two together."""
        self.upkeep.refresh(progress)

    def flush(self) -> None:
        """Bring both indexes up to date and make their files last, so that the next opening starts from them.

        Raises:
            IndexUnwritable: the files can't be written. No document is lost: the next opening builds them again.
        """
        if not (self.store.read_only or self.store.forked):
            self._lexical.save()
            self._dense.save()

    def info(self) -> dict[str, object]:
        """Return settings, counts and the state of the indexes, as plain values."""
        settings = {"embed": self._settings.embed, "dim": self.dim, **self._settings.words()}
        settings["stop_words"] = "own" if self._analyzer.has_own_stop_words else list(self._analyzer.stop_words)
        settings["languages"] = list(LANGUAGES)  # what there is to choose from
        truncated, unknown = (0, 0) if self._settings.embed is None else self.store.truncated()
        counts = {"truncated_documents": truncated, "truncated_unknown": unknown}
        return settings | self.upkeep.info() | ({} if self._settings.embed is None else counts)

    def new_vectors(self, made_by: str) -> NewVectors:
        """Return where another model's vectors are collected; those of the same model from an earlier run are kept."""
        return NewVectors(self.store, made_by)

    def exchange_vectors(self, new: NewVectors, *, embed: str, dim: int, make: Make) -> Written:
        """Put another model's vectors in the place of all; see `NewVectors.exchange`."""
        try:
            return new.exchange(meta=changed_embed(self.store.meta(), embed, dim), make=make)
        finally:  # what is stored decides: an interrupt may come just after the commit
            if embed_of(self.store.meta()) == embed:
                self._settings = replace(self._settings, embed=embed, dim=dim)

    @property
    def upkeep(self) -> Upkeep:
        """Return what verifies, repairs, compacts and copies this collection."""
        return Upkeep(self.store, self._lexical, self._dense)

    def close(self) -> None:
        """Flush, close everything and let another process write; a second call does nothing."""
        if self.store.closed:
            return
        if self.store.forked:  # nothing here is this process's to finish, and locks may be held for ever
            self.store.close()
            return
        try:
            self.flush()
        finally:
            try:
                self._lexical.close()
                self._dense.close()
            finally:
                self.store.close()

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
