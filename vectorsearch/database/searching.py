"""`Searching`: the half of a `Database` that searches; the other half stores."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Unpack

from vectorsearch.query.explaining.explain import Explanation
from vectorsearch.query.searcher import SearchOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from vectorsearch.query.execution.fusion import Fusion
    from vectorsearch.query.planning.defaults import SearchDefaults
    from vectorsearch.query.planning.request import OnRerankError
    from vectorsearch.query.results import SearchResult
    from vectorsearch.query.searcher import Searcher
    from vectorsearch.types import Filter, Mode


class Searching:
    """Search, alone or for many queries, now or awaited; and tell how. Threads may share it.

    `find_tenant(name)` gives the database of a tenant that is there.
    """

    def __init__(self, searcher: Searcher, find_tenant: Callable[[str], Searching]) -> None:
        self._searcher = searcher
        self._find_tenant = find_tenant

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

    def score(self, query: str, texts: Sequence[str], *, rerank: object = True) -> NDArray[np.float32]:
        """Return how well each text answers the query, by the one model that `rerank` names as in `search`: float32[n].

        Raises:
            UnknownModel, InvalidInput: there is no such reranker, or it is several.
            VectorSearchError: it failed.
        """
        return self._searcher.score(query, texts, rerank)

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
        return self._searcher if tenant is None else self._find_tenant(tenant)._searcher  # noqa: SLF001 -- of this class
