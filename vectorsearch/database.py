"""`Database`: what callers hold. It turns arguments into plans and rows into documents; the work is done elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from backends.base import ModelSpec
from backends.errors import InvalidInput
from rerank import as_reranker
from vectorsearch.documents import as_id, as_vector
from vectorsearch.index.filters import checked_filter
from vectorsearch.query.execute import Resources, execute
from vectorsearch.query.explain import Explanation
from vectorsearch.query.fusion import RRF_K
from vectorsearch.query.plan import ModelState, PlanState, QueryPlan, RerankRequest, SearchRequest, plan_search
from vectorsearch.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import ExitStack
    from types import TracebackType

    from numpy.typing import ArrayLike

    from lifecycle import ManagerSnapshot
    from rerank import Reranker
    from vectorsearch.collection import Collection
    from vectorsearch.models import Models
    from vectorsearch.query.plan import OnRerankError
    from vectorsearch.results import SearchResult
    from vectorsearch.types import Document, Filter, Mode
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
        resources: ExitStack,
    ) -> None:
        self._collection = collection
        self._models = models
        self._embedder = embedder
        self._default_reranker = reranker
        self._resources = resources  # what closing closes, the collection first
        self._writer = Writer(collection, models, embedder)

    @property
    def embedder(self) -> ModelSpec | None:
        """Return the model that embeds documents and queries; None if the vectors are the caller's own."""
        return self._embedder

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

    def delete(self, ids: Iterable[str]) -> int:
        """Delete documents by id, in one transaction, and return how many existed."""
        if isinstance(ids, str):
            return self._collection.delete([ids])
        if not isinstance(ids, Iterable):
            raise InvalidInput(f"ids is {ids!r}: give a list of ids")
        return self._collection.delete([as_id(value) for value in ids])

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
        fusion: str = "rrf",
        weights: Mapping[str, float] | None = None,
        rrf_k: float = RRF_K,
        rerank: object = None,
        rerank_depth: int | None = None,
        on_rerank_error: OnRerankError = "degrade",
        explain: bool = False,
    ) -> SearchResult:
        """Find the k documents that answer the query best.

        Args:
            query: text; may be left out if there is a `vector`.
            vector: float32[dim], used for dense retrieval instead of embedding the query.
            k: number of hits wanted; 0 gives none.
            filter: metadata that a document must have, `{"lang": "en"}`; applies to every retriever.
            mode: `hybrid`, `dense`, `lexical`, or `auto`: hybrid where there is an embedder or a vector, else lexical.
            fusion: how hybrid lists are merged: `rrf`.
            weights: weight of each retriever in the fusion, `{"lexical": 1.0, "dense": 1.0}`.
            rrf_k: the constant of reciprocal rank fusion.
            rerank: True for the default model, a model's name or folder, an object with `predict`, `rank` or `rerank`,
                a callable `(query, texts) -> scores`, or None.
            rerank_depth: how many of the best hits the reranker reads; max(k, 50) if None.
            on_rerank_error: `degrade` keeps the fused order and says so in `.degraded`; `raise` raises.
            explain: print the plan as a tree, with what happened beside it.

        Raises:
            EmptyQuery, UnknownMode, UnknownModel, DimensionMismatch, InvalidInput: an argument can't be used.
            BudgetExhausted: `mode="dense"`, and the embedder can't fit.
        """
        plan, request, reranker = self._plan(
            query,
            vector=vector,
            k=k,
            filter=filter,
            mode=mode,
            fusion=fusion,
            weights=weights,
            rrf_k=rrf_k,
            rerank=rerank,
            rerank_depth=rerank_depth,
            on_rerank_error=on_rerank_error,
        )
        encoder = None
        if any(retriever.model for retriever in plan.retrievers) and self._embedder is not None:
            encoder = self._models.encoder(self._embedder)
        self._models.prefetch(plan.prefetch)
        result = execute(plan, request, Resources(self._collection, encoder, reranker))
        if explain:
            sys.stdout.write(f"{Explanation(plan, result)}\n")
        return result

    def explain(self, query: str | None = None, *, analyze: bool = False, **options: Any) -> Explanation:  # noqa: ANN401 -- search's own options
        """Return the plan of `search(query, **options)` as a tree; with `analyze`, run it and show what happened."""
        if analyze:
            result = self.search(query, **options)
            return Explanation(result.plan, result)
        options.pop("explain", None)
        return Explanation(self._plan(query, **options)[0])

    def models(self) -> ManagerSnapshot:
        """Tell what is resident, leased and charged, and what the counters say."""
        return self._models.manager.snapshot()

    def info(self) -> dict[str, Any]:
        """Return the database's settings, sizes and the state of its derived files, as plain values."""
        return self._collection.info()

    def close(self) -> None:
        """Write derived files, unload the models and release the lock; closing again is harmless."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plan(
        self,
        query: str | None,
        *,
        vector: ArrayLike | None = None,
        k: int = 10,
        filter: Filter | None = None,  # noqa: A002 -- as in `search`
        mode: Mode = "auto",
        fusion: str = "rrf",
        weights: Mapping[str, float] | None = None,
        rrf_k: float = RRF_K,
        rerank: object = None,
        rerank_depth: int | None = None,
        on_rerank_error: OnRerankError = "degrade",
    ) -> tuple[QueryPlan, SearchRequest, Reranker | None]:
        if fusion != "rrf":
            raise InvalidInput(f"fusion {fusion!r} is unknown: use 'rrf'")
        name, model, reranker = self._reranker(rerank, on_rerank_error)
        request = SearchRequest(
            query=query,
            vector=None if vector is None else as_vector(vector, "the query's vector"),
            k=_plain(k),
            filter=None if filter is None else checked_filter(filter),
            mode=mode,
            weights={} if weights is None else weights,
            rrf_k=rrf_k,
            rerank=RerankRequest(name, _plain(rerank_depth)) if name else None,
            on_rerank_error=on_rerank_error,
        )
        state = PlanState(
            documents=self._collection.count(),
            embedder=self._models.state(self._embedder) if self._embedder else None,
            reranker=model,
            budget_nbytes=self._models.manager.budget_nbytes,
        )
        return plan_search(request, state), request, reranker

    def _reranker(
        self, rerank: object, on_rerank_error: OnRerankError
    ) -> tuple[str | None, ModelState | None, Reranker | None]:
        """Return the name, what the planner shall know of its model, and the reranker itself.

        A model that no backend serves has no reranker, if the query may go on without.
        """
        if rerank is None or rerank is False:
            return None, None, None
        if rerank is True:
            if self._default_reranker is None:
                raise InvalidInput("rerank=True, but no default reranker was given at open: name a model in its place")
            rerank = self._default_reranker
        if not isinstance(rerank, str | Path | ModelSpec):
            reranker = as_reranker(rerank)
            return reranker.name, None, reranker
        spec = self._models.resolve(rerank, "cross-encode")
        model = self._models.state(spec)
        if model.unavailable and on_rerank_error == "degrade":
            return model.name, model, None
        return model.name, model, self._models.cross_encoder(spec)


def _plain(number: Any) -> Any:  # noqa: ANN401 -- an argument that is checked where the plan is made
    """Return Python's int for NumPy's, as a count that comes out of an array is."""
    return int(number) if isinstance(number, np.integer) else number
