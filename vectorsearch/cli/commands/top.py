"""`vectorsearch top`: the models of a database that another process has open, now."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lifecycle import ManagerSnapshot
from vectorsearch.cli import output
from vectorsearch.cli.opening import DatabaseFolder, TenantName, require_database, require_tenant
from vectorsearch.collection.storage.errors import StoreError
from vectorsearch.collection.storage.registry import Registry
from vectorsearch.database.top import WATCHED_S, Sighting, Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from lifecycle import ModelStatus
    from vectorsearch.database.tenants_view import TenantModel, TenantSnapshot
    from vectorsearch.database.top import Picture

HELP = """Show which models another process has in memory for a database: whose, where, and used when.

The process that has the database open to write tells it, once a second and only while this command runs; it needs no
setting. Without a terminal, and with --once or --json, one picture is printed; the exit code is 1 if no process shows
one. Ctrl-C ends it.

[bold]Example[/]

  vectorsearch top --db my.db"""

_LOOK_EVERY_S = 0.1  # until there is a first picture
_BAR_WIDTH = 30
_INDENT = " " * 8
_STYLES = {"ready": "green", "quarantined": "bold red", "failed": "red", "registered": "dim"}
_NAMES = {"registered": "unloaded"}


def top(
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and end.")] = False,
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval-s",
            help="Seconds between pictures; the process tells one a second.",
            min=0.1,
            max=WATCHED_S - 1,  # it must be told often enough that somebody watches
            metavar="S",
        ),
    ] = 1.0,
    as_json: output.Json = False,
) -> None:
    """Watch and print."""
    require_database(db)
    if tenant is not None:
        require_tenant(Registry(db).tenants(), db, tenant)
    watcher = Watcher(db)
    if once or as_json or not output.out.is_terminal:
        picture = _first(watcher)
        if as_json:
            output.print_json({"db": str(db), **picture.to_dict(tenant=tenant)})
        else:
            output.out.print(draw(db, Sighting(picture), tenant=tenant))
        return
    try:
        with Live(console=output.out, screen=True, auto_refresh=False) as live:
            for sighting in _sightings(watcher, interval_s):
                live.update(draw(db, sighting, tenant=tenant), refresh=True)
    except KeyboardInterrupt:
        return


def draw(db: Path, sighting: Sighting, *, tenant: str | None = None) -> RenderableType:
    """Return the budget as a bar, and under it a row for each model and tenant, the largest first; or why not."""
    if sighting.picture is None:
        return Text(f"{db}: {sighting.reason or 'waiting for the process that has it open'}", style="yellow")
    picture = sighting.picture
    seen = picture.seen_by(tenant)
    heading = Text.assemble((str(db), "bold"), (f"{f' · {tenant}' if tenant else ''} · process {picture.pid}", "dim"))
    happened = [_happened(seen)] if isinstance(seen, ManagerSnapshot) else []
    return Group(heading, _budget(seen), *happened, Text(), _models(seen.models))


def _first(watcher: Watcher) -> Picture:
    for sighting in _sightings(watcher, _LOOK_EVERY_S):
        if sighting.picture is not None:
            return sighting.picture
        if sighting.reason:
            raise StoreError(sighting.reason)
    raise AssertionError("a watcher goes on until it is left")


def _sightings(watcher: Watcher, interval_s: float) -> Iterator[Sighting]:
    while True:
        sighting = watcher.look()
        yield sighting
        is_waiting = sighting.picture is None and not sighting.reason
        time.sleep(_LOOK_EVERY_S if is_waiting else interval_s)


def _budget(snapshot: ManagerSnapshot | TenantSnapshot) -> Text:
    """Return the bar: leased, idle and free; of a tenant, whose idle part isn't told, charged and not."""
    charged = snapshot.charged_nbytes
    idle = snapshot.idle_nbytes if isinstance(snapshot, ManagerSnapshot) else 0
    parts = [(charged - idle, "█", "green"), (idle, "▒", "cyan")]
    bar, left = Text("budget".ljust(len(_INDENT))), _BAR_WIDTH
    for nbytes, mark, style in parts:
        cells = min(left, math.ceil(_BAR_WIDTH * nbytes / max(snapshot.budget_nbytes, 1)))
        bar.append(mark * cells, style=style)
        left -= cells
    bar.append("·" * left, style="dim")
    bar.append(f"  {output.format_mib(charged)} of {output.format_mib(snapshot.budget_nbytes)}")
    if idle:
        bar.append(f", {output.format_mib(idle)} idle", style="cyan")
    return bar


def _happened(snapshot: ManagerSnapshot) -> Text:
    """Return how often what happened, and on a line of its own what should not be."""
    counters = snapshot.counters
    loads = counters.lazy_loads + counters.eager_loads
    counts = [(loads, "load"), (counters.evictions, "eviction"), (counters.expirations, "expiration")]
    line = Text(_INDENT + ", ".join(output.counted(count, name) for count, name in counts), style="dim")
    alarms = [
        (counters.load_failures, output.counted(counters.load_failures, "failed load")),
        (snapshot.waiters, f"{output.counted(snapshot.waiters, 'caller')} waiting"),
        (snapshot.deficit_nbytes, f"{output.format_mib(snapshot.deficit_nbytes)} over the budget"),
        (snapshot.quarantined_nbytes, f"{output.format_mib(snapshot.quarantined_nbytes)} quarantined"),
        (residue := sum(snapshot.residue.values()), f"{output.format_mib(residue)} kept by runtimes"),
    ]
    if shown := ", ".join(text for is_so, text in alarms if is_so):
        line.append(f"\n{_INDENT}{shown}", style="not dim yellow")
    return line


def _models(known: Sequence[ModelStatus | TenantModel]) -> RenderableType:
    models = _shown(known)
    if not models:
        return Text("no models yet", style="dim")
    has_tenants = any(ref.tenant for model in models for ref in model.refs)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    if has_tenants:
        table.add_column("tenant", no_wrap=True, max_width=12)
    table.add_column("model", overflow="ellipsis")  # the one that gives way: names have no spaces to be folded at
    for heading in ("backend", "state"):
        table.add_column(heading, no_wrap=True)
    for heading in ("leases", "MiB", "last use", "hits"):
        table.add_column(heading, justify="right", no_wrap=True)
    for model in models:
        for number, ref in enumerate(model.refs):
            owner = [Text(ref.tenant or "-", style="" if ref.tenant else "dim")] if has_tenants else []
            name = Text(ref.name.removesuffix(f"+{model.backend}"), style="bold" if model.resident else "")
            table.add_row(*owner, name, *(_figures(model) if number == 0 else (Text("shared", style="dim"),)))
    return table


def _shown(models: Sequence[ModelStatus | TenantModel]) -> list[ModelStatus | TenantModel]:
    """Return those that are charged or were loaded, the largest first, and of others each once: not every fallback."""
    used = [model for model in models if model.charged_nbytes or model.loads]
    known = {model.key.digest for model in used}
    rest = {model.key.digest: model for model in reversed(models) if model.key.digest not in known}
    return sorted([*used, *reversed(rest.values())], key=lambda model: (-model.charged_nbytes, -(model.hits or 0)))


def _figures(model: ModelStatus | TenantModel) -> tuple[Text, ...]:
    state = _NAMES.get(model.state, model.state)
    last_use = "now" if model.leases else "-" if model.idle_s is None else _ago(model.idle_s)
    ratio = "-" if model.hit_ratio is None else f"{100 * model.hit_ratio:.0f} %"
    nbytes = f"{model.charged_nbytes / 2**20:,.0f}" if model.charged_nbytes else "-"
    return (
        Text(model.backend),
        Text(state, style=_STYLES.get(model.state, "yellow")),
        Text("shared", style="dim") if model.leases is None else Text(f"{model.leases:,}" if model.leases else "-"),
        *(Text(text) for text in (nbytes, last_use, ratio)),
    )


def _ago(seconds: float) -> str:
    """Return 9 s, 12 min or 3 h."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
