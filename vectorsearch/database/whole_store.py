"""Looking after a whole store: what is done for its own documents is done for its tenants', and for models' files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from backends.errors import VectorSearchError
from vectorsearch.collection.storage.disk.files import folder_nbytes
from vectorsearch.collection.storage.errors import DatabaseClosed, StorageFull, StoreError
from vectorsearch.collection.storage.soundness import Fault
from vectorsearch.collection.upkeep import Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vectorsearch.collection.upkeep import Compaction, Progress
    from vectorsearch.database.tenants import D, Tenants


def check_tenants(
    found: Verification,
    tenants: Tenants[D] | None,
    check: Callable[[D, Progress | None], Verification],
    progress: Progress | None,
) -> Verification:
    """Return what was found in a store's own documents with what `check` finds in each tenant's, and beside them.

    A tenant that can't be opened is a fault of its own; the others are checked all the same.
    """
    if tenants is None:
        return found
    if tenants.fault:
        return replace(found, faults=(*found.faults, Fault("registry", tenants.fault, mendable=True)))
    for tenant in tenants.list():
        try:
            part = check(tenants.get(tenant.name), _shifted(progress, found.documents))
        except VectorSearchError as exc:
            part = Verification(0, 0, (Fault("file", str(exc), mendable=False),))
        found = _with_tenant(found, tenant.name, part)
    return replace(found, faults=(*found.faults, *tenants.faults()))


def _with_tenant(found: Verification, name: str, part: Verification) -> Verification:
    """Return both together; what is of the tenant says so."""
    whose = f"tenant {name}, "
    return Verification(
        found.documents + part.documents,
        found.vectors + part.vectors,
        (*found.faults, *(replace(fault, part=whose + fault.part) for fault in part.faults)),
        (*found.restored, *(whose + what for what in part.restored)),
        (*found.absent, *(whose + what for what in part.absent)),
    )


def compact_tenants(gained: Compaction, tenants: Tenants[D] | None, folder: Path) -> Compaction:
    """Compact every tenant's documents as a store's own in `folder` were; the sizes are those of the whole folder.

    Raises:
        StorageFull: there is no room for one of them.
        StoreError: a tenant's can't be; all others are compacted.
    """
    if tenants is None:
        return gained
    forgotten, faults = 0, []
    for tenant in tenants.list():
        try:
            forgotten += tenants.get(tenant.name).compact().forgotten
        except (StorageFull, DatabaseClosed):  # of the disk, or the store: the others can't be either
            raise
        except VectorSearchError as exc:
            faults.append(Fault(f"tenant {tenant.name}", str(exc), mendable=False))
    require_whole(f"database {str(folder)!r} is compacted", faults)
    return replace(gained, after_nbytes=folder_nbytes(folder), forgotten=gained.forgotten + forgotten)


def require_whole(done: str, faults: Sequence[Fault]) -> None:
    """Insist that what is `done` is done of the whole store.

    Raises:
        StoreError: parts of it were at fault, and left out.
    """
    if faults:
        raise StoreError(f"{done}, but without {'; '.join(map(str, faults))}")


def _shifted(progress: Progress | None, done: int) -> Progress | None:
    """Return a callback that counts on from `done`."""
    if progress is None:
        return None
    return lambda more, total: progress(done + more, done + total)
