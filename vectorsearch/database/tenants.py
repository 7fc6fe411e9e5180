"""The tenants of a store: each has a database of its own in it, and all of them share one budget for models."""

from __future__ import annotations

import re
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypedDict, TypeVar, Unpack

from backends.errors import InvalidInput, VectorSearchError
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.disk.files import fsync_folder, writable
from vectorsearch.collection.storage.errors import (
    DamagedDatabase,
    DatabaseClosed,
    ReadOnlyDatabase,
    StorageFull,
    StoreError,
)
from vectorsearch.collection.storage.registry import Registry, TenantRow
from vectorsearch.collection.storage.soundness import Fault
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME, count_documents, reachable, read_meta
from vectorsearch.collection.storage.sqlite.settings import stored_settings
from vectorsearch.models.model_files import FOLDER_NAME as MODELS
from vectorsearch.models.model_files import ModelFiles
from vectorsearch.models.registration import RegisteredModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from backends.base import ModelSpec
    from lifecycle import ModelManager
    from vectorsearch.collection.upkeep import Compaction

FOLDER_NAME = "tenants"
AS_BEFORE: Final = "default"  # what it has; of a new tenant, no quota and no guarantee
_UUID = "uuid"  # among a tenant's settings: which database is its own
_REMOVED = ".removed-"  # no tenant's name begins with a dot
# Lower case only: where the file system ignores case, two folders would be one.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# Devices' names, also before a dot, and a dot at the end, which is dropped: on Windows they are other places.
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


class UnknownTenant(InvalidInput):
    """The store has no tenant of this name."""


@dataclass(frozen=True, slots=True)
class TenantInfo:
    """A tenant and what it may take: at most `quota_nbytes` (None: the budget), and `guaranteed_nbytes` for sure."""

    name: str
    quota_nbytes: int | None
    guaranteed_nbytes: int


def check_name(name: str) -> None:
    """Refuse what can't be the name of a new tenant, on this system or on one that its folder may be moved to.

    Raises:
        InvalidInput: it can't.
    """
    _check_form(name)
    if name.endswith(".") or _DEVICE.fullmatch(name):
        raise InvalidInput(
            f"tenant name {name!r} means another folder on Windows, where this database may be moved to: use another, "
            f"such as {name.partition('.')[0] + '-1'!r}"
        )


def _check_form(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"tenant name {name!r}: use up to 64 lower-case letters, digits and . _ -, a letter or digit first"
        )


class TenantOptions(TypedDict, total=False):
    """How a tenant's database is opened; see `vectorsearch.open`."""

    embed: str | Path | ModelSpec | None
    rerank: str | Path | ModelSpec | None
    language: str | None
    stop_words: Iterable[str] | Literal["own"] | None
    fold_accents: bool
    k1: float
    b: float
    lexical: str
    dense_index: str


class TenantDatabase(Protocol):
    """What the tenants of a store ask of a tenant's database."""

    @property
    def uuid(self) -> str:
        """Return what names it, and no other but its copies."""

    @property
    def closed(self) -> bool:
        """Tell whether `close` was called."""

    def close(self) -> None:
        """Close it; closing again is harmless."""

    def compact(self) -> Compaction:
        """Give the room of deleted documents back."""


D = TypeVar("D", bound=TenantDatabase)


class Tenants(Generic[D]):
    """Open, list and remove the tenants of the store in `folder`; each is opened once and closed with the store.

    `open_one(folder, name)` opens a tenant's database. Threads may share it.
    """

    def __init__(
        self,
        folder: Path,
        registry: Registry,
        files: ModelFiles,
        manager: ModelManager,
        open_one: Callable[..., D],
        *,
        read_only: bool,
    ) -> None:
        self._folder = folder
        self._registry = registry
        self._files = files
        self._manager = manager
        self._open_one = open_one
        self._read_only = read_only
        # One opening or removal at a time; the databases' own locks are taken inside it.
        self._lock = threading.RLock()
        self._open: dict[str, D] = {}
        self._closed = False
        if not (read_only or registry.fault):
            self._finish_removals()
            self._finish_making()
        for row in () if registry.fault else registry.tenants():
            self._apply(_info(row))

    def get(
        self,
        name: str,
        *,
        quota_nbytes: int | Literal["default"] | None = AS_BEFORE,
        guaranteed_nbytes: int | Literal["default"] = AS_BEFORE,
        **options: Unpack[TenantOptions],
    ) -> D:
        """Return a tenant's database, made if there is none; sizes that are given replace those that it has.

        A quota of None is none: the budget alone bounds the tenant's models.

        Raises:
            InvalidInput: the name can't be used, a size is negative, or it is open with other options.
            UnknownTenant: there is none, and the store is open to read.
            DamagedDatabase: its documents are missing; they aren't made anew.
            DatabaseClosed: the store is closed.
        """
        _check_form(name)
        if quota_nbytes == guaranteed_nbytes == AS_BEFORE and not options:
            database = self._open.get(name)
            if database is not None and not database.closed:
                return database  # what a service asks for with every request
        with self._lock:
            self._check_open()
            known = self._registry.tenant(name)
            if known is None and self._read_only:
                raise UnknownTenant(f"there is no tenant {name!r}, and a store that is open to read makes none")
            if known is None:
                check_name(name)
            before = _info(known) if known else TenantInfo(name, None, 0)
            info = TenantInfo(
                name,
                before.quota_nbytes if quota_nbytes == AS_BEFORE else quota_nbytes,
                before.guaranteed_nbytes if guaranteed_nbytes == AS_BEFORE else guaranteed_nbytes,
            )
            if info != before and self._read_only:
                raise ReadOnlyDatabase(f"tenant {name!r} keeps its sizes: the store is open read-only")
            self._apply(info)  # refuses sizes that can't be
            try:
                return self._found_or_made(name, options, known, info)
            except BaseException:
                self._apply(before)
                raise

    def _found_or_made(self, name: str, options: TenantOptions, known: TenantRow | None, info: TenantInfo) -> D:
        """Open a tenant's database, and let the registry know the tenant and its sizes; the lock is held."""
        anew = known is None and not (self._folder / FOLDER_NAME / name).exists()
        try:
            if anew:
                self._registry.begin_tenant(name)
            database = self._opened(name, options, known=known)
            if known is None:  # after a power cut too, no row is without its folder
                failpoints.reach("tenants.before_row")
                fsync_folder(self._folder / FOLDER_NAME)
                fsync_folder(self._folder)
            if known is None or info != _info(known) or (_UUID not in known.settings and not self._read_only):
                self._registry.put_tenant(TenantRow(name, _settings(info, database)))
        except BaseException:
            if anew:
                self._finish_making()
            raise
        return database

    def existing(self, name: str) -> D:
        """Return the database of a tenant that is there.

        Raises:
            UnknownTenant: there is none; it isn't made.
        """
        database = self._open.get(name) if isinstance(name, str) else None
        if database is not None and not database.closed:
            return database
        with self._lock:  # else one that is removed meanwhile would be made again
            self._check_open()
            if name not in [row.name for row in self._registry.tenants()]:
                # The others' names stay untold: who asks may be one of them.
                raise UnknownTenant(f"there is no tenant {name!r}: make it with db.tenant({name!r})")
            return self.get(name)

    def _opened(self, name: str, options: TenantOptions, *, known: TenantRow | None) -> D:
        database = self._open.get(name)
        if database is None or database.closed:
            folder = self._folder / FOLDER_NAME / name
            with reachable(folder):
                lost = (
                    known is not None and not (folder / FILE_NAME).exists()
                )  # which is made before the row in the registry
            if lost:
                gone = str(folder / FILE_NAME)
                raise DamagedDatabase(f"tenant {name!r} is damaged, {gone!r} is missing: restore or remove the tenant")
            if known is not None:
                _require_own(known, folder)
            database = self._open[name] = self._open_one(folder, name, **options)
        elif options:
            given = ", ".join(sorted(options))
            raise InvalidInput(f"tenant {name!r} is open already: give {given} when it is first opened")
        return database

    def registered(self) -> tuple[RegisteredModel, ...]:
        """Return every tenant's registered models and the store's own, by tenant and name."""
        return tuple(RegisteredModel.of(row) for row in self._registry.models())

    def opened(self) -> tuple[D, ...]:
        """Return the databases of tenants that are open."""
        return tuple(self._open.values())

    def list(self) -> tuple[TenantInfo, ...]:
        """Return all tenants by name."""
        return tuple(_info(row) for row in self._registry.tenants())

    def remove(self, name: str) -> None:
        """Remove a tenant: its documents, its models and what only it used; also one whose documents are damaged.

        Searches under way end or fail with `DatabaseClosed`.

        Raises:
            UnknownTenant: there is none.
        """
        if self._read_only:
            raise ReadOnlyDatabase("the store is open read-only: open it without read_only")
        with self._lock:
            self._check_open()
            if self._registry.tenant(name) is None:
                raise UnknownTenant(f"there is no tenant {name!r}")
            if (database := self._open.pop(name, None)) is not None:
                database.close()
            # Out of the way before the row goes: a removal that is cut off can't leave documents to be found again.
            folder = self._folder / FOLDER_NAME / name
            removed = folder.with_name(f"{_REMOVED}{name}")
            shutil.rmtree(removed, ignore_errors=True)
            if folder.exists():
                folder.rename(removed)
            self._forget(name)
            self._manager.set_tenant(name)
            self._files.sweep(self._registry)
            shutil.rmtree(removed, ignore_errors=True)

    def _forget(self, name: str) -> None:
        """Take a tenant's rows away; the files of its models go with the next sweep."""
        with self._files.dropping(row.digest for row in self._registry.models(name)):
            self._registry.remove_tenant(name)

    def _finish_removals(self) -> None:
        """Remove what a run that was cut off has left: the rest of a tenant, and files that no model needs."""
        for left in (self._folder / FOLDER_NAME).glob(f"{_REMOVED}*"):
            name = left.name.removeprefix(_REMOVED)
            if self._registry.tenant(name) is not None and not left.with_name(name).exists():
                self._forget(name)
            shutil.rmtree(left, ignore_errors=True)
        self._files.sweep(self._registry)

    def _finish_making(self) -> None:
        """Remove what a run that was cut off has left of tenants that nobody got; keep one that has documents."""
        for name in self._registry.making():
            if (database := self._open.pop(name, None)) is not None:
                database.close()
            folder = self._folder / FOLDER_NAME / name
            if count_documents(folder):
                self._registry.put_tenant(TenantRow(name))
                continue
            shutil.rmtree(folder, ignore_errors=True)
            self._registry.remove_tenant(name)

    @property
    def fault(self) -> str:
        """Return why the registry can't be used, and the way out; "" if it can."""
        return self._registry.fault

    def recover(self) -> tuple[Fault, ...]:
        """Where the registry can't be used, take what is there for what is registered; return what that can't restore.

        Tenants' documents are theirs again, without sizes; models' files stay, under no name. Nothing is deleted.
        """
        with self._lock:
            if not (why := self._registry.fault):
                return ()
            rows_stay = self._registry.recover(self._files.names())
            faults = [Fault("registry", f"{why.partition('. ')[0]}: what is there was taken", mendable=False)]
            known = {row.name for row in self._registry.tenants()}
            for path in sorted((self._folder / FOLDER_NAME).glob(f"[!.]*/{FILE_NAME}")):
                name = path.parent.name
                if name not in known and _NAME.fullmatch(name):
                    self._registry.put_tenant(TenantRow(name))
                    what = f"tenant {name!r} is back without its quota, guarantee and models: give them again"
                    faults.append(Fault("registry", what, mendable=False))
            for row in self._registry.tenants():
                if rows_stay:
                    what = f"tenant {row.name!r} has the quota, guarantee and models of another moment: check them"
                    faults.append(Fault("registry", what, mendable=False))
                self._apply(_info(row))
            return tuple(faults)

    def embedded_by(self, digest: str) -> tuple[str, ...]:
        """Return the tenants whose documents were embedded with the store's copy of a model, which isn't their own."""
        copy, found = self._files.path_of(digest).name, []
        for row in self._registry.tenants():
            with suppress(StoreError):  # damaged: nothing can be told
                stored = stored_settings(self._folder / FOLDER_NAME / row.name)
                if stored and stored.embed and Path(stored.embed.rpartition("@")[0]).name == copy:
                    found.append(f"tenant {row.name}")
        return tuple(found)

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong beside the documents: databases of no tenant, and registered models, read whole."""
        with self._lock:  # else one that is made meanwhile would have its folder and no row
            names = {path.parent.name for path in (self._folder / FOLDER_NAME).glob(f"[!.]*/{FILE_NAME}")}
            unknown = sorted(names - {row.name for row in self._registry.tenants()} - {*self._registry.making()})
        for name in unknown:
            where = str(self._folder / FOLDER_NAME / name)
            yield Fault(
                "tenants", f"{where!r} is no tenant's: add tenant {name!r}, or remove the folder", mendable=False
            )
        rows = self._registry.models()
        for name in self._files.unowned(rows):
            where = str(self._folder / MODELS / name)
            what = f"{where!r} is no registered model's: register it from there, or remove the folder"
            yield Fault("models", what, mendable=False)
        yield from self._files.faults({row.digest: row.name for row in rows})

    def copy_into(self, folder: Path, copy_documents: Callable[[D, Path], None]) -> tuple[Fault, ...]:
        """Copy the registry, the models in it, and each tenant's documents into another store's folder.

        A tenant that is removed meanwhile isn't in the copy, and neither is what is damaged: that is returned.

        Raises:
            StorageFull: there is no room.
            StoreError: the registry or a model can't be copied.
        """
        copy, copies = Registry(folder, checked=False), ModelFiles(folder)

        def copy_rows() -> Iterator[str]:
            self._registry.copy_into(folder)
            return (row.digest for row in copy.models())

        faults = [*self._files.copy_into(folder, copy_rows)]
        for row in copy.tenants():
            target = folder / FOLDER_NAME / row.name
            try:
                with writable(target):
                    copy_documents(self.existing(row.name), target)
            except VectorSearchError as exc:
                if self._registry.tenant(row.name) is not None:
                    if isinstance(exc, StorageFull | DatabaseClosed):  # the others can't be copied either
                        raise
                    faults.append(Fault(f"tenant {row.name}", str(exc), mendable=False))
                with copies.dropping(model.digest for model in copy.models(row.name)):
                    copy.remove_tenant(row.name)
        copies.sweep(copy)
        return tuple(faults)

    def close(self) -> None:
        """Close every tenant's database; the first error is raised once all are closed."""
        with self._lock:
            self._closed = True
            opened, self._open = list(self._open.values()), {}
        errors = []
        for database in opened:
            try:
                database.close()
            except Exception as exc:  # noqa: BLE001 -- one tenant's fault must not keep the others open
                errors.append(exc)
        if errors:
            raise errors[0]

    def _check_open(self) -> None:
        if self._closed:
            raise DatabaseClosed("the database is closed: open it again")

    def _apply(self, info: TenantInfo) -> None:
        self._manager.set_tenant(info.name, quota_nbytes=info.quota_nbytes, guaranteed_nbytes=info.guaranteed_nbytes)


def _settings(info: TenantInfo, database: TenantDatabase) -> dict[str, object]:
    """Return what the registry keeps of a tenant: its sizes, and whose documents are its own."""
    sizes = {"quota_nbytes": info.quota_nbytes, "guaranteed_nbytes": info.guaranteed_nbytes}
    return {**sizes, _UUID: database.uuid}


def _require_own(row: TenantRow, folder: Path) -> None:
    """Insist that the documents in a tenant's folder are its own.

    Raises:
        DamagedDatabase: they are another database's.
    """
    own, found = row.settings.get(_UUID), read_meta(folder).get("uuid")
    if own is not None and found != own:
        raise DamagedDatabase(
            f"tenant {row.name!r} is damaged, {str(folder / FILE_NAME)!r} is another database's: put its own back, or "
            "remove the tenant"
        )


def _info(row: TenantRow) -> TenantInfo:
    return TenantInfo(row.name, row.settings.get("quota_nbytes"), row.settings.get("guaranteed_nbytes", 0))
