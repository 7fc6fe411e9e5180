"""Print a plan as a tree, and beside it, if it was run, what really happened."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from vectorsearch.query.explaining.timeline import draw, measured_bars, planned_bars

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vectorsearch.models.model_state import ModelState
    from vectorsearch.query.planning.plan import QueryPlan, RerankPlan, RetrieverPlan
    from vectorsearch.query.results import SearchResult, StageStats

MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan, and the result of running it if `analyze` was asked for. `str()` gives the tree."""

    plan: QueryPlan
    result: SearchResult | None = None

    def __str__(self) -> str:
        return render(self.plan, self.result)

    @property
    def ran(self) -> SearchResult:
        """Return the result of running the plan.

        Raises:
            InvalidInput: it was not run.
        """
        if self.result is None:
            raise InvalidInput("this plan was not run: ask for it with explain(…, analyze=True)")
        return self.result

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {"plan": asdict(self.plan), "result": self.result.to_dict() if self.result else None}

    def to_svg(self) -> str:
        """Return the stages as a timeline: what happened if it was run, else what is expected to (paler bars)."""
        plan, result = self.plan, self.result
        what = f"{plan.mode} search, k={plan.k}, over {plan.documents:,} documents"
        if result is None:
            title, subtitle = f"Expected: {what}", _left_out(plan.left_out)
            return draw(planned_bars(plan), title=title, subtitle=subtitle, budget_ms=plan.timeout_ms)
        title = f"{result.query or 'a vector'} → {len(result)} hits in {result.latency_ms:.1f} ms"
        subtitle = f"{what}. {_left_out(result.degraded)}"
        return draw(measured_bars(result), title=title, subtitle=subtitle, budget_ms=plan.timeout_ms)


def _left_out(degraded: tuple[str, ...]) -> str:
    return f"Left out: {', '.join(degraded)}." if degraded else ""


def render(plan: QueryPlan, result: SearchResult | None = None) -> str:
    """Return the tree as text, outermost stage first, as a query planner prints it."""
    ran = {stage.stage: stage for stage in result.stats} if result else {}
    lines = [_head(plan, result)]
    indent = ""
    if plan.min_score is not None:
        lines.append(f"└─ min_score {plan.min_score:g}{_happened(ran.get('min_score'))}")
        indent += "   "
    for stage in reversed(plan.rerank):
        lines.extend(f"{indent}{line}" for line in _rerank_lines(stage, result))
        indent += "   "
    if plan.fused:
        constant = f" k={plan.rrf_k:g}" if plan.fusion == "rrf" else ""
        weights = ", ".join(f"{retriever.weight:g} {retriever.kind}" for retriever in plan.retrievers)
        lines.append(f"{indent}└─ fuse  {plan.fusion}{constant}  ({weights}){_happened(ran.get('fuse'))}")
        indent += "   "
    for retriever in plan.retrievers:
        lines.extend(f"{indent}{line}" for line in _retriever_lines(retriever, plan, ran=ran))
    lines.extend(_notes(plan, result))
    return "\n".join(lines)


def _rerank_lines(stage: RerankPlan, result: SearchResult | None) -> Iterable[str]:
    yield f"└─ {stage.stage}  {_reads(stage)}{_budget(stage.budget_ms)}"
    done = [stats for stats in result.stats if stats.stage == stage.stage] if result else []
    for position, member in enumerate(stage.members):
        its = next((stats for stats in done if stats.model == member.name), None)
        role = "by" if position == 0 else "else by"
        yield f"   · {role} {_model(member.name, member.model, member.expected_ms)}{_happened(its)}"
        yield from _why("     ", member.model)


def _retriever_lines(retriever: RetrieverPlan, plan: QueryPlan, *, ran: Mapping[str, StageStats]) -> Iterable[str]:
    is_last = retriever is plan.retrievers[-1]
    branch, below = ("└─", "   ") if is_last else ("├─", "│  ")
    words = "" if retriever.bm25 is None else "  k1={:g}, b={:g}".format(*retriever.bm25)
    text = f"{retriever.kind}  depth {retriever.depth}{words}{_expected(retriever.expected_ms)}"
    yield f"{branch} {text}{_happened(ran.get(retriever.kind))}"
    if plan.filter:
        yield f"{below}· filter {dict(plan.filter)}: {retriever.strategy}{_selectivity(plan)}"
    if retriever.model:
        model = _model(retriever.model.name, retriever.model, retriever.model.expected_ms(1))
        yield f"{below}└─ encode  by {model}{_happened(ran.get('encode'))}"
        yield from _why(f"{below}   ", retriever.model)


def _head(plan: QueryPlan, result: SearchResult | None) -> str:
    head = f"search  mode={plan.mode}  k={plan.k}  over {plan.documents:,} documents{_expected(plan.expected_ms)}"
    if plan.timeout_ms is not None and plan.retrieval_budget_ms is not None:
        head += f"  within {plan.timeout_ms:.0f} ms, of which retrieval may take {plan.retrieval_budget_ms:.0f}"
    return head if result is None else f"{head}  →  {len(result)} hits in {result.latency_ms:.1f} ms"


def _reads(stage: RerankPlan) -> str:
    text = f"the best {stage.depth}"
    if stage.asked_depth is not None:
        text += f" (time is too short for {stage.asked_depth})"
    if stage.field != "text":
        text += f", their {stage.field!r}"
    if stage.passages:
        text += f", in windows of {stage.passages.words} words"
    return text if stage.blend is None else f"{text}, {stage.blend:g} of it blended with the first stage"


def _model(name: str, model: ModelState | None, expected_ms: float | None) -> str:
    if model is None:
        return f"{name}{_expected(expected_ms)}"
    where = "resident" if model.resident else "cold"
    source = "" if expected_ms is None else " as learned" if model.learned else " by its profile"
    size = f"{model.nbytes / MIB:.0f} MiB"
    return f"{name} on {model.backend} ({where}, {size}){_expected(expected_ms)}{source}"


def _why(indent: str, model: ModelState | None) -> Iterable[str]:
    if model is not None and model.why:
        yield f"{indent}why {model.why}"


def _expected(ms: float | None) -> str:
    return "" if ms is None else f"  ~{ms:.3g} ms"


def _budget(ms: float | None) -> str:
    return "" if ms is None else f"  within {ms:.0f} ms"


def _selectivity(plan: QueryPlan) -> str:
    if plan.filtered is None:
        return ""
    return f", lets {plan.filtered.rows:,} of {plan.filtered.documents:,} through ({plan.filtered.selectivity:.1%})"


def _notes(plan: QueryPlan, result: SearchResult | None) -> Iterable[str]:
    if plan.filtered and plan.filtered.unknown_fields:
        yield f"no document has what the filter speaks of: {', '.join(plan.filtered.unknown_fields)}"
    if plan.defaults:
        yield f"defaults: {plan.defaults}"
    degraded = result.degraded if result else plan.left_out
    if degraded:
        yield f"left out: {', '.join(degraded)}"
    if plan.prefetch:
        yield f"prefetched while retrieval runs: {', '.join(map(str, plan.prefetch))}"
    yield from _taking(plan, result)
    for load in result.loads if result else ():
        end_ms = load.start_ms + load.latency_ms
        yield f"loaded {load.model} from {max(0.0, load.start_ms):.1f} to {end_ms:.1f} ms"


def _taking(plan: QueryPlan, result: SearchResult | None) -> Iterable[str]:
    """Say how several models are taken."""
    if len(plan.models) < 2:  # noqa: PLR2004 -- one alone is no set
        return
    if not plan.together:
        yield "models are taken one after the other: together they don't fit into the budget"
    elif result is None or result.together:
        yield f"models are taken as a set: {', '.join(model.name for model in plan.models)}"
    else:
        yield "models were taken one after the other: there was no room for all when the last stages began"


def _happened(stage: StageStats | None) -> str:
    """Return what a stage did, to be read behind its plan; nothing if it wasn't run."""
    if stage is None:
        return ""
    text = f"  →  {stage.candidates_in:,} in, {stage.candidates_out:,} out, {stage.latency_ms:.1f} ms"
    if stage.cold:
        text += f" ({stage.load_ms:.0f} ms of it loading)"
    if stage.truncated:
        text += f", {stage.truncated} truncated"
    if stage.cached:
        text += f", {stage.cached} remembered"
    if stage.device:
        text += f", on {stage.device}"
    return f"{text}, failed: {stage.error}" if stage.error else text
