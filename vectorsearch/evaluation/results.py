"""What an experiment found: each system's rankings, figures and times, and how they compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vectorsearch.evaluation.comparing.comparison import compare
from vectorsearch.evaluation.comparing.metrics import MEASURES
from vectorsearch.evaluation.comparing.oddities import nothing_found, odd_judgments, odd_run, without_own
from vectorsearch.evaluation.outcome import Outcome, SystemResult
from vectorsearch.evaluation.report import write_report
from vectorsearch.evaluation.report.changes import shown_documents
from vectorsearch.evaluation.tables import markdown_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from vectorsearch.evaluation.answers import Answer
    from vectorsearch.evaluation.comparing.comparison import Comparison
    from vectorsearch.evaluation.systems import System


@dataclass(frozen=True, slots=True)
class ExperimentResult(Outcome):
    """An outcome that can be shown, as a table and as a report."""

    def table(self) -> str:
        """Return the comparison as a Markdown table, a row for each system."""
        return markdown_table(self)

    def report(self, folder: str | Path) -> Path:
        """Write report.html, one page that needs no network, report.md and report.json; return the page's path.

        Raises:
            OSError: the folder can't be written.
        """
        return write_report(self, folder)


def judge(
    rankings: Mapping[str, Mapping[str, Sequence[str]]],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    measures: Sequence[str] = MEASURES,
    baseline: str | None = None,
    collection: str = "runs",
    queries: Mapping[str, str] | None = None,
    ignore_identical_ids: bool = False,
    notes: Sequence[str] = (),
) -> ExperimentResult:
    """Measure the rankings of any engines, as read from run files, and compare them if there are several.

    Args:
        rankings: system name to {query id: document ids, best first}.
        qrels: query id to {document id: grade}; a query that a ranking lacks counts as 0.
        measures: names that ir-measures knows.
        baseline: the system that the others are compared with; the first if None.
        collection: what tables and reports call it.
        queries: query id to text, shown in the report.
        ignore_identical_ids: whether the document that has a query's own id is left out of its results.
        notes: what a reader of the figures should know of the files.

    Raises:
        MissingExtra: ir-measures or scipy is not installed.
        InvalidInput: there is nothing to compare, or a name is unknown, or nothing is judged relevant. A run that has
            nothing in common with the judgments is told in the notes.
    """
    odd = [*notes, *odd_judgments(qrels)] if qrels else []
    for name, run in rankings.items():
        odd += odd_run(name, run, qrels) if qrels else []
        own = without_own(run)[1]
        if own and ignore_identical_ids:
            odd.append(f"{name} has the document of {own:,} queries' own ids among their results: it is left out")
        elif own > len(run) / 2:
            odd.append(
                f"{name} has the document of {own:,} queries' own ids among their results: if queries are documents, "
                "leave it out (--ignore-identical-ids)"
            )
    if ignore_identical_ids:
        rankings = {name: without_own(run)[0] for name, run in rankings.items()}
    comparison = compare(rankings, qrels, measures=measures, baseline=baseline)
    systems = tuple(
        SystemResult(name=name, rankings=run, metrics=means(comparison, name)) for name, run in rankings.items()
    )
    odd += nothing_found(system.metrics.values() for system in systems)
    return ExperimentResult(collection, None, queries or {}, qrels, systems, comparison, notes=tuple(odd))


def with_texts(result: ExperimentResult, documents: Iterable[Mapping[str, Any]]) -> ExperimentResult:
    """Return the result with titles and texts of the documents that its report shows.

    `documents` yields mappings with `id`, `title` and `text`, as `TestCollection.documents` does.
    """
    rankings = {system.name: system.rankings for system in result.systems}
    shown = shown_documents(result.comparison, rankings)
    texts = {each["id"]: (each["title"], each["text"]) for each in documents if each["id"] in shown}
    return replace(result, texts=texts)


def means(comparison: Comparison, system: str) -> dict[str, float]:
    """Return a system's mean of each measure."""
    return {name: figure.mean for name, figure in comparison.figures[system].items()}


def summarise(
    system: System, answers: Mapping[str, Answer], metrics: Mapping[str, float], *, asked: int
) -> SystemResult:
    """Return what the answers of one system amount to."""
    stages: dict[str, list[float]] = {}
    for answer in answers.values():
        for stage, milliseconds in answer.stages_ms.items():
            stages.setdefault(stage, []).append(milliseconds)
    return SystemResult(
        name=system.name,
        rankings={query_id: answer.doc_ids for query_id, answer in answers.items()},
        metrics=metrics,
        system=system,
        latency_ms=_percentiles([answer.latency_ms for answer in answers.values()]),
        stages_ms={stage: float(np.median(times)) for stage, times in stages.items()},
        models=tuple(dict.fromkeys(model for answer in answers.values() for model in answer.models)),
        asked=asked,
        scores={query_id: answer.scores for query_id, answer in answers.items()},
    )


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {"p50": 0.0, "p99": 0.0}
    p50, p99 = np.percentile(np.asarray(values), [50, 99])
    return {"p50": float(p50), "p99": float(p99)}
