"""The commands that look after a database."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_no_fault_is_told_when_a_database_is_sound(run: Callable, db: Path) -> None:
    """`verify` says what it looked at, and exits with 0."""
    done = run("verify", "--db", db)
    assert (done.exit_code, done.stdout.strip()) == (0, "no fault in 4 documents, 0 vectors")
    assert run("verify", "--db", db, "--json").json == {
        "db": str(db),
        "ok": True,
        "documents": 4,
        "vectors": 0,
        "faults": [],
        "restored": [],
        "absent": [],
    }


def test_deleted_index_files_are_told_and_made_again_when_a_database_is_verified_and_repaired(
    run: Callable, db: Path
) -> None:
    """D1: `verify` warns of an index without files, nothing being lost; `repair` says that it built it again."""
    assert (db / "lexical").is_dir()
    shutil.rmtree(db / "lexical")
    done = run("verify", "--db", db)
    assert (done.exit_code, done.stdout.strip()) == (0, "no fault in 4 documents, 0 vectors")
    assert "lexical: the index has no files" in " ".join(done.stderr.split())
    assert not (db / "lexical").exists()  # verifying changes nothing
    assert len(run("verify", "--db", db, "--json").json["absent"]) == 1
    mended = run("repair", "--db", db, "--json").json
    assert mended["restored"] == ["the lexical index is built again from the documents: its files were not there"]
    assert (mended["ok"], mended["absent"]) == (True, [])
    assert run("verify", "--db", db, "--json").json["absent"] == []


def test_what_was_restored_is_told_apart_from_what_was_not_when_a_database_is_repaired(run: Callable, db: Path) -> None:
    """D3: `repair` lists the flipped bit that it set right on standard output, the lost text as an error, exit 1."""
    with closing(sqlite3.connect(db / FILE_NAME)) as conn, conn:
        ids = [doc_id for (doc_id,) in conn.execute("SELECT id FROM documents ORDER BY row")]
        text = conn.execute("SELECT text FROM documents WHERE id = ?", (ids[0],)).fetchone()[0]
        flipped = chr(ord(text[0]) ^ 1) + text[1:]
        conn.execute("UPDATE documents SET text = ? WHERE id = ?", (flipped, ids[0]))
        conn.execute("UPDATE documents SET text = 'lost' WHERE id = ?", (ids[1],))
    done = run("repair", "--db", db)
    assert done.exit_code == 1
    assert f"id '{ids[0]}' is restored" in done.stdout
    assert f"id '{ids[1]}' was damaged beyond repair: upsert it again" in " ".join(done.stderr.split())


def test_faults_are_told_and_mended_when_a_database_is_damaged(run: Callable, db: Path) -> None:
    """`verify` names the fault and exits with 1; `repair` mends it and exits with 0."""
    with closing(sqlite3.connect(db / FILE_NAME)) as conn, conn:
        conn.execute("UPDATE state SET documents = 9")
    done = run("verify", "--db", db)
    assert done.exit_code == 1
    assert "documents: 9 documents are counted, and 4 are there" in done.stderr
    assert run("verify", "--db", db, "--json").json["faults"][0]["mendable"] is True
    assert run("repair", "--db", db).exit_code == 0
    assert run("verify", "--db", db).exit_code == 0


def test_sizes_are_told_when_a_database_is_compacted(run: Callable, db: Path) -> None:
    """`compact` says how much room it gave back and how many deletions it forgot."""
    with vs.open(db, embed=None) as database:
        database.delete(["csv.reader"])
    done = run("compact", "--db", db)
    assert done.exit_code == 0
    assert "1 deletion forgotten" in done.stdout
    assert run("compact", "--db", db, "--json").json["forgotten"] == 0


def test_a_copy_opens_when_a_snapshot_was_taken(run: Callable, db: Path, tmp_path: Path) -> None:
    """`snapshot` copies into a new folder and refuses one that holds something."""
    done = run("snapshot", tmp_path / "copy", "--db", db)
    assert (done.exit_code, done.stdout.split()[:2]) == (0, ["4", "documents"])
    with vs.open(tmp_path / "copy") as copy:
        assert copy.count() == 4
    again = run("snapshot", tmp_path / "copy", "--db", db)
    assert again.exit_code == 1
    assert "exists already" in again.stderr


@pytest.mark.usefixtures("fake_models")
def test_vectors_are_another_models_when_a_database_is_embedded_again(run: Callable, db: Path) -> None:
    """`reindex` gives a database without vectors those of a model, which searches then use; a wrong name fails."""
    assert run("reindex", "--db", db, "--embed", "no-such-model").exit_code == 1
    done = run("reindex", "--db", db, "--embed", "fake-embedder", "--backend", "fake", "--json")
    assert (done.exit_code, done.json["vectors"], done.json["embed"]) == (0, 4, "fake-embedder")
    found = run("search", "suspend thread", "--db", db, "--mode", "dense", "--backend", "fake", "--json")
    assert found.json["hits"][0]["id"] == "time.sleep"
