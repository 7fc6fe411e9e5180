"""Run a plan's rerank stages one after the other: each reorders the best of what the one before it gave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import VectorSearchError
from rerank import RerankError
from rerank.base import ask
from rerank.cascade import blend, reorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rerank import Reranker, RerankScores
    from vectorsearch.query.execution.trace import Trace
    from vectorsearch.query.planning.plan import Member, QueryPlan, RerankPlan
    from vectorsearch.query.planning.request import SearchRequest
    from vectorsearch.types import Document


@dataclass(frozen=True, slots=True)
class Reranked:
    """The order of n fused hits, int64[n], with their scores: float32[n] each, NaN for a hit that has none.

    `logits` are of the last stage that read a hit, `blended` what placed it where its stage blends; `judged` the scores
    that a `min_score` is compared with, None where the last stage has given none.
    """

    order: NDArray[np.int64]
    logits: NDArray[np.float32]
    blended: NDArray[np.float32]
    judged: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Reranking:
    """One search's rerank stages, to be run: `rerankers` in the order of the request's names."""

    plan: QueryPlan
    request: SearchRequest
    rerankers: Sequence[Reranker | None]
    trace: Trace

    def run(self, documents: Sequence[Document], fused: NDArray[np.float32]) -> Reranked:
        """Reorder the documents, which come in fused order with their `fused` scores float32[n].

        Raises:
            VectorSearchError: a stage failed, and the caller wants an error.
        """
        nothing = np.full(len(documents), np.nan, dtype=np.float32)
        order, logits, blended, judged = np.arange(len(documents)), nothing.copy(), nothing.copy(), None
        due_ms = self.plan.retrieval_budget_ms
        for stage in self.plan.rerank if len(documents) else ():
            head = order[: stage.depth]
            texts = [text_of(documents[at], stage.field) for at in head]
            scores = self._ask(stage, texts, due_ms)
            due_ms = _plus(due_ms, stage.budget_ms)
            judged = None
            if scores is None:
                continue
            logits[head] = scores
            judged = nothing.copy()
            judged[head] = scores
            placing = scores if stage.blend is None else blend(scores, fused[head], weight=stage.blend)
            blended[head] = np.nan if stage.blend is None else placing
            order = reorder(order, placing)
        return Reranked(order, logits, blended, judged)

    def _ask(self, stage: RerankPlan, texts: Sequence[str | None], due_ms: float | None) -> NDArray[np.float32] | None:
        """Return the scores of the first member that can answer, NaN where there is none; None if no member can.

        The members share the stage's time, which begins to count at `due_ms` at the latest.
        """
        has_failed = False
        for member in stage.members:
            begun = self.trace.now_ms
            due_ms = _plus(due_ms, member.budget_ms)
            try:
                answer = self._score(member, texts, due_ms)
            except VectorSearchError as exc:
                is_last = member is stage.members[-1]
                if is_last and self.request.on_rerank_error == "raise":
                    raise
                self.trace.note(stage.stage, begun, len(texts), 0, model=member.name, error=str(exc))
                if is_last:
                    self.trace.leave_out(stage.stage, exc)
                has_failed = True
                continue
            if has_failed:
                self.trace.degraded.append(f"{stage.stage}:fallback")
            self._report(stage, member, answer, lacking=sum(text is None for text in texts), begun=begun)
            return answer.scores
        return None

    def _score(self, member: Member, texts: Sequence[str | None], due_ms: float | None) -> RerankScores:
        """Score the texts that are there; a document without the field has none, and its score is NaN."""
        reranker = self.rerankers[member.number]
        if reranker is None:
            raise RerankError(f"reranker {member.name!r} was planned, but nothing here can run it")
        present = [at for at, text in enumerate(texts) if text is not None]
        given = [text for text in texts if text is not None]
        try:
            answer = ask(reranker, self.request.query or "", given, deadline=self.trace.deadline(due_ms))
        except VectorSearchError:
            raise
        except Exception as exc:  # an object of the caller's own: any failure is reported as this stage's
            raise RerankError(f"reranker {member.name!r} failed on {len(given)} texts: {exc!r}") from exc
        if len(given) == len(texts):
            return answer
        scores = np.full(len(texts), np.nan, dtype=np.float32)
        scores[present] = answer.scores
        return replace(answer, scores=scores)

    def _report(self, stage: RerankPlan, member: Member, answer: RerankScores, *, lacking: int, begun: float) -> None:
        n, missing = len(answer.scores), int(np.isnan(answer.scores).sum())
        error = f"{missing} of {n} texts got no score" if missing else None
        if lacking:
            error = f"{error}; {lacking} documents have no text {stage.field!r}"
        if missing and self.request.on_rerank_error == "raise":
            raise RerankError(f"reranker {member.name!r} gave no score for {missing} of {n} texts")
        if missing:
            self.trace.degraded.append(f"{stage.stage}:missing-scores")
        self.trace.note(
            stage.stage,
            begun,
            n,
            n - missing,
            model=member.name,
            backend=answer.backend,
            device=answer.device,
            cold=answer.cold or (member.model is not None and not member.model.resident),
            load_ms=answer.load_ms,
            truncated=answer.truncated,
            cached=answer.cached,
            error=error,
        )


def text_of(document: Document, field: str) -> str | None:
    """Return what a reranker reads: title and text, the title alone, or a text of the metadata; None for none."""
    if field == "text":
        return document.full_text
    value = document.title if field == "title" else document.metadata.get(field)
    return value if isinstance(value, str) and value else None


def _plus(due_ms: float | None, budget_ms: float | None) -> float | None:
    return None if due_ms is None or budget_ms is None else due_ms + budget_ms
