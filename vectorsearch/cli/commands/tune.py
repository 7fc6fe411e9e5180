"""`vectorsearch tune`: learn from judged queries how a database is best searched."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads it when it runs
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from vectorsearch.cli import output
from vectorsearch.cli.commands.search import RerankName, fetch_for_search, reranker_option
from vectorsearch.cli.compared import told_judged
from vectorsearch.cli.group import usage
from vectorsearch.cli.opening import BackendName, DatabaseFolder, TenantName, open_existing
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.evaluation.comparing.metrics import canonical_names
from vectorsearch.evaluation.comparing.significance import ALPHA, SEED
from vectorsearch.evaluation.figures import format_p, signed
from vectorsearch.evaluation.tuning.tuning import FOLDS, MEASURE
from vectorsearch.evaluation.tuning.tuning import tune as tune_database
from vectorsearch.query.planning.defaults import built_in
from vectorsearch.query.planning.plan import DEFAULT_RERANK_DEPTH, FUSION_DEPTH

if TYPE_CHECKING:
    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.tuning.tuning import TuneResult

HELP = """Learn from judged queries how a database, or a tenant's, is best searched, and make that its default.

Tried are several fusions and weights of words and vectors, BM25's k1 and b, and with --rerank several depths and
blends. The choice is made on some of the queries and measured on the others, by cross-validation, ten times over: that
figure, and not the best of many, is what new queries can expect. Only if it is significantly better than what a search
does now, by a paired test, it is stored; searches that don't say otherwise then use it, and [bold]search --explain[/]
says where it comes from. k1 and b are tried with the present fusion: run it again to learn the fusion for new ones.

The models answer once for each query and text, and what they said is remembered.

[bold]Examples[/]

  vectorsearch tune --db my.db --queries q.jsonl --qrels q.tsv \\
    --rerank default
  vectorsearch tune --db my.db --tenant acme --queries q.jsonl --qrels q.tsv
  vectorsearch tune --db my.db --show
  vectorsearch tune --db my.db --reset"""

_UNITS = {"searching": "queries", "reranking": "queries", "measuring": "fusions"}


def tune(
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines of _id and text, TSV, or TREC topics.", exists=True, dir_okay=False, metavar="FILE"
        ),
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Judgments, BEIR's TSV or TREC's.", exists=True, dir_okay=False, metavar="FILE")
    ] = None,
    rerank: RerankName = None,
    depth: Annotated[
        int, typer.Option(help="How many hits the reranker reads at most.", min=1, max=FUSION_DEPTH, metavar="N")
    ] = DEFAULT_RERANK_DEPTH,
    metric: Annotated[str, typer.Option(help="A measure that ir-measures knows.", metavar="NAME")] = MEASURE,
    folds: Annotated[int, typer.Option(help="In how many parts the queries are cut.", min=2, metavar="N")] = FOLDS,
    seed: Annotated[int, typer.Option(help="Of the cutting.", metavar="N")] = SEED,
    limit: Annotated[int | None, typer.Option(help="Only the first N judged queries.", min=1, metavar="N")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Tell what is stored.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Forget what is stored.")] = False,
    backend: BackendName = None,
    as_json: output.Json = False,
) -> None:
    """Tune and print."""
    if show or reset:
        if show and reset:
            raise typer.BadParameter("ask for one of them", param_hint="--show, --reset")
        with open_existing(db, tenant=tenant, backend=backend, writing=reset) as database:
            if reset:
                database.defaults = None
            kept, told = database.defaults, _told(database)
        if as_json:
            output.print_json({"defaults": kept.to_dict() if kept else None})
        else:
            output.out.print(told, soft_wrap=True)
        return
    if queries is None or qrels is None:
        raise typer.BadParameter("give --queries FILE and --qrels FILE, or --show or --reset")
    with usage():
        (metric,) = canonical_names([metric])
    judged = Topics.first(told_judged(queries, qrels), limit)
    reranker = reranker_option(rerank)
    with open_existing(db, tenant=tenant, backend=backend, writing=not dry_run) as database:
        fetch_for_search(database, "auto", reranker)
        with output.step_meters(_UNITS) as show_step:
            result = tune_database(
                database,
                judged,
                rerank=reranker,
                depth=depth,
                measure=metric,
                folds=folds,
                seed=seed,
                dry_run=dry_run,
                progress=show_step,
            )
    if as_json:
        output.print_json(result.to_dict())
        return
    name = str(db if tenant is None else db / tenant)
    output.out.print(_figures(result, f"{output.one_line(name)}: {result.queries:,} queries"))
    _conclude(result, dry_run=dry_run)


def _told(database: Database) -> Text:
    """Return in words what is stored, and whether it counts."""
    kept = database.defaults
    if kept is None:
        usual = "words alone" if database.embedder is None else str(built_in(database.embedder))
        return Text(f"nothing is stored: searches are by {usual}")
    plan = database.explain("which defaults").plan
    if "defaults:outdated" in plan.left_out:
        return Text.assemble(f"{kept}\n", (f"its defaults are {plan.defaults}", "bold"))
    return Text.assemble(f"{kept}\n", (plan.defaults, "dim"))


def _figures(result: TuneResult, title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column(result.measure, justify="right")
    table.add_row("as it searches now", f"{result.before:.3f}")
    cuts = f"{result.folds} folds, cut {len(result.by_cut)} ways"
    table.add_row(f"tuned, on held-out queries ({cuts})", f"{result.held_out:.3f}")
    table.add_row(
        Text("by the cut that is worst and best for it", style="dim"),
        Text(f"{min(result.by_cut):.3f} to {max(result.by_cut):.3f}", style="dim"),
    )
    table.add_row(
        Text(f"the best of {result.settings:,} settings on all queries", style="dim"),
        Text(f"{result.in_sample:.3f}", style="dim"),
    )
    return table


def _conclude(result: TuneResult, *, dry_run: bool) -> None:
    gain = result.gain
    output.out.print(
        Text(
            f"gain {signed(gain.mean)}, 95 % interval {signed(gain.low)} to {signed(gain.high)}, p {format_p(gain.p)}; "
            f"{gain.wins:,} queries better, {gain.losses:,} worse"
        )
    )
    output.out.print()
    output.out.print(Text(f"now     {result.present}"))
    output.out.print(Text(f"chosen  {result.chosen}"))
    output.out.print(Text(f"        by all queries, and by {result.agreed:.0%} of the folds alone", style="dim"))
    output.out.print()
    if result.stored:
        output.out.print(Text("stored: searches that don't say otherwise use it", style="green"))
    elif result.chosen == result.present:
        output.out.print(Text("nothing stored: it is searched this way already"))
    elif not result.better:
        output.out.print(Text(f"nothing stored: not better at p < {ALPHA}", style="bold"))
    elif dry_run:
        output.out.print(Text("nothing stored: a dry run"))
