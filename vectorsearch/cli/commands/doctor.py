"""`vectorsearch doctor`: what can run here, how fast it was measured to be, and what is missing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vectorsearch.cli import output
from vectorsearch.cli.commands.calibrate import measured_cells
from vectorsearch.cli.group import FAILED
from vectorsearch.database import doctor as examination

if TYPE_CHECKING:
    from vectorsearch.database.doctor import ModelReport, Report

HELP = """Show which backends can run which models here, how fast they were measured to be, and what is missing.

Nothing is downloaded, loaded or measured: [bold]vectorsearch models calibrate NAME[/] measures. The exit code is 0 if
every model shown can run, and 1 if one can't."""


def doctor(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Names, folders or hub names; by default the two default models.", metavar="[MODEL…]"),
    ] = None,
    *,
    as_json: output.Json = False,
) -> None:
    """Look and print."""
    report = examination.examine(models or ())
    if as_json:
        output.print_json(asdict(report) | {"healthy": report.healthy})
    else:
        _print_machine(report)
        for model in report.models:
            _print_model(model)
        for extra, command in report.missing.items():
            output.out.print(Text.assemble((f"not installed: {extra}", "yellow"), f"  {command}"))
    if not report.healthy:
        raise typer.Exit(FAILED)


def _print_machine(report: Report) -> None:
    versions = [f"{name} {version}" for name, version in report.packages.items() if version]
    facts = {
        "machine": report.machine,
        "python": report.python,
        "cores": report.cores,
        "memory": output.format_mib(report.memory_nbytes),
        "budget": f"{output.format_mib(report.budget_nbytes)} for models, unless you say otherwise",
        "cache": report.cache,
        "malloc_trim": "yes: freed memory goes back to the system"
        if report.malloc_trim
        else "no: not in this C library",
        "packages": ", ".join(versions),
    }
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, value in facts.items():
        grid.add_row(Text(name, style="dim"), Text(str(value)))
    output.out.print(grid)


def _print_model(model: ModelReport) -> None:
    cached = "" if model.cached else ", not fetched yet"
    output.out.print(Text.assemble("\n", (model.name, "bold"), f"  {model.task}{cached}"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("backend", no_wrap=True)
    table.add_column("", no_wrap=True)
    for heading in ("query", "passage", "parity"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("device")
    unmeasured = [Text("-", style="dim")] * 3
    for each in model.backends:
        served = Text("yes", style="green") if each.ok else Text("no", style="dim")
        cells = measured_cells(each.profile) if each.profile else unmeasured
        table.add_row(each.backend, served, *cells, Text(each.profile.device if each.profile else "", style="dim"))
    output.out.print(Padding(table, (0, 0, 0, 2)))
    lines = [(each.backend, each.reason) for each in model.backends if not each.ok]
    for name, text in (*lines, *model.chosen.items()):
        output.out.print(Padding(Text.assemble((f"{name}: ", "dim"), output.one_line(text)), (0, 0, 0, 2)))
