"""`vectorsearch distil-reranker`: a small first stage for cascades, from a database's own documents."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 -- typer reads it when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from backends.errors import InvalidInput
from rerank.distilling.distil import DEFAULT_RECIPE, Recipe
from vectorsearch import config
from vectorsearch.cli import output
from vectorsearch.cli.commands.search import fetch_for_search
from vectorsearch.cli.group import FAILED, usage
from vectorsearch.cli.opening import DatabaseFolder, TenantName, folder_beside, open_existing
from vectorsearch.evaluation.formats.topic_files import read_topics
from vectorsearch.training.distillation import DEPTH, distil_reranker

if TYPE_CHECKING:
    from rerank.distilling.distil_agreement import Agreement
    from vectorsearch.training.distillation import Distillation

HELP = f"""Distil a small reranker from a large one, on a database's own documents, without judgments.

It is a first stage: it orders the best {DEPTH} hits, so that the large one need only read the best of them. What it is
asked in training are queries of your own, or titles and sentences of the documents. It is made to be blended with the
order that it is given; with which weight is told. With [bold]--register[/] it is registered if that helps: on queries
that were held out its best hits hold more of the teacher's best ten than that order's do, and a paired randomisation
test gives p < 0.05.

[bold]Examples[/]

  vectorsearch distil-reranker --db my.db --register first
  vectorsearch distil-reranker --db my.db --tenant acme \\
    --queries asked.jsonl --layers 2 --minutes 5
  vectorsearch evaluate --db my.db --queries q.jsonl --qrels q.tsv \\
    --system "all: rerank=default depth=100" \\
    --system "cascade: rerank=FOLDER>default depth=100>15 blend=0.5>1"

Exit code: 1 if it was to be registered and doesn't help."""

_UNITS = {"searching": "queries", "scoring": "queries", "training": "steps"}


def distil(
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    teacher: Annotated[
        str, typer.Option(help="The large reranker: a name or a folder.", metavar="NAME")
    ] = config.DEFAULT_RERANKER,
    layers: Annotated[
        int, typer.Option(help="Layers of the teacher that the student gets.", min=2, metavar="N")
    ] = DEFAULT_RECIPE.layers,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines of _id and text, TSV, or TREC topics: your own queries, without judgments.",
            exists=True,
            dir_okay=False,
            metavar="FILE",
        ),
    ] = None,
    pairs: Annotated[
        int, typer.Option(help="Pairs of query and text to learn from.", min=1, metavar="N")
    ] = DEFAULT_RECIPE.pairs,
    minutes: Annotated[
        float,
        typer.Option(help="Time for everything; what is reached by then counts.", min=0.1, metavar="M"),
    ] = DEFAULT_RECIPE.minutes,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.", min=0, metavar="N")] = DEFAULT_RECIPE.seed,
    register: Annotated[
        str | None, typer.Option(help="Register it under this name if it helps.", metavar="NAME")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write; by default the database's name with .student.", file_okay=False),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Distil, compare, and register if it is good enough."""
    folder = out or folder_beside(db, tenant, "student")
    with usage():
        recipe = Recipe(layers=layers, pairs=pairs, minutes=minutes, seed=seed)
    asked = read_topics(queries) if queries else None
    for note in asked.notes if asked else ():
        output.print_warning(note)
    own = list(asked.texts.values()) if asked else []
    if queries and not own:
        raise InvalidInput(f"{queries}: holds no queries; without --queries they are drawn from the documents")
    with open_existing(db, tenant=tenant, writing=register is not None) as database:
        fetch_for_search(database, "auto", teacher)
        with output.step_meters(_UNITS) as show:
            result = distil_reranker(
                database,
                folder,
                teacher=teacher,
                queries=own,
                recipe=recipe,
                register=register,
                progress=show,
            )
    if as_json:
        output.print_json(_facts(result))
    else:
        _print(result)
    if register is not None and result.registered is None:
        raise typer.Exit(FAILED)


def _facts(result: Distillation) -> dict[str, Any]:
    """Return what came out, as plain values."""
    made = result.distilled
    return {
        "folder": str(made.spec.folder),
        "digest": made.spec.digest,
        "nbytes": made.spec.weights_nbytes,
        "teacher": made.teacher,
        "layers": list(made.layers),
        "queries": made.queries,
        "training": asdict(made.training),
        "held_out": _rounded(made.held_out),
        "first_stage_alone": _rounded(made.first_stage),
        "blended": _rounded(made.blended),
        "blend": made.blend,
        "gain": {
            **{name: round(value, 6) for name, value in asdict(result.gain).items()},
            "is_better": result.is_better,
        },
        "graph_differs_by": float(f"{made.parity:.1g}"),
        "seconds": round(made.seconds, 1),
        "registered": result.registered,
        "verdict": result.verdict,
    }


def _rounded(agreement: Agreement) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(agreement).items()}


def _print(result: Distillation) -> None:
    made = result.distilled
    table = Table(
        box=box.SIMPLE_HEAD, title="on held-out queries", title_justify="left", title_style="dim", collapse_padding=True
    )
    table.add_column("")
    for heading in ("best 10 kept", "first kept", f"best {made.keep} kept", "tau"):
        table.add_column(heading, justify="right")
    for name, agreed in (
        ("student", made.held_out),
        ("first stage alone", made.first_stage),
        (f"both, blend={made.blend}", made.blended),
    ):
        table.add_row(
            name, f"{agreed.kept:.1%}", f"{agreed.first_kept:.1%}", f"{agreed.recall:.1%}", f"{agreed.tau:.3f}"
        )
    output.out.print(table)
    facts = _facts(result)
    output.print_facts({name: facts[name] for name in ("folder", "nbytes", "teacher", "layers", "queries", "seconds")})
    output.out.print(Text(result.verdict, style="green" if result.is_better else "yellow"), soft_wrap=True)
