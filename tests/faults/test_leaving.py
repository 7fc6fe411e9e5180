"""Databases that nobody closes, that a fork leaves in two processes, that were killed, and that can't be written."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vectorsearch as vs
from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.index.lexical import lexical_tantivy
from vectorsearch.types import Document

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork, and other kills")
ROOT = Path(__file__).parents[2]
SETTINGS = CollectionSettings(dense="Flat")
KILLED = """
import os, signal, sys
from pathlib import Path
from typing import Any
from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.types import Document
collection = Collection.open(Path(sys.argv[1]), CollectionSettings(dense="Flat"))
for i in range(2):
    if i:
        failpoints.arm(sys.argv[2], lambda: os.kill(os.getpid(), signal.SIGKILL))
    collection.write([Document(f"d{i}", "apple", vector=[1.0, i])])
    collection.flush()
"""


def documents(n: int) -> list[Document]:
    """Give documents with vectors."""
    return [Document(f"d{i}", f"apple n{i}", vector=np.random.default_rng(i).standard_normal(4)) for i in range(n)]


def drop(held: list[vs.Database]) -> None:
    """Let go of what a list holds."""
    held.clear()
    gc.collect()


def test_the_lock_is_given_back_when_a_database_is_dropped(tmp_path: Path) -> None:
    """D7: nobody can close it any more, so it warns, ends its threads and lets the next one write."""
    before = set(threading.enumerate())
    db = vs.open(tmp_path / "db", embed=None, rerank=None)
    db.add([{"id": "a", "text": "apple"}])
    dropped = [db]
    del db
    threads = set(threading.enumerate()) - before
    assert threads
    with pytest.warns(ResourceWarning, match="was dropped without close"):
        drop(dropped)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    with vs.open(tmp_path / "db", embed=None, rerank=None) as again:
        assert again.count() == 1


@pytest.mark.filterwarnings(
    "ignore:os.fork", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # JAX's, if it is loaded
def test_closing_ends_when_a_fork_left_the_database_in_a_child(tmp_path: Path) -> None:
    """D8: the child lets go of what is its parent's, whatever locks were held; the parent goes on writing."""
    with vs.open(tmp_path / "db", embed=None, rerank=None) as db:
        db.add([{"id": "a", "text": "apple"}])
        store = db._collection.store
        with store._write_lock, db._collection._lexical._lock, db._closing:  # as if other threads were at work
            child = os.fork()
            if not child:
                signal.alarm(20)
                db.close()
                db.close()
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        db.add([{"id": "b", "text": "apple"}])
        assert len(db.search("apple")) == 2
    with vs.open(tmp_path / "db", embed=None, rerank=None) as db:
        assert db.count() == 2


@pytest.mark.parametrize("failpoint", ["lexical.after_commit", "dense.before_manifest", "files.before_replace"])
def test_there_is_no_fault_when_a_change_of_an_index_was_cut_off(tmp_path: Path, failpoint: str) -> None:
    """D6: right after a kill, to a reader and to the next writer, nothing is wrong; all is found."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "db"), failpoint]
    done = subprocess.run(command, check=False, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode in (0, -signal.SIGKILL)
    for read_only in (True, False):
        with Collection.open(tmp_path / "db", SETTINGS, read_only=read_only) as collection:
            assert collection.upkeep.verify().faults == ()
            assert len(collection.lexical("apple", 10).rows) == 2


def test_an_index_is_opened_as_it_is_when_its_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9: Tantivy's lock can't be made on read-only media; the index is opened all the same, and not built."""
    with Collection.open(tmp_path / "db", SETTINGS) as collection:
        collection.write(documents(20))
    real = lexical_tantivy.tantivy.Index

    class Index:
        def __new__(cls, *arguments: Any) -> Any:
            return real(*arguments)

        @staticmethod
        def open(path: str) -> Any:
            if path.startswith(str(tmp_path)):
                raise ValueError("Failed to acquire Lockfile: ReadOnlyFilesystem")
            return real.open(path)

    monkeypatch.setattr(lexical_tantivy.tantivy, "Index", Index)
    with Collection.open(tmp_path / "db", SETTINGS, read_only=True) as collection:
        assert len(collection.lexical("apple", 100).rows) == 20
        assert len(collection.dense(np.ones(4, np.float32), 100).rows) == 20
        info = collection.info()
        assert [str(info[kind]["origin"])[:6] for kind in ("lexical", "dense")] == ["loaded"] * 2  # type: ignore[index]  # plain values
