"""From rows and scores to hits: which remain, in which order, and what each stage said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.query.results import Hit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from vectorsearch.query.execution.reranking import Reranked
    from vectorsearch.query.execution.trace import Trace
    from vectorsearch.query.planning.plan import QueryPlan, RetrieverPlan
    from vectorsearch.types import Candidates, Document, ScoreKind


def kept_order(plan: QueryPlan, reranked: Reranked, *, trace: Trace) -> NDArray[np.int64]:
    """Return the positions of the hits that remain, best first: `min_score` drops those whose rerank score is lower.

    A hit without a score of the last stage is not judged by it. Where that stage was left out nothing is dropped, and
    `degraded` says so.
    """
    order = reranked.order
    if plan.min_score is None or not len(order):
        return order[: plan.k]
    if reranked.judged is None:
        trace.degraded.append("min_score:skipped")
        return order[: plan.k]
    start = trace.now_ms
    # What the last stage didn't read takes no place that it has emptied, unless `k` asks for more than it reads.
    order = order[: max(plan.k, plan.rerank[-1].depth)]
    kept = order[~(reranked.judged[order] < plan.min_score)]
    trace.note("min_score", start, len(order), len(kept))
    return kept[: plan.k]


def make_hits(
    order: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    documents: Sequence[Document],
    merged: Candidates,
    lists: Mapping[RetrieverPlan, Candidates],
    reranked: Reranked,
) -> tuple[Hit, ...]:
    """Return the hits at the positions `order` of `rows`, each with every score that it has, the deciding one last."""
    by_kind: dict[ScoreKind, dict[int, float]] = {
        retriever.kind: dict(zip(found.rows.tolist(), found.scores.tolist(), strict=True))
        for retriever, found in lists.items()
    }
    if len(by_kind) > 1:
        by_kind["fused"] = dict(zip(merged.rows.tolist(), merged.scores.tolist(), strict=True))
    by_kind["rerank"] = _present(rows, reranked.logits)
    by_kind["blend"] = _present(rows, reranked.blended)
    hits = []
    for rank, position in enumerate(order.tolist(), start=1):
        row, document = int(rows[position]), documents[position]
        scores = {kind: scores_of[row] for kind, scores_of in by_kind.items() if row in scores_of}
        kind: ScoreKind = next(reversed(scores))
        hits.append(
            Hit(document.id, scores[kind], rank, document.text, document.title, document.metadata, kind, scores)
        )
    return tuple(hits)


def _present(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> dict[int, float]:
    there = ~np.isnan(scores)
    return dict(zip(rows[there].tolist(), scores[there].tolist(), strict=True))
