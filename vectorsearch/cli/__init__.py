"""The command line: a thin adapter over the Python API. `main` is what the `vectorsearch` script runs."""

from __future__ import annotations

import io
import sys
from typing import Annotated, ClassVar

import typer

import vectorsearch
from vectorsearch.cli import output
from vectorsearch.cli.group import Root

# By name: where in this package the command's function or app is, and its line in the list. The list is printed, and
# a command line completed, without importing any; a test compares these lines with the commands' own help.
_COMMANDS = {
    "index": ("index:index", "Index JSONL files into a database; made if it isn't there."),
    "search": ("search:search", "Search a database and print the best hits."),
    "evaluate": (
        "evaluate:evaluate",
        "Measure search quality and time per query on a test collection, and compare systems.",
    ),
    "tune": (
        "tune:tune",
        "Learn from judged queries how a database, or a tenant's, is best searched, and make that its default.",
    ),
    "compare": ("compare:compare", "Measure the runs of any engines, and compare them if there are several."),
    "info": ("info:info", "Show a database's settings, sizes, and the state of its derived files."),
    "rerank": ("rerank:rerank", "Order the candidates of any engine by a cross-encoder; needs no database."),
    "train-reranker": (
        "train:train",
        "Train a reranker of your own on judged queries, and compare it with the one that it starts from.",
    ),
    "distil-reranker": (
        "distil:distil",
        "Distil a small reranker from a large one, on a database's own documents, without judgments.",
    ),
    "reindex": (
        "reindex:reindex",
        "Embed every document again with another model, and exchange the vectors at once when all are there.",
    ),
    "verify": (
        "upkeep:verify",
        "Check a database and its tenants: files, every document and vector, indexes. Exit code 1 if there is a fault.",
    ),
    "repair": (
        "upkeep:repair",
        "Mend what can be mended, tenants' too, build the indexes again, and verify. Exit code 1 if a fault is left.",
    ),
    "compact": (
        "upkeep:compact",
        "Give the room of deleted documents back to the disk, tenants' too; needs as much again while it works.",
    ),
    "snapshot": (
        "upkeep:snapshot",
        "Copy a database and its tenants as of this moment, also while another process writes to it.",
    ),
    "tenants": (
        "tenants:app",
        "Add, change, list and remove tenants: databases of their own within a database.",
    ),
    "models": ("models:app", "List, fetch, show, measure, export, fit and register models."),
    "top": (
        "top:top",
        "Show which models another process has in memory for a database: whose, where, and used when.",
    ),
    "doctor": (
        "doctor:doctor",
        "Show which backends can run which models here, how fast they were measured to be, and what is missing.",
    ),
    "collections": ("collections:app", "Build test collections."),
    "demo": (
        "demo:demo",
        "Show the whole way: fetch two models, index Python's own documentation, ask, and measure.",
    ),
}


class _Root(Root):
    homes: ClassVar = {name: home for name, (home, _) in _COMMANDS.items()}


def _stand_in() -> None:
    """Be in the list for a command, which is imported in its place when it is called."""


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Embeddable hybrid search: BM25 and dense vectors, fused, and reranked by models under one memory budget.",
    epilog="Exit codes: 0 all was done, 1 something failed, is missing or left out, 2 wrong usage, 130 interrupted.",
)
_GROUPS = {
    "Search": ("demo", "index", "search", "rerank"),
    "Models": ("models", "reindex", "train-reranker", "distil-reranker", "top", "doctor"),
    "Tenants": ("tenants",),
    "Evaluate": ("evaluate", "compare", "tune", "collections"),
    "Keep": ("info", "verify", "repair", "compact", "snapshot"),
}
for _group, _names in _GROUPS.items():
    for _name in _names:
        app.command(_name, help=_COMMANDS[_name][1], rich_help_panel=_group)(_stand_in)


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
    as_json: output.Json = False,
) -> None:
    """Take the options that come before a command."""


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a document may hold what the terminal's encoding can't say
    app(prog_name="vectorsearch")
