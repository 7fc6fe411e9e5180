"""Stores that have lost files or folders: they say so, and no empty one takes the place of what is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from vectorsearch.errors import DamagedDatabase

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
