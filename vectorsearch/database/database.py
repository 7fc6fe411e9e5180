"""`Database`: what callers hold. It turns arguments into plans and rows into documents; the work is done elsewhere."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from backends.errors import InvalidInput
from backends.running.deadline import Deadline
from lifecycle import LoadPolicy, ModelConfig
from lifecycle.config import warn_of_old
from rerank import ScoreCache
from vectorsearch.collection.index.filtering.filters import parse_filter, plain_filter
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.collection.storage.disk.files import writable
from vectorsearch.collection.storage.errors import DamagedDatabase
from vectorsearch.collection.storage.sqlite.schema import require_outside
from vectorsearch.database.place import local_folder
from vectorsearch.database.tenants import AS_BEFORE
from vectorsearch.database.tenants_view import TenantSnapshot
from vectorsearch.database.whole_store import check_tenants, compact_tenants, require_whole
from vectorsearch.ingestion.documents import as_id
from vectorsearch.ingestion.writer import Writer
from vectorsearch.models.embedding import embed_texts
from vectorsearch.models.reindex import reindex
from vectorsearch.models.space import EmbeddingSpace, digest_of
from vectorsearch.query.explaining.explain import Explanation
from vectorsearch.query.planning.filter_notes import denial_notes, filter_notes
from vectorsearch.query.planning.request import check_timeout
from vectorsearch.query.planning.rerankers import RerankerDesk
from vectorsearch.query.searcher import Searcher, SearchOptions
from vectorsearch.types import Deleted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack
    from types import TracebackType

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from backends.base import ModelSpec
    from backends.choosing.health import BackendHealth
    from backends.choosing.selection import Choice, Workload
    from backends.running.text_model import TextKind
    from lifecycle import ManagerSnapshot
    from vectorsearch.collection.collection import Collection
    from vectorsearch.collection.storage.soundness import Fault
    from vectorsearch.collection.storage.sqlite.store import OnConflict
    from vectorsearch.collection.upkeep import Compaction, Verification
    from vectorsearch.database.tenants import TenantInfo, TenantOptions, Tenants
    from vectorsearch.ingestion.rows import Rows, Vectors
    from vectorsearch.models.registration import RegisteredModel, Registration
    from vectorsearch.models.resolving import Models
    from vectorsearch.query.execution.fusion import Fusion
    from vectorsearch.query.planning.defaults import SearchDefaults
    from vectorsearch.query.planning.request import OnRerankError
    from vectorsearch.query.results import SearchResult
    from vectorsearch.types import Document, Filter, Metadata, Mode, Written


_PARENTS: list[object] = []  # what a forked child has let go of and must not close


class Database:
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
        tenants: Tenants[Database] | None,
        resources: ExitStack,
    ) -> None:
        self._collection = collection
        self._models = models
        self._space = EmbeddingSpace(embedder)
        self._resources = resources  # what closing closes, the collection first
        self._closing = threading.RLock()  # held while it is closed, so that a second call returns when all is done
        self._writer = Writer(collection, models, self._space)
        cache = ScoreCache(rerank_cache_nbytes) if rerank_cache_nbytes else None
        self.tenant_name = models.tenant
        self._registration = registration
        self._tenants = tenants
        registration.protect(self._embedded_by, self._space)
        self._searcher = Searcher(collection, models, RerankerDesk(models, reranker, cache), space=self._space)

    def __repr__(self) -> str:
        store = self._collection.store
        tenants = f", {len(self._tenants.list())} tenants" if self._tenants is not None and not store.closed else ""
        holds = "closed" if store.closed else f"{self.count():,} documents, {self._embedder_name}{tenants}"
        return f"<Database {str(store.folder)!r}: {holds}>"

    @property
    def _embedder_name(self) -> str:
        return "vectors of the caller's own" if self._space.embedder is None else self._space.embedder.name

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

    @property
    def defaults(self) -> SearchDefaults | None:
        """Return how this database searches where the caller doesn't say; None for the built-in way.

        Set it, or let `evaluation.tune` find and set it; it is stored with the database.

        Raises:
            InvalidInput, UnknownModel: what is set is no `SearchDefaults`, or no search could be done so.
        """
        return self._searcher.defaults.get()

    @defaults.setter
    def defaults(self, defaults: SearchDefaults | None) -> None:
        self._searcher.keep(defaults)

    def search(
        self,
        query: str | None = None,
        *,
        vector: ArrayLike | None = None,
        k: int = 10,
        filter: Filter | None = None,  # noqa: A002 -- the field's own word
        mode: Mode = "auto",
        fusion: Fusion | None = None,
        weights: Mapping[str, float] | None = None,
        rrf_k: float | None = None,
        phrases: Sequence[str] = (),
        title_weight: float = 0.0,
        k1: float | None = None,
        b: float | None = None,
        highlight: bool = False,
        rerank: object = None,
        rerank_depth: int | None = None,
        rerank_field: str = "text",
        min_score: float | None = None,
        timeout_s: float | None = None,
        on_rerank_error: OnRerankError = "degrade",
        tenant: str | None = None,
        explain: bool = False,
    ) -> SearchResult:
        """Find the k documents that answer the query best.

        A search that names no mode, fusion, weights, phrases or reranker is done as `defaults` says.

        Args:
            query: text; may be left out if there is a `vector`.
            vector: float32[dim], used for dense retrieval instead of embedding the query; nothing is near a zero one.
            k: number of hits wanted; 0 gives none.
            filter: what a document's metadata must be, `{"lang": "en", "year": {"$gte": 2020}}`, for every retriever;
                see `index.filters.parse_filter`.
            mode: `hybrid`, `dense`, `lexical`, or `auto`: hybrid where there is an embedder or a vector, else lexical.
            fusion: how hybrid lists are merged: by ranks, `rrf`, or by scores, `minmax` or `zscore`. None is `rrf`; but
                with a feature model, if weights and rrf_k are None too, it is `minmax` with a weight of 0.2 for dense.
            weights: weight of each retriever in the fusion, `{"lexical": 1.0, "dense": 1.0}`.
            rrf_k: the constant of reciprocal rank fusion; 60 if None.
            phrases: texts whose words a document must hold side by side; the search is then by words alone.
            title_weight: how much a word in the title counts beside what it counts in title and text together.
            k1: BM25's constant of repeated words; the database's if None.
            b: BM25's constant of length, from 0 to 1; the database's if None.
            highlight: say where in each hit's text the query's words are, in `hit.highlights`.
            rerank: True for the default model, a model's name or folder, an object with `predict`, `rank` or `rerank`,
                a callable `(query, texts) -> scores`, a list of these (the first that can answers), or a `Rerank`;
                False for none, whatever `defaults` says.
            rerank_depth: how many of the best hits the reranker reads; max(k, 50) if None.
            rerank_field: what it reads of a document: `text` (title and text), `title`, or a text of its metadata.
            min_score: drop hits whose rerank score is lower; skipped, and said so, where the reranker was left out.
            timeout_s: seconds that the search may take. A stage that is late is left out and named in `.degraded`;
                None waits for each.
            on_rerank_error: `degrade` keeps the order that there is and says so in `.degraded`; `raise` raises.
            tenant: whose database is searched, as by `db.tenant(name).search(…)`, but none is made; None for this one.
            explain: print the plan as a tree, with what happened beside it.

        Raises:
            EmptyQuery, UnknownMode, UnknownModel, DimensionMismatch, InvalidInput: an argument can't be used.
            UnknownTenant: there is none of this name.
            BudgetExhausted, ModelUnavailable: `mode="dense"`, and the embedder can't fit, or isn't there any more.
            DeadlineExceeded: no retriever was done in time.
        """
        options = SearchOptions(
            vector=vector,
            k=k,
            filter=filter,
            mode=mode,
            fusion=fusion,
            weights=weights,
            rrf_k=rrf_k,
            phrases=phrases,
            title_weight=title_weight,
            k1=k1,
            b=b,
            highlight=highlight,
            rerank=rerank,
            rerank_depth=rerank_depth,
            rerank_field=rerank_field,
            min_score=min_score,
            timeout_s=timeout_s,
            on_rerank_error=on_rerank_error,
        )
        result = self._searcher_of(tenant).search(query, counted=explain, **options)
        if explain:
            sys.stdout.write(f"{Explanation(result.plan, result)}\n")
        return result

    async def asearch(
        self, query: str | None = None, *, tenant: str | None = None, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Search on another thread, with the options of `search`; a caller that is cancelled only stops waiting."""
        return await asyncio.to_thread(lambda: self._searcher_of(tenant).search(query, **options))

    def search_many(
        self, queries: Iterable[str], *, tenant: str | None = None, **options: Unpack[SearchOptions]
    ) -> list[SearchResult]:
        """Search for each query, with the options of `search`; all of them are encoded in one batch.

        `timeout_s` is for each query; the batch's encoding is not part of it.
        """
        return self._searcher_of(tenant).search_many(queries, **options)

    def score(
        self,
        query: str,
        texts: Sequence[str],
        *,
        rerank: object = True,
        timeout_s: float | None = None,
        tenant: str | None = None,
    ) -> NDArray[np.float32]:
        """Return how well each text answers the query, by the one model that `rerank` names as in `search`: float32[n].

        `timeout_s` and `tenant`, whose models these are, as in `search`; late scores are an error.

        Raises:
            UnknownModel, InvalidInput: there is no such reranker, or it is several.
            UnknownTenant: there is none of this name.
            DeadlineExceeded, LeaseTimeout: it can't be done, or the model not be had, in time.
            VectorSearchError: it failed.
        """
        return self._searcher_of(tenant).score(query, texts, rerank, timeout_s=timeout_s)

    def embed(
        self,
        texts: Iterable[str],
        *,
        role: TextKind,
        model: str | Path | ModelSpec | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        timeout_s: float | None = None,
        tenant: str | None = None,
    ) -> NDArray[np.float32]:
        """Return one vector for each text as the model gives it, float32[n, dim], in the texts' order.

        Args:
            texts: any number of texts; what is longer than the model reads is cut.
            role: `query` or `passage`: which of the model's prefixes is put before each.
            model: an embedder's name or folder; None is the database's own.
            normalize: True brings each vector to length 1, False leaves them as they are; None is True, save for a
                model that was trained for other than cosines.
            dimensions: the first so many numbers alone, before they are normalised; good only for a model that was
                trained for it (Kusupati et al., 2022, "Matryoshka Representation Learning").
            timeout_s: seconds that it may take; None waits.
            tenant: whose models these are, as in `search`.

        Raises:
            UnknownModel, InvalidInput: there is no such embedder, or an argument can't be used.
            UnknownTenant: there is none of this name.
            DeadlineExceeded, LeaseTimeout: it can't be done, or the model not be had, in time.
            VectorSearchError: the model failed.
        """
        check_timeout(timeout_s)
        owner = self if tenant is None else self._root().existing(tenant)
        models = owner._models  # noqa: SLF001 -- of this class
        deadline = None if timeout_s is None else Deadline.after(timeout_s, models.manager.clock)
        embedder = owner.embedder if model is None else owner.find_embedder(model)
        if embedder is None:
            raise InvalidInput("the database has no embedder, its vectors are the caller's own: name a model")
        encoder = models.encoder(embedder)
        return embed_texts(encoder, texts, role=role, normalize=normalize, dimensions=dimensions, deadline=deadline)

    def explain(
        self,
        query: str | None = None,
        *,
        analyze: bool = False,
        tenant: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> Explanation:
        """Return the plan of `search(query, **options)` as a tree; with `analyze`, run it and show what happened."""
        searcher = self._searcher_of(tenant)
        if analyze:
            result = searcher.search(query, counted=True, **options)
            return Explanation(result.plan, result)
        return Explanation(searcher.plan(query, **options))

    def _searcher_of(self, tenant: str | None) -> Searcher:
        return self._searcher if tenant is None else self._root().existing(tenant)._searcher  # noqa: SLF001 -- of this class

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

    @property
    def quota_nbytes(self) -> int | None:
        """Return the bytes that the tenant's models may take together, None for no quota; `tenant` sets it."""
        return self._registration.quota_nbytes

    def tenant(
        self,
        name: str,
        *,
        quota_nbytes: int | Literal["default"] | None = AS_BEFORE,
        guaranteed_nbytes: int | Literal["default"] = AS_BEFORE,
        **options: Unpack[TenantOptions],
    ) -> Database:
        """Return a tenant's database in this store, made if there is none; the same one each time, closed with this.

        It has documents, indexes, registered models and an embedder of its own; `options` are `embed`, `rerank`,
        `language`, `stop_words`, `fold_accents`, `k1`, `b`, `lexical` and `dense_index` of `vectorsearch.open`, the
        embedder being this database's by default.
        Models of all tenants share the budget: the tenant's may take `quota_nbytes` at most (None: no quota), and of
        what it uses, `guaranteed_nbytes` never leave for another. Sizes that are not given stay as they are.

        Raises:
            InvalidInput: the name can't be used, a size is negative, it is open with other options, or this is a
                tenant's database itself.
            DamagedDatabase: its documents are missing; they aren't made anew.
        """
        return self._root().get(name, quota_nbytes=quota_nbytes, guaranteed_nbytes=guaranteed_nbytes, **options)

    def tenants(self) -> tuple[TenantInfo, ...]:
        """Return the tenants of this store, by name."""
        return self._root().list()

    def remove_tenant(self, name: str) -> None:
        """Remove a tenant, its documents and models; what only it used is freed.

        Raises:
            UnknownTenant: there is none of this name.
        """
        self._root().remove(name)

    def register_model(
        self,
        name: str,
        source: str | Path,
        task: str,
        *,
        ttl_s: float | None = None,
        eviction_rank: int = 0,
        load_policy: str = LoadPolicy.LAZY,
        warm_up: bool = True,
        pinned: bool = False,
        min_residency_s: float = 0.0,
        compare: bool = True,
        progress: Callable[[str], object] | None = None,
        accept_keys: Sequence[str] = (),
        priority: int | None = None,
    ) -> RegisteredModel:
        """Register a model under a name of this tenant's own, for `search(rerank=NAME)` or as an embedder.

        `source` is a folder in Hugging Face layout or a catalogue name; `task` is "cross-encoder" or "embedder". The
        files are copied into the store, and the model is loaded and tried before the name counts; a name that means a
        model already is exchanged without a search that fails. The documents' embedder, registered again after its
        files were damaged or lost, serves at once. The options are those of `lifecycle.ModelConfig`;
        `priority` is the old name of `eviction_rank`.

        A folder's model is tried in a confined child process first, with the memory of the quota or the budget and 60
        seconds; what it took there it is charged (`RegisteredModel.trial`). With `compare` its answers are compared
        with sentence-transformers', where that is installed and reads the folder, in more time than those 60 seconds.
        `progress` is told each step.

        A key of the folder's configuration that isn't understood is refused by its name. With `accept_keys` you say of
        such keys that they change no answer: they are stored, and part of the model's digest. A tenant can't say so.

        Raises:
            InvalidInput: the name, the task or an option can't be used, the model is too large, or the documents are
                embedded with the one that would be exchanged.
            UnknownModel, InvalidModel, CannotServe, ModelUnavailable: there is no such model, or it can't be served.
            InferenceError, LifecycleError: it can't be loaded, or its answers are no numbers.
        """
        if priority is not None:
            warn_of_old("priority", "eviction_rank")
            eviction_rank = priority
        if load_policy not in list(LoadPolicy):
            raise InvalidInput(f"load_policy {load_policy!r}: use {' or '.join(map(repr, map(str, LoadPolicy)))}")
        config = ModelConfig(
            load_policy=LoadPolicy(load_policy),
            ttl_s=None if ttl_s == math.inf else ttl_s,
            eviction_rank=eviction_rank,
            pinned=pinned,
            warm_up=warm_up,
            min_residency_s=min_residency_s,
        )
        registered = self._registration.register(
            name, source, task=task, config=config, compare=compare, progress=progress, accept_keys=accept_keys
        )
        for tenant in self._tenants.opened() if self._tenants else ():
            tenant._registration.find_lent(name, self._registration)  # noqa: SLF001 -- of this class
        return registered

    def unregister_model(self, name: str) -> None:
        """Forget a registered model; its memory and, if no other tenant uses them, its files are freed.

        Raises:
            UnknownModel: there is none of this name.
            InvalidInput: the documents are embedded with it.
        """
        self._registration.unregister(name)

    def registered_models(self, *, all_tenants: bool = False) -> tuple[RegisteredModel, ...]:
        """Return the models that this tenant has registered, by name; or the store's and those of `all_tenants`.

        Raises:
            InvalidInput: `all_tenants` is asked of a tenant.
        """
        return self._root().registered() if all_tenants else self._registration.registered()

    def _root(self) -> Tenants[Database]:
        if self._tenants is None:
            raise InvalidInput(f"{self.tenant_name!r} is a tenant itself: ask the database that it belongs to")
        return self._tenants

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
