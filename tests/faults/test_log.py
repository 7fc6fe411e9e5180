"""A log beside its own file is folded in; beside another moment's, another copy's or another database's, refused."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.storage.disk import log_stamp
from vectorsearch.collection.storage.disk.lock import LOCK_NAME
from vectorsearch.collection.storage.errors import DamagedDatabase
from vectorsearch.collection.storage.sqlite import connections, own_log
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME
from vectorsearch.types import Document

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = CollectionSettings(dense="Flat")
LOG = f"{FILE_NAME}-wal"

# Where a moment was copied to, and the text and vector of each document then.
Moments = dict["Path", dict[str, tuple[str, bytes]]]


def content(collection: Collection) -> dict[str, tuple[str, bytes]]:
    """Return all that a collection holds."""
    vectors = ((doc, b"" if doc.vector is None else doc.vector.tobytes()) for doc in collection.iter())
    return {doc.id: (doc.text, vector) for doc, vector in vectors}


def live(folder: Path, at: Path, seed: int, moments: Moments, *, plain: bool = False) -> None:
    """Change few pages at a time, so that moments have pages in common, and copy the files after each change.

    `plain` documents have no vectors: their log holds no page of those.
    """
    rng = np.random.default_rng(seed)
    with Collection.open(folder, SETTINGS) as collection:
        writer = collection.store._writer
        assert writer is not None
        writer.execute("PRAGMA wal_autocheckpoint = 12")  # so that the log begins anew now and then
        for number in range(4):
            named = [f"d{i}" for i in rng.integers(0, 8, 2)]
            made = [Document(i, f"apple {rng.integers(99)}", vector=rng.standard_normal(4)) for i in {*named}]
            if plain:
                collection.write([Document(f"plain{seed}{number}", "apple")])
            elif number == 3:
                collection.delete([f"d{rng.integers(0, 8)}"])
            elif number == 2 and seed % 2:
                collection.upkeep.compact()
            else:
                collection.write(made, on_conflict="replace")
            copy = at / f"{seed}-{number}"
            copy.mkdir(parents=True)
            for name in (FILE_NAME, LOG):
                shutil.copy(folder / name, copy / name)
            moments[copy] = content(collection)


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Moments:
    """Give moments of a database in two openings, of a raw copy of it that went its own way, and of another one."""
    at, made = tmp_path_factory.mktemp("moments"), Moments()
    live(at / "db", at, 1, made)
    shutil.copytree(at / "db", at / "copy")
    live(at / "db", at, 2, made)
    live(at / "db", at, 5, made, plain=True)
    live(at / "copy", at, 3, made, plain=True)
    live(at / "another", at, 4, made)
    return made


def strays(moments: Moments, folder: Path) -> tuple[list[str], int]:
    """Put each log beside each file: return which pairs answer with what no log's moment was, and how many answer."""
    wrong, answered = [], 0
    for file, log in itertools.product(moments, repeat=2):
        folder.mkdir()
        shutil.copy(file / FILE_NAME, folder / FILE_NAME)
        shutil.copy(log / LOG, folder / LOG)
        try:
            with Collection.open(folder, SETTINGS, durable=False) as collection:
                answered += 1
                stored = content(collection)
                if (log / LOG).stat().st_size and stored != moments[log]:
                    wrong.append(f"{file.name} with the log of {log.name}")
        except DamagedDatabase:
            if file == log:
                wrong.append(f"{file.name} is refused")
        shutil.rmtree(folder)
    return wrong, answered


def test_a_log_is_folded_in_beside_its_own_file_alone(moments: Moments, tmp_path: Path) -> None:
    """D1: whichever log lies beside whichever file, what opens has the documents of the log's moment; own pairs do."""
    wrong, answered = strays(moments, tmp_path / "db")
    assert not wrong
    assert answered > len(moments)


def test_a_reader_compares_stamps_when_the_lock_names_a_process_that_lives(moments: Moments, tmp_path: Path) -> None:
    """D1: a number in the lock may be another process's by now; beside one that writes, a reader opens as it did."""
    own, other = (next(copy for copy in moments if copy.name == name) for name in ("2-1", "4-1"))
    for log in (own, other):
        folder = tmp_path / log.name
        folder.mkdir()
        shutil.copy(own / FILE_NAME, folder / FILE_NAME)
        shutil.copy(log / LOG, folder / LOG)
        (folder / LOCK_NAME).write_text(f" {os.getpid()}\n", encoding="ascii")
    with Collection.open(tmp_path / own.name, SETTINGS, read_only=True) as collection:
        assert content(collection) == moments[own]
    with pytest.raises(DamagedDatabase, match="it began upon another copy of the file"):
        Collection.open(tmp_path / other.name, SETTINGS, read_only=True)


def test_readers_open_when_a_writer_begins_its_log_anew_all_the_time(tmp_path: Path) -> None:
    """Beside a writer whose log is emptied or begun anew at every change, no reader is refused."""
    with Collection.open(tmp_path / "db", SETTINGS) as collection:
        writer, done = collection.store._writer, threading.Event()
        assert writer is not None
        writer.execute("PRAGMA wal_autocheckpoint = 1")

        def write() -> None:
            number = 0
            while not done.is_set():
                number += 1
                collection.write([Document(f"d{number % 5}", "apple")], on_conflict="replace")

        writing = threading.Thread(target=write)
        writing.start()
        try:
            for _ in range(40):
                Collection.open(tmp_path / "db", SETTINGS, read_only=True).close()
        finally:
            done.set()
            writing.join()


def test_the_check_notices_when_stamps_are_not_compared(
    moments: Moments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A positive control: pages that fit together, and as many documents as are counted, are not enough."""
    monkeypatch.setattr(own_log, "stray_log", lambda *_: "")
    some = {copy: held for copy, held in moments.items() if copy.name[0] in "15"}
    assert strays(some, tmp_path / "db")[0]


def test_a_change_that_begins_the_log_anew_is_noted_at_once(tmp_path: Path) -> None:
    """SQLite begins the log anew when it likes: from then on it names the change before as that of the file alone."""
    seen = set()
    with Collection.open(tmp_path / "db", SETTINGS) as collection:
        writer = collection.store._writer
        assert writer is not None
        writer.execute("PRAGMA wal_autocheckpoint = 12")
        for number in range(12):
            collection.write([Document(f"d{number}", "apple")])
            with closing(sqlite3.connect(f"file:{tmp_path / 'db' / FILE_NAME}?immutable=1", uri=True)) as alone:
                (stamp,) = alone.execute("SELECT stamp FROM state").fetchone()
            now, log_after, log_from = writer.execute("SELECT stamp, log_after, log_from FROM state").fetchone()
            assert stamp == log_after or log_from <= stamp <= now
            seen.add(log_after)
    assert len(seen) > 2


def test_writing_goes_on_when_the_log_could_not_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full just after a commit costs no acknowledged document, and leaves no transaction open."""
    failed = []

    def no_room(conn: sqlite3.Connection) -> None:
        with log_stamp._changing(conn):
            failed.append(conn)
            raise sqlite3.OperationalError("database or disk is full")

    with Collection.open(tmp_path / "db", SETTINGS) as collection:
        writer = collection.store._writer
        assert writer is not None
        writer.execute("PRAGMA wal_autocheckpoint = 1")
        monkeypatch.setattr(connections, "note_beginning", no_room)
        for number in range(6):
            assert collection.write([Document(f"d{number}", "apple")]) == 1
        assert failed
        assert not writer.in_transaction
        assert collection.count() == 6
