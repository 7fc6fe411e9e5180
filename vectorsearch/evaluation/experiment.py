"""Run systems over a test collection's queries and compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.errors import InvalidInput
from vectorsearch.evaluation.answers import ask
from vectorsearch.evaluation.comparison import compare, resolve_baseline
from vectorsearch.evaluation.journal import Subject
from vectorsearch.evaluation.metrics import MEASURES, canonical_names, deepest_cutoff, require_ir_measures
from vectorsearch.evaluation.report.changes import shown_documents
from vectorsearch.evaluation.results import ExperimentResult, means, summarise
from vectorsearch.evaluation.significance import require_scipy_stats
from vectorsearch.evaluation.systems import System, parse_system, unique_systems
from vectorsearch.evaluation.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vectorsearch.database import Database
    from vectorsearch.evaluation.answers import Answer
    from vectorsearch.evaluation.topics import Judged


class Experiment:
    """Systems to be measured on one collection's queries. `run` does it.

    What a system answered before, on the same documents, models, options and code, is not asked again.

    Args:
        systems: systems, or lines that `parse_system` reads.
        db: holds the collection's documents.
        judged: the queries, in order, and their judgments, such as a `TestCollection` or `Topics`.
        name: what tables and reports call the collection; its own name if None.
        measures: names that ir-measures knows; the first is the one that differences are shown of.
        baseline: the name of the system that the others are compared with; the first if None.
        limit: only the first queries, in the order of the judgments; all if None.
        cache: whether answers are remembered, and those of an earlier run taken.

    Raises:
        MissingExtra: ir-measures or scipy is not installed.
        InvalidInput: a system, a measure or the baseline can't be used.
        UnknownModel: a reranker's name is unknown.
    """

    def __init__(
        self,
        systems: Iterable[System | str],
        *,
        db: Database,
        judged: Judged,
        name: str | None = None,
        measures: Sequence[str] = MEASURES,
        baseline: str | None = None,
        limit: int | None = None,
        cache: bool = True,
    ) -> None:
        self.systems = unique_systems(parse_system(each) if isinstance(each, str) else each for each in systems)
        self.measures = canonical_names(measures)
        self.baseline = resolve_baseline([system.name for system in self.systems], baseline)
        check_plan(self.systems, self.measures)
        check_rerankers(self.systems, db.find_reranker)
        self._db = db
        self._judged = Topics.first(judged, limit)
        self._name = name or str(getattr(judged, "name", "queries"))
        self._cache = cache

    def run(self, *, on_progress: Callable[[System, int, int], None] | None = None) -> ExperimentResult:
        """Ask what is not known yet, measure, and compare.

        Args:
            on_progress: called as `on_progress(system, done, total)` after each query that was asked.

        Raises:
            EvaluationFailed: a stage was left out.
            VectorSearchError: a stage failed.
        """
        subject = Subject(self._db) if self._cache else None
        answers: dict[str, dict[str, Answer]] = {}
        asked = dict.fromkeys((system.name for system in self.systems), 0)
        for system in self.systems:

            def count(done: int, total: int, system: System = system) -> None:
                asked[system.name] += 1
                if on_progress is not None:
                    on_progress(system, done, total)

            journal = subject.journal(system) if subject else None
            answers[system.name] = ask(self._db, self._judged.queries, system, journal=journal, on_progress=count)
        rankings = {
            name: {query_id: answer.doc_ids for query_id, answer in each.items()} for name, each in answers.items()
        }
        comparison = compare(rankings, self._judged.qrels, measures=self.measures, baseline=self.baseline)
        results = tuple(
            summarise(system, answers[system.name], means(comparison, system.name), asked=asked[system.name])
            for system in self.systems
        )
        shown = (self._db.get(doc_id) for doc_id in sorted(shown_documents(comparison, rankings)))
        return ExperimentResult(
            collection=self._name,
            documents=self._db.count(),
            queries=self._judged.queries,
            qrels=self._judged.qrels,
            systems=results,
            comparison=comparison,
            texts={document.id: (document.title, document.text) for document in shown if document},
        )


def check_plan(systems: Sequence[System], measures: Sequence[str]) -> None:
    """Raise for what would be found out only after hours: a missing package, too few hits.

    Raises:
        MissingExtra: ir-measures or scipy is not installed.
        InvalidInput: a measure looks deeper than a system answers.
    """
    require_ir_measures()
    require_scipy_stats()
    deepest = deepest_cutoff(measures)
    for system in systems:
        if system.k < deepest:
            raise InvalidInput(
                f"system {system.name!r} gives {system.k} hits, and {', '.join(measures)} look at {deepest}: raise k"
            )


def check_rerankers(systems: Sequence[System], find: Callable[[str], object]) -> None:
    """Raise if a system's reranker can't be found by its name, by `find`.

    Raises:
        UnknownModel: there is none of this name.
    """
    for system in systems:
        for name in system.reranker_names:
            find(name)
