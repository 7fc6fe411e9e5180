"""`vectorsearch compare`: judge and compare the runs of any engines."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads it when it runs
from typing import TYPE_CHECKING, Annotated

import typer

from vectorsearch.cli import output
from vectorsearch.cli.comparison import Baseline, MeasureNames, print_result
from vectorsearch.evaluation.collections import read_qrels
from vectorsearch.evaluation.metrics import MEASURES
from vectorsearch.evaluation.results import judge
from vectorsearch.evaluation.runs import name_runs, read_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vectorsearch.evaluation.runs import Run

HELP = """Measure and compare the runs of any engines, in TREC's format.

Each run is compared with the baseline, the first if none is named, by paired tests over the judged queries. A query
that a run lacks counts as 0; a document that comes twice in a query is an error. Runs are called by their tag, or by
their file's name where tags are alike.

[bold]Examples[/]

  vectorsearch compare bm25.trec ours.trec --qrels qrels/test.tsv
  vectorsearch compare *.trec --qrels qrels.txt --measure nDCG@20 --measure Judged@20 --baseline bm25"""

_PAIR = 2


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="TREC runs, plain or .gz.", exists=True, dir_okay=False, metavar="RUN…")
    ],
    *,
    qrels: Annotated[
        Path, typer.Option(help="Judgments, BEIR's TSV or TREC's.", exists=True, dir_okay=False, metavar="FILE")
    ],
    baseline: Baseline = None,
    measure: MeasureNames = None,
    as_json: output.Json = False,
) -> None:
    """Judge and print."""
    if len(runs) < _PAIR:
        raise typer.BadParameter("give at least two runs", param_hint="RUN…")
    judgments = read_qrels(qrels)
    named = name_runs(read_run(path) for path in runs)
    for name, run in named.items():
        for line in _oddities(name, run, set(judgments)):
            output.print_warning(line)
    rankings = {name: run.rankings for name, run in named.items()}
    result = judge(rankings, judgments, measures=measure or MEASURES, baseline=baseline, collection=qrels.name)
    if as_json:
        output.print_json(result.to_dict())
    else:
        print_result(result, f"{qrels}: {len(judgments):,} judged queries")


def _oddities(name: str, run: Run, judged: set[str]) -> Iterator[str]:
    """Yield what a reader of the figures should know of a run."""
    if missing := len(judged - set(run.rankings)):
        yield f"{name} has no results for {missing:,} of {len(judged):,} judged queries: they count as 0"
    if unjudged := len(set(run.rankings) - judged):
        yield f"{name} has results for {unjudged:,} queries without judgments: they are left out"
    if run.ties:
        yield f"{name} has {run.ties:,} tied scores: ordered by document id, descending, as trec_eval does"
