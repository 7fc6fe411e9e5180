"""Stores that have lost files or folders: they say so, and no empty one takes the place of what is gone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from vectorsearch.errors import DamagedDatabase, StoreError

from .biased_models import TEXTS, BiasedBackend

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [{"id": doc_id, "text": text} for doc_id, text in TEXTS.items()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the folder of a closed store without vectors, with two tenants."""
    with vs.open(tmp_path / "db", embed=None, rerank=None, backend=BiasedBackend().name) as db:
        for database in (db, db.tenant("acme"), db.tenant("globex")):
            database.add(ROWS)
    return tmp_path / "db"


def reopened(folder: Path) -> vs.Database:
    """Return the store, opened again."""
    return vs.open(folder, embed=None, rerank=None)


def test_an_empty_file_is_damage_when_others_lie_beside_it(folder: Path, tmp_path: Path) -> None:
    """It is neither made anew nor changed; alone with the lock, it is a database whose making was cut off."""
    path = folder / "documents.sqlite"
    path.write_bytes(b"")
    for read_only in (False, True):
        with pytest.raises(DamagedDatabase, match=r"is empty, and 'lexical' lies beside it: .* restore it"):
            vs.open(folder, embed=None, rerank=None, read_only=read_only)
    assert path.stat().st_size == 0
    (tmp_path / "new").mkdir()
    for name in ("writer.lock", "documents.sqlite", "documents.sqlite-wal"):
        (tmp_path / "new" / name).touch()
    with reopened(tmp_path / "new") as db:
        assert db.count() == 0


@pytest.mark.parametrize("lost", ["", "documents.sqlite"])
def test_a_tenant_is_not_made_anew_when_its_documents_are_gone(folder: Path, tmp_path: Path, lost: str) -> None:
    """Whoever looks after the store, or uses the tenant, learns it; the others are served, and it can be removed."""
    gone = folder / "tenants" / "acme" / lost
    if lost:
        gone.unlink()
    else:
        shutil.rmtree(gone)
    with reopened(folder) as db:
        (fault,) = db.verify().faults
        assert fault.part == "tenant acme, file"
        assert "documents.sqlite' is missing: restore or remove the tenant" in fault.message
        assert not db.repair().ok
        for use in (db.compact, lambda: db.snapshot(tmp_path / "copy")):
            with pytest.raises(StoreError, match=r"but without tenant acme: .* is missing"):
                use()
        for find in (lambda: db.tenant("acme", quota_nbytes=9), lambda: db.search("apple", tenant="acme")):
            with pytest.raises(DamagedDatabase, match="'acme' is damaged"):
                find()
        assert (gone.exists(), db.tenants()[0].quota_nbytes, db.tenant("globex").count()) == (False, None, len(ROWS))
        db.remove_tenant("acme")
        assert db.verify().ok
        assert db.tenant("acme").count() == 0


def test_a_removal_is_finished_when_it_was_cut_off(folder: Path) -> None:
    """A tenant whose folder was put out of the way already is removed by the next opening to write."""
    acme = folder / "tenants" / "acme"
    acme.rename(acme.with_name(".removed-acme"))
    with reopened(folder) as db:
        assert [tenant.name for tenant in db.tenants()] == ["globex"]
        assert db.verify().ok
    assert [path.name for path in acme.parent.iterdir()] == ["globex"]


def test_tenants_are_named_when_the_registry_has_lost_them(folder: Path) -> None:
    """Verifying tells whose databases nobody owns; adding a tenant again brings its documents back."""
    (folder / "registry.sqlite").unlink()
    with reopened(folder) as db:
        assert [(fault.part, "is no tenant's: add tenant" in fault.message) for fault in db.verify().faults] == [
            ("tenants", True),
            ("tenants", True),
        ]
        assert db.tenant("acme").count() == len(ROWS)
        (fault,) = db.verify().faults
        assert "globex' is no tenant's" in fault.message
