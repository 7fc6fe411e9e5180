"""Run systems over a test collection's queries and compare them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from backends.errors import InvalidInput
from vectorsearch.evaluation.asking import ask
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.evaluation.comparing.comparison import compare, resolve_baseline
from vectorsearch.evaluation.comparing.metrics import MEASURES, canonical_names, deepest_cutoff, require_ir_measures
from vectorsearch.evaluation.comparing.oddities import (
    missing_documents,
    nothing_found,
    odd_judgments,
    queries_are_documents,
)
from vectorsearch.evaluation.comparing.significance import require_scipy_stats
from vectorsearch.evaluation.journal import Subject
from vectorsearch.evaluation.report.changes import shown_documents
from vectorsearch.evaluation.results import ExperimentResult, means, summarise
from vectorsearch.evaluation.systems import System, parse_system, unique_systems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.answers import Answer
    from vectorsearch.evaluation.collecting.topics import Judged


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
        ignore_identical_ids: whether the document that has a query's own id is left out of its results, and the next
            one moves up. If None, it is where queries are documents of the collection: at least nine in ten of those
            with a document's id have its text as well, as in ArguAna and Quora. The result's notes say so.

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
        ignore_identical_ids: bool | None = None,
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
        self._ignore = (
            queries_are_documents(judged.queries, judged.qrels, self._texts)
            if ignore_identical_ids is None
            else ignore_identical_ids
        )

    def run(self, *, on_progress: Callable[[System, int, int], None] | None = None) -> ExperimentResult:
        """Ask what is not known yet, measure, and compare.

        Args:
            on_progress: called as `on_progress(system, done, total)` after each query that was asked.

        Raises:
            InvalidInput: there are no documents, or none that is judged, or no relevant one: figures would all be 0.
            EvaluationFailed: a stage was left out.
            VectorSearchError: a stage failed.
        """
        notes = self._notes()
        subject = Subject(self._db) if self._cache else None
        answers: dict[str, dict[str, Answer]] = {}
        asked = dict.fromkeys((system.name for system in self.systems), 0)
        for system in self.systems:

            def count(done: int, total: int, system: System = system) -> None:
                asked[system.name] += 1
                if on_progress is not None:
                    on_progress(system, done, total)

            # One more, so that there are as many where a query's own document is left out.
            asking = replace(system, k=system.k + 1) if self._ignore else system
            journal = subject.journal(asking) if subject else None
            found = ask(self._db, self._judged.queries, asking, journal=journal, on_progress=count)
            answers[system.name] = self._counting(found, system.k)
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
            notes=(*notes, *nothing_found(result.metrics.values() for result in results)),
        )

    def _notes(self) -> tuple[str, ...]:
        """Return what a reader of the figures should know.

        Raises:
            InvalidInput: there are no documents, or none that is judged, or no relevant one.
        """
        if not (count := self._db.count()):
            raise InvalidInput("the database holds no documents: there is nothing to search")
        odd = [*odd_judgments(self._judged.qrels), *missing_documents(self._judged.qrels, self._db.__contains__, count)]
        if self._ignore:
            own = sum(query in self._db for query in self._judged.queries)
            of_all = f"{own:,} of {len(self._judged.queries):,} queries"
            odd.append(f"{of_all} have a document's id: that document is left out of their results")
        return (*self._judged.notes, *odd)

    def _counting(self, answers: dict[str, Answer], k: int) -> dict[str, Answer]:
        """Return the answers without each query's own document, if that doesn't count."""
        if not self._ignore:
            return answers
        counting = {}
        for query, answer in answers.items():
            places = [place for place, doc_id in enumerate(answer.doc_ids) if doc_id != query][:k]
            doc_ids, scores = ([answer.doc_ids[place] for place in places], [answer.scores[place] for place in places])
            counting[query] = replace(answer, doc_ids=tuple(doc_ids), scores=tuple(scores))
        return counting

    def _texts(self, doc_id: str) -> tuple[str, ...]:
        document = self._db.get(doc_id)
        return (document.text, document.full_text) if document else ()


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
