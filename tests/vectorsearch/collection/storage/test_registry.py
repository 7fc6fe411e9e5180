"""Tenants and registered models, kept in the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from vectorsearch.collection.storage.errors import DamagedDatabase, NewerFormat
from vectorsearch.collection.storage.registry import FILE_NAME, ModelRow, Registry, TenantRow

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_is_there_and_no_file_is_made_when_nothing_was_stored(tmp_path: Path) -> None:
    """Looking leaves no trace."""
    registry = Registry(tmp_path)
    assert (registry.tenants(), registry.models(), registry.tenant("acme")) == ((), (), None)
    assert list(tmp_path.iterdir()) == []


def test_rows_are_the_same_when_the_registry_is_opened_again(tmp_path: Path) -> None:
    """Tenants and models are there for the next process, by name; a second one of a name replaces the first."""
    first = Registry(tmp_path)
    acme = TenantRow("acme", {"quota_nbytes": 5, "embed": None})
    first.put_tenant(TenantRow("zeta"))
    first.put_tenant(TenantRow("acme", {"quota_nbytes": 1}))
    first.put_tenant(acme)
    for tenant in ("", "acme", "zeta"):
        first.put_model(ModelRow(tenant, "reranker", f"digest of {tenant}", {"ttl_s": 3.5}))
    second = Registry(tmp_path)
    assert second.tenants() == (acme, TenantRow("zeta"))
    assert second.tenant("acme") == acme
    assert [row.digest for row in second.models()] == ["digest of ", "digest of acme", "digest of zeta"]
    assert second.models("acme") == (ModelRow("acme", "reranker", "digest of acme", {"ttl_s": 3.5}),)
    assert second.models("") == (ModelRow("", "reranker", "digest of ", {"ttl_s": 3.5}),)


def test_a_tenants_models_go_with_it_when_it_is_removed(tmp_path: Path) -> None:
    """Nobody else's do, though they have the same names."""
    registry = Registry(tmp_path)
    for tenant in ("acme", "zeta"):
        registry.put_tenant(TenantRow(tenant))
        registry.put_model(ModelRow(tenant, "reranker", "d"))
    registry.remove_tenant("acme")
    assert [row.name for row in registry.tenants()] == ["zeta"]
    assert [row.tenant for row in registry.models()] == ["zeta"]
    registry.remove_model("zeta", "reranker")
    registry.remove_model("zeta", "unknown")
    assert registry.models() == ()


def test_a_damaged_file_is_told_when_it_is_read(tmp_path: Path) -> None:
    """Another file in its place is a clear error."""
    (tmp_path / FILE_NAME).write_bytes(b"not SQLite" * 200)
    with pytest.raises(DamagedDatabase):
        Registry(tmp_path).tenants()


def test_nothing_is_there_when_its_first_write_was_cut_off(tmp_path: Path) -> None:
    """SQLite makes an empty file before it writes; what a killed process has left of it is no fault."""
    (tmp_path / FILE_NAME).touch()
    registry = Registry(tmp_path)
    assert (registry.tenants(), registry.models()) == ((), ())
    registry.put_tenant(TenantRow("acme"))
    assert registry.tenant("acme") == TenantRow("acme")


def test_a_later_releases_file_is_refused_when_it_is_read_or_written(tmp_path: Path) -> None:
    """Its rows may mean something else."""
    registry = Registry(tmp_path)
    registry.put_tenant(TenantRow("acme"))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as conn:
        conn.execute("PRAGMA user_version = 99")
    for call in (registry.tenants, lambda: registry.put_tenant(TenantRow("zeta"))):
        with pytest.raises(NewerFormat, match="has format 99, this release reads up to 2"):
            call()
