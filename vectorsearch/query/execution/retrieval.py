"""Run a plan's retrievers beside each other: words are looked up while the query is encoded, or its model loads.

Where the vector is given, both lists are a matter of computing: they are found beside each other if a core is free.
FAISS and Tantivy compute without the interpreter's lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from backends.errors import InferenceError
from lifecycle import LifecycleError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from backends.running.deadline import Deadline
    from vectorsearch.collection.collection import Collection
    from vectorsearch.models.encoder import Encoder
    from vectorsearch.query.execution.branches import Branches
    from vectorsearch.query.execution.trace import Trace
    from vectorsearch.query.planning.plan import QueryPlan, RetrieverPlan
    from vectorsearch.query.planning.request import SearchRequest
    from vectorsearch.types import Candidates

_WORTHWHILE_MS = 0.2  # a list that costs less is there sooner without a thread, which takes as long to begin


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One retrieval to be done: by which plan, for which request, from what, and until when.

    `encoded` holds the query's vector once it is made: what is looked up again isn't encoded again.
    """

    plan: QueryPlan
    request: SearchRequest
    collection: Collection
    encoder: Encoder | None
    deadline: Deadline | None
    encoded: dict[RetrieverPlan, NDArray[np.float32]] = field(default_factory=dict)

    def run(self, retriever: RetrieverPlan, trace: Trace) -> Candidates:
        """Find one retriever's candidates; the trace is its own.

        Raises:
            VectorSearchError: the query can't be encoded, or the index can't be read.
        """
        vector = None if retriever.kind == "lexical" else self._vector(retriever, trace)
        start = trace.now_ms
        if vector is None:
            found = self.collection.lexical(
                self.request.query or "",
                retriever.depth,
                self.plan.filter,
                phrases=self.request.phrases,
                title_weight=self.request.title_weight,
                constants=self.request.bm25,
            )
        else:
            found = self.collection.dense(vector, retriever.depth, self.plan.filter)
        trace.note(retriever.kind, start, self.plan.documents, len(found.rows))
        return found

    def _vector(self, retriever: RetrieverPlan, trace: Trace) -> NDArray[np.float32]:
        if self.request.vector is not None:
            return self.request.vector
        if retriever in self.encoded:
            return self.encoded[retriever]
        if self.encoder is None or retriever.model is None or self.request.query is None:
            raise InferenceError("a dense stage was planned without an embedder")
        start = trace.now_ms
        try:
            encoding = self.encoder.encode_query(self.request.query, deadline=self.deadline)
        except (LifecycleError, InferenceError) as exc:
            trace.note("encode", start, 1, 0, model=retriever.model.name, error=str(exc))
            raise
        trace.note(
            "encode",
            start,
            1,
            1,
            model=retriever.model.name,
            backend=encoding.backend,
            device=encoding.device,
            cold=encoding.cold or not retriever.model.resident,
            load_ms=encoding.load_ms,
            truncated=encoding.truncated,
        )
        vector: NDArray[np.float32] = encoding.vectors[0]
        self.encoded[retriever] = vector
        return vector


def retrieve(retrieval: Retrieval, trace: Trace, *, branches: Branches) -> dict[RetrieverPlan, Candidates]:
    """Run all retrievers and return what each found; one that fails or is late is left out if another has an answer.

    Raises:
        VectorSearchError: the first retriever's error, where none has an answer.
    """
    retrievers = retrieval.plan.retrievers
    traces = {retriever: trace.branch() for retriever in retrievers}
    found: dict[RetrieverPlan, Candidates] = {}
    errors: dict[RetrieverPlan, LifecycleError | InferenceError] = {}
    with branches.calling() as has_core:
        begun = {r: branches.start(partial(retrieval.run, r, traces[r])) for r in _on_threads(retrieval, has_core)}
        # What runs on this thread comes first: the rest goes on meanwhile.
        for retriever in sorted(retrievers, key=begun.__contains__):
            own, branch = traces[retriever], begun.get(retriever)
            try:
                found[retriever] = branch.result(retrieval.deadline) if branch else retrieval.run(retriever, own)
            except (LifecycleError, InferenceError) as exc:
                errors[retriever] = exc
    for retriever in retrievers:
        if retriever in errors:
            trace.leave_out(retriever.kind, errors[retriever])
            _blame(retriever, traces[retriever], error=errors[retriever])
        trace.join(traces[retriever])
    if errors and not found:
        raise next(errors[retriever] for retriever in retrievers if retriever in errors)
    return {retriever: found[retriever] for retriever in retrievers if retriever in found}


def _on_threads(retrieval: Retrieval, has_core: bool) -> list[RetrieverPlan]:  # noqa: FBT001 -- `has_core` is its name
    """Return the retrievers that get a thread of their own: others go on meanwhile, or may have to go on without them.

    Of two that only compute the caller's thread takes the one that should take longer: it hasn't to be woken for it.
    """
    retrievers = retrieval.plan.retrievers
    if retrieval.deadline is not None:
        return [*retrievers]
    if not retrieval.plan.fused:
        return []
    if waiting := [retriever for retriever in retrievers if retriever.model is not None]:
        return waiting
    costs = {retriever: retriever.expected_ms or 0.0 for retriever in retrievers}
    is_worthwhile = has_core and min(costs.values()) > _WORTHWHILE_MS
    return [min(costs, key=costs.__getitem__)] if is_worthwhile else []


def _blame(retriever: RetrieverPlan, own: Trace, *, error: LifecycleError | InferenceError) -> None:
    """Say at which stage a branch was when it failed, if it hasn't itself: one that is late still goes on."""
    if not any(stage.error for stage in own.stats):
        is_encoding = retriever.model is not None and not own.stats
        own.note("encode" if is_encoding else retriever.kind, 0.0, 0, 0, error=str(error))
