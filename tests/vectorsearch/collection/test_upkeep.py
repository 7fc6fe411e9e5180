"""Looking after a collection: verify, repair, compact and snapshot, against damage made on purpose."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.index.base import no_candidates
from vectorsearch.collection.index.dense.faiss_base import Base
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.errors import DamagedDatabase, NotADatabase, ReadOnlyDatabase
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from vectorsearch.types import Candidates

FLAT = CollectionSettings(dense="Flat")


def documents(n: int, start: int = 0) -> list[Document]:
    """Give documents with a word and a vector of their own."""
    rng = np.random.default_rng(start)
    return [
        Document(f"d{i}", f"apple n{i}", metadata={"even": i % 2 == 0}, vector=rng.standard_normal(8))
        for i in range(start, start + n)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Give a database of 60 documents, 20 of them deleted again, with its index files."""
    with Collection.open(tmp_path / "db", FLAT) as collection:
        collection.write(documents(60))
        collection.delete([f"d{i}" for i in range(0, 60, 3)])
    yield tmp_path / "db"
    failpoints.disarm_all()


def damage(folder: Path, statement: str, *values: object) -> None:
    """Change the documents' file behind the store's back."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as conn, conn:
        conn.execute(statement, values)


def test_there_is_no_fault_when_nothing_is_damaged(folder: Path) -> None:
    """A sound database is told to be so, with everything looked at."""
    told: list[tuple[int, int]] = []
    with Collection.open(folder, FLAT) as collection:
        found = collection.upkeep.verify(lambda done, total: told.append((done, total)))
    assert found.ok
    assert (found.documents, found.vectors) == (40, 40)
    assert told[-1] == (40, 40)


@pytest.mark.parametrize(
    ("statement", "values", "message"),
    [
        ("UPDATE state SET documents = 7", (), "7 documents are counted, and 40 are there"),
        ("UPDATE documents SET text = 'apple o1' WHERE id = 'd1'", (), "id 'd1' is not what was written"),
        ("UPDATE documents SET metadata = replace(metadata, 'f', 'g') WHERE id = 'd1'", (), "id 'd1' is not what was"),
        (
            "UPDATE documents SET text = CAST(x'6170706ce5206e31' AS TEXT) WHERE id = 'd1'",
            (),
            "id 'd1' is not what was",
        ),
        ("INSERT INTO deletions VALUES (9999, 2)", (), "row 2 was deleted by change 9999, and is there"),
        ("INSERT INTO deletions VALUES (9999, 998)", (), "a change has number 9999, and the last is"),
        ("DELETE FROM vectors WHERE row = 2", (), "the vector of id 'd1' is gone"),
        ("INSERT INTO vectors VALUES (999, x'00000000')", (), "a vector belongs to no document"),
        ("UPDATE vectors SET vector = x'00' WHERE row = 2", (), "has 1 bytes, and the database's have 32"),
        ("UPDATE vectors SET vector = ? WHERE row = 2", (np.full(8, np.nan, "<f4").tobytes(),), "NaN"),
    ],
)
def test_a_fault_is_found_and_mended_when_documents_are_damaged(
    folder: Path, statement: str, values: tuple[object, ...], message: str
) -> None:
    """D3: `verify` names the fault and where, and after `repair` there is none: an index and digests have the rest."""
    damage(folder, statement, *values)
    with Collection.open(folder, FLAT) as collection:
        faults = collection.upkeep.verify().faults
        assert any(message in str(fault) for fault in faults), faults
        assert collection.upkeep.repair().ok
        assert collection.upkeep.verify().ok
        assert [doc and doc.text for doc in collection.get(["d1"])] == ["apple n1"]


def test_a_document_is_stored_again_when_its_content_had_rotted(folder: Path) -> None:
    """D3: a repair that can't restore it names it each time, and an upsert of the original is no repetition."""
    damage(folder, "UPDATE documents SET text = 'rotten' WHERE id = 'd1'")
    with Collection.open(folder, FLAT) as collection:
        before = collection.digests(["d1"])
        for check in (collection.upkeep.repair, collection.upkeep.repair, collection.upkeep.verify):
            (fault,) = check().faults
            assert "id 'd1' was damaged beyond repair: upsert it again" in fault.message
            assert not fault.mendable
        assert collection.digests(["d1"]) != before
        collection.write([doc for doc in documents(60) if doc.id == "d1"], on_conflict="replace")
        assert collection.upkeep.verify().ok


def test_damage_is_not_made_permanent_when_metadata_is_changed(folder: Path) -> None:
    """D3: a change of metadata would vouch for a rotten text or vector anew, and is refused."""
    damage(folder, "UPDATE documents SET text = 'rotten' WHERE id = 'd1'")
    damage(folder, "UPDATE vectors SET vector = zeroblob(32) WHERE row = 3")
    with Collection.open(folder, FLAT) as collection:
        for doc_id in ("d1", "d2"):
            with pytest.raises(DamagedDatabase, match=f"id '{doc_id}' is not what was written"):
                collection.update_metadata({doc_id: {"even": None}})


@pytest.mark.parametrize("dense", ["auto", "Flat", "SQ8"])
def test_any_flipped_bit_of_a_vector_is_found_and_restored(tmp_path: Path, dense: str) -> None:
    """D3: whatever index there is, one bit in the file is noticed by `verify`, and `repair` brings the vector back."""
    settings, docs = CollectionSettings(dense=dense), documents(30)
    with Collection.open(tmp_path, settings) as collection:
        collection.write(docs)
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    for number, bit in ((7, 0), (11, 100), (20, 253)):
        blob = np.asarray(docs[number].vector, "<f4").tobytes()
        at = content.index(blob)
        content[at + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    with Collection.open(tmp_path, settings) as collection:
        found = collection.upkeep.verify().faults
        assert [fault.message.partition(":")[0] for fault in found] == [
            f"the vector of id 'd{number}' is not what was written" for number in (7, 11, 20)
        ]
        assert collection.upkeep.repair().ok
        for doc, stored in zip(docs, collection.get([doc.id for doc in docs]), strict=True):
            assert stored is not None
            assert np.array_equal(stored.vector, np.asarray(doc.vector, np.float32))


def test_a_vector_keeps_its_direction_when_more_of_it_rotted(folder: Path) -> None:
    """D3: the index's file has unit vectors, from before; one that was built of the damaged vector is no help."""
    wanted = np.asarray(documents(60)[1].vector, np.float32)
    rotten = np.ones(8, "<f4").tobytes()
    damage(folder, "UPDATE vectors SET vector = ? WHERE row = 2", rotten)
    with Collection.open(folder, FLAT) as collection:
        assert collection.upkeep.repair().restored == ("the vector of row 2 is restored",)
        (stored,) = collection.get(["d1"])
        assert stored is not None
        assert np.allclose(stored.vector, wanted / np.linalg.norm(wanted), atol=1e-6)
    damage(folder, "UPDATE vectors SET vector = ? WHERE row = 2", rotten)
    with Collection.open(folder, FLAT) as collection:
        collection.upkeep.dense.rebuild()
        (vector, document) = collection.upkeep.repair().faults
        assert "the vector of id 'd1' is not what was written" in vector.message
        assert "id 'd1' was damaged beyond repair" in document.message


def test_it_is_found_when_an_index_has_other_documents_than_the_store(folder: Path) -> None:
    """D1: row ids and what each was indexed with are compared, whatever the manifests say."""
    with Collection.open(folder, FLAT) as collection:
        collection.lexical("apple", 5)
        collection.dense(np.ones(8, np.float32), 5)
        damage(folder, "UPDATE documents SET row = 9000 WHERE row = 2")
        damage(folder, "UPDATE vectors SET row = 9001 WHERE row = 3")
        upkeep = collection.upkeep
        for faults, word in ((upkeep._lexical_faults(), "row 2"), (upkeep._dense_faults(), "9001")):
            (fault,) = faults
            assert word in fault
        damage(folder, "UPDATE documents SET row = 2 WHERE row = 9000")
        damage(folder, "UPDATE documents SET digest = randomblob(16) WHERE row = 2")
        (fault,) = upkeep._lexical_faults()
        assert fault == "the index has 1 documents with another text or metadata than stored: row 2"


def test_a_fault_stays_when_metadata_cannot_be_read(folder: Path) -> None:
    """What can't be mended is told after a repair too, and everything else is mended."""
    damage(folder, "UPDATE documents SET metadata = '{broken' WHERE id = 'd1'")
    damage(folder, "UPDATE state SET documents = 7")
    with Collection.open(folder, FLAT) as collection:
        assert len(collection.upkeep.verify().faults) == 2
        (fault,) = collection.upkeep.repair().faults
        assert "id 'd1' was damaged beyond repair" in str(fault)
        assert len(collection.lexical("apple", 100).rows) == 40


@pytest.mark.parametrize("part", ["lexical", "dense"])
def test_a_flipped_byte_is_found_when_it_is_in_a_derived_file(folder: Path, part: str) -> None:
    """Each index file is compared with its checksum, also while the index is open; repair builds it again."""
    with Collection.open(folder, FLAT) as collection:
        assert len(collection.lexical("apple", 100).rows) == 40
        assert len(collection.dense(np.ones(8, np.float32), 100).rows) == 40
        path = max((p for p in (folder / part).rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
        with path.open("r+b") as file:  # in place: Tantivy maps its files, and a shorter one would end the process
            file.seek(path.stat().st_size // 2)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
        faults = collection.upkeep.verify().faults
        assert [fault.part for fault in faults] == [part]
        assert "is damaged" in str(faults[0])
        assert collection.upkeep.repair().ok
        assert len(collection.lexical("apple", 100).rows) == 40


def test_it_is_told_that_nothing_can_mend_it_when_pages_are_damaged(folder: Path) -> None:
    """A damaged page of the documents' file is found, and repair refuses and says what to do."""
    path = folder / FILE_NAME
    with closing(sqlite3.connect(path)) as conn:
        (page,) = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = 'vectors'").fetchone()
    content = bytearray(path.read_bytes())
    content[8192 * (page - 1) : 8192 * (page - 1) + 64] = b"\xff" * 64
    path.write_bytes(content)
    with Collection.open(folder, FLAT) as collection:
        faults = collection.upkeep.verify().faults
        assert faults
        assert not faults[0].mendable
        with pytest.raises(DamagedDatabase, match="from a snapshot"):
            collection.upkeep.repair()


def test_only_what_the_index_lacks_is_a_fault_when_a_vector_is_not_found_by_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a graph misses now and then, and finds when asked for it alone, can't be mended; many misses are a fault."""
    unpatched, missed, absent = Base.search, 1, False

    def search(base: Base, vector: NDArray[np.float32], k: int, allowed: NDArray[np.int64] | None) -> Candidates:
        nonlocal missed
        if (allowed is None and missed > 0) or (allowed is not None and absent):
            missed -= 1
            return no_candidates()
        return unpatched(base, vector, k, allowed)

    monkeypatch.setattr(Base, "search", search)
    with Collection.open(folder, FLAT) as collection:
        assert collection.upkeep.verify().ok
        for missed, absent in ((1, True), (3, False)):  # noqa: B007 -- `search` reads both
            assert [fault.part for fault in collection.upkeep.verify().faults] == ["dense"]


def test_room_is_given_back_when_a_collection_is_compacted(folder: Path) -> None:
    """Deletions are forgotten, indexes hold no tombstones, files shrink, and nothing that is stored is lost."""
    with Collection.open(folder, FLAT) as collection:
        collection.write([Document("big", "x" * 2_000_000)])
        collection.delete(["big"])
        result = collection.upkeep.compact()
        assert result.forgotten == 21
        assert result.after_nbytes < result.before_nbytes - 1_000_000
        assert collection.info()["lexical"]["tombstones"] == collection.info()["dense"]["tombstones"] == 0  # type: ignore[index]  # plain values
        assert collection.upkeep.verify().ok
        collection.delete(["d1"])
        assert len(collection.lexical("apple", 100).rows) == 39
    with Collection.open(folder, FLAT) as collection:
        assert len(collection.lexical("apple", 100).rows) == 39
        assert len(collection.dense(np.ones(8, np.float32), 100).rows) == 39


def test_the_base_is_kept_when_only_later_deletions_are_forgotten(folder: Path) -> None:
    """The next opening reads the base's file, which none of the deleted is in; one that is costs a new base."""
    for added, gone, seen in ((range(60, 66), ["d60", "d61"], (40, 4)), (range(0), ["d1", "d62"], (42, 0))):
        with Collection.open(folder, FLAT) as collection:
            collection.write(documents(len(added), start=added.start))
            collection.delete(gone)
            collection.upkeep.compact()
        with Collection.open(folder, FLAT) as collection:
            found = collection.dense(np.ones(8, np.float32), 100).rows
            assert sorted(found) == sorted(collection.lexical("apple", 100).rows)
            info: Any = collection.info()["dense"]
            assert (info["base"], info["tail"], info["origin"][:6]) == (*seen, "loaded")


@pytest.mark.parametrize("settings", [FLAT, CollectionSettings(dense="exact")])
def test_a_reader_sees_the_deletions_when_they_were_forgotten_meanwhile(
    tmp_path: Path, settings: CollectionSettings
) -> None:
    """An index that is older than what was forgotten is built again: it can't have missed a deletion."""
    with Collection.open(tmp_path / "db", settings) as writer:
        writer.write(documents(30))
        writer.flush()
        with Collection.open(tmp_path / "db", settings, read_only=True) as reader:
            assert len(reader.lexical("apple", 100).rows) == 30
            assert len(reader.dense(np.ones(8, np.float32), 100).rows) == 30
            writer.delete(["d3", "d4"])
            writer.upkeep.compact()
            writer.write(documents(1, start=30))
            assert len(reader.lexical("apple", 100).rows) == 29
            assert len(reader.dense(np.ones(8, np.float32), 100).rows) == 29


def test_an_old_index_is_not_believed_when_deletions_were_forgotten(folder: Path, tmp_path: Path) -> None:
    """Index files put back from before the compaction are built again, since they can't catch up."""
    with Collection.open(folder, FLAT) as collection:
        for part in ("lexical", "dense"):
            (folder / part).rename(tmp_path / part)
        collection.delete(["d1"])
        collection.upkeep.compact()
    import shutil  # noqa: PLC0415 -- for this test alone

    for part in ("lexical", "dense"):
        shutil.rmtree(folder / part)
        (tmp_path / part).rename(folder / part)
    with Collection.open(folder, FLAT) as collection:
        assert len(collection.lexical("apple", 100).rows) == 39
        assert len(collection.dense(np.ones(8, np.float32), 100).rows) == 39


def test_a_snapshot_is_the_collection_of_its_moment_when_writing_goes_on(folder: Path, tmp_path: Path) -> None:
    """The copy opens with its indexes loaded, holds what was there, and doesn't follow the original."""
    with Collection.open(folder, FLAT) as collection:
        collection.write(documents(5, start=100))
        collection.flush()
        collection.write(documents(5, start=200))  # newer than the index files
        collection.upkeep.snapshot(tmp_path / "copies" / "monday")
        collection.write(documents(5, start=300))
    with Collection.open(tmp_path / "copies" / "monday", FLAT) as copy:
        assert copy.count() == len(copy.lexical("apple", 100).rows) == len(copy.dense(np.ones(8), 100).rows) == 50
        assert str(copy.info()["lexical"]["origin"]).startswith("loaded")  # type: ignore[index]  # plain values
        assert copy.upkeep.verify().ok
        copy.write(documents(1, start=400))


def test_a_snapshot_can_be_taken_when_a_collection_is_read_only(folder: Path, tmp_path: Path) -> None:
    """A reader may copy; it may not repair or compact."""
    with Collection.open(folder, FLAT, read_only=True) as reader:
        reader.upkeep.snapshot(tmp_path / "copy")
        with pytest.raises(ReadOnlyDatabase):
            reader.upkeep.compact()
        with pytest.raises(ReadOnlyDatabase):
            reader.upkeep.repair()
    with Collection.open(tmp_path / "copy", FLAT) as copy:
        assert copy.count() == 40


def test_nothing_is_overwritten_when_a_snapshot_has_no_new_folder(folder: Path, tmp_path: Path) -> None:
    """A folder with something in it is refused, and left as it is."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with (
        Collection.open(folder, FLAT) as collection,
        pytest.raises(NotADatabase, match="exists already"),
    ):
        collection.upkeep.snapshot(tmp_path / "full")
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"


def test_nothing_is_left_behind_when_a_snapshot_fails(folder: Path, tmp_path: Path) -> None:
    """A failure on the way leaves no folder that could be taken for a snapshot."""
    with Collection.open(folder, FLAT) as collection, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "vectorsearch.collection.upkeep.fsync_folder", lambda _: (_ for _ in ()).throw(OSError("disk on fire"))
        )
        with pytest.raises(OSError, match="disk on fire"):
            collection.upkeep.snapshot(tmp_path / "copy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["db"]


@pytest.mark.parametrize("failpoint", ["store.before_commit", "files.before_replace"])
def test_a_compaction_can_be_repeated_when_it_was_cut_off(folder: Path, failpoint: str) -> None:
    """Whatever step fails, everything stored is found, and the next compaction succeeds."""

    def fail() -> None:
        raise OSError("pulled")

    with Collection.open(folder, FLAT) as collection:
        collection.delete(["d1"])
        failpoints.arm(failpoint, fail)
        with pytest.raises(Exception, match="pulled"):
            collection.upkeep.compact()
        failpoints.disarm_all()
        assert len(collection.lexical("apple", 100).rows) == 39
        assert len(collection.dense(np.ones(8, np.float32), 100).rows) == 39
        collection.upkeep.compact()
        assert collection.upkeep.verify().ok
