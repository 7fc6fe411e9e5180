"""When the FAISS base is built, extended and written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from backends.errors import InvalidInput
from vectorsearch.collection.index.dense import recall
from vectorsearch.collection.index.dense.base_plan import BasePlan, base_plan, next_step
from vectorsearch.collection.index.dense.dense_faiss import FaissIndex
from vectorsearch.collection.storage.sqlite.store import Store
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GRAPH = BasePlan("HNSW16", 1000)


@pytest.mark.parametrize(
    ("base", "dead", "tail", "new", "step"),
    [
        (None, 0, 0, 999, "append"),
        (None, 0, 500, 500, "rebuild"),
        (100_000, 0, 0, 10_000, "append"),
        (100_000, 0, 5_000, 5_001, "extend"),
        (1_000, 0, 1_000, 1_000, "append"),
        (1_000, 0, 1_000, 1_049, "extend"),
        (100_000, 20_001, 0, 1, "rebuild"),
        (100_000, 20_000, 0, 1, "append"),
    ],
)
def test_the_next_step_follows_from_counts_when_vectors_join(
    base: int | None, dead: int, tail: int, new: int, step: str
) -> None:
    """A base is made from enough vectors, extended after a tenth of growth, made anew at a fifth of tombstones."""
    assert next_step(GRAPH, base=base, base_dead=dead, tail=tail, new=new) == step


def test_lists_are_not_learnt_anew_when_too_few_vectors_are_left() -> None:
    """They are made anew as soon as there are enough again; a graph, which learns nothing, always is."""
    lists = base_plan("IVF64,Flat")
    assert next_step(lists, base=5000, base_dead=4900, tail=10, new=0) == "append"
    assert next_step(lists, base=5000, base_dead=4900, tail=10, new=2039) == "extend"
    assert next_step(lists, base=5000, base_dead=4900, tail=10, new=3986) == "rebuild"
    assert next_step(GRAPH, base=5000, base_dead=4900, tail=10, new=0) == "rebuild"


@pytest.mark.parametrize(
    "dense", ["flat", "HNSW", "HNSW1", "HNSW16,PQ8", "IVF0,Flat", "IVF10", "PQ8", "LSH", "", 3, None]
)
def test_a_factory_is_refused_when_it_cannot_be_served(dense: str) -> None:
    """The message names what can be given."""
    with pytest.raises(InvalidInput, match="use 'auto', 'exact', 'Flat', 'SQ8'"):
        base_plan(dense)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = Store(tmp_path / "db", durable=False)
    yield opened
    opened.close()


def open_index(store: Store, plan: BasePlan = GRAPH, *, read_only: bool = False) -> FaissIndex:
    """Open the index beside the store."""
    folder = store.folder.parent / "dense"
    return FaissIndex(plan, folder, lineage=store, fetch=store.vectors_of, read_only=read_only)


def add(store: Store, index: FaissIndex, first: int, n: int) -> None:
    """Store n random vectors and catch up."""
    rng = np.random.default_rng(first)
    store.write(
        [Document(f"d{i}", "", vector=rng.standard_normal(8, dtype=np.float32)) for i in range(first, first + n)]
    )
    catch_up(store, index)


def catch_up(store: Store, index: FaissIndex) -> None:
    """Apply what was committed."""
    with store.snapshot() as snapshot:
        index.catch_up(snapshot, lambda _: None)


def files(store: Store) -> list[str]:
    """Return the names of the index's files."""
    return sorted(path.name for path in (store.folder.parent / "dense").glob("*"))


def test_files_are_written_once_per_base_when_documents_are_added_singly(store: Store) -> None:
    """Saving after each of many adds writes files when the base is new, and not again until it has grown by a tenth."""
    index = open_index(store)
    for first in range(900):
        add(store, index, first, 1)
        index.save(durable=False)
    assert files(store) == []
    add(store, index, 900, 2100)
    index.save(durable=True)
    assert files(store) == ["base-3000.asked.npy", "base-3000.faiss", "base-3000.rows", "manifest"]
    for first in range(3000, 3050):
        add(store, index, first, 1)
        index.save(durable=True)
    assert files(store) == ["base-3000.asked.npy", "base-3000.faiss", "base-3000.rows", "manifest"]
    add(store, index, 3050, 2100)
    index.save(durable=True)
    assert files(store) == ["base-5150.asked.npy", "base-5150.faiss", "base-5150.rows", "manifest"]
    assert index.info()["tail"] == 0


def test_the_base_is_read_when_it_is_opened_again(store: Store) -> None:
    """Opening reads the base's file and takes only what is newer from the store."""
    index = open_index(store)
    add(store, index, 0, 1500)
    index.save(durable=True)
    add(store, index, 1500, 20)
    store.delete(["d3", "d1510"])
    again = open_index(store)
    assert again.seq == 1500
    catch_up(store, again)
    assert again.info() == {
        "kind": "HNSW16",
        "vectors": 1518,
        "base": 1500,
        "tail": 19,
        "tombstones": 1,
        "recall": again.info()["recall"],
        "origin": "loaded at change 1500",
    }


def test_the_dead_stay_dead_when_a_base_with_tombstones_is_written(store: Store) -> None:
    """An extended base carries its tombstones to disk: a deletion before the file was written isn't undone by it."""
    index = open_index(store)
    add(store, index, 0, 1500)
    store.delete(["d3"])
    add(store, index, 1500, 2100)
    index.save(durable=True)
    again = open_index(store)
    assert again.seq == store.seq
    assert again.info()["tombstones"] == 1
    vector = store.get(["d4"])[0].vector  # type: ignore[union-attr]  # it is there
    assert 4 not in again.search(vector, 3600).rows


@pytest.mark.parametrize("n", [10, 1500])
def test_a_search_sees_all_of_a_change_or_nothing_when_it_runs_beside_catching_up(store: Store, n: int) -> None:
    """A document that is being replaced is found all the time, in the tail as in the base."""
    index = open_index(store)
    add(store, index, 0, n)
    replaced = store.get(["d3"])[0]
    assert replaced is not None
    store.write([replaced], on_conflict="replace")
    seen: list[list[int]] = []
    with store.snapshot() as snapshot:
        index.catch_up(snapshot, lambda _: seen.append(index.search(replaced.vector, 1).rows.tolist()))  # type: ignore[arg-type]  # it has one
    assert seen == [[4]]
    assert index.search(replaced.vector, 1).rows.tolist() == [store.seq]  # type: ignore[arg-type]  # as above


def test_the_base_is_built_anew_when_a_fifth_is_dead(store: Store) -> None:
    """Tombstones go with the next build, and the vectors of the living are all there."""
    index = open_index(store)
    add(store, index, 0, 1500)
    store.delete([f"d{i}" for i in range(400)])
    catch_up(store, index)
    assert (index.info()["vectors"], index.info()["tombstones"]) == (1100, 0)


@pytest.mark.parametrize(("dense", "n"), [("IVF16,Flat", 1100), ("IVF2,PQ4", 17_000)])
def test_the_living_are_found_when_nearly_all_vectors_of_lists_are_deleted(store: Store, dense: str, n: int) -> None:
    """Fewer than lists can be learnt from stay in the old base, also when it is opened again."""
    plan = base_plan(dense)
    index = open_index(store, plan)
    add(store, index, 0, n)
    index.save(durable=True)
    store.delete([f"d{i}" for i in range(10, n)])
    catch_up(store, index)
    again = open_index(store, plan)
    catch_up(store, again)
    for opened in (index, again):
        assert sorted(opened.search(np.ones(8, np.float32), 20).rows.tolist()) == list(range(1, 11))


def test_no_lists_are_learnt_when_the_same_documents_are_replaced_over_and_over(store: Store) -> None:
    """The dead of the tail don't count as vectors that lists could be learnt from."""
    index = open_index(store, base_plan("IVF4,Flat"))
    for _ in range(260):
        store.write([Document(f"d{i}", "", vector=np.ones(8, np.float32)) for i in range(2)], on_conflict="replace")
        catch_up(store, index)
    assert (index.info()["base"], index.info()["vectors"]) == (0, 2)


def test_nothing_is_written_when_the_index_is_read_only(store: Store) -> None:
    """A reader builds in memory and leaves the folder alone."""
    index = open_index(store, read_only=True)
    add(store, index, 0, 1500)
    index.save(durable=True)
    assert index.info()["base"] == 1500
    assert files(store) == []


def test_a_reader_goes_on_when_the_files_it_has_mapped_are_written_anew(store: Store) -> None:
    """A base of the same name is another file: who looks at the old one neither dies nor finds anything else."""
    index = open_index(store)
    add(store, index, 0, 1500)
    index.save(durable=True)
    reader = open_index(store, read_only=True)
    vector = store.get(["d4"])[0].vector  # type: ignore[union-attr]  # it is there
    before = reader.search(vector, 1500)
    (store.folder.parent / "dense" / "manifest").unlink()
    fresh = open_index(store)
    assert fresh.info()["origin"] == "built anew: no file yet"
    catch_up(store, fresh)
    fresh.save(durable=True)
    assert files(store) == ["base-1500.asked.npy", "base-1500.faiss", "base-1500.rows", "manifest"]
    after = reader.search(vector, 1500)
    assert after.rows.tolist() == before.rows.tolist()
    assert after.scores.tolist() == before.scores.tolist()


def test_the_recall_is_checked_without_a_scan_when_a_base_is_opened(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening asks what was asked when the base was tuned; a base that finds too little by then is searched wider."""
    index = open_index(store)
    add(store, index, 0, 1500)
    index.save(durable=True)
    monkeypatch.setattr(recall, "_neighbours", lambda *_: pytest.fail("opening scans all vectors"))
    asked = []
    measured = recall._recall
    monkeypatch.setattr(recall, "_recall", lambda *given: asked.append(given[0].reach) or measured(*given))
    assert open_index(store).info()["recall"] == index.info()["recall"]
    assert len(asked) == 1
    found = iter([0.9, 0.97, 0.985])
    monkeypatch.setattr(recall, "_recall", lambda *_: next(found))
    assert open_index(store).info()["recall"] == 0.985


def test_the_recall_is_checked_without_the_dead_when_many_were_deleted_since(store: Store) -> None:
    """What is deleted can't be found: codes are asked once it is dead, and aren't searched more widely for it."""
    plan = BasePlan("HNSW16,SQ8", 1)
    index = open_index(store, plan)
    add(store, index, 0, 1500)
    index.save(durable=True)
    store.delete([f"d{i}" for i in range(0, 1500, 6)])
    again = open_index(store, plan)
    catch_up(store, again)
    assert (again.info()["base"], again.info()["tombstones"]) == (1500, 250)
    assert float(str(again.info()["recall"])) >= recall.WANTED
