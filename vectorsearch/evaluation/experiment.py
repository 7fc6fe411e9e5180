"""Run a system over a test collection's queries: rankings, measures, and time per query."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from backends.errors import VectorSearchError
from vectorsearch.evaluation.metrics import measure, require_ir_measures
from vectorsearch.query.plan import DEFAULT_RERANK_DEPTH
from vectorsearch.results import format_trec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vectorsearch.database import Database
    from vectorsearch.results import SearchResult
    from vectorsearch.types import Mode

RANKING_DEPTH = 100


class EvaluationFailed(VectorSearchError):
    """A stage of the system under test was left out, so a figure would be of another system; the message says which."""


class Judged(Protocol):
    """Queries with judgments, such as a `TestCollection` or `Topics`."""

    @property
    def queries(self) -> Mapping[str, str]:
        """Return query id to text, in the order of the judgments."""

    @property
    def qrels(self) -> Mapping[str, Mapping[str, int]]:
        """Return query id to {document id: grade}."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Queries with judgments: query id to text, and query id to {document id: grade}."""

    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]

    @classmethod
    def first(cls, judged: Judged, limit: int | None) -> Topics:
        """Return the first `limit` queries, in the order of the judgments; all if None."""
        queries = dict(islice(judged.queries.items(), limit))
        return cls(queries, {query: judged.qrels[query] for query in queries})


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One way to search: a mode, and a reranker if any. `k` hits of each query are measured."""

    mode: Mode = "hybrid"
    rerank: str | None = None
    rerank_depth: int = DEFAULT_RERANK_DEPTH
    k: int = RANKING_DEPTH

    @property
    def name(self) -> str:
        """Return the name in tables and runs: "hybrid + rerank"."""
        return f"{self.mode} + rerank" if self.rerank else self.mode

    def search(self, db: Database, query: str) -> SearchResult:
        """Search as `Database.search` does, but raise where it would leave a stage out.

        Raises:
            EvaluationFailed: a stage was left out.
            VectorSearchError: a stage failed.
        """
        result = db.search(
            query,
            k=self.k,
            mode=self.mode,
            rerank=self.rerank,
            rerank_depth=self.rerank_depth if self.rerank else None,
            on_rerank_error="raise",
        )
        if result.degraded:
            errors = "; ".join(stage.error for stage in result.stats if stage.error)
            raise EvaluationFailed(
                f"system {self.name!r} went without {', '.join(result.degraded)} at {query!r}"
                + (f": {errors}" if errors else ": give its models more memory (budget_nbytes)")
            )
        return result


@dataclass(frozen=True, slots=True)
class SystemResult:
    """What a system did: `metrics` by name, `latency_ms` with "p50" and "p99", and each query's document ids in order.

    `cached` says that nothing was computed now, so that the times are of an earlier run on this machine.
    """

    name: str
    system: System
    queries: int
    metrics: Mapping[str, float]
    latency_ms: Mapping[str, float]
    rankings: Mapping[str, Sequence[str]]
    cached: bool = False

    @property
    def run(self) -> str:
        """Return the rankings as a TREC run.

        Raises:
            InvalidInput: an id holds white space.
        """
        tag = self.name.replace(" ", "")
        return "".join(format_trec(query_id, ids, tag=tag) for query_id, ids in self.rankings.items())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON, without the rankings."""
        values = asdict(self)
        del values["rankings"]
        return values


def evaluate(
    db: Database, judged: Judged, system: System, *, on_progress: Callable[[int, int], None] | None = None
) -> SystemResult:
    """Ask every judged query and measure the answers.

    Nothing is degraded and no deadline is set: a stage that fails raises. The first query is asked once more before
    the clock starts, so that no time of a query holds the loading of a model. A query without results counts as 0.

    Args:
        db: holds the collection's documents.
        judged: the queries, in order, and their judgments.
        system: how to search.
        on_progress: called as `on_progress(done, total)` after each query.

    Raises:
        MissingExtra: ir-measures is not installed; told before the first query.
        EvaluationFailed: a stage was left out.
        VectorSearchError: a stage failed.
    """
    require_ir_measures()
    db.refresh()
    rankings: dict[str, Sequence[str]] = {}
    latencies_ms: list[float] = []
    for query_id, text in judged.queries.items():
        if not rankings:
            system.search(db, text)
        start = time.perf_counter()
        result = system.search(db, text)
        latencies_ms.append((time.perf_counter() - start) * 1000.0)
        rankings[query_id] = [hit.id for hit in result]
        if on_progress is not None:
            on_progress(len(rankings), len(judged.queries))
    return SystemResult(
        name=system.name,
        system=system,
        queries=len(rankings),
        metrics=measure(rankings, judged.qrels),
        latency_ms=_percentiles(latencies_ms),
        rankings=rankings,
    )


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {"p50": 0.0, "p99": 0.0}
    p50, p99 = np.percentile(np.asarray(values), [50, 99])
    return {"p50": float(p50), "p99": float(p99)}
