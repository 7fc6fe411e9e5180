"""S9: a search and a deletion tell of a filter that can't mean what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import vectorsearch as vs
from backends.errors import InvalidInput
from rerank import RerankError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = [{"id": f"d{i}", "text": "apple", "metadata": {"year": 2000 + i, "kind": "tree"}} for i in range(3)]
FIELD = "filter: field 'yeer' is in no document: did you mean 'year'?"
KIND = "filter: field 'year' is compared with text, and holds a number, such as 2002 (3 of the documents that have it"


@pytest.fixture
def db() -> Iterator[vs.Database]:
    """Give a database of three documents with metadata."""
    with vs.open(embed=None, rerank=None) as made:
        made.add(ROWS)
        yield made


@pytest.mark.parametrize(
    ("wanted", "hits", "note"),
    [
        ({"yeer": 2001}, 0, FIELD),
        ({"yeer": {"$exists": True}}, 0, FIELD),
        ({"yeer": {"$exists": False}}, 3, FIELD),
        ({"yeer": {"$ne": 2001}}, 3, FIELD),
        ({"$and": [{"kind": "tree"}, {"yeer": {"$nin": [2001]}}]}, 3, FIELD),
        ({"$not": {"yeer": 2001}}, 3, FIELD),
        ({"yeer": {"$not": {"$gt": 3}}}, 3, FIELD),
        ({"year": "2001"}, 0, KIND),
        ({"year": {"$ne": 2001}}, 2, None),
        ({"year": {"$in": [1999]}}, 0, None),
    ],
)
def test_what_is_amiss_with_a_filter_is_told_by_search_and_delete(
    db: vs.Database, wanted: dict[str, Any], hits: int, note: str | None
) -> None:
    """A field that no document has, asked or denied, and another kind of value; nothing where nothing is amiss."""
    found = db.search("apple", filter=wanted)
    assert len(found) == hits
    deleted = db.delete(filter=wanted)
    assert deleted == hits
    assert deleted.notes == found.notes
    assert [told.startswith(note or "") for told in found.notes] == [True] * (note is not None)


def test_nothing_is_told_of_a_deletion_when_there_is_no_document(db: vs.Database) -> None:
    """Of an empty database no field is known; ids have no notes; a filter that can't be used is refused as before."""
    with pytest.raises(InvalidInput):
        db.delete(filter={"$or": 5})
    assert db.delete(["d0", "d1", "d2", "d3"]) == 3
    assert db.delete(filter={"yeer": 2001}).notes == ()


class RanksByNone:
    """A hosted reranker that gives an item without a score."""

    def rank(self, _: str, documents: list[str]) -> list[dict[str, Any]]:
        """Rank the first document alone, by no number."""
        return [{"index": 0, "score": None, "document": documents[0] * 1_000}]


def test_the_item_is_named_when_a_reranker_gives_one_without_a_number(db: vs.Database) -> None:
    """The stage fails with the fields that were looked for, and not with a page of the item's text."""
    with pytest.raises(RerankError, match="ranks an item without a number as score or relevance_score") as failed:
        db.search("apple", rerank=RanksByNone(), on_rerank_error="raise")
    assert len(str(failed.value)) < 500
    found = db.search("apple", rerank=RanksByNone())
    assert len(found) == 3
    assert any("rerank" in what for what in found.degraded)
