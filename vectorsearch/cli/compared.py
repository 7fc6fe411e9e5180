"""What `evaluate` and `compare` share: options, a table of figures, and one of differences from the baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from backends.errors import InvalidInput
from vectorsearch.cli import output
from vectorsearch.evaluation.collecting.collections import read_judged
from vectorsearch.evaluation.collecting.sources import IR_DATASETS, find_collection
from vectorsearch.evaluation.comparing.metrics import MEASURES
from vectorsearch.evaluation.figures import format_p, signed
from vectorsearch.evaluation.tables import is_best, legend, mark

if TYPE_CHECKING:
    from vectorsearch.evaluation.collecting.collections import TestCollection
    from vectorsearch.evaluation.collecting.topics import Topics
    from vectorsearch.evaluation.comparing.comparison import Difference
    from vectorsearch.evaluation.outcome import SystemResult
    from vectorsearch.evaluation.results import ExperimentResult

MeasureNames = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        help="A measure that ir-measures knows, such as nDCG@10, AP(rel=2), Judged@10; may be repeated. "
        f"By default {', '.join(MEASURES)}.",
        metavar="NAME",
        show_default=False,
    ),
]
CollectionName = Annotated[
    str | None,
    typer.Option("--collection", help=f"A collection's folder, or {IR_DATASETS}NAME.", metavar="DIR"),
]
JudgmentsFile = Annotated[
    Path | None,
    typer.Option("--qrels", help="Judgments: TREC's, BEIR's or JSON.", exists=True, dir_okay=False, metavar="FILE"),
]
IgnoreOwn = Annotated[
    bool | None,
    typer.Option(
        "--ignore-identical-ids/--keep-identical-ids",
        help="Leave the document that has a query's own id out of its results. By default where queries are documents, "
        "as in ArguAna and Quora: nine in ten of those with a document's id have its text.",
        show_default=False,
    ),
]
QueryField = Annotated[
    str | None,
    typer.Option(
        "--query-field",
        help="Which text of the topics is asked, such as title or description; by default the first there is.",
        metavar="NAME",
        show_default=False,
    ),
]
Baseline = Annotated[
    str | None, typer.Option("--baseline", help="What the others are compared with; the first.", metavar="NAME")
]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Write a report to this folder: report.html, one page that needs no network, .md and .json.",
        file_okay=False,
        metavar="DIR",
    ),
]


def told_judged(queries: Path, qrels: Path) -> Topics:
    """Return the queries that have judgments, of two files, and tell what should be known of these.

    Raises:
        InvalidInput: as `read_judged`.
    """
    judged = read_judged(queries, qrels)
    for note in judged.notes:
        output.print_warning(note)
    return judged


def collection_option(source: str | None, *, split: str = "test", field: str | None = None) -> TestCollection | None:
    """Return the collection that `--collection` names.

    Raises:
        InvalidInput: there is no such folder.
        VectorSearchError: as `find_collection`.
    """
    if source is None:
        return None
    if not source.startswith(IR_DATASETS) and not Path(source).is_dir():
        raise InvalidInput(f"--collection {source!r} is no folder: give a collection's, or {IR_DATASETS}NAME")
    return find_collection(source, split=split, field=field)


def give_result(result: ExperimentResult, title: str, *, report: Path | None, as_json: bool) -> None:
    """Print the result as JSON or as tables, and write the report if one is wanted.

    Raises:
        InvalidInput: the report can't be written; the result was given all the same.
    """
    for note in result.notes:
        output.print_warning(note)
    if as_json:
        output.print_json(result.to_dict())
    else:
        print_result(result, title)
    if report is None:
        return
    page = _write_report(result, report)
    if not as_json:
        output.out.print(Text(str(page), style="bold"), soft_wrap=True)


def print_result(result: ExperimentResult, title: str) -> None:
    """Print the systems, the best of each measure in bold, and how they differ from the baseline."""
    output.out.print(_figures(result, title))
    if result.comparison.others:
        output.out.print()
        output.out.print(_differences(result))
        output.out.print(Text(legend(result), style="dim"))
    if any(system.cached for system in result.systems):
        output.out.print(Text("Answers of an earlier run with the same data, models and code.", style="dim"))


def _write_report(result: ExperimentResult, folder: Path) -> Path:
    try:
        return result.report(folder)
    except OSError as exc:
        reason = exc.strerror or exc
        raise InvalidInput(f"the report can't be written to {str(folder)!r} ({reason}): name another folder") from exc


def _figures(result: ExperimentResult, title: str) -> Table:
    measures = result.comparison.measures
    timed = any(system.latency_ms for system in result.systems)
    table = _table(title, "system", *measures, *(("p50", "p99") if timed else ()))
    for system in result.systems:
        cells = [_figure(result, system, name) for name in measures]
        if timed:
            cells += [
                Text(output.format_ms(system.latency_ms[key]) if system.latency_ms else "") for key in ("p50", "p99")
            ]
        table.add_row(Text(output.one_line(system.name)), *cells)
    return table


def _figure(result: ExperimentResult, system: SystemResult, name: str) -> Text:
    figure = result.comparison.figures[system.name][name]
    text = Text(f"{figure.mean:.3f}", style="bold" if is_best(result, name, figure) else "")
    return text.append_text(_mark(figure.difference))


def _differences(result: ExperimentResult) -> Table:
    comparison = result.comparison
    primary = comparison.measures[0]
    title = f"{primary} less that of {output.one_line(comparison.baseline)}"
    table = _table(title, "system", "difference", "95 % interval", "p", "p (t)", "better", "equal", "worse")
    for name in comparison.others:
        difference = comparison.figures[name][primary].difference
        if difference is not None:
            table.add_row(
                Text(output.one_line(name)),
                Text(signed(difference.mean)).append_text(_mark(difference)),
                f"{signed(difference.low)} to {signed(difference.high)}",
                *(format_p(p) for p in (difference.p, difference.p_t)),
                *(f"{count:,}" for count in (difference.wins, difference.ties, difference.losses)),
            )
    return table


def _mark(difference: Difference | None) -> Text:
    """Return the mark, or its width in spaces, so that figures stand one below the other."""
    return Text(
        mark(difference) or " ", style="green" if difference is not None and difference.mean > 0 else "bold red"
    )


def _table(title: str, first: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
