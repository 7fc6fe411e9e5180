"""`vectorsearch compare`: judge and compare the runs of any engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 -- typer reads it when it runs
from typing import TYPE_CHECKING, Annotated, Self

import typer

from backends.errors import InvalidInput
from vectorsearch.cli import output  # noqa: TC001 -- typer reads it when it runs
from vectorsearch.cli.compared import (
    Baseline,
    CollectionName,
    IgnoreOwn,
    JudgmentsFile,
    MeasureNames,
    Report,
    collection_option,
    give_result,
)
from vectorsearch.cli.group import usage
from vectorsearch.evaluation.comparing.metrics import MEASURES, canonical_names
from vectorsearch.evaluation.comparing.oddities import missing_documents, nothing_in_common, queries_are_documents
from vectorsearch.evaluation.formats.judgments import read_judgments
from vectorsearch.evaluation.formats.runs import name_runs, read_run
from vectorsearch.evaluation.results import judge, with_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vectorsearch.evaluation.collecting.collections import TestCollection
    from vectorsearch.evaluation.formats.runs import Run

HELP = """Measure the runs of any engines, and compare them if there are several.

A run is TREC's (query, Q0, document, rank, score, tag), MS MARCO's (query, document, rank) or JSON of
{query: {document: score}}. Each is compared with the baseline, the first if none is named, by paired tests over the
judged queries. A query that a run lacks counts as 0; a document that comes twice in a query is an error, as is a run
that has no query or no document in common with the judgments. Runs are called by their tag, or by their file's name
where tags are alike.

[bold]Examples[/]

  vectorsearch compare bm25.trec ours.trec --qrels qrels/test.tsv
  vectorsearch compare ours.trec --qrels qrels.txt
  vectorsearch compare bm25.trec ours.trec --collection scifact --report report
  vectorsearch compare *.trec --qrels qrels.txt --measure nDCG@20 --measure Judged@20 --baseline bm25"""


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Runs, plain or compressed.", exists=True, dir_okay=False, metavar="RUN…")
    ],
    *,
    qrels: JudgmentsFile = None,
    collection: CollectionName = None,
    baseline: Baseline = None,
    measure: MeasureNames = None,
    ignore_identical_ids: IgnoreOwn = None,
    report: Report = None,
    as_json: output.Json = False,
) -> None:
    """Judge and print."""
    if qrels is not None and collection is not None:
        raise typer.BadParameter("a collection has judgments of its own: give one of the two", param_hint="--qrels")
    with usage():
        measures = canonical_names(measure or MEASURES)
    if qrels is not None and any(qrels.samefile(path) for path in runs):
        raise InvalidInput(f"{qrels} is given as a run and as judgments: every figure would be the best there is")
    source = collection_option(collection)
    judgments: Mapping[str, Mapping[str, int]]
    if qrels is not None:
        judged = read_judgments(qrels)
        judgments, notes = judged.grades, judged.notes
    elif source is not None:
        judgments, notes = source.qrels, source.notes
    else:
        raise typer.BadParameter("give --qrels FILE or --collection DIR")
    named = name_runs(read_run(path) for path in runs)
    for name, run in named.items():
        if told := nothing_in_common(name, run.rankings, judgments):
            raise InvalidInput(told)
    documents = _Documents.of(source) if source is not None else None
    if documents is not None:
        notes = (*notes, *missing_documents(judgments, documents.ids.__contains__, len(documents.ids)))
    result = judge(
        {name: run.rankings for name, run in named.items()},
        judgments,
        measures=measures,
        baseline=baseline,
        collection=source.name if source else str(qrels),
        queries=source.queries if source else None,
        ignore_identical_ids=documents is not None and documents.are_queries
        if ignore_identical_ids is None
        else ignore_identical_ids,
        notes=[*notes, *(note for name, run in named.items() for note in _oddities(name, run))],
    )
    if source is not None and report is not None:
        result = with_texts(result, source.documents())
    title = f"{result.collection}: {len(judgments):,} judged queries"
    give_result(result, title, report=report, as_json=as_json)


@dataclass(frozen=True)
class _Documents:
    """A collection's document ids, and whether its queries are documents."""

    ids: frozenset[str]
    are_queries: bool

    @classmethod
    def of(cls, source: TestCollection) -> Self:
        ids, own = set(), {}
        for row in source.documents():
            ids.add(row["id"])
            if row["id"] in source.queries:
                own[row["id"]] = (row["text"], f"{row['title']} {row['text']}")
        return cls(
            frozenset(ids), queries_are_documents(source.queries, source.qrels, lambda query: own.get(query, ()))
        )


def _oddities(name: str, run: Run) -> Iterator[str]:
    """Yield what a reader of the figures should know of a run by itself."""
    yield from run.notes
    if run.ties:
        yield f"{name} has {run.ties:,} tied scores: ordered by document id, descending, as trec_eval does"
