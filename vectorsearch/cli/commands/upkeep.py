"""`vectorsearch verify`, `repair`, `compact` and `snapshot`: looking after a database."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 -- typer reads the annotation
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from vectorsearch.cli import output
from vectorsearch.cli.group import FAILED
from vectorsearch.cli.opening import DatabaseFolder, TenantName, open_existing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vectorsearch.collection.upkeep import Verification

_SHOWN = 20


def verify(*, db: DatabaseFolder, tenant: TenantName = None, as_json: output.Json = False) -> None:
    """Check a database and its tenants: files, every document and vector, indexes. Exit code 1 if there is a fault.

    An index whose files are gone is a warning and no fault: it is built again from the documents.
    """
    with open_existing(db, tenant=tenant) as database, output.Meter("verifying", "documents") as meter:
        found = database.verify(meter.update)
    _report(db, found, as_json=as_json)


def repair(*, db: DatabaseFolder, tenant: TenantName = None, as_json: output.Json = False) -> None:
    """Mend what can be mended, tenants' too, build the indexes again, and verify. Exit code 1 if a fault is left.

    What was restored is listed, and so is what could not be.
    """
    with open_existing(db, tenant=tenant, writing=True) as database, output.Meter("repairing", "documents") as meter:
        found = database.repair(meter.update)
    _report(db, found, as_json=as_json)


def compact(*, db: DatabaseFolder, tenant: TenantName = None, as_json: output.Json = False) -> None:
    """Give the room of deleted documents back to the disk, tenants' too; needs as much again while it works."""
    with open_existing(db, tenant=tenant, writing=True) as database:
        output.print_note("building the indexes without what was deleted")
        gained = database.compact()
    if as_json:
        output.print_json({"db": str(db), **asdict(gained)})
        return
    sizes = (output.format_mib(size) for size in (gained.before_nbytes, gained.after_nbytes))
    output.out.print(Text(f"{' → '.join(sizes)}, {output.counted(gained.forgotten, 'deletion')} forgotten"))


def snapshot(
    target: Annotated[Path, typer.Argument(help="New folder for the copy.", metavar="FOLDER")],
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    as_json: output.Json = False,
) -> None:
    """Copy a database and its tenants as of this moment, also while another process writes to it.

    A tenant's copy is a database of its own.
    """
    with open_existing(db, tenant=tenant) as database:
        database.snapshot(target)
        documents = database.count()
    if as_json:
        output.print_json({"db": str(db), "snapshot": str(target), "documents": documents})
        return
    output.out.print(Text(f"{output.counted(documents, 'document')} copied to {target}"))


def _report(db: Path, found: Verification, *, as_json: bool) -> None:
    if as_json:
        faults = [asdict(fault) for fault in found.faults]
        seen = {"documents": found.documents, "vectors": found.vectors}
        told = {"restored": list(found.restored), "absent": list(found.absent)}
        output.print_json({"db": str(db), "ok": found.ok, **seen, "faults": faults, **told})
    else:
        _list(found.faults, output.print_error)
        _list(found.absent, output.print_warning)
        _list(found.restored, lambda what: output.out.print(Text(what)))
        verdict = "no fault" if found.ok else output.counted(len(found.faults), "fault")
        counts = f"{output.counted(found.documents, 'document')}, {output.counted(found.vectors, 'vector')}"
        output.out.print(Text(f"{verdict} in {counts}"))
    if not found.ok:
        raise typer.Exit(FAILED)


def _list(found: Sequence[object], tell: Callable[[str], None]) -> None:
    for what in found[:_SHOWN]:
        tell(str(what))
    if len(found) > _SHOWN:
        tell(f"and {len(found) - _SHOWN} more; --json lists them all")
