"""Run a plan's retrievers beside each other: words are looked up while the query is encoded, or its model loads.

Where the vector is given, both lists are a matter of computing: they are found beside each other if a core is free.
FAISS and Tantivy compute without the interpreter's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.errors import InferenceError
from lifecycle import LifecycleError
from vectorsearch.index.base import no_candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from backends.deadline import Deadline
    from vectorsearch.collection import Collection
    from vectorsearch.encoder import Encoder
    from vectorsearch.query.branches import Branch, Branches
    from vectorsearch.query.plan import QueryPlan, RetrieverPlan
    from vectorsearch.query.request import SearchRequest
    from vectorsearch.query.trace import Trace
    from vectorsearch.types import Candidates

_WORTHWHILE_MS = 0.2  # a list that costs less is found sooner without a thread, which takes 0.05 ms to begin and to end


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One retrieval to be done: by which plan, for which request, from what, and until when."""

    plan: QueryPlan
    request: SearchRequest
    collection: Collection
    encoder: Encoder | None
    deadline: Deadline | None

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
            )
        elif self.request.vector is None and not vector.any():
            found = no_candidates()  # a feature model that knows none of the query's words: nothing is near
        else:
            found = self.collection.dense(vector, retriever.depth, self.plan.filter)
        trace.note(retriever.kind, start, self.plan.documents, len(found.rows))
        return found

    def _vector(self, retriever: RetrieverPlan, trace: Trace) -> NDArray[np.float32]:
        if self.request.vector is not None:
            return self.request.vector
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
        return vector


def retrieve(retrieval: Retrieval, trace: Trace, *, branches: Branches) -> dict[RetrieverPlan, Candidates]:
    """Run all retrievers and return what each found; one that fails or is late is left out if another has an answer.

    Raises:
        VectorSearchError: the first retriever's error, where none has an answer.
    """
    retrievers = retrieval.plan.retrievers
    lists: dict[RetrieverPlan, Candidates] = {}
    errors: list[LifecycleError | InferenceError] = []
    with branches.calling() as has_core:
        begun = [_begin(r, retrieval, trace=trace, branches=branches, has_core=has_core) for r in retrievers]
        for retriever, (own, answer) in zip(retrievers, begun, strict=True):
            try:
                lists[retriever] = answer()
            except (LifecycleError, InferenceError) as exc:
                errors.append(exc)
                trace.leave_out(retriever.kind, exc)
                _blame(retriever, own, error=exc)
            trace.join(own)
    if errors and not lists:
        raise errors[0]
    return lists


def _blame(retriever: RetrieverPlan, own: Trace, *, error: LifecycleError | InferenceError) -> None:
    """Say at which stage a branch was when it failed, if it hasn't itself: one that is late still goes on."""
    if not any(stage.error for stage in own.stats):
        is_encoding = retriever.model is not None and not own.stats
        own.note("encode" if is_encoding else retriever.kind, 0.0, 0, 0, error=str(error))


def _begin(
    retriever: RetrieverPlan, retrieval: Retrieval, *, trace: Trace, branches: Branches, has_core: bool
) -> tuple[Trace, Callable[[], Candidates]]:
    """Start a retriever, on a thread of its own where others can go on meanwhile; return its trace and its answer."""
    own = trace.branch()
    overlaps = retrieval.plan.fused and retriever.kind == "dense"
    if retriever.model is None:
        overlaps = overlaps and has_core and _are_worthwhile(retrieval.plan.retrievers)
    if retrieval.deadline is None and not overlaps:
        return own, lambda: retrieval.run(retriever, own)
    branch: Branch[Candidates] = branches.start(lambda: retrieval.run(retriever, own))
    return own, lambda: branch.result(retrieval.deadline)


def _are_worthwhile(retrievers: Sequence[RetrieverPlan]) -> bool:
    """Tell whether each takes so long, as far as is known, that another thread costs less than waiting for it."""
    return all(r.expected_ms is not None and r.expected_ms > _WORTHWHILE_MS for r in retrievers)
