"""S3: documents that are longer than what the embedder reads are counted, told, and remembered."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.engines.fake_backend import fake_spec
from vectorsearch.collection.collection import Collection
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME
from vectorsearch.ingestion.bulk import ingest

from ..conftest import fake_backend

SHORT = fake_spec("short-embedder", max_length=8)
SHORTER = fake_spec("shorter-embedder", max_length=4)
GOLDEN = Path(__file__).parents[2] / "golden"


def docs(*words: int) -> list[dict[str, Any]]:
    """Give a document of each number of words; eight tokens, two of which are marks, have room for six."""
    return [{"id": f"d{i}", "text": "apple " * n, "metadata": {"n": n}} for i, n in enumerate(words)]


def counts(db: vs.Database) -> tuple[int, int, int]:
    """Return what is told of the limit, of how many it cut, and of how many nobody knows."""
    told = db.info()
    return told["embedder_max_tokens"], told["truncated_documents"], told["truncated_unknown"]


def test_documents_that_do_not_fit_are_counted_when_they_are_added(tmp_path: Path) -> None:
    """`add` counts them; replacing, deleting and other metadata keep the count true, and so does another opening."""
    backend = fake_backend().name
    with vs.open(tmp_path / "db", embed=SHORT, rerank=None, backend=backend) as db:
        added = db.add(docs(3, 6, 7, 20, 30))
        assert (added, added.truncated) == (5, 3)
        assert counts(db) == (8, 3, 0)
        assert db.update_metadata({"d2": {"n": 0}, "d0": {"n": 1}}) == 2
        assert counts(db) == (8, 3, 0)
        replaced = db.upsert([{"id": "d3", "text": "apple"}, *docs(3)])
        assert (replaced, replaced.truncated) == (2, 0)  # d0 has other metadata by now
        db.delete(["d4"])
        own = db.add([{"id": "own", "text": "apple " * 50, "vector": np.ones(64)}])
        assert (own, own.truncated) == (1, 0)  # the embedder read none of it
        assert db.upsert(docs(3)).truncated == 0
    with vs.open(tmp_path / "db", embed=SHORT, rerank=None, backend=backend, read_only=True) as db:
        assert counts(db) == (8, 1, 0)
        assert db.verify().ok


def test_the_count_is_the_new_models_when_a_database_is_embedded_again(tmp_path: Path) -> None:
    """`reindex` counts what its model cut, of documents that were written meanwhile too."""
    with vs.open(tmp_path / "db", embed=SHORT, rerank=None, backend=fake_backend().name) as db:
        db.add(docs(1, 3, 9))
        again = db.reindex(embed=SHORTER)
        assert (again, again.truncated) == (3, 2)
        assert counts(db) == (4, 2, 0)


def test_a_count_survives_when_a_rotten_vector_is_restored(tmp_path: Path) -> None:
    """What is mended keeps what is known of it."""
    with vs.open(tmp_path / "db", embed=SHORT, rerank=None, backend=fake_backend().name) as db:
        db.add(docs(3, 9))
    with closing(sqlite3.connect(tmp_path / "db" / FILE_NAME)) as conn, conn:
        (blob,) = conn.execute("SELECT vector FROM vectors WHERE row = 2").fetchone()
        conn.execute("UPDATE vectors SET vector = ? WHERE row = 2", (bytes([blob[0] ^ 1]) + blob[1:],))
    with vs.open(tmp_path / "db", embed=SHORT, rerank=None, backend=fake_backend().name) as db:
        assert db.repair().restored == ("the vector of row 2 is restored",)
        assert counts(db) == (8, 1, 0)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_nobody_knows_and_that_is_said_when_an_earlier_release_embedded_them(tmp_path: Path, number: int) -> None:
    """Neither a reader, which changes nothing, nor the upgrade passes what wasn't counted for none."""
    shutil.copytree(GOLDEN / f"format_{number}", tmp_path / "db")
    for read_only in (True, False):
        with Collection.open(tmp_path / "db", read_only=read_only) as collection:
            told = collection.info()
            assert (told["truncated_documents"], told["truncated_unknown"]) == (0, 19)
            assert collection.upkeep.verify().ok


def test_rows_that_do_not_fit_are_counted_when_files_are_ingested(tmp_path: Path) -> None:
    """The report adds up what each chunk's documents were."""
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"_id": "d{i}", "text": "{"apple " * i}"}}\n' for i in range(1, 11)), encoding="utf-8"
    )
    with vs.open(tmp_path / "db", embed=SHORT, rerank=None, backend=fake_backend().name) as db:
        report = ingest(db, [tmp_path / "rows.jsonl"], rejects_path=tmp_path / "rejects", batch_size=3)
    assert (report.stored, report.truncated) == (10, 4)
