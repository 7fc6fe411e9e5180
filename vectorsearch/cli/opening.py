"""Open databases and fetch models for the commands."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

import vectorsearch
from backends import catalogue
from vectorsearch import config
from vectorsearch.cli import output
from vectorsearch.engine import DEFAULT
from vectorsearch.storage.errors import DatabaseLocked, NotADatabase, ReadOnlyDatabase
from vectorsearch.storage.schema import FILE_NAME
from vectorsearch.types import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from backends.base import ModelSpec
    from vectorsearch.database import Database

NONE = "none"
MODES = ", ".join(get_args(Mode))

DatabaseFolder = Annotated[Path, typer.Option("--db", help="Folder of the database.", file_okay=False, metavar="DIR")]
EmbedName = Annotated[
    str,
    typer.Option(
        "--embed",
        help="Embedding model: a name (see [bold]models list[/]), a folder, or [bold]none[/]. "
        f"By default the database's own, and {config.DEFAULT_EMBEDDER} for a new one.",
        metavar="NAME",
        show_default=False,
    ),
]
BackendName = Annotated[
    str | None,
    typer.Option("--backend", help="Inference backend; by default the one that doctor tells.", metavar="NAME"),
]
ModelName = Annotated[str, typer.Argument(help="A name of the catalogue, a folder, or a hub name.", metavar="NAME")]
Language = Annotated[
    str,
    typer.Option(
        "--language",
        help="Language of stemming and stop words, en or none. By default the database's own, and en for a new one.",
        metavar="en|none",
        show_default=False,
    ),
]


def as_mode(name: str) -> Mode:
    """Return the mode of this name.

    Raises:
        typer.BadParameter: there is none.
    """
    return cast("Mode", one_of(get_args(Mode), name, option="--mode"))


def one_of(names: Sequence[str], name: str, *, option: str) -> str:
    """Return the name if it is one of these.

    Raises:
        typer.BadParameter: it isn't.
    """
    if name not in names:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(names)}", param_hint=option)
    return name


def open_existing(folder: Path, *, backend: str | None = None) -> Database:
    """Open a database that must be there, to read it; read-only if another process writes to it or this one may not.

    Raises:
        NotADatabase: there is none.
        VectorSearchError: as `vectorsearch.open`.
    """
    if not (folder / FILE_NAME).exists():
        raise NotADatabase(
            f"no database at {str(folder)!r}: check the path, or make one with "
            f"`vectorsearch index CORPUS.jsonl --db {folder}`"
        )
    try:
        return open_or_make(folder, backend=backend)
    except (DatabaseLocked, ReadOnlyDatabase):
        return open_or_make(folder, backend=backend, read_only=True)


def open_or_make(
    folder: Path, *, embed: str = DEFAULT, backend: str | None = None, language: str = DEFAULT, read_only: bool = False
) -> Database:
    """Open a database, or make one; `none` as embedder or language is None.

    Raises:
        VectorSearchError: as `vectorsearch.open`.
    """
    return vectorsearch.open(
        folder,
        embed=None if embed == NONE else embed,
        backend=backend,
        language=None if language == NONE else language,
        read_only=read_only,
    )


def fetch_models(specs: Iterable[ModelSpec]) -> None:
    """Bring models into the cache with a progress bar; those that are there cost nothing.

    Raises:
        ModelUnavailable: no source has it.
    """
    for spec in specs:
        with download_meter(spec.name) as progress:
            catalogue.ensure(spec, progress)


@contextmanager
def download_meter(name: str) -> Iterator[Callable[[catalogue.Progress], None]]:
    """Give the callback of a download's progress; nothing is shown if it is never called."""
    with output.Meter(f"fetching {name}", "bytes") as meter:

        def show(progress: catalogue.Progress) -> None:
            meter.update(progress.done_nbytes, progress.total_nbytes or None)

        yield show
