"""The golden database of each format opens in every later release."""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from vectorsearch.collection.collection import Collection, CollectionSettings, stored_settings
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME

HERE = Path(__file__).parent


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_every_document_is_there_when_a_database_of_a_format_is_opened(tmp_path: Path, number: int) -> None:
    """Documents, vectors, settings and searches are what the release that made it had."""
    spec = importlib.util.spec_from_file_location("make_golden", HERE / "make_golden.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    wanted = maker.documents()
    shutil.copytree(HERE / f"format_{number}", tmp_path / "db")
    with closing(sqlite3.connect(tmp_path / "db" / FILE_NAME)) as conn:
        assert conn.execute("PRAGMA user_version").fetchone() == (number,)
    assert stored_settings(tmp_path / "db") == CollectionSettings(embed="golden@1", dim=4)
    with Collection.open(tmp_path / "db") as collection:
        for found, doc in zip(collection.get([doc.id for doc in wanted]), wanted, strict=True):
            assert found is not None
            assert (found.text, found.title, found.metadata) == (doc.text, doc.title, doc.metadata)
            assert (found.vector is None) == (doc.vector is None)
            if doc.vector is not None:
                assert np.array_equal(found.vector, doc.vector)
        assert [doc.id for doc in collection.iter()] == [f"d{i}" for i in (*range(5, 20), *range(5))]
        assert len(collection.lexical("苹果", 50).rows) == 20
        assert len(collection.lexical("apple", 50, {"lang": "en", "tags": 1.5}).rows) == 10
        assert collection.fetch(collection.dense(wanted[9].vector, 1).rows)[0].id == "d9"  # type: ignore[union-attr]  # it is there
        known = {1: 19, 2: 19, 3: 19, 4: 0, 5: 0}[number]  # of which nobody knows whether the embedder read them whole
        told = collection.info()
        assert (told["truncated_documents"], told["truncated_unknown"]) == (2 if number > 3 else 0, known)
        assert collection.write(wanted[:1], on_conflict="replace") == 1
