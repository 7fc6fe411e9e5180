"""The tenants of a store and the models that were registered in it: durable, one row each."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

from vectorsearch.storage.errors import NewerFormat
from vectorsearch.storage.schema import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FILE_NAME = "registry.sqlite"
_FORMAT = 1
_TABLES = """
CREATE TABLE tenants (name TEXT PRIMARY KEY, settings TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE models (
    tenant TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, settings TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
"""


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

    The file is made by the first write. Reads see what was committed last, by whichever process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME

    def tenants(self) -> tuple[TenantRow, ...]:
        """Return all tenants by name."""
        found = self._select("SELECT name, settings FROM tenants ORDER BY name")
        return tuple(TenantRow(name, json.loads(settings)) for name, settings in found)

    def tenant(self, name: str) -> TenantRow | None:
        """Return the tenant of this name, None if there is none."""
        return next((row for row in self.tenants() if row.name == name), None)

    def put_tenant(self, row: TenantRow) -> None:
        """Store a tenant, or its new settings."""
        self._change("INSERT OR REPLACE INTO tenants VALUES (?, ?)", row.name, _plain(row.settings))

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

    def copy_into(self, folder: Path) -> None:
        """Copy the registry into another store's folder, if there is one."""
        if self._path.exists():
            with translated(self._folder), self._connection() as conn:
                conn.execute("VACUUM INTO ?", (str(folder / FILE_NAME),))

    def _select(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        if not self._path.exists():
            return []
        with translated(self._folder), self._connection() as conn:
            return conn.execute(query, values).fetchall() if self._is_made(conn) else []

    def _change(self, statement: str, *values: object) -> None:
        with self._writing() as conn:
            conn.execute(statement, values)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with translated(self._folder), self._connection() as conn:
            conn.execute("PRAGMA synchronous = FULL")
            conn.execute("BEGIN IMMEDIATE")
            if not self._is_made(conn):
                for statement in filter(str.strip, _TABLES.split(";")):
                    conn.execute(statement)
                conn.execute(f"PRAGMA user_version = {_FORMAT}")
            yield conn
            conn.execute("COMMIT")

    def _is_made(self, conn: sqlite3.Connection) -> bool:
        """Tell whether there are tables: SQLite makes an empty file first, and a killed process may leave that."""
        version = conn.execute("PRAGMA user_version").fetchone()[0]
        if version > _FORMAT:
            raise NewerFormat(
                f"the registry of {str(self._folder)!r} has format {version}, this release reads up to {_FORMAT}: "
                "upgrade vectorsearch"
            )
        return bool(version)

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
