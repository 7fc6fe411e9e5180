"""The plan of a query, as data: `planner` makes it, `execute` runs it, and `explain` prints exactly that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lifecycle import ModelRef
    from rerank import Passages
    from vectorsearch.collection.index.lexical.bm25 import BM25
    from vectorsearch.models.model_state import ModelState
    from vectorsearch.query.execution.fusion import Fusion
    from vectorsearch.query.planning.request import RetrieverKind
    from vectorsearch.query.planning.states import FilterState
    from vectorsearch.types import Filter, Mode

FUSION_DEPTH = 100  # each list's depth in hybrid mode, as in the reference figures
DEFAULT_RERANK_DEPTH = 50


@dataclass(frozen=True, slots=True)
class RetrieverPlan:
    """One retriever: its depth, its weight in the fusion, and the model that encodes the query, if one does.

    `strategy` says how the filter is applied, empty without one. `expected_ms` is for the retrieval alone. `bm25` are
    the constants of words that the search itself names, k1 and b; None for the database's own.
    """

    kind: RetrieverKind
    depth: int
    weight: float = 1.0
    model: ModelState | None = None
    strategy: str = ""
    expected_ms: float | None = None
    bm25: BM25 | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One reranker of a stage: its name, its model (None for a function), and its number in the request."""

    name: str
    number: int
    model: ModelState | None = None
    expected_ms: float | None = None
    budget_ms: float | None = None


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """One rerank stage: which hits it reads, how, and the rerankers of which the first that can answers.

    `asked_depth` is set where the search's time is too short for the depth that was asked for.
    """

    stage: str
    depth: int
    members: tuple[Member, ...]
    field: str = "text"
    passages: Passages | None = None
    blend: float | None = None
    budget_ms: float | None = None
    asked_depth: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the reranker that is asked first."""
        return self.members[0].name


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What will run, left to right. `left_out` names what can't be done here, such as `dense:budget`.

    `timeout_ms` is the time of the whole search, and `retrieval_budget_ms` what retrieval may take of it; None for as
    long as it takes. `together` says whether all models fit into the budget at once: then they are asked for as a set,
    and those of them that aren't in memory, `prefetch`, load while retrieval runs; if not, each stage takes its own in
    its turn. `defaults` tells where what the caller left open came from; empty for the built-in values.
    """

    mode: Mode
    k: int
    retrievers: tuple[RetrieverPlan, ...]
    fusion: Fusion
    rrf_k: float
    rerank: tuple[RerankPlan, ...]
    min_score: float | None
    filter: Filter | None
    filtered: FilterState | None
    documents: int
    together: bool = True
    prefetch: tuple[ModelRef, ...] = ()
    left_out: tuple[str, ...] = ()
    timeout_ms: float | None = None
    retrieval_budget_ms: float | None = None
    expected_ms: float | None = None
    defaults: str = ""

    @property
    def fused(self) -> bool:
        """Return whether there are several lists to fuse."""
        return len(self.retrievers) > 1

    @property
    def models(self) -> tuple[ModelState, ...]:
        """Return the models that the stages begin with, each once, in the stages' order."""
        return models_of(self.retrievers, self.rerank)

    @property
    def depth(self) -> int:
        """Return how many of the merged hits are looked at."""
        return max(self.k, self.rerank[0].depth if self.rerank else 0)


def models_of(retrievers: Iterable[RetrieverPlan], stages: Iterable[RerankPlan]) -> tuple[ModelState, ...]:
    """Return the models that stages begin with, each once, in the stages' order."""
    models = [*(retriever.model for retriever in retrievers), *(stage.members[0].model for stage in stages)]
    return tuple({model.ref: model for model in models if model is not None}.values())
