"""`Database`: what callers hold. It turns arguments into plans and rows into documents; the work is done elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from backends.errors import InvalidInput
from rerank import ScoreCache
from vectorsearch.documents import as_id
from vectorsearch.query.explain import Explanation
from vectorsearch.query.fusion import RRF_K
from vectorsearch.reindex import reindex
from vectorsearch.rerankers import RerankerDesk
from vectorsearch.searcher import Searcher, SearchOptions
from vectorsearch.space import EmbeddingSpace
from vectorsearch.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack
    from types import TracebackType

    from numpy.typing import ArrayLike

    from backends.base import ModelSpec
    from backends.health import BackendHealth
    from backends.selection import Choice, Workload
    from lifecycle import ManagerSnapshot
    from vectorsearch.collection import Collection
    from vectorsearch.models import Models
    from vectorsearch.query.fusion import Fusion
    from vectorsearch.query.request import OnRerankError
    from vectorsearch.results import SearchResult
    from vectorsearch.types import Document, Filter, Metadata, Mode
    from vectorsearch.upkeep import Compaction, Verification
    from vectorsearch.writer import Rows


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
        resources: ExitStack,
    ) -> None:
        self._collection = collection
        self._models = models
        self._space = EmbeddingSpace(embedder)
        self._resources = resources  # what closing closes, the collection first
        self._writer = Writer(collection, models, self._space)
        cache = ScoreCache(rerank_cache_nbytes) if rerank_cache_nbytes else None
        self._searcher = Searcher(collection, models, RerankerDesk(models, reranker, cache), space=self._space)

    @property
    def embedder(self) -> ModelSpec | None:
        """Return the model that embeds documents and queries; None if the vectors are the caller's own."""
        return self._space.embedder

    def embedder_choice(self, workload: Workload = "query") -> Choice | None:
        """Return which backends run the embedder, the first one first, and why; None if there is no embedder.

        Raises:
            CannotServe: none can.
        """
        embedder = self._space.embedder
        return None if embedder is None else self._models.choice(embedder, workload)

    def add(self, docs: Rows) -> int:
        """Store new documents and return how many.

        `docs` yields mappings with `id`, `text` and, if wanted, `title`, `metadata`, `vector` (float32[dim]); see
        `documents.parse_documents`. It is read in chunks, never listed whole, and each chunk is one transaction:
        on an error the chunks before it stay, and the error's notes say how many documents that is. A document
        without a vector is embedded, if the database has an embedder.

        Raises:
            DuplicateId: an id is already stored, or comes twice.
            InvalidDocument, DimensionMismatch, NonFiniteVector: a row is malformed; the message names it.
            BudgetExhausted: the embedder can't fit.
        """
        return self._writer.write(docs, replace=False)

    def upsert(self, docs: Rows) -> int:
        """Store documents, replacing those whose id is known, and return how many; otherwise as `add`."""
        return self._writer.write(docs, replace=True)

    def delete(self, ids: Iterable[str] | None = None, *, filter: Filter | None = None) -> int:  # noqa: A002 -- the field's own word
        """Delete documents by id, or all that a filter lets through, in one transaction; return how many existed.

        Raises:
            InvalidInput: both are given, or neither, or the filter lets everything through.
        """
        if (ids is None) == (filter is None):
            raise InvalidInput("name the documents to delete either by ids or by a filter")
        if filter is not None:
            return self._collection.delete_where(filter)
        if isinstance(ids, str):
            return self._collection.delete([ids])
        if not isinstance(ids, Iterable):
            raise InvalidInput(f"ids is {ids!r}: give a list of ids")
        return self._collection.delete([as_id(value) for value in ids])

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

    def search(
        self,
        query: str | None = None,
        *,
        vector: ArrayLike | None = None,
        k: int = 10,
        filter: Filter | None = None,  # noqa: A002 -- the field's own word
        mode: Mode = "auto",
        fusion: Fusion = "rrf",
        weights: Mapping[str, float] | None = None,
        rrf_k: float = RRF_K,
        rerank: object = None,
        rerank_depth: int | None = None,
        rerank_field: str = "text",
        min_score: float | None = None,
        timeout_s: float | None = None,
        on_rerank_error: OnRerankError = "degrade",
        explain: bool = False,
    ) -> SearchResult:
        """Find the k documents that answer the query best.

        Args:
            query: text; may be left out if there is a `vector`.
            vector: float32[dim], used for dense retrieval instead of embedding the query.
            k: number of hits wanted; 0 gives none.
            filter: what a document's metadata must be, `{"lang": "en", "year": {"$gte": 2020}}`, for every retriever;
                see `index.filters.parse_filter`.
            mode: `hybrid`, `dense`, `lexical`, or `auto`: hybrid where there is an embedder or a vector, else lexical.
            fusion: how hybrid lists are merged: by ranks, `rrf`, or by scores, `minmax` or `zscore`.
            weights: weight of each retriever in the fusion, `{"lexical": 1.0, "dense": 1.0}`.
            rrf_k: the constant of reciprocal rank fusion.
            rerank: True for the default model, a model's name or folder, an object with `predict`, `rank` or `rerank`,
                a callable `(query, texts) -> scores`, a list of these (the first that can answers), or a `Rerank`.
            rerank_depth: how many of the best hits the reranker reads; max(k, 50) if None.
            rerank_field: what it reads of a document: `text` (title and text), `title`, or a text of its metadata.
            min_score: drop hits whose rerank score is lower; skipped, and said so, where the reranker was left out.
            timeout_s: seconds that the search may take. A stage that is late is left out and named in `.degraded`;
                None waits for each.
            on_rerank_error: `degrade` keeps the order that there is and says so in `.degraded`; `raise` raises.
            explain: print the plan as a tree, with what happened beside it.

        Raises:
            EmptyQuery, UnknownMode, UnknownModel, DimensionMismatch, InvalidInput: an argument can't be used.
            BudgetExhausted: `mode="dense"`, and the embedder can't fit.
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
            rerank=rerank,
            rerank_depth=rerank_depth,
            rerank_field=rerank_field,
            min_score=min_score,
            timeout_s=timeout_s,
            on_rerank_error=on_rerank_error,
        )
        result = self._searcher.search(query, counted=explain, **options)
        if explain:
            sys.stdout.write(f"{Explanation(result.plan, result)}\n")
        return result

    async def asearch(self, query: str | None = None, **options: Unpack[SearchOptions]) -> SearchResult:
        """Search on another thread, with the options of `search`; a caller that is cancelled only stops waiting."""
        return await asyncio.to_thread(self._searcher.search, query, **options)

    def search_many(self, queries: Sequence[str], **options: Unpack[SearchOptions]) -> list[SearchResult]:
        """Search for each query, with the options of `search`; all of them are encoded in one batch.

        `timeout_s` is for each query; the batch's encoding is not part of it.
        """
        return self._searcher.search_many(queries, **options)

    def explain(
        self, query: str | None = None, *, analyze: bool = False, **options: Unpack[SearchOptions]
    ) -> Explanation:
        """Return the plan of `search(query, **options)` as a tree; with `analyze`, run it and show what happened."""
        if analyze:
            result = self._searcher.search(query, counted=True, **options)
            return Explanation(result.plan, result)
        return Explanation(self._searcher.plan(query, **options))

    def models(self) -> ManagerSnapshot:
        """Tell what is resident, leased and charged, and what the counters say."""
        return self._models.manager.snapshot()

    def check_health(self, threshold: float = 0.1) -> tuple[BackendHealth, ...]:
        """Return the inference backends that let down more than this share of recent calls; none if all are well.

        Each tells its successes, failures, calls that fell back to another backend, and whether its breaker is open.
        """
        return self._models.check_health(threshold)

    def info(self) -> dict[str, Any]:
        """Return the database's settings, sizes and the state of its derived files, as plain values."""
        return self._collection.info()

    def reindex(self, *, embed: str | Path | ModelSpec, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed every document again with another model, exchange the vectors, and return how many there are.

        Searches and writes go on with the old model until then. Killed or interrupted, the same call goes on where it
        stopped. Vectors that were the caller's own are exchanged as well. `progress(done, total)` counts documents.

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

    def verify(self, progress: Callable[[int, int], None] | None = None) -> Verification:
        """Check every document, vector and file, and that the indexes find what is stored; nothing is changed."""
        return self._collection.upkeep.verify(progress)

    def repair(self, progress: Callable[[int, int], None] | None = None) -> Verification:
        """Mend what can be, build both indexes again from the documents, and return what is still at fault."""
        return self._collection.upkeep.repair(progress)

    def compact(self) -> Compaction:
        """Give the room of deleted documents back to the disk, and make the indexes as if they had never been."""
        return self._collection.upkeep.compact()

    def snapshot(self, path: str | Path) -> None:
        """Write a copy of the database as of this moment to the new folder `path`, while it is in use.

        Raises:
            NotADatabase: there is something at `path` already.
        """
        self._collection.upkeep.snapshot(Path(path))

    def close(self) -> None:
        """Write derived files, unload the models and release the lock; closing again is harmless."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
