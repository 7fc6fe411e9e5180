"""`vectorsearch reindex`: embed a database again with another model."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from vectorsearch.cli import output
from vectorsearch.cli.opening import BackendName, DatabaseFolder, TenantName, fetch_models, open_existing


def reindex(
    embed: Annotated[
        str,
        typer.Option(
            "--embed", help="The new embedding model: a name or a folder.", metavar="NAME", show_default=False
        ),
    ],
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    backend: BackendName = None,
    as_json: output.Json = False,
) -> None:
    """Embed every document again with another model, and exchange the vectors at once when all are there.

    Until then searches go on with the old model. Interrupted or killed, the same command goes on where it stopped.
    """
    with open_existing(db, tenant=tenant, backend=backend, writing=True) as database:
        fetch_models([database.find_embedder(embed)])
        try:
            with output.Meter("embedding", "documents") as meter:
                vectors = database.reindex(embed=embed, progress=meter.update)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted: run the same command to go on") from None
        with output.Meter("building indexes", "rows") as meter:
            database.refresh(progress=meter.update)
        max_tokens = database.info().get("embedder_max_tokens")
        name = database.embedder.name if database.embedder else embed
    if as_json:
        output.print_json({"db": str(db), "embed": name, "vectors": vectors, "truncated": vectors.truncated})
        return
    output.out.print(Text(f"{output.counted(vectors, 'vector')} of {name}"))
    output.print_truncated(vectors.truncated, max_tokens)
