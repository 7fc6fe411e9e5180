"""`vectorsearch tenants`: add, change, list and remove the tenants of a database."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from backends.errors import InvalidInput
from vectorsearch.cli import output
from vectorsearch.cli.group import usage
from vectorsearch.cli.opening import (
    DatabaseFolder,
    EmbedName,
    as_given,
    open_existing,
    open_to_index,
    require_tenant,
)
from vectorsearch.cli.word_options import K1, NONE, B, FoldAccents, Language, StopWord, StopWords, word_options
from vectorsearch.database.engine import DEFAULT
from vectorsearch.database.tenants import check_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vectorsearch.database.database import Database
    from vectorsearch.database.tenants import TenantInfo

app = typer.Typer(
    no_args_is_help=True, help="Add, change, list and remove tenants: databases of their own within a database."
)

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


Name = Annotated[
    str,
    typer.Argument(
        help="Lower-case letters, digits and . _ -, up to 64, a letter or digit first.",
        metavar="NAME",
        show_default=False,
    ),
]
Quota = Annotated[
    str | None,
    typer.Option(
        "--quota",
        help="What its models may take in memory together; [bold]none[/]: only the budget bounds them.",
        metavar="SIZE|none",
        show_default=False,
    ),
]
Guaranteed = Annotated[
    str | None,
    typer.Option(
        "--guaranteed",
        help="What of its models never leaves memory for another tenant's, such as 256MiB.",
        metavar="SIZE",
        show_default=False,
    ),
]


@app.command()
def add(
    name: Name,
    *,
    db: DatabaseFolder,
    quota: Quota = None,
    guaranteed: Guaranteed = None,
    embed: EmbedName = DEFAULT,
    language: Language = DEFAULT,
    stop_words: StopWords = DEFAULT,
    stop_word: StopWord = None,
    fold_accents: FoldAccents = None,
    k1: K1 = None,
    b: B = None,
    as_json: output.Json = False,
) -> None:
    """Add a tenant, in a database that is made if it isn't there. Its embedder is the database's, or its own."""
    sizes = _sizes(quota, guaranteed)
    with usage():
        check_name(name)
    words = word_options(
        language=language, stop_words=stop_words, stop_word=stop_word, fold_accents=fold_accents, k1=k1, b=b
    )
    with _removed_if_in_vain(db), open_to_index(db, tenant=None) as root:
        if any(tenant.name == name for tenant in root.tenants()):
            raise InvalidInput(
                f"{str(db)!r} has a tenant {name!r} already: "
                f"change its sizes with `vectorsearch tenants set {name} --db {db}`"
            )
        root.tenant(name, **sizes, **as_given(embed=embed), **words)
        facts = _facts(root, name)
    _print_tenant(facts, as_json=as_json)


@app.command("set")
def change(
    name: Name,
    *,
    db: DatabaseFolder,
    quota: Quota = None,
    guaranteed: Guaranteed = None,
    as_json: output.Json = False,
) -> None:
    """Change a tenant's quota or guarantee; what isn't given stays as it is."""
    sizes = _sizes(quota, guaranteed)
    if not sizes:
        raise typer.BadParameter("say what to change: --quota SIZE, --guaranteed SIZE")
    with open_existing(db, writing=True) as root:
        require_tenant(root.tenants(), db, name)
        root.tenant(name, **sizes)
        facts = _facts(root, name)
    _print_tenant(facts, as_json=as_json)


@app.command("list")
def list_tenants(*, db: DatabaseFolder, as_json: output.Json = False) -> None:
    """List the tenants with their quotas, guarantees, and how many models each has registered."""
    with open_existing(db) as root:
        rows = _rows(root)
    if as_json:
        output.print_json({"db": str(db), "tenants": rows})
        return
    if not rows:
        output.print_note(f"no tenants: add one with `vectorsearch tenants add NAME --db {db}`")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("tenant", overflow="fold")
    for heading in ("quota", "guaranteed", "models"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        sizes = (row["quota_nbytes"], row["guaranteed_nbytes"] or None)
        cells = (Text(NONE, style="dim") if size is None else Text(output.format_mib(size)) for size in sizes)
        table.add_row(Text(row["name"], style="bold"), *cells, f"{row['models']:,}")
    output.out.print(table)


@app.command()
def remove(
    name: Name,
    *,
    db: DatabaseFolder,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask, on a terminal.")] = False,
    as_json: output.Json = False,
) -> None:
    """Remove a tenant with its documents, indexes and registered models. There is no way back but a snapshot."""
    with open_existing(db, writing=True) as root:
        require_tenant(root.tenants(), db, name)
        if sys.stdin.isatty() and not yes:
            typer.confirm(f"remove tenant {name!r} and all its documents?", abort=True, err=True)
        root.remove_tenant(name)
    if as_json:
        output.print_json({"db": str(db), "removed": name})
        return
    output.out.print(Text(f"tenant {name} is removed"))


@contextmanager
def _removed_if_in_vain(db: Path) -> Iterator[None]:
    """Remove a folder that wasn't there before the block and whose work failed: a slip makes no database."""
    was_there = db.exists()
    try:
        yield
    except BaseException:
        if not was_there:
            shutil.rmtree(db, ignore_errors=True)
        raise


def _sizes(quota: str | None, guaranteed: str | None) -> dict[str, Any]:
    """Return the sizes that are given, as `Database.tenant` takes them."""
    sizes: dict[str, Any] = {}
    if quota is not None:
        sizes["quota_nbytes"] = None if quota == NONE else _parse_size(quota, option="--quota")
    if guaranteed is not None:
        sizes["guaranteed_nbytes"] = 0 if guaranteed == NONE else _parse_size(guaranteed, option="--guaranteed")
    if sizes.get("quota_nbytes") is not None and sizes.get("guaranteed_nbytes", 0) > sizes["quota_nbytes"]:
        raise typer.BadParameter(f"a guarantee can't be larger than the quota, {quota}", param_hint="--guaranteed")
    return sizes


def _parse_size(text: str, *, option: str) -> int:
    size = _SIZE.fullmatch(text)
    if size is None:
        raise typer.BadParameter(f"{text!r} is no size: write 512MiB, 1.5GiB or 2GB", param_hint=option)
    number, prefix, binary = size.groups()
    nbytes = float(number) * (1024 if binary else 1000) ** _POWERS[prefix.upper()]
    if nbytes > sys.maxsize:
        raise typer.BadParameter(f"{text[:20]!r} is more than any machine has", param_hint=option)
    return int(nbytes)


def _rows(root: Database) -> list[dict[str, Any]]:
    models = Counter(model.tenant for model in root.registered_models(all_tenants=True))
    return [_row(tenant, models[tenant.name]) for tenant in root.tenants()]


def _row(tenant: TenantInfo, models: int) -> dict[str, Any]:
    return {**asdict(tenant), "models": models}


def _facts(root: Database, name: str) -> dict[str, Any]:
    row = next(row for row in _rows(root) if row["name"] == name)
    return {**row, "embedder": (embedder := root.tenant(name).embedder) and embedder.name}


def _print_tenant(facts: dict[str, Any], *, as_json: bool) -> None:
    """Print a tenant, after its database is closed: that may fail, and `--json` gives one document."""
    if as_json:
        output.print_json(facts)
    else:
        output.print_facts({**facts, "guaranteed_nbytes": facts["guaranteed_nbytes"] or None})
