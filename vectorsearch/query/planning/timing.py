"""What a search should take, and how its time is shared out over its stages. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vectorsearch.query.planning.plan import Member, QueryPlan, RetrieverPlan

# Kept back for what follows the last stage, and for threads that the system wakes late.
_MARGIN = 0.1
_LEAST_MARGIN_MS = 10.0
_MOST_MARGIN = 0.25
_CAUTION = 0.8  # of the time is planned with; texts differ in length


def usable_ms(timeout_ms: float) -> float:
    """Return how much of a search's time its stages may use."""
    return timeout_ms - min(max(_LEAST_MARGIN_MS, _MARGIN * timeout_ms), _MOST_MARGIN * timeout_ms)


def share_out(total_ms: float, expected_ms: Sequence[float | None]) -> tuple[float, ...]:
    """Share `total_ms` out over stages that are expected to take so long; None counts as the mean of the known ones.

    Half is shared out evenly and half in proportion: a stage that costs next to nothing can still be late once
    without being left out, and a dear one gets most of what is left.
    """
    known = [ms for ms in expected_ms if ms is not None]
    usual = sum(known) / len(known) if known else 1.0
    weights = [max(0.0, usual if ms is None else ms) for ms in expected_ms]
    whole = sum(weights)
    n = len(weights)
    return tuple(total_ms / 2 * (1 / n + (weight / whole if whole > 0 else 1 / n)) for weight in weights)


def timed(plan: QueryPlan, timeout_s: float | None) -> QueryPlan:
    """Return the plan with what it should take, and with its time shared out if it has a limit."""
    retrieval_ms = _parallel(_branch_ms(retriever) for retriever in plan.retrievers)
    rerank_ms = [_overlapped(stage.members[0], retrieval_ms, plan) for stage in plan.rerank]
    plan = replace(plan, expected_ms=_sum([retrieval_ms, *rerank_ms]))
    if timeout_s is None:
        return plan
    total_ms = usable_ms(timeout_s * 1000.0)
    if plan.rerank and (others_ms := _sum([retrieval_ms, *rerank_ms[:-1]])) is not None:
        plan = _shortened(plan, total_ms - others_ms)
        rerank_ms[-1:] = [_overlapped(stage.members[0], retrieval_ms, plan) for stage in plan.rerank[-1:]]
    retrieval_budget, *budgets = share_out(total_ms, [retrieval_ms, *rerank_ms])
    timed = []
    for stage, budget in zip(plan.rerank, budgets, strict=True):
        shares = share_out(budget, [member.expected_ms for member in stage.members])
        members = tuple(replace(m, budget_ms=share) for m, share in zip(stage.members, shares, strict=True))
        timed.append(replace(stage, members=members, budget_ms=budget))
    return replace(plan, rerank=tuple(timed), timeout_ms=timeout_s * 1000.0, retrieval_budget_ms=retrieval_budget)


def _shortened(plan: QueryPlan, room_ms: float) -> QueryPlan:
    """Let the last stage read only as many hits, one at least, as should be done in `room_ms`.

    A few hits reranked are better than a stage that is late with all of them. A model that has to be loaded first is
    not judged: what its load leaves is only known then.
    """
    stage = plan.rerank[-1]
    first = stage.members[0]
    is_there = first.model is None or (first.model.resident and first.model.learned)
    reads = min(stage.depth, plan.documents)
    if not is_there or not first.expected_ms or first.expected_ms <= _CAUTION * room_ms:
        return plan
    depth = max(1, int(reads * _CAUTION * room_ms / first.expected_ms))
    share = depth / reads
    members = tuple(
        m if m.expected_ms is None else replace(m, expected_ms=m.expected_ms * share) for m in stage.members
    )
    shorter = replace(stage, depth=depth, asked_depth=stage.depth, members=members)
    left_out = (*plan.left_out, f"{stage.stage}:shortened")
    return replace(plan, rerank=(*plan.rerank[:-1], shorter), left_out=left_out)


def _branch_ms(retriever: RetrieverPlan) -> float | None:
    if retriever.model is None:
        return retriever.expected_ms
    return _sum([retriever.model.expected_ms(1), retriever.expected_ms])


def _overlapped(member: Member, retrieval_ms: float | None, plan: QueryPlan) -> float | None:
    """Return what a reranker should take after retrieval, during which its model loads if it is prefetched."""
    model, expected_ms = member.model, member.expected_ms
    if expected_ms is None or model is None or model.ref not in plan.prefetch:
        return expected_ms
    return expected_ms - min(model.load_ms or 0.0, retrieval_ms or 0.0)


def _sum(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _parallel(parts: Iterable[float | None]) -> float | None:
    known = list(parts)
    return max((part for part in known if part is not None), default=0.0) if None not in known else None
