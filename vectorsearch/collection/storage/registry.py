"""The tenants of a store and the models that were registered in it: durable, one row each."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

from vectorsearch.collection.storage import registry_faults
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.errors import DamagedDatabase, NewerFormat
from vectorsearch.collection.storage.sqlite.schema import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from vectorsearch.collection.storage.sqlite.store import Store

FILE_NAME = "registry.sqlite"
_FORMAT = 2  # 1 didn't know whose it is, nor of which moment
_TABLES = """
CREATE TABLE tenants (name TEXT PRIMARY KEY, settings TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE models (
    tenant TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, settings TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID
"""
# `token` changes with each change of what is registered, and the documents' file knows it; `content` is a digest of the
# rows. `kept` are the folders of models that nobody has registered any more since a repair, and nobody has removed.
_SECOND = """
CREATE TABLE lineage (
    one INTEGER PRIMARY KEY CHECK (one = 1), store TEXT NOT NULL, token TEXT NOT NULL, content TEXT NOT NULL
);
CREATE TABLE kept (name TEXT PRIMARY KEY) WITHOUT ROWID
"""
_MAKING = "making"  # among the settings of a tenant whose folder is being made


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant: `settings` are plain values, such as its quota and how its collection was made."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A registered model: whose it is ("" for the root), its name, the digest of its files, and plain settings."""

    tenant: str
    name: str
    digest: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class Registry:
    """Tenants and models of the store in `folder`. Threads may share it; one process writes, as for the documents.

    The file is made by the first write. Reads see what was committed last, by whichever process. A registry that is
    missing, damaged, another store's or of another moment than the documents is never taken for what is registered: a
    `fault` says so, and all else raises it. `checked` is False for the copy that a snapshot makes.

    Raises:
        DamagedDatabase: there is a fault; nothing is read, changed or deleted.
    """

    def __init__(self, folder: Path, *, checked: bool = True) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._store: Store | None = None
        self._fault: str | None = None if checked else ""
        self._lock = threading.Lock()  # one change at a time; the store's own lock is taken inside it

    @property
    def fault(self) -> str:
        """Return why the file can't be what is registered here, and the way out; "" if it is."""
        if self._fault is None:
            self._fault = registry_faults.find(self._folder, self._path)
        return self._fault

    def bind(self, store: Store) -> None:
        """Tell the store's documents of each change from here on; a registry of an earlier release is brought to this.

        Until then nothing can be changed, unless it is a copy.
        """
        self._store = store
        if not (self.fault or store.read_only) and self._path.exists():
            with translated(self._folder), self._connection() as conn:
                earlier = 0 < self._version(conn) < _FORMAT
            if earlier:
                with self._writing():
                    pass

    def tenants(self) -> tuple[TenantRow, ...]:
        """Return all tenants by name, without those that are being made."""
        return tuple(row for row in self._tenants() if not row.settings.get(_MAKING))

    def making(self) -> tuple[str, ...]:
        """Return the names of the tenants that are being made, or whose making was cut off."""
        return tuple(row.name for row in self._tenants() if row.settings.get(_MAKING))

    def tenant(self, name: str) -> TenantRow | None:
        """Return the tenant of this name, None if there is none."""
        return next((row for row in self.tenants() if row.name == name), None)

    def put_tenant(self, row: TenantRow) -> None:
        """Store a tenant, or its new settings."""
        self._change("INSERT OR REPLACE INTO tenants VALUES (?, ?)", row.name, _plain(row.settings))

    def begin_tenant(self, name: str) -> None:
        """Say that a tenant's folder is being made: one that a killed process leaves is then known for what it is."""
        with self._writing(counts=False) as conn:
            conn.execute("INSERT OR REPLACE INTO tenants VALUES (?, ?)", (name, _plain({_MAKING: True})))

    def remove_tenant(self, name: str) -> None:
        """Forget a tenant and its models, both or neither."""
        with self._writing() as conn:
            conn.execute("DELETE FROM models WHERE tenant = ?", (name,))
            conn.execute("DELETE FROM tenants WHERE name = ?", (name,))

    def models(self, tenant: str | None = None) -> tuple[ModelRow, ...]:
        """Return the models of a tenant ("" for the root), or of all, by tenant and name."""
        query = "SELECT tenant, name, digest, settings FROM models WHERE ? IS NULL OR tenant = ? ORDER BY tenant, name"
        found = self._select(query, tenant, tenant)
        return tuple(ModelRow(owner, name, digest, json.loads(settings)) for owner, name, digest, settings in found)

    def put_model(self, row: ModelRow) -> None:
        """Store a model, or what its name means now."""
        values = (row.tenant, row.name, row.digest, _plain(row.settings))
        self._change("INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?)", *values)

    def remove_model(self, tenant: str, name: str) -> None:
        """Forget a model; its files are the caller's to remove."""
        self._change("DELETE FROM models WHERE tenant = ? AND name = ?", tenant, name)

    def kept(self) -> tuple[str, ...]:
        """Return the names of models' folders that nobody has registered since a repair."""
        return tuple(name for (name,) in self._select("SELECT name FROM kept ORDER BY name", since=2))

    def recover(self, models: Iterable[str]) -> bool:
        """Take what is there for what is registered, or where that can't be, begin anew; tell whether rows were kept.

        A file that is set aside stays beside the new one. `models` are the names of models' folders that there are.
        """
        rows_stay = self._path.exists() and registry_faults.has_rows_of(self._folder, self._path)
        if not rows_stay:
            registry_faults.set_aside(self._path)
        self._fault = ""
        with self._writing() as conn:
            conn.executemany("INSERT OR REPLACE INTO kept VALUES (?)", ((name,) for name in models))
        return rows_stay

    def copy_into(self, folder: Path) -> None:
        """Copy the registry into another store's folder, if there is one."""
        self._require_whole()
        if self._path.exists():
            with translated(self._folder), self._connection() as conn:
                conn.execute("VACUUM INTO ?", (str(folder / FILE_NAME),))

    def _tenants(self) -> Iterator[TenantRow]:
        for name, settings in self._select("SELECT name, settings FROM tenants ORDER BY name"):
            yield TenantRow(name, json.loads(settings))

    def _select(self, query: str, *values: object, since: int = 1) -> list[tuple[Any, ...]]:
        self._require_whole()
        if not self._path.exists():
            return []
        with translated(self._folder), self._connection() as conn:
            return conn.execute(query, values).fetchall() if self._version(conn) >= since else []

    def _require_whole(self) -> None:
        if self.fault:
            raise DamagedDatabase(self.fault)

    def _change(self, statement: str, *values: object) -> None:
        with self._writing() as conn:
            conn.execute(statement, values)

    @contextmanager
    def _writing(self, *, counts: bool = True) -> Iterator[sqlite3.Connection]:
        """Lend a connection for a change, under another token unless it doesn't count, which the documents know before.

        Killed between the two files' commits, the documents know both tokens.
        """
        with self._lock, translated(self._folder), self._connection() as conn:
            self._require_whole()
            before = registry_faults.token_of(conn)
            token = secrets.token_hex(8) if counts or not before else before
            self._tell([before, token])
            conn.execute("PRAGMA synchronous = FULL")
            conn.execute("BEGIN IMMEDIATE")
            self._make_tables(conn)
            yield conn
            store = self._store.uuid if self._store is not None else ""
            values = (store, token, registry_faults.content_of(conn))
            conn.execute("INSERT OR REPLACE INTO lineage VALUES (1, ?, ?, ?)", values)
            failpoints.reach("registry.before_commit")
            conn.execute("COMMIT")
            failpoints.reach("registry.after_commit")
            self._tell([token])

    def _tell(self, tokens: list[str]) -> None:
        if self._store is not None:
            self._store.set_meta({registry_faults.KEY: json.dumps(sorted(set(tokens)))})

    def _make_tables(self, conn: sqlite3.Connection) -> None:
        version = self._version(conn)
        for number, script in enumerate((_TABLES, _SECOND), 1):
            for statement in script.split(";") if version < number else ():
                conn.execute(statement)
        if version < _FORMAT:
            conn.execute(f"PRAGMA user_version = {_FORMAT}")

    def _version(self, conn: sqlite3.Connection) -> int:
        """Return the format, 0 without tables: SQLite makes an empty file first, which a killed process may leave."""
        version = int(conn.execute("PRAGMA user_version").fetchone()[0])
        if version > _FORMAT:
            raise NewerFormat(
                f"the registry of {str(self._folder)!r} has format {version}, this release reads up to {_FORMAT}: "
                "upgrade vectorsearch"
            )
        return version

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        conn = sqlite3.connect(self._path, isolation_level=None, timeout=10.0)
        try:
            yield conn
        finally:
            conn.close()  # what was not committed is undone


def _plain(settings: Mapping[str, Any]) -> str:
    """Return settings as JSON; NumPy's numbers are numbers."""
    return json.dumps(dict(settings), default=lambda value: int(value) if isinstance(value, Integral) else float(value))
