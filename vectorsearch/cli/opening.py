"""Open databases and fetch models for the commands."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

import vectorsearch
from backends.catalogue import catalogue
from backends.errors import VectorSearchError
from vectorsearch import config
from vectorsearch.cli import output
from vectorsearch.cli.group import usage
from vectorsearch.cli.word_options import NONE, Words
from vectorsearch.collection.storage.errors import DatabaseLocked, NotADatabase
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME
from vectorsearch.database.engine import DEFAULT
from vectorsearch.database.place import local_folder
from vectorsearch.database.tenants import UnknownTenant
from vectorsearch.types import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from backends.base import ModelSpec
    from vectorsearch.collection.storage.registry import TenantRow
    from vectorsearch.database.database import Database
    from vectorsearch.database.tenants import TenantInfo

_SHOWN_NAMES = 20  # in an error
MODES = ", ".join(get_args(Mode))

DatabaseFolder = Annotated[Path, typer.Option("--db", help="Folder of the database.", file_okay=False, metavar="DIR")]
TenantName = Annotated[
    str | None,
    typer.Option("--tenant", help="A tenant of the database, in place of the database itself.", metavar="NAME"),
]
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


def require_database(folder: Path) -> None:
    """Insist that there is a database in a folder.

    Raises:
        NotADatabase: there is none.
    """
    with usage():
        local_folder(folder)
    if not (folder / FILE_NAME).exists():
        raise NotADatabase(
            f"no database at {str(folder)!r}: check the path, or make one with "
            f"`vectorsearch index CORPUS.jsonl --db {folder}`"
        )


@contextmanager
def open_existing(
    folder: Path, *, tenant: str | None = None, backend: str | None = None, writing: bool = False
) -> Iterator[Database]:
    """Give a database that must be there, or a tenant's in it, and close it at the end of the block.

    Unless it is for `writing` it is opened to read, and takes no lock from a process that writes.

    Raises:
        NotADatabase: there is none.
        UnknownTenant: it has no such tenant; the message names those that it has.
        VectorSearchError: as `vectorsearch.open`.
    """
    require_database(folder)
    with closed_after(open_or_make(folder, backend=backend, read_only=not writing)) as database:
        if tenant is not None:
            require_tenant(database.tenants(), folder, tenant)
        yield database if tenant is None else database.tenant(tenant)


@contextmanager
def closed_after(database: Database) -> Iterator[Database]:
    """Close a database after the block.

    Closing writes derived files, and may fail as on a full disk. No answer is lost by that, and none that the block
    has found is held back: there is a warning, and the exit code says that not all went well.
    """
    try:
        yield database
    except BaseException as exc:
        try:
            database.close()
        except (VectorSearchError, OSError) as failed:
            exc.add_note(f"nor could the database be closed in order: {failed}")
        raise
    try:
        database.close()
    except (VectorSearchError, OSError) as exc:
        output.warn_of_failure(f"the database could not be closed in order: {exc}")


@contextmanager
def open_to_index(
    folder: Path, *, tenant: str | None, embed: str = DEFAULT, backend: str | None = None, words: Words | None = None
) -> Iterator[Database]:
    """Give a database, made if there is none, or that of a tenant, which must be there; closed after the block.

    Raises:
        VectorSearchError: as `open_existing`.
    """
    if tenant is None:
        with closed_after(open_or_make(folder, embed=embed, backend=backend, words=words)) as database:
            yield database
        return
    with open_existing(folder, backend=backend, writing=True) as root:
        require_tenant(root.tenants(), folder, tenant)
        yield root.tenant(tenant, **as_given(embed=embed), **(words or {}))


def as_given(**options: str) -> dict[str, Any]:
    """Return the options that aren't as by default, those that are `none` as None."""
    return {key: None if value == NONE else value for key, value in options.items() if value != DEFAULT}


def require_tenant(tenants: Iterable[TenantInfo | TenantRow], folder: Path, name: str) -> None:
    """Insist that there is a tenant of this name among those of the database in a folder.

    Raises:
        UnknownTenant: there is none; the message names those that are there, and how one is added.
    """
    names = [tenant.name for tenant in tenants]
    if name not in names:
        shown = [*names[:_SHOWN_NAMES], *(["…"] if len(names) > _SHOWN_NAMES else [])]
        raise UnknownTenant(
            f"{str(folder)!r} has no tenant {name!r} (there are: {', '.join(shown) or 'none'}): "
            f"add one with `vectorsearch tenants add NAME --db {folder}`"
        )


def open_or_make(
    folder: Path,
    *,
    embed: str = DEFAULT,
    backend: str | None = None,
    words: Words | None = None,
    read_only: bool = False,
) -> Database:
    """Open a database, or make one; `none` as embedder is None. `words` are options of `words.word_options`.

    Raises:
        VectorSearchError: as `vectorsearch.open`.
    """
    with usage():
        local_folder(folder)
    try:
        return vectorsearch.open(
            folder,
            embed=None if embed == NONE else embed,
            backend=backend,
            read_only=read_only,
            **(words or {}),
        )
    except DatabaseLocked as exc:
        exc.add_note("commands that only read, such as search, info, verify and top, work beside that process")
        raise


def folder_beside(db: Path, tenant: str | None, suffix: str) -> Path:
    """Return where what is made of a database, or of a tenant's, is written by default: beside it."""
    return db.with_name(f"{db.name}{f'.{tenant}' if tenant else ''}.{suffix}")


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
