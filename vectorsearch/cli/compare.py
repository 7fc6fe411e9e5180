"""`vectorsearch compare`: judge and compare the runs of any engines."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads it when it runs
from typing import TYPE_CHECKING, Annotated

import typer

from vectorsearch.cli import output
from vectorsearch.cli.comparison import (
    Baseline,
    CollectionName,
    JudgmentsFile,
    MeasureNames,
    Report,
    collection_option,
    give_result,
)
from vectorsearch.evaluation.collections import read_qrels
from vectorsearch.evaluation.metrics import MEASURES
from vectorsearch.evaluation.results import judge, with_texts
from vectorsearch.evaluation.runs import name_runs, read_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vectorsearch.evaluation.runs import Run

HELP = """Measure and compare the runs of any engines, in TREC's format.

Each run is compared with the baseline, the first if none is named, by paired tests over the judged queries. A query
that a run lacks counts as 0; a document that comes twice in a query is an error. Runs are called by their tag, or by
their file's name where tags are alike.

[bold]Examples[/]

  vectorsearch compare bm25.trec ours.trec --qrels qrels/test.tsv
  vectorsearch compare bm25.trec ours.trec --collection scifact --report report
  vectorsearch compare *.trec --qrels qrels.txt --measure nDCG@20 --measure Judged@20 --baseline bm25"""

_PAIR = 2


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="TREC runs, plain or .gz.", exists=True, dir_okay=False, metavar="RUN…")
    ],
    *,
    qrels: JudgmentsFile = None,
    collection: CollectionName = None,
    baseline: Baseline = None,
    measure: MeasureNames = None,
    report: Report = None,
    as_json: output.Json = False,
) -> None:
    """Judge and print."""
    if len(runs) < _PAIR:
        raise typer.BadParameter("give at least two runs", param_hint="RUN…")
    source = collection_option(collection)
    judgments: Mapping[str, Mapping[str, int]]
    if qrels is not None:
        judgments = read_qrels(qrels)
    elif source is not None:
        judgments = source.qrels
    else:
        raise typer.BadParameter("give --qrels FILE or --collection DIR")
    named = name_runs(read_run(path) for path in runs)
    for name, run in named.items():
        for line in _oddities(name, run, set(judgments)):
            output.print_warning(line)
    result = judge(
        {name: run.rankings for name, run in named.items()},
        judgments,
        measures=measure or MEASURES,
        baseline=baseline,
        collection=source.name if source else str(qrels),
        queries=source.queries if source else None,
    )
    if source is not None and report is not None:
        result = with_texts(result, source.documents())
    title = f"{result.collection}: {len(judgments):,} judged queries"
    give_result(result, title, report=report, as_json=as_json)


def _oddities(name: str, run: Run, judged: set[str]) -> Iterator[str]:
    """Yield what a reader of the figures should know of a run."""
    if missing := len(judged - set(run.rankings)):
        yield f"{name} has no results for {missing:,} of {len(judged):,} judged queries: they count as 0"
    if unjudged := len(set(run.rankings) - judged):
        yield f"{name} has results for {unjudged:,} queries without judgments: they are left out"
    if run.ties:
        yield f"{name} has {run.ties:,} tied scores: ordered by document id, descending, as trec_eval does"
