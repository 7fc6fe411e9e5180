"""`vectorsearch models fit-features`: a small embedding model from a database's own documents."""

from __future__ import annotations

import time
from pathlib import Path  # noqa: TC003 -- typer reads it when it runs
from typing import Annotated

import typer
from rich.text import Text

from vectorsearch.cli import output
from vectorsearch.cli.opening import DatabaseFolder, TenantName, folder_beside, open_existing
from vectorsearch.training.features import DEFAULT_DIM, fit_features

HELP = """Fit a small embedding model on a database's own documents: hashed words, idf, truncated SVD.

Nothing is downloaded, and NumPy runs it. The database stays as it is; to search it with the model, embed it again.

[bold]Example[/]

  vectorsearch models fit-features --db my.db
  vectorsearch reindex --db my.db --embed my.db.features"""


def fit(
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    dim: Annotated[int, typer.Option(help="Length of the vectors.", min=1, metavar="N")] = DEFAULT_DIM,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write; by default the database's name, and the tenant's, with .features.", file_okay=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the randomised fit.", min=0, metavar="N")] = 0,
    as_json: output.Json = False,
) -> None:
    """Fit and say what came out."""
    folder = out or folder_beside(db, tenant, "features")
    begun = time.monotonic()
    with open_existing(db, tenant=tenant) as database, output.Meter("fitting features", "steps") as meter:
        # Both steps in one bar: reading is about as long as one of the fit's passes over the documents.
        def show(step: str, done: int, total: int) -> None:
            meter.update(done / total / 4 if step == "reading" else (1 + 3 * done / total) / 4, 1, done)

        spec = fit_features(database, folder, dim=dim, seed=seed, progress=show)
    facts = {
        "folder": str(spec.folder),
        "dim": spec.dim,
        "digest": spec.digest,
        "nbytes": spec.weights_nbytes,
        "seconds": round(time.monotonic() - begun, 2),
    }
    if as_json:
        output.print_json(facts)
        return
    output.print_facts(facts)
    output.out.print(Text(f"use it with --embed {spec.folder}", style="dim"), soft_wrap=True)
