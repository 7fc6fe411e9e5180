"""Files of another moment: what is derived is believed only where the documents have the history that made it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.storage.disk.lock import LOCK_NAME
from vectorsearch.collection.storage.errors import DamagedDatabase
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SETTINGS = CollectionSettings(dense="Flat")


def vector(number: int) -> np.ndarray:
    """Give a vector of its own for each number."""
    return np.random.default_rng(number).standard_normal(8).astype(np.float32)


def documents(numbers: Iterable[int]) -> list[Document]:
    """Give documents with a word and a vector of their own."""
    return [Document(f"d{i}", f"apple unique{i}", vector=vector(i)) for i in numbers]


def write(folder: Path, numbers: Iterable[int]) -> None:
    """Store documents, index them, and close."""
    with Collection.open(folder, SETTINGS) as collection:
        collection.write(documents(numbers))
        collection.flush()


def check(folder: Path, present: Iterable[int], *, everything: bool = True) -> None:
    """Each document is found by its own word and vector, no other is if that is `everything`, and all is sound."""
    present = list(present)
    with Collection.open(folder, SETTINGS) as collection:
        for found in () if not everything else (collection.lexical("apple", 1000), collection.dense(vector(0), 1000)):
            assert [doc and doc.id for doc in collection.fetch(sorted(found.rows))] == [f"d{i}" for i in present]
        for i in present:
            for rows in (collection.lexical(f"unique{i}", 5).rows, collection.dense(vector(i), 1).rows):
                assert [doc and doc.id for doc in collection.fetch(rows)] == [f"d{i}"]
        assert collection.upkeep.verify().ok


def test_older_documents_are_found_when_as_many_others_were_added(tmp_path: Path) -> None:
    """D1: documents of an older copy beside newer indexes, then as many others: the numbers fit, the words do not."""
    folder, copy = tmp_path / "db", tmp_path / "copy.sqlite"
    write(folder, range(20))
    shutil.copy(folder / FILE_NAME, copy)
    shutil.rmtree(folder / "dense")  # whose base would be of the change before
    write(folder, range(20, 40))
    shutil.copy(copy, folder / FILE_NAME)
    with Collection.open(folder, SETTINGS) as collection:
        faults = collection.upkeep.verify().faults
        assert {fault.part for fault in faults} == {"lexical", "dense"}
        assert all("another state of the database" in fault.message for fault in faults)
        collection.write(documents(range(100, 120)))
    check(folder, [*range(20), *range(100, 120)])


def test_older_documents_are_found_when_the_numbers_passed_those_of_the_index(tmp_path: Path) -> None:
    """D1: the same where nothing was asked between, so that the counter alone would fit."""
    folder, copy = tmp_path / "db", tmp_path / "copy.sqlite"
    write(folder, range(20))
    shutil.copy(folder / FILE_NAME, copy)
    shutil.rmtree(folder / "dense")  # whose base would be of the change before
    write(folder, range(20, 40))
    indexes = {kind: tmp_path / kind for kind in ("lexical", "dense")}
    for kind, kept in indexes.items():
        shutil.copytree(folder / kind, kept)
    shutil.copy(copy, folder / FILE_NAME)
    write(folder, range(100, 130))
    for kind, kept in indexes.items():  # as if nothing had been indexed since
        shutil.rmtree(folder / kind)
        shutil.copytree(kept, folder / kind)
    with Collection.open(folder, SETTINGS, read_only=True) as collection:
        assert {fault.part for fault in collection.upkeep.verify().faults} == {"lexical", "dense"}
    check(folder, [*range(20), *range(100, 130)])


def test_what_was_there_before_is_found_when_the_log_is_lost(tmp_path: Path) -> None:
    """D1: indexes of commits that went with a lost `-wal` are built again, also once there are as many others."""
    folder, killed = tmp_path / "db", tmp_path / "killed"
    write(folder, range(10))
    with Collection.open(folder, SETTINGS) as collection:
        shutil.rmtree(folder / "dense")
        collection.write(documents(range(10, 20)))
        collection.flush()
        shutil.copytree(folder, killed)
    for suffix in ("-wal", "-shm"):
        (killed / f"{FILE_NAME}{suffix}").unlink()
    with Collection.open(killed, SETTINGS, read_only=True) as collection:
        assert {fault.part for fault in collection.upkeep.verify().faults} == {"lexical", "dense"}
    write(killed, range(50, 65))
    check(killed, [*range(10), *range(50, 65)])


def test_an_older_file_beside_a_newer_log_is_refused(tmp_path: Path) -> None:
    """D1: SQLite would fold a killed process's log into whatever lies beside it; both stay as they are."""
    folder, killed = tmp_path / "db", tmp_path / "killed"
    write(folder, range(10))
    shutil.copy(folder / FILE_NAME, tmp_path / "older")
    write(folder, range(10, 400))
    with Collection.open(folder, SETTINGS) as collection:
        collection.write(documents(range(400, 410)))
        collection.delete(["d3"])
        shutil.copytree(folder, killed)
    shutil.copytree(killed, tmp_path / "whole")
    check(tmp_path / "whole", [i for i in range(410) if i != 3][-20:], everything=False)
    shutil.copy(tmp_path / "older", killed / FILE_NAME)
    (killed / f"{FILE_NAME}-shm").unlink()
    before = {path.name: path.read_bytes() for path in killed.glob(f"{FILE_NAME}*")}
    (killed / LOCK_NAME).write_text(" 999999999\n")  # a process that is gone
    for read_only in (True, False):
        with pytest.raises(DamagedDatabase, match=r"-wal doesn't belong to .* move the log away"):
            Collection.open(killed, SETTINGS, read_only=read_only)
    assert {name: (killed / name).read_bytes() for name in before} == before
    (killed / f"{FILE_NAME}-wal").unlink()
    check(killed, range(10))


def test_copies_go_their_own_ways_when_a_folder_was_copied(tmp_path: Path) -> None:
    """D1: from a copy on, the two have another history, and the indexes of the one don't fit the other."""
    folder, copy = tmp_path / "db", tmp_path / "copy"
    write(folder, range(10))
    shutil.copytree(folder, copy)
    shutil.rmtree(folder / "dense")
    write(folder, range(10, 20))
    write(copy, range(50, 60))
    for kind in ("lexical", "dense"):
        shutil.rmtree(copy / kind)
        shutil.copytree(folder / kind, copy / kind)
    check(copy, [*range(10), *range(50, 60)])


@pytest.mark.parametrize("changes", [0, 1])
def test_a_generation_is_begun_by_the_first_change_of_an_opening_and_by_nothing_else(
    tmp_path: Path, changes: int
) -> None:
    """Opening, searching and closing leave a database as it was; the first change begins one generation."""
    write(tmp_path / "db", range(3))

    def generations() -> int:
        with closing(sqlite3.connect(tmp_path / "db" / FILE_NAME)) as conn:
            return int(conn.execute("SELECT count(*) FROM generations").fetchone()[0])

    before = generations()
    with Collection.open(tmp_path / "db", SETTINGS) as collection:
        collection.lexical("apple", 3)
        for i in range(2 * changes):
            collection.write(documents([10 + i]))
    assert generations() == before + changes


def test_nothing_is_written_when_an_older_copy_was_put_into_the_open_file(tmp_path: Path) -> None:
    """D4: the same file with another copy's bytes: the next write is refused, and what was put back opens as it was."""
    write(tmp_path / "db", range(50))
    older = (tmp_path / "db" / FILE_NAME).read_bytes()
    write(tmp_path / "db", range(50, 120))
    with pytest.raises(DamagedDatabase, match="was overwritten while it was open"):  # noqa: PT012, SIM117 -- as it closes
        with Collection.open(tmp_path / "db", SETTINGS) as collection:
            assert collection.lexical("unique7", 5).rows.size == 1
            with (tmp_path / "db" / FILE_NAME).open("r+b") as file:
                file.write(older)
                file.truncate()
            collection.write(documents(range(200, 230)))
    check(tmp_path / "db", range(50))
