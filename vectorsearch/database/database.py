"""`Database`: what callers hold. It turns arguments into plans and rows into documents; the work is done elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from backends.errors import InvalidInput
from rerank import ScoreCache
from vectorsearch.collection.index.filtering.filters import parse_filter, plain_filter
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.collection.storage.disk.files import writable
from vectorsearch.collection.storage.errors import DamagedDatabase
from vectorsearch.collection.storage.sqlite.schema import require_outside
from vectorsearch.database.place import local_folder
from vectorsearch.database.searching import Searching
from vectorsearch.database.tenancy import Tenancy
from vectorsearch.database.tenants_view import TenantSnapshot
from vectorsearch.database.whole_store import check_tenants, compact_tenants, require_whole
from vectorsearch.ingestion.documents import as_id
from vectorsearch.ingestion.writer import Writer
from vectorsearch.models.reindex import reindex
from vectorsearch.models.space import EmbeddingSpace, digest_of
from vectorsearch.query.planning.filter_notes import denial_notes, filter_notes
from vectorsearch.query.planning.rerankers import RerankerDesk
from vectorsearch.query.searcher import Searcher
from vectorsearch.types import Deleted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack
    from types import TracebackType

    from backends.base import ModelSpec
    from backends.choosing.health import BackendHealth
    from backends.choosing.selection import Choice, Workload
    from lifecycle import ManagerSnapshot
    from vectorsearch.collection.collection import Collection
    from vectorsearch.collection.storage.soundness import Fault
    from vectorsearch.collection.storage.sqlite.store import OnConflict
    from vectorsearch.collection.upkeep import Compaction, Verification
    from vectorsearch.database.tenants import Tenants
    from vectorsearch.ingestion.rows import Rows, Vectors
    from vectorsearch.models.registration import Registration
    from vectorsearch.models.resolving import Models
    from vectorsearch.types import Document, Filter, Metadata, Written


_PARENTS: list[object] = []  # what a forked child has let go of and must not close


class Database(Searching, Tenancy):
    """Documents, their indexes, and the models that search them. Made by `open`; threads may share it.

    Close it when done, or use it as a context manager: closing writes the derived index files, unloads the
    models and lets another process write. What was acknowledged is safe even if the process is killed.
    """

    def __init__(
        self,
        collection: Collection,
        models: Models,
        *,
        embedder: ModelSpec | None,
        reranker: str | Path | ModelSpec | None,
        rerank_cache_nbytes: int = 0,
        registration: Registration,
        tenants: Tenants | None,
        resources: ExitStack,
    ) -> None:
        self._collection = collection
        self._models = models
        self._space = EmbeddingSpace(embedder)
        self._resources = resources  # what closing closes, the collection first
        self._closing = threading.RLock()  # held while it is closed, so that a second call returns when all is done
        self._writer = Writer(collection, models, self._space)
        cache = ScoreCache(rerank_cache_nbytes) if rerank_cache_nbytes else None
        Tenancy.__init__(self, models.tenant, registration, tenants)
        registration.protect(self._embedded_by, self._space)
        searcher = Searcher(collection, models, RerankerDesk(models, reranker, cache), space=self._space)
        Searching.__init__(self, searcher, lambda name: self._root().existing(name))

    @property
    def embedder(self) -> ModelSpec | None:
        """Return the model that embeds documents and queries; None if the vectors are the caller's own."""
        return self._space.embedder

    @property
    def language(self) -> str | None:
        """Return the language whose stemming and stop words count; None for words as they are written."""
        return self._collection.settings.language

    @property
    def bm25(self) -> BM25:
        """Return the constants of lexical scores, where a search names no others."""
        return BM25(self._collection.settings.k1, self._collection.settings.b)

    def embedder_choice(self, workload: Workload = "query") -> Choice | None:
        """Return which backends run the embedder, the first one first, and why; None if there is no embedder.

        Raises:
            CannotServe: none can.
        """
        embedder = self._space.embedder
        return None if embedder is None else self._models.choice(embedder, workload)

    def check_writable(self) -> None:
        """Raise what every write would, whatever it holds: for who has long work to do before one.

        Raises:
            DatabaseClosed, ReadOnlyDatabase, DatabaseLocked: nothing can be written.
        """
        self._collection.check_writable()

    def add(self, docs: Rows, *, vectors: Vectors | None = None, on_conflict: OnConflict = "error") -> Written:
        """Store documents and return how many; the number's `truncated` says how many didn't fit the embedder.

        They are read in chunks, never listed whole, and each chunk is one transaction: on an error the chunks before it
        stay, and the error's notes say how many documents that is. A document without a vector is embedded, if the
        database has an embedder.

        Args:
            docs: mappings with `id`, `text` and, if wanted, `title`, `metadata`, `vector` (float32[dim]), see
                `documents.parse_documents`; or a pandas DataFrame, an Arrow table or stream, or several of these, with
                such columns. A table's nulls are fields that a document lacks.
            vectors: float32[n, dim], or an iterable of float32[dim]: the n-th is the n-th document's.
            on_conflict: of an id that is stored already, or comes again: `error`, `skip` keeps what came first, and
                `replace` is `upsert`.

        Raises:
            DuplicateId: an id is already stored, or comes twice.
            InvalidDocument, DimensionMismatch, NonFiniteVector: a row is malformed; the message names it.
            InvalidInput: these are no documents, or not as many vectors.
            BudgetExhausted, ModelUnavailable: the embedder can't fit, or isn't there any more.
        """
        return self._writer.write(docs, on_conflict=on_conflict, vectors=vectors)

    def upsert(self, docs: Rows, *, vectors: Vectors | None = None) -> Written:
        """Store documents, replacing those whose id is known, and return how many changed; otherwise as `add`."""
        return self._writer.write(docs, on_conflict="replace", vectors=vectors)

    def delete(self, ids: Iterable[str] | None = None, *, filter: Filter | None = None) -> Deleted:  # noqa: A002 -- the field's own word
        """Delete documents by id, or all that a filter lets through, in one transaction; return how many existed.

        The number's `notes` tell, as a search's do, of fields that no document has, and of values of another kind.

        Raises:
            InvalidInput: both are given, or neither, or the filter lets everything through.
        """
        if (ids is None) == (filter is None):
            raise InvalidInput("name the documents to delete either by ids or by a filter")
        if filter is not None:
            return self._delete_where(filter)
        if isinstance(ids, str):
            return Deleted(self._collection.delete([ids]))
        if not isinstance(ids, Iterable) or isinstance(ids, bytes | bytearray | memoryview):
            raise InvalidInput(f"ids is {ids!r}: give a list of ids")
        return Deleted(self._collection.delete([as_id(value) for value in ids]))

    def _delete_where(self, filter: Filter) -> Deleted:  # noqa: A002 -- as above
        parse_filter(filter)  # what can't be used is refused before anything is asked of it
        wanted = plain_filter(filter)
        notes = denial_notes(self._collection, wanted)  # before they are gone that have other fields
        deleted = self._collection.delete_where(filter)
        if not deleted and self._collection.count():
            notes = filter_notes(self._collection, wanted)
        return Deleted(deleted, notes)

    def update_metadata(self, changes: Mapping[str, Metadata], *, replace: bool = False) -> int:
        """Change the metadata of documents by id, in one transaction, and return how many existed.

        Fields that a change doesn't name stay, unless `replace` is set. Nothing is embedded again.
        """
        if not isinstance(changes, Mapping):
            raise InvalidInput(f"changes is {changes!r}: give a mapping from id to metadata")
        return self._collection.update_metadata({as_id(i): given for i, given in changes.items()}, replace=replace)

    def get(self, doc_id: str) -> Document | None:
        """Return the document, vector included, or None if there is none."""
        return self._collection.get([as_id(doc_id)])[0]

    def count(self) -> int:
        """Return the number of documents."""
        return self._collection.count()

    def __len__(self) -> int:
        return self.count()

    def __contains__(self, doc_id: str) -> bool:
        return bool(self._collection.digests([as_id(doc_id)]))

    def refresh(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Bring the indexes up to date now rather than at the next search; `progress(done, total)` counts rows."""
        self._collection.refresh(progress)

    def iter(self) -> Iterator[Document]:
        """Give all documents in the order in which they were stored."""
        return self._collection.iter()

    def models(self) -> ManagerSnapshot | TenantSnapshot:
        """Tell what is resident, leased and charged, and what the counters say; a tenant sees its own models only."""
        snapshot = self._models.manager.snapshot()
        return TenantSnapshot.of(snapshot, self.tenant_name) if self.tenant_name else snapshot

    def check_health(self, threshold: float = 0.1) -> tuple[BackendHealth, ...]:
        """Return the inference backends that let down more than this share of recent calls; none if all are well.

        Each tells its successes, failures, calls that fell back to another backend, and whether its breaker is open.
        """
        return self._models.check_health(threshold)

    def info(self) -> dict[str, Any]:
        """Return settings, sizes, the state of derived files, and if the embedder can't be had, `embedder_fault`.

        `embedder_max_tokens` is how much of a document it reads, `truncated_documents` how many are longer. Those that
        releases before this count stored with a vector are `truncated_unknown`, until they are embedded again.
        `embedder_note` is there where the documents know it by a digest of release 0.1.0.
        """
        found = self._collection.info()
        limit = {} if self.embedder is None else {"embedder_max_tokens": self.embedder.max_length}
        return found | limit | self._space.faults() | self._space.notes(found["embed"])

    def reindex(self, *, embed: str | Path | ModelSpec, progress: Callable[[int, int], None] | None = None) -> Written:
        """Embed every document again with another model, exchange the vectors, and return how many there are.

        Searches and writes go on with the old model until then. Killed or interrupted, the same call goes on where it
        stopped. Vectors that were the caller's own are exchanged as well. `progress(done, total)` counts documents. Of
        `truncated` ones the model read the beginning alone.

        Raises:
            UnknownModel, InvalidInput: there is no such embedder.
            VectorSearchError: the model failed, or the database can't be written; the old vectors stay.
        """
        embedder = self.find_embedder(embed)
        return reindex(self._collection, self._models, self._space, embedder=embedder, progress=progress)

    def find_embedder(self, embed: str | Path | ModelSpec) -> ModelSpec:
        """Return the embedder of a name or folder, without downloading it.

        Raises:
            UnknownModel, InvalidInput: there is none.
        """
        return self._models.resolve(embed, "embed")

    def find_reranker(self, rerank: str | Path | ModelSpec) -> ModelSpec:
        """Return the reranking model of a name or folder, without downloading it.

        Raises:
            UnknownModel, InvalidInput: there is none.
        """
        return self._models.resolve(rerank, "cross-encode")

    def verify(self, progress: Callable[[int, int], None] | None = None) -> Verification:
        """Check every document, vector and file, and that the indexes find what is stored; nothing is changed.

        The root of a store checks its tenants, the registered models' files, and that no tenant's row is lost as well.
        """
        found = self._collection.upkeep.verify(progress)
        return check_tenants(found, self._tenants, Database.verify, progress)

    def repair(self, progress: Callable[[int, int], None] | None = None) -> Verification:
        """Mend what can be, build both indexes again from the documents, and return what is still at fault.

        The root of a store mends its tenants as well.
        """
        found = self._collection.upkeep.repair(progress)
        if self._tenants is not None:
            found = replace(found, faults=(*found.faults, *self._tenants.recover()))
        return check_tenants(found, self._tenants, Database.repair, progress)

    def compact(self) -> Compaction:
        """Give the room of deleted documents back to the disk, and make the indexes as if they had never been.

        The root of a store compacts its tenants as well.

        Raises:
            StoreError: it can't be written, or a tenant's is damaged; all others are compacted.
        """
        upkeep = self._collection.upkeep
        return compact_tenants(upkeep.compact(), self._tenants, upkeep.store.folder)

    def snapshot(self, path: str | Path) -> None:
        """Write a copy of the database as of this moment to the new folder `path`, while it is in use.

        Registered models go with it, and tenants, each as of a moment of its own. The copy of a tenant's database is a
        store of its own, with the tenant's models and nobody else's.

        Raises:
            NotADatabase: there is something at `path` already.
            InvalidInput: `path` is no path of this machine, or lies within a database.
            StoreError: it can't be written; or it is, and lacks a tenant or a model that is damaged or missing.
        """
        if not isinstance(path, str | PathLike) or not str(path):
            raise InvalidInput(f"path is {path!r}: name a new folder for the snapshot")
        faults: list[Fault] = []

        def copy_more(folder: Path) -> None:
            if self._tenants is None:
                faults.extend(self._registration.copy_into(folder, embedder=self.embedder))
            else:
                copy = self._tenants.copy_into
                faults.extend(copy(folder, lambda tenant, to: tenant._collection.upkeep.snapshot(to)))  # noqa: SLF001 -- of this class

        if self._tenants is not None and self._tenants.fault:
            raise DamagedDatabase(self._tenants.fault)
        local_folder(path)
        with writable(Path(path)):
            require_outside(Path(path))
            self._collection.upkeep.snapshot(Path(path), also=copy_more)
        require_whole(f"{str(path)!r} is written", faults)

    def _embedded_by(self, name: str, digest: str) -> tuple[str, ...]:
        """Return whose documents a registered model has embedded: this database's, and those of its tenants."""
        embedder = self._space.embedder
        is_own = embedder is not None and embedder.name == name and digest.startswith(digest_of(embedder))
        own = (self.tenant_name or "this database",) if is_own else ()
        return own if self._tenants is None else (*own, *self._tenants.embedded_by(digest))

    @property
    def uuid(self) -> str:
        """Return what names this database, and no other but its copies."""
        return self._collection.upkeep.store.uuid

    @property
    def closed(self) -> bool:
        """Tell whether `close` was called."""
        return self._collection.upkeep.store.closed

    def close(self) -> None:
        """Write derived files, unload the models and release the lock; closing again is harmless."""
        if self._collection.upkeep.store.forked:  # dropped: models, threads and files are its parent's
            _PARENTS.append(self._resources.pop_all())
            self._collection.close()
            return
        with self._closing:
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
