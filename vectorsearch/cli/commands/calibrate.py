"""`vectorsearch models calibrate`: measure a model on every backend here, so that the fastest is chosen."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from backends.catalogue import catalogue
from lifecycle.measuring import calibration
from vectorsearch.cli import output
from vectorsearch.cli.opening import ModelName, fetch_models
from vectorsearch.database.doctor import chosen

if TYPE_CHECKING:
    from lifecycle.measuring.calibration import Calibration
    from lifecycle.measuring.profile import Profile

HELP = """Measure a model on every backend and precision that can run it here, for single queries and for many passages.

The figures are kept, and from then on the fastest that keeps the model's answers is chosen: cosine 0.999 to a float32
reference, 0.99 where activations become integers, Kendall's tau 0.95 for a reranker. Each backend is measured in
processes of its own, some ten seconds each, one after the other; leave the machine alone meanwhile. Measured again are
those that you name."""


def calibrate(
    name: ModelName,
    *,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            help="Only this one, such as [bold]jax[/] or [bold]jax:bfloat16[/]; may be repeated.",
            metavar="NAME",
        ),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Measure and print."""
    spec = catalogue.resolve(name)
    fetch_models([spec])
    found = calibration.calibrate(spec, backends=backend, progress=output.print_note)
    reasons = chosen(spec)
    if as_json:
        profiles = [asdict(each) | {"nbytes": each.nbytes} for each in found.profiles]
        output.print_json({**asdict(found), "profiles": profiles, "chosen": reasons})
        return
    output.out.print(_table(found))
    for backend_name, why in found.failed.items():
        output.out.print(Text(f"{backend_name}: {output.one_line(why)}", style="dim"))
    for kind, why in reasons.items():
        output.out.print(Text.assemble((f"{kind}: ", "bold"), why))


def measured_cells(found: Profile) -> list[Text]:
    """Return query, passage and parity as cells of a table; parity is red where it is too low to be chosen."""
    parity = Text("-", style="dim")
    if found.parity is not None and found.parity.reference == found.backend:
        parity = Text("itself", style="dim")
    elif found.parity is not None:
        keeps = found.parity.value >= found.parity.needed
        parity = Text(f"{found.parity.value:.4f}", style="green" if keeps else "bold red")
    return [Text(output.format_ms(found.query_ms)), Text(output.format_ms(found.bulk_ms)), parity]


def _table(found: Calibration) -> Table:
    title = f"{found.model}, parity to {found.reference}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("backend")
    for heading in ("query", "passage", "parity", "tokens/s", "load", "memory"):
        table.add_column(heading, justify="right")
    for each in found.profiles:
        more: list[Any] = [f"{each.tokens_per_s:,.0f}", output.format_ms(1000 * each.load_s)]
        table.add_row(each.backend, *measured_cells(each), *more, output.format_mib(each.nbytes))
    return table
