"""`vectorsearch collections`: build the test collection that comes with the project."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from backends.catalogue import catalogue
from vectorsearch.cli import output
from vectorsearch.evaluation.collecting import stdlib_corpus
from vectorsearch.evaluation.collecting.stdlib_corpus import find_questions, write_collection
from vectorsearch.evaluation.journal import digest_files

NAME = "stdlib"

app = typer.Typer(no_args_is_help=True, help="Build test collections.")


@app.callback()
def _group() -> None:
    """Keep `build` a command of its own: typer would fold a single one into the group."""


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="stdlib: the documentation of Python's standard library.", metavar=NAME)],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write; by default one in the cache.", file_okay=False)
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Build a collection in BEIR layout: corpus, questions, and graded judgments."""
    if name != NAME:
        raise typer.BadParameter(f"{name!r} is unknown: the one that can be built is {NAME}", param_hint="NAME")
    folder = build_with_progress(out or stdlib_folder())
    report: dict[str, Any] = json.loads((folder / "build.json").read_text(encoding="utf-8"))
    if as_json:
        output.print_json({"name": name, "folder": str(folder), **report})
        return
    documents, queries, judgments = (f"{report[key]:,} {key}" for key in ("documents", "queries", "judgments"))
    output.out.print(Text(f"{documents}, {queries}, {judgments}"))
    output.out.print(Text(str(folder), style="bold"), soft_wrap=True)


def stdlib_folder() -> Path:
    """Return where the collection of this interpreter, as this code and these questions make it, is kept."""
    questions = find_questions()
    code = Path(stdlib_corpus.__file__).parent
    parts = [*sorted(code.glob("stdlib_*.py")), questions / "queries.jsonl", questions / "qrels" / "test.tsv"]
    made_of = f"{platform.python_version()}-{digest_files(parts)[:12]}"
    return catalogue.cache_dir() / "built" / made_of / NAME


def build_with_progress(folder: Path) -> Path:
    """Build the standard-library collection, with progress."""
    with output.Meter("building collection", "documents") as meter:
        return write_collection(folder, progress=meter.update)
