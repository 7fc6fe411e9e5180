"""`vectorsearch train-reranker`: a reranker of a tenant's own, from its documents and judgments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 -- typer reads it when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from rerank.training.train import DEFAULT_PLAN
from rerank.training.train_plan import TrainingPlan
from vectorsearch import config
from vectorsearch.cli import output
from vectorsearch.cli.commands.search import fetch_for_search
from vectorsearch.cli.compared import told_judged
from vectorsearch.cli.group import FAILED, usage
from vectorsearch.cli.opening import DatabaseFolder, TenantName, folder_beside, open_existing
from vectorsearch.evaluation.figures import format_p, signed
from vectorsearch.training.fine_tuning import DEFAULT_MINING, FIRST_STAGE, MEASURE, TRAINED, train_reranker
from vectorsearch.training.hard_negatives import MiningPlan

if TYPE_CHECKING:
    from vectorsearch.training.fine_tuning import FineTuning

HELP = f"""Train a reranker of your own on judged queries, and compare it with the one that it starts from.

It learns to tell documents that were judged relevant from others that the database ranks high. A tenth of the queries
tells when to stop, and a part is held out: on these both rerankers order the best hits. With [bold]--register[/] the
new one is registered if, and only if, its {MEASURE} is higher and a paired randomisation test gives p < 0.05. The
folder is written in any case, unless the training has ruined the model or the time was up before it. Two passes over
630 lists of eight texts took 34 minutes on one core of a Xeon with AMX.

Needs [bold]pip install 'vectorsearch\\[train]'[/].

[bold]Examples[/]

  vectorsearch train-reranker --db my.db --queries q.jsonl --qrels q.tsv \\
    --register ours
  vectorsearch train-reranker --db my.db --tenant acme --queries q.jsonl \\
    --qrels q.tsv --minutes 10

Exit code: 1 if it was to be registered and isn't better."""

_UNITS = {"searching": "queries", "reading": "queries", "training": "steps", "comparing": "queries"}


def train(
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    queries: Annotated[
        Path,
        typer.Option(
            help="JSON lines of _id and text, TSV, or TREC topics.", exists=True, dir_okay=False, metavar="FILE"
        ),
    ],
    qrels: Annotated[
        Path,
        typer.Option(help="Judgments, BEIR's TSV or TREC's columns.", exists=True, dir_okay=False, metavar="FILE"),
    ],
    base: Annotated[
        str, typer.Option(help="The cross-encoder to start from: a name or a folder.", metavar="NAME")
    ] = config.DEFAULT_RERANKER,
    epochs: Annotated[
        float, typer.Option(help="Passes over what is learned, at most.", min=0.01, metavar="X")
    ] = DEFAULT_PLAN.epochs,
    minutes: Annotated[
        float | None,
        typer.Option(help="Time for everything; what is reached by then counts.", min=0.01, metavar="M"),
    ] = None,
    learning_rate: Annotated[
        float, typer.Option(help="At its highest.", min=1e-9, metavar="X")
    ] = DEFAULT_PLAN.learning_rate,
    max_length: Annotated[
        int, typer.Option(help="Tokens of query and text that it learns from.", min=16, metavar="N")
    ] = DEFAULT_PLAN.max_length,
    frozen_layers: Annotated[
        int, typer.Option(help="Lowest layers that stay as they are.", min=0, metavar="N")
    ] = DEFAULT_PLAN.frozen_layers,
    negatives: Annotated[
        int, typer.Option(help="Texts beside each relevant one.", min=1, metavar="N")
    ] = DEFAULT_MINING.negatives,
    depth: Annotated[
        int, typer.Option(help="Hits that these are drawn from, and that are reranked to compare.", min=1, metavar="N")
    ] = DEFAULT_MINING.depth,
    held_out: Annotated[
        float, typer.Option(help="Share of the queries to decide by.", min=0.01, max=0.89, metavar="X")
    ] = DEFAULT_MINING.held_out,
    seed: Annotated[
        int, typer.Option(help="Of the split and of all that is drawn.", min=0, metavar="N")
    ] = DEFAULT_PLAN.seed,
    register: Annotated[
        str | None, typer.Option(help="Register it under this name if it is better.", metavar="NAME")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write; by default the database's name with .reranker.", file_okay=False),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Train, compare, and register if it is better."""
    folder = out or folder_beside(db, tenant, "reranker")
    with usage():
        plan = TrainingPlan(
            epochs=epochs,
            minutes=minutes,
            learning_rate=learning_rate,
            max_length=max_length,
            frozen_layers=frozen_layers,
            seed=seed,
        )
        mining = MiningPlan(negatives=negatives, depth=depth, held_out=held_out)
    judged = told_judged(queries, qrels)
    with open_existing(db, tenant=tenant, writing=register is not None) as database:
        fetch_for_search(database, "auto", base)
        with output.step_meters(_UNITS) as show:
            result = train_reranker(
                database, judged, folder, base=base, plan=plan, mining=mining, register=register, progress=show
            )
    if as_json:
        output.print_json(_facts(result))
    else:
        _print(result)
    if register is not None and result.registered is None:
        raise typer.Exit(FAILED)


def _facts(result: FineTuning) -> dict[str, Any]:
    """Return what came out, as plain values."""
    made, figures = result.trained, result.comparison.figures
    gain = {name: round(value, 6) for name, value in asdict(result.gain).items()}
    return {
        "folder": str(made.spec.folder),
        "digest": made.spec.digest,
        "nbytes": made.spec.weights_nbytes,
        "base": made.base,
        "queries": dict(result.queries),
        "lists": result.lists,
        "training": {**asdict(made.fit), "seconds": round(made.fit.seconds, 1)},
        "graph_differs_by": float(f"{made.max_difference:.1g}"),
        "measure": MEASURE,
        "held_out": {name: round(each[MEASURE].mean, 4) for name, each in figures.items()},
        "gain": {**gain, "significant": result.gain.significant},
        "registered": result.registered,
        "verdict": result.verdict,
    }


def _print(result: FineTuning) -> None:
    title = f"{len(result.comparison.queries):,} queries held out"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="dim", collapse_padding=True)
    table.add_column("")
    for heading in (MEASURE, "difference", "95 % interval", "p", "wins", "losses"):
        table.add_column(heading, justify="right")
    for name, of_measure in result.comparison.figures.items():
        figure, cells = of_measure[MEASURE], ("",) * 5
        if (gain := figure.difference) is not None:
            interval = f"{signed(gain.low)} … {signed(gain.high)}"
            cells = (signed(gain.mean), interval, format_p(gain.p), str(gain.wins), str(gain.losses))
        table.add_row(Text(name, style="bold" if name == TRAINED else ""), f"{figure.mean:.3f}", *cells)
    output.out.print(table)
    made, facts = result.trained, _facts(result)
    steps = f"{made.fit.steps} of {made.fit.planned} steps in {output.format_duration(made.fit.seconds)}"
    split = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in result.queries.items())
    shown = {name: facts[name] for name in ("folder", "nbytes", "base")}
    output.print_facts({**shown, "queries": split, "lists": result.lists, "training": steps})
    output.out.print(Text(result.verdict, style="green" if result.beats_base else "yellow"), soft_wrap=True)
    means = {name: each[MEASURE].mean for name, each in result.comparison.figures.items()}
    if means[TRAINED] < means[FIRST_STAGE]:
        output.print_warning("alone it orders hits worse than the first stage: mix both (blend; vectorsearch tune)")
