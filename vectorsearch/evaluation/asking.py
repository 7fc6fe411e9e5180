"""Ask a system the queries of a collection; what the journal has is not asked again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vectorsearch.evaluation.answers import Answer, ModelUse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.journal import Journal
    from vectorsearch.evaluation.systems import System
    from vectorsearch.query.results import SearchResult


def ask(
    db: Database,
    queries: Mapping[str, str],
    system: System,
    *,
    journal: Journal | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Answer]:
    """Return the answer to each query, in the order of `queries`.

    What the journal has is taken from it, and what is asked is written to it at once, so that an interruption loses
    one query. The first that is asked is asked once before the clock starts, so that no time holds the loading of a
    model. Nothing is degraded and no deadline is set: a stage that fails raises.

    Args:
        db: holds the documents.
        queries: query id to text.
        system: how to search.
        journal: what was asked before; None asks everything.
        on_progress: called as `on_progress(done, total)` after each query that was asked.

    Raises:
        EvaluationFailed: a stage was left out.
        VectorSearchError: a stage failed.
    """
    db.refresh()
    known = dict(journal.answers) if journal is not None else {}
    warm = False
    for done, text in enumerate(queries.values(), 1):
        if text in known:
            continue
        if not warm:
            system.search(db, text)
            warm = True
        known[text] = _timed(db, system, text)
        if journal is not None:
            journal.record(text, known[text])
        if on_progress is not None:
            on_progress(done, len(queries))
    return {query_id: known[text] for query_id, text in queries.items()}


def _timed(db: Database, system: System, text: str) -> Answer:
    start = time.perf_counter()
    result = system.search(db, text)
    latency_ms = (time.perf_counter() - start) * 1000.0
    doc_ids, scores = tuple(hit.id for hit in result), tuple(float(hit.score) for hit in result)
    return Answer(doc_ids, latency_ms, _stages_ms(result), _models(result), scores)


def _stages_ms(result: SearchResult) -> dict[str, float]:
    return {stage.stage: round(stage.latency_ms, 3) for stage in result.stats}


def _models(result: SearchResult) -> tuple[ModelUse, ...]:
    used = (ModelUse(stage.model, stage.backend, stage.device) for stage in result.stats if stage.model)
    return tuple(dict.fromkeys(used))
