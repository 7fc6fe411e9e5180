"""`Searcher`: a caller's arguments become a request, the request a plan, and the plan a result."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

import numpy as np

from backends.errors import BackendError, InferenceError, InvalidInput
from backends.running.deadline import Deadline
from lifecycle import LifecycleError
from lifecycle.leasing.hold import Hold
from rerank.base import ask
from vectorsearch import config
from vectorsearch.collection.index.filtering.filters import checked_filter
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.ingestion.documents import as_vector
from vectorsearch.models.space import digest_of
from vectorsearch.query.execution.branches import Branches
from vectorsearch.query.execution.execute import Resources, execute
from vectorsearch.query.execution.fusion import RRF_K
from vectorsearch.query.planning.costs import Costs
from vectorsearch.query.planning.defaults import KeptDefaults, built_in, check_defaults, leaves_open
from vectorsearch.query.planning.filter_notes import denial_notes, filter_notes
from vectorsearch.query.planning.planner import plan_search
from vectorsearch.query.planning.request import SearchRequest, check_request, check_timeout
from vectorsearch.query.planning.states import FilterState, PlanState
from vectorsearch.query.results import ModelLoad
from vectorsearch.query.steady import steadily

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import ArrayLike, NDArray

    from backends.base import ModelSpec
    from vectorsearch.collection.collection import Collection
    from vectorsearch.models.resolving import Models
    from vectorsearch.models.space import EmbeddingSpace
    from vectorsearch.query.execution.fusion import Fusion
    from vectorsearch.query.planning.defaults import SearchDefaults
    from vectorsearch.query.planning.plan import QueryPlan
    from vectorsearch.query.planning.request import OnRerankError
    from vectorsearch.query.planning.rerankers import RerankerDesk, Rerankers
    from vectorsearch.query.results import SearchResult
    from vectorsearch.types import Filter, Mode


class SearchOptions(TypedDict, total=False):
    """The options of `Database.search`, which tells what they mean."""

    vector: ArrayLike | None
    k: int
    filter: Filter | None
    mode: Mode
    fusion: Fusion | None
    weights: Mapping[str, float] | None
    rrf_k: float | None
    phrases: Sequence[str]
    title_weight: float
    k1: float | None
    b: float | None
    highlight: bool
    rerank: object
    rerank_depth: int | None
    rerank_field: str
    min_score: float | None
    timeout_s: float | None
    on_rerank_error: OnRerankError


class Searcher:
    """Plan and run searches over a collection with a database's models. Threads may share it."""

    def __init__(self, collection: Collection, models: Models, desk: RerankerDesk, *, space: EmbeddingSpace) -> None:
        self._collection = collection
        self._models = models
        self._desk = desk
        self._space = space
        self.defaults = KeptDefaults(collection)
        self._costs = Costs()
        self._branches = Branches()

    def plan(self, query: str | None, **options: Unpack[SearchOptions]) -> QueryPlan:
        """Return the plan of a search, without running it; raises what `search` does of its arguments."""
        return self._plan(query, options, self._space.embedder, counted=True)[0]

    def search(self, query: str | None, *, counted: bool = False, **options: Unpack[SearchOptions]) -> SearchResult:
        """Plan, fetch the models that are not there, and run; `counted` as in `_state`.

        Raises:
            EmptyQuery, UnknownMode, UnknownModel, DimensionMismatch, InvalidInput: an argument can't be used.
            VectorSearchError: a stage failed that the search can't go without.
        """
        found = steadily(
            self._space, self._models, lambda model: [self._search(query, options, model, counted=counted)]
        )
        return found[0]

    def _search(
        self, query: str | None, options: SearchOptions, embedder: ModelSpec | None, *, counted: bool = False
    ) -> SearchResult:
        clock = self._models.manager.clock
        begun = clock()
        plan, request, rerankers = self._plan(query, options, embedder, counted=counted)
        encoder = None
        if any(retriever.model for retriever in plan.retrievers) and embedder is not None:
            encoder = self._models.encoder(embedder)
        with self._held(plan) as held:
            resources = Resources(self._collection, encoder, rerankers.rerankers, held, self._branches, clock, begun)
            result = execute(plan, request, resources=resources)
        if loads := self._loads(plan, begun):
            result = replace(result, loads=loads)
        if request.filter and plan.k and plan.documents:
            look = denial_notes if result.hits else filter_notes
            result = replace(result, notes=look(self._collection, request.filter))
        self._costs.learn(result)
        return result

    def search_many(self, queries: Iterable[str], **options: Unpack[SearchOptions]) -> list[SearchResult]:
        """Search for each query; all are encoded in one batch, where the plan has a model for that."""
        if isinstance(queries, str) or not isinstance(queries, Iterable):
            raise InvalidInput(f"queries is {queries!r}: give a list of texts")
        if not (asked := list(queries)):
            return []
        for query in asked:  # before any of them is searched for
            check_request(SearchRequest(query=query, mode=options.get("mode", "auto")))
        return list(steadily(self._space, self._models, lambda embedder: self._search_many(asked, options, embedder)))

    def _search_many(
        self, queries: Sequence[str], options: SearchOptions, embedder: ModelSpec | None
    ) -> list[SearchResult]:
        vectors: Sequence[ArrayLike | None] = [options.get("vector")] * len(queries)
        needs_model = any(retriever.model for retriever in self._plan(queries[0], options, embedder)[0].retrievers)
        if needs_model and embedder is not None:
            try:
                vectors = list(self._models.encoder(embedder).encode_queries(queries).vectors)
            except (LifecycleError, InferenceError):
                if options.get("mode") == "dense":
                    raise
        results = []
        for query, vector in zip(queries, vectors, strict=True):
            own = options.copy()
            own["vector"] = vector
            results.append(self._search(query, own, embedder))
        return results

    def keep(self, defaults: SearchDefaults | None) -> None:
        """Store how to search where a caller doesn't say, after planning one search so; as `Database.defaults`."""
        if defaults is not None:
            check_defaults(defaults)
            options = cast("SearchOptions", defaults.options())
            if self._outdated(defaults, self._space.embedder):  # kept for when its models are back: it doesn't count
                options["rerank"] = None
            self.plan("which defaults", **options)
        self.defaults.set(defaults)

    def score(
        self, query: str, texts: Sequence[str], rerank: object, *, timeout_s: float | None = None
    ) -> NDArray[np.float32]:
        """Return a reranker's score of each text, float32[n]; as `Database.score`."""
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise InvalidInput(f"texts is {texts!r}: give a list of texts")
        check_timeout(timeout_s)
        deadline = None if timeout_s is None else Deadline.after(timeout_s, self._models.manager.clock)
        texts = list(texts)
        rerankers = self._desk.resolve(rerank, on_error="raise").rerankers
        if len(rerankers) != 1 or rerankers[0] is None:
            raise InvalidInput(f"rerank is {rerank!r}: name one reranker, not {len(rerankers)}")
        return ask(rerankers[0], query, texts, deadline=deadline).scores

    def _plan(
        self, query: str | None, options: SearchOptions, embedder: ModelSpec | None, *, counted: bool = False
    ) -> tuple[QueryPlan, SearchRequest, Rerankers]:
        if unknown := options.keys() - SearchOptions.__annotations__.keys():
            raise TypeError(f"search has no option {', '.join(map(repr, sorted(unknown)))}")
        options, origin, outdated = self._filled(query, options, embedder)
        vector, wanted, weights = options.get("vector"), options.get("filter"), options.get("weights")
        fusion, rrf_k = options.get("fusion"), options.get("rrf_k")
        if fusion is None and rrf_k is None and weights is None:
            usual = built_in(embedder)
            fusion, rrf_k, weights = usual.fusion, usual.rrf_k, usual.weights
        on_error = options.get("on_rerank_error", "degrade")
        rerankers = self._desk.resolve(
            options.get("rerank"),
            depth=_plain(options.get("rerank_depth")),
            field=options.get("rerank_field", "text"),
            min_score=_plain(options.get("min_score")),
            on_error=on_error,
        )
        request = SearchRequest(
            query=query,
            vector=None if vector is None else as_vector(vector, "the query's vector"),
            k=_plain(options.get("k", 10)),
            filter=None if wanted is None else checked_filter(wanted),
            mode=options.get("mode", "auto"),
            fusion="rrf" if fusion is None else fusion,
            weights={} if weights is None else weights,
            rrf_k=RRF_K if rrf_k is None else rrf_k,
            phrases=_phrases(options.get("phrases", ())),
            title_weight=options.get("title_weight", 0.0),
            bm25=self._constants(options.get("k1"), options.get("b")),
            highlight=options.get("highlight", False),
            rerank=rerankers.request,
            timeout_s=options.get("timeout_s"),
            on_rerank_error=on_error,
        )
        plan = plan_search(request, self._state(request, rerankers, embedder, counted=counted))
        if unsearched := [phrase for phrase in request.phrases if not self._collection.has_words(phrase)]:
            raise InvalidInput(f"phrase {unsearched[0]!r} has only words that no index holds: leave it out")
        if origin:
            left_out = (*plan.left_out, "defaults:outdated") if outdated else plan.left_out
            plan = replace(plan, defaults=origin, left_out=left_out)
        return plan, request, rerankers

    def _constants(self, k1: float | None, b: float | None) -> BM25 | None:
        """Return BM25's constants for one search, None for the database's.

        Raises:
            InvalidInput: they can't be used.
        """
        if k1 is None and b is None:
            return None
        own = self._collection.settings
        return BM25.of(own.k1 if k1 is None else k1, own.b if b is None else b)

    def _filled(
        self, query: str | None, options: SearchOptions, embedder: ModelSpec | None
    ) -> tuple[SearchOptions, str, bool]:
        """Return the options, filled from the database's own defaults where they leave all open; whence, and if not."""
        kept = self.defaults.get()
        if kept is None or not query or not leaves_open(options):
            return options, "", False
        if reason := self._outdated(kept, embedder):
            return options, f"built-in, since the stored ones are {reason}: tune again, or reset them", True
        return cast("SearchOptions", {**options, **kept.options()}), str(kept.origin or "set by hand"), False

    def _outdated(self, kept: SearchDefaults, embedder: ModelSpec | None) -> str:
        """Return why stored defaults don't count any more; empty if they do."""
        if kept.embed is not None and not (embedder and kept.embed.startswith(digest_of(embedder))):
            return "of another embedder"
        if kept.rerank is None or kept.rerank_digest is None:
            return ""
        try:
            spec = self._models.resolve(kept.rerank, "cross-encode")
        except (BackendError, InvalidInput):
            return f"of reranker {kept.rerank!r}, which isn't there any more"
        return "" if spec.digest == kept.rerank_digest else f"of another {kept.rerank!r}"

    def _state(
        self, request: SearchRequest, rerankers: Rerankers, embedder: ModelSpec | None, *, counted: bool
    ) -> PlanState:
        """Look at the database; what a filter lets through is counted only for who wants to read the plan."""
        documents = self._collection.count()
        filtered, dense_kind = None, "exact"
        if counted and request.filter:
            rows = self._collection.count_where(request.filter)
            filtered = FilterState(rows, documents, tuple(self._collection.unknown_fields(request.filter)))
            dense_kind = str(self._collection.upkeep.dense.info().get("kind", dense_kind))
        asks = embedder is not None and request.mode != "lexical"  # words alone need no model, whatever state it is in
        model = self._costs.of(self._models.state(embedder), embedder) if embedder and asks else None
        return PlanState(
            documents=documents,
            embedder=model,
            budget_nbytes=self._models.manager.budget_nbytes,
            rerankers=tuple(self._costs.of(model[1], model[0]) if model else None for model in rerankers.models),
            unit_ms=self._costs.unit_ms(),
            filter=filtered,
            dense_kind=dense_kind,
        )

    def _held(self, plan: QueryPlan) -> AbstractContextManager[Hold | None]:
        """Return a hold on the plan's models, which load and stay beside the search, where they fit together."""
        refs = [model.ref for model in plan.models if model.unavailable is None] if plan.together else []
        return Hold(self._models.manager, refs, config.LEASE_TIMEOUT_S) if refs else nullcontext()

    def _loads(self, plan: QueryPlan, begun: float) -> tuple[ModelLoad, ...]:
        """Return the loads of the plan's models that were going on since the search began."""
        members = [member.model for stage in plan.rerank for member in stage.members]
        models = [*(retriever.model for retriever in plan.retrievers), *members]
        loads = []
        for ref in dict.fromkeys(m.ref for m in models if m is not None and not m.resident and m.unavailable is None):
            status = self._models.manager.status(ref)
            if status.ready_at is not None and status.load_s is not None and status.ready_at >= begun:
                start_ms = (status.ready_at - status.load_s - begun) * 1000.0
                loads.append(ModelLoad(str(ref), start_ms, status.load_s * 1000.0))
        return tuple(loads)


def _phrases(phrases: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(phrases, Iterable):
        raise InvalidInput(f"phrases is {phrases!r}: give a list of texts")
    return (phrases,) if isinstance(phrases, str) else tuple(phrases)


def _plain(number: Any) -> Any:  # noqa: ANN401 -- an argument that is checked where the plan is made
    """Return Python's number for NumPy's, as one that comes out of an array is."""
    return number.item() if isinstance(number, np.generic) else number
