"""Derived files that are damaged, cut, stale or gone: the index is built again, and info() says why."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.storage.errors import DamagedDatabase
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS = CollectionSettings(dense="HNSW8")
N = 40


def vector(number: int) -> np.ndarray:
    """Give a vector of its own for each number."""
    return np.random.default_rng(number).standard_normal(8).astype(np.float32)


def documents(first: int, last: int) -> list[Document]:
    """Give documents with a word and a vector of their own."""
    return [Document(f"d{i}", f"apple unique{i}", metadata={"n": i % 4}, vector=vector(i)) for i in range(first, last)]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a closed database with all its derived files, one document deleted."""
    folder = tmp_path_factory.mktemp("pristine") / "db"
    with Collection.open(folder, SETTINGS) as collection:
        collection.write(documents(0, N))
        collection.flush()
        collection.delete(["d3"])
    return folder


def derived(folder: Path) -> list[str]:
    """Return every derived file that a manifest vouches for, and the manifests."""
    names = (path.relative_to(folder) for kind in ("dense", "lexical") for path in (folder / kind).rglob("*"))
    return sorted(str(name) for name in names if (folder / name).is_file() and name.suffix != ".lock")


def origins(collection: Collection) -> dict[str, str]:
    """Return how each index came to be."""
    info: dict[str, Any] = collection.info()
    return {kind: info[kind]["origin"] for kind in ("dense", "lexical")}


def check(folder: Path, present: set[int]) -> dict[str, str]:
    """Open the database; both retrievers must find exactly the documents present. Return the indexes' origins."""
    with Collection.open(folder, SETTINGS) as collection:
        wanted = {f"d{i}" for i in present}
        for found in (collection.lexical("apple", 1000), collection.dense(vector(0), 1000)):
            assert {doc.id for doc in collection.fetch(found.rows) if doc} == wanted
        for i in sorted(present)[::7]:
            assert collection.lexical(f"unique{i}", 5).rows.tolist() == collection.dense(vector(i), 1).rows.tolist()
        return origins(collection)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [_flip, _cut, _empty, _remove])
def test_all_is_found_when_one_derived_file_is_damaged(
    pristine: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """A flipped byte, a cut, an emptied or a missing file, in each derived file in turn, is noticed and mended."""
    names = derived(pristine)
    assert len(names) > 8
    survivors = set(range(N)) - {3}
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        shutil.copytree(pristine, folder)
        damage(folder / name)
        kind = name.split("/", 1)[0]
        assert check(folder, survivors)[kind].startswith("built anew:"), name
        assert all("loaded" in origin for origin in check(folder, survivors).values()), name


def test_all_is_found_when_every_derived_file_is_gone(pristine: Path, tmp_path: Path) -> None:
    """Whatever is derived can be deleted at any time without losing a document."""
    shutil.copytree(pristine, tmp_path / "db")
    shutil.rmtree(tmp_path / "db" / "dense")
    shutil.rmtree(tmp_path / "db" / "lexical")
    assert check(tmp_path / "db", set(range(N)) - {3})["dense"] == "built anew: no file yet"


def test_all_is_found_when_derived_files_are_older_than_the_database(pristine: Path, tmp_path: Path) -> None:
    """Files from before the last writes are caught up, not built again."""
    folder = tmp_path / "db"
    shutil.copytree(pristine, folder)
    with Collection.open(folder, SETTINGS) as collection:
        collection.write(documents(N, N + 20))
        collection.delete(["d7"])
    for kind in ("dense", "lexical"):
        shutil.rmtree(folder / kind)
        shutil.copytree(pristine / kind, folder / kind)
    found = check(folder, set(range(N + 20)) - {3, 7})
    assert all(origin.startswith("loaded at change") for origin in found.values())


def test_no_stranger_is_found_when_derived_files_are_of_another_database(pristine: Path, tmp_path: Path) -> None:
    """Files of another database, or of a later state than the database restored beneath them, are not believed."""
    folder = tmp_path / "db"
    with Collection.open(folder, SETTINGS) as collection:
        collection.write(documents(100, 100 + N + 30))
    for kind in ("dense", "lexical"):
        shutil.rmtree(folder / kind)
        shutil.copytree(pristine / kind, folder / kind)
    assert all("another state" in origin for origin in check(folder, set(range(100, 100 + N + 30))).values())

    shutil.copytree(pristine, tmp_path / "restored")
    with Collection.open(tmp_path / "restored", SETTINGS) as collection:
        collection.write(documents(N, N + 20))
    shutil.copy(pristine / "documents.sqlite", tmp_path / "restored" / "documents.sqlite")
    assert "another state" in check(tmp_path / "restored", set(range(N)) - {3})["lexical"]


def test_a_reader_finds_all_when_derived_files_are_damaged(pristine: Path, tmp_path: Path) -> None:
    """Read-only, a damaged index is built in memory, and the damaged file is left for the writer to mend."""
    folder = tmp_path / "db"
    shutil.copytree(pristine, folder)
    for name in derived(folder):
        _flip(folder / name)
    before = {name: (folder / name).read_bytes() for name in derived(folder)}
    with Collection.open(folder, SETTINGS, read_only=True) as collection:
        assert len(collection.lexical("apple", 1000).rows) == N - 1
        assert len(collection.dense(vector(0), 1000).rows) == N - 1
    assert {name: (folder / name).read_bytes() for name in derived(folder)} == before


def test_a_clear_error_comes_when_the_database_itself_is_damaged(pristine: Path, tmp_path: Path) -> None:
    """SQLite's own file can't be derived again: the error names the database and says to restore it."""
    shutil.copytree(pristine, tmp_path / "db")
    path = tmp_path / "db" / "documents.sqlite"
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    with (
        pytest.raises(DamagedDatabase, match="restore it from a snapshot"),
        Collection.open(tmp_path / "db") as damaged,
    ):
        list(damaged.iter())


def test_what_is_gone_is_told_and_made_again_when_a_tenants_index_files_were_deleted(tmp_path: Path) -> None:
    """D1: folder, manifest or one file: `verify` names each, a tenant's too; `repair` says what it made again."""
    rows = [{"id": f"d{i}", "text": f"apple n{i}", "vector": [float(i), 1.0, 2.0]} for i in range(20)]
    with vs.open(tmp_path / "db", embed=None, rerank=None, dense_index="Flat") as db:
        for database in (db, db.tenant("acme", dense_index="Flat")):
            database.add(rows)
            database.refresh()
    shutil.rmtree(tmp_path / "db" / "tenants" / "acme" / "lexical")
    (tmp_path / "db" / "dense" / "manifest").unlink()
    next((tmp_path / "db" / "lexical").glob("*/*.store")).unlink()
    with vs.open(tmp_path / "db", embed=None, rerank=None, dense_index="Flat", read_only=True) as db:
        found = db.verify()
    assert [told.partition(":")[0] for told in found.absent] == ["dense", "tenant acme, lexical"]
    (fault,) = found.faults
    assert (fault.part, fault.mendable) == ("lexical", True)
    assert "can't be read (No such file or directory)" in fault.message
    with vs.open(tmp_path / "db", embed=None, rerank=None, dense_index="Flat") as db:
        mended = db.repair()
        assert (mended.ok, mended.absent, db.verify().absent) == (True, (), ())
        made = [told.partition(" is built again")[0] for told in mended.restored]
        assert made == ["the lexical index", "the dense index", "tenant acme, the lexical index"]
