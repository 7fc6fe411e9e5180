"""`vectorsearch info`: what a database holds and the state of its files."""

from __future__ import annotations

from vectorsearch.cli import output
from vectorsearch.cli.opening import DatabaseFolder, TenantName, open_existing


def info(*, db: DatabaseFolder, tenant: TenantName = None, as_json: output.Json = False) -> None:
    """Show a database's settings, sizes, and the state of its derived files."""
    with open_existing(db, tenant=tenant) as database:
        with output.Meter("updating indexes", "rows") as meter:
            database.refresh(progress=meter.update)
        values = database.info()
    if as_json:
        output.print_json(values)
    else:
        output.print_facts(values)
