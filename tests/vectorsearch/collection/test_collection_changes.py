"""What is changed and refused in a collection: by filter, in metadata, in a forked process, after it was closed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import InvalidInput
from vectorsearch.collection.collection import Collection
from vectorsearch.collection.index.filtering.allowed_rows import AllowedRows
from vectorsearch.collection.storage.errors import DatabaseLocked
from vectorsearch.types import Document

if TYPE_CHECKING:
    from pathlib import Path


def test_a_forked_process_can_not_write_when_its_parent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S40: a copy that a fork made refuses writes and flushes nothing; its parent's next write succeeds."""
    with Collection.open(tmp_path / "db") as collection:
        collection.write([Document("a", "text")])
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: 1)
            with pytest.raises(DatabaseLocked, match="forked"):
                collection.write([Document("b", "text")])
            with pytest.raises(DatabaseLocked, match="forked"):
                collection.delete(["a"])
            collection.flush()
            assert not (tmp_path / "db" / "lexical").exists()
        collection.write([Document("c", "text")])
        assert collection.count() == 2


def test_a_document_counts_once_when_its_id_is_given_twice(tmp_path: Path) -> None:
    """However far apart the two are: the number that is returned and the counts are those of the documents."""
    with Collection.open(tmp_path / "db") as collection:
        collection.write([Document(f"d{i}", "apple") for i in range(700)])
        assert collection.delete(["d0", *(f"d{i}" for i in range(100, 700)), "d0"]) == 601
        assert collection.count() == 99
        assert collection.upkeep.verify().ok
        assert [doc and doc.id for doc in collection.get(["d1", "d0", "d1"])] == ["d1", None, "d1"]


def test_matching_documents_are_deleted_when_a_filter_is_given(tmp_path: Path) -> None:
    """`delete_where` deletes what the filter lets through, all in one change, and nothing else."""
    with Collection.open(tmp_path / "db") as collection:
        collection.write([Document(f"d{i}", "apple", metadata={"year": 2000 + i}) for i in range(10)])
        assert collection.delete_where({"year": {"$gte": 2007}}) == 3
        assert collection.delete_where({"year": {"$gte": 2007}}) == 0
        assert [doc.id for doc in collection.iter()] == [f"d{i}" for i in range(7)]
        with pytest.raises(InvalidInput, match="lets everything through"):
            collection.delete_where({})


def test_only_metadata_changes_when_it_is_updated(tmp_path: Path) -> None:
    """Fields are merged or replaced, text and vector stay, filters and digests follow, unknown ids are left out."""
    vector = np.ones(4, np.float32)
    with Collection.open(tmp_path / "db") as collection:
        collection.write([Document("a", "apple", "t", {"x": 1, "y": 2}, vector), Document("b", "pear")])
        before = collection.digests(["a"])
        assert collection.update_metadata({"a": {"y": 3}, "gone": {"y": 3}}) == 1
        (found,) = collection.get(["a"])
        assert found is not None
        assert (found.text, found.title, found.metadata) == ("apple", "t", {"x": 1, "y": 3})
        assert np.array_equal(found.vector, vector)  # type: ignore[arg-type]  # it has one
        assert collection.digests(["a"]) != before
        assert (
            len(collection.lexical("apple", 5, {"y": 3}).rows) == len(collection.dense(vector, 5, {"y": 3}).rows) == 1
        )
        assert collection.update_metadata({"a": {"z": 1}}, replace=True) == 1
        assert collection.get(["a"])[0].metadata == {"z": 1}  # type: ignore[union-attr]  # it is there
        with pytest.raises(InvalidInput, match="id 'a': metadata 'bad'"):
            collection.update_metadata({"b": {"ok": 1}, "a": {"bad": float("nan")}})
        assert collection.get(["b"])[0].metadata == {}  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize("replaced", [1, 99])
def test_a_replaced_document_is_found_when_a_filter_was_applied_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: int
) -> None:
    """Filter and vectors are asked again where an allowed document has changed between, three times at most."""
    of, calls = AllowedRows.of, 0
    document = Document("a", "apple", "t", {"x": 1}, np.ones(4, np.float32))

    def then_replaced(allowed: AllowedRows, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        rows = of(allowed, *arguments)
        collection.write([Document(f"other {calls}", "", metadata={"x": 2})])
        if calls <= replaced:
            collection.write([document], on_conflict="replace")
        return rows

    with Collection.open(tmp_path / "db") as collection:
        collection.write([document])
        monkeypatch.setattr(AllowedRows, "of", then_replaced)
        assert len(collection.dense(np.ones(4, np.float32), 5, {"x": 1}).rows) == (replaced == 1)
        assert calls == min(replaced + 1, 3)


def test_a_mistyped_field_is_told_from_no_match_when_a_filter_finds_nothing(tmp_path: Path) -> None:
    """Fields that no document has are named; those that exist, whatever their values, are not."""
    with Collection.open(tmp_path / "db") as collection:
        collection.write([Document("a", "apple", metadata={"lang": "en", "tags": []})])
        assert collection.unknown_fields({"lang": "de", "$or": [{"tags": 1}, {"lnag": "en"}]}) == ["lnag"]
        assert collection.count_where({"lang": "de"}) == 0
        assert collection.count_where(None) == 1


def test_a_document_stays_where_it_is_when_its_metadata_would_not_change(tmp_path: Path) -> None:
    """S10: nothing is written, so it keeps its row and its place among others; the count is of those that exist."""
    with Collection.open(tmp_path / "db") as collection:
        collection.write([Document("a", "apple", metadata={"y": 1, "z": 2}), Document("b", "apple")])
        before = collection.info()["seq"]
        assert collection.update_metadata({"a": {"y": 1}, "b": {}, "gone": {"y": 1}}) == 2
        assert collection.update_metadata({"a": {"z": 2, "y": 1}}, replace=True) == 1
        assert collection.info()["seq"] == before
        assert collection.update_metadata({"a": {"y": 1}, "b": {"y": 5}}) == 2
        assert [doc.id for doc in collection.iter()] == ["a", "b"]
        assert collection.info()["seq"] == before + 2
