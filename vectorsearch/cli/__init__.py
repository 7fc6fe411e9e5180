"""The command line: a thin adapter over the Python API. `main` is what the `vectorsearch` script runs."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

import vectorsearch
from vectorsearch.cli import (
    calibrate,
    collections,
    compare,
    demo,
    doctor,
    evaluate,
    features,
    index,
    info,
    models,
    output,
    registered,
    reindex,
    rerank,
    search,
    tenants,
    top,
    upkeep,
)
from vectorsearch.cli.group import Group

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Embeddable hybrid search: BM25 and dense vectors, fused, and reranked by models under one memory budget.",
    epilog="Exit codes: 0 all was done, 1 something failed or was left out, 2 wrong usage, 130 interrupted.",
)
app.command("index", help=output.reflow(index.HELP))(index.index)
app.command("search", help=output.reflow(search.HELP))(search.search)
app.command("evaluate", help=output.reflow(evaluate.HELP))(evaluate.evaluate)
app.command("compare", help=output.reflow(compare.HELP))(compare.compare)
app.command("info")(info.info)
app.command("rerank", help=output.reflow(rerank.HELP))(rerank.rerank)
app.command("reindex")(reindex.reindex)
app.command("verify")(upkeep.verify)
app.command("repair")(upkeep.repair)
app.command("compact")(upkeep.compact)
app.command("snapshot")(upkeep.snapshot)
app.command("doctor", help=output.reflow(doctor.HELP))(doctor.doctor)
models.app.command("calibrate", help=output.reflow(calibrate.HELP))(calibrate.calibrate)
models.app.command("fit-features", help=output.reflow(features.HELP))(features.fit)
models.app.command("register", help=output.reflow(registered.HELP))(registered.register)
models.app.command("unregister")(registered.unregister)
models.app.command("registered")(registered.registered)
app.add_typer(models.app, name="models")
app.add_typer(tenants.app, name="tenants")
app.add_typer(collections.app, name="collections")
app.command("top", help=output.reflow(top.HELP))(top.top)
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 -- typer calls it so
    if wanted:
        output.out.print(f"vectorsearch {vectorsearch.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that come before a command."""


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a document may hold what the terminal's encoding can't say
    app(prog_name="vectorsearch")
