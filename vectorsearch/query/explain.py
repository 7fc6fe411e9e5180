"""Print a plan as a tree, and beside it, if it was run, what really happened."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vectorsearch.query.plan import ModelState, QueryPlan
    from vectorsearch.results import SearchResult, StageStats

MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan, and the result of running it if `analyze` was asked for. `str()` gives the tree."""

    plan: QueryPlan
    result: SearchResult | None = None

    def __str__(self) -> str:
        return render(self.plan, self.result)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {"plan": asdict(self.plan), "result": self.result.to_dict() if self.result else None}


def render(plan: QueryPlan, result: SearchResult | None = None) -> str:
    """Return the tree as text, outermost stage first, as a query planner prints it."""
    ran = {stage.stage: stage for stage in result.stats} if result else {}
    head = f"search  mode={plan.mode}  k={plan.k}  over {plan.documents:,} documents"
    if result:
        head += f"  →  {len(result)} hits in {result.latency_ms:.1f} ms"
    lines = [head]
    indent = ""
    if plan.rerank:
        lines.append(_line(indent, f"rerank  the best {plan.rerank.depth}", plan.rerank.model, ran.get("rerank")))
        if plan.rerank.model is None:
            lines[-1] += f"  by {plan.rerank.name}"
        indent += "   "
    if plan.fused:
        weights = ", ".join(f"{retriever.weight:g} {retriever.kind}" for retriever in plan.retrievers)
        lines.append(_line(indent, f"fuse  rrf k={plan.rrf_k:g}  ({weights})", None, ran.get("fuse")))
        indent += "   "
    for retriever in plan.retrievers:
        text = f"{retriever.kind}  depth {retriever.depth}"
        if plan.filter:
            text += f"  filter {dict(plan.filter)}"
        is_last = retriever is plan.retrievers[-1]
        lines.append(_line(indent, text, None, ran.get(retriever.kind), branch="└─" if is_last else "├─"))
        if retriever.model:
            lines.append(_line(indent + "   ", "encode the query", retriever.model, ran.get("encode")))
    lines.extend(_notes(plan, result))
    return "\n".join(lines)


def _notes(plan: QueryPlan, result: SearchResult | None) -> Iterable[str]:
    degraded = result.degraded if result else plan.left_out
    if degraded:
        yield f"left out: {', '.join(degraded)}"
    if plan.prefetch:
        yield f"prefetched while retrieval runs: {', '.join(map(str, plan.prefetch))}"


def _line(indent: str, text: str, model: ModelState | None, stage: StageStats | None, *, branch: str = "└─") -> str:
    line = f"{indent}{branch} {text}"
    if model:
        where = "resident" if model.resident else "cold"
        line += f"  with {model.name} on {model.backend} ({where}, {model.nbytes / MIB:.0f} MiB)"
    if stage is None:
        return line
    line += f"  →  {stage.candidates_in:,} in, {stage.candidates_out:,} out, {stage.latency_ms:.1f} ms"
    if stage.cold:
        line += f" ({stage.load_ms:.0f} ms of it loading)"
    if stage.truncated:
        line += f", {stage.truncated} truncated"
    if stage.error:
        line += f", failed: {stage.error}"
    return line
