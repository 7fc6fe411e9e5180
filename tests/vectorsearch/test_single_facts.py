"""What is asked of a database by itself: facts that need no walk over its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

import pytest

from vectorsearch.collection import upkeep
from vectorsearch.collection.storage.errors import DatabaseClosed, ReadOnlyDatabase
from vectorsearch.training.features import fit_features

if TYPE_CHECKING:
    from pathlib import Path

    import vectorsearch as vs

    from .conftest import OpenDatabase


def test_no_folder_is_measured_when_a_search_or_a_fit_needs_one_fact(
    db: vs.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What walks all files of a database is for `info` alone."""

    def walking(_: Path) -> Never:
        raise AssertionError("the folder was walked")

    monkeypatch.setattr(upkeep, "folder_nbytes", walking)
    assert "lets 0 of 4 through" in str(db.explain("pattern", filter={"kind": "x"}))
    fit_features(db, tmp_path / "features", dim=2)
    with pytest.raises(AssertionError, match="walked"):
        db.info()


def test_a_database_tells_whether_it_can_be_written(open_database: OpenDatabase, tmp_path: Path) -> None:
    """Who has long work to do before a write asks first; a closed database and one open to read refuse."""
    db = open_database(tmp_path / "db", language="de")
    assert db.language == "de"
    db.check_writable()
    db.close()
    with pytest.raises(DatabaseClosed):
        db.check_writable()
    with pytest.raises(ReadOnlyDatabase):
        open_database(tmp_path / "db", read_only=True).check_writable()
