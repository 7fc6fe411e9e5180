"""Rows become documents, or are refused with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import InvalidInput
from vectorsearch.ingestion.documents import InvalidDocument, as_vector, parse_document, parse_documents

if TYPE_CHECKING:
    from vectorsearch.types import Document


def parse(**row: Any) -> Document:
    """Parse one row."""
    return parse_document(row, row_number=3)


@pytest.mark.parametrize("title", [None, ""])
def test_row_loads_when_the_title_is_null_or_empty(title: str | None) -> None:
    """S68: a missing, null or empty title loads, and adds nothing to the text."""
    assert parse(_id="1", title=title, text="body").full_text == "body"
    assert parse(_id="1", text="body").full_text == "body"


def test_title_comes_before_the_text() -> None:
    """What is indexed is the title, a space, and the text."""
    assert parse(_id="1", title="Title", text="body").full_text == "Title body"


def test_anserini_rows_load() -> None:
    """`id` and `contents` are read as `_id` and `text` are; other fields become metadata."""
    document = parse(id="7", contents="body", lang="en")
    assert (document.id, document.text, document.metadata) == ("7", "body", {"lang": "en"})


def test_ids_are_text_when_given_as_numbers() -> None:
    """A number as an id is read as its digits, zero included."""
    assert parse(id=0, text="x").id == "0"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "x"}, "row 3 has no id"),
        ({"id": "", "text": "x"}, "row 3 has no id"),
        ({"id": True, "text": "x"}, "row 3 has no id"),
        ({"id": "a"}, "field 'text' is missing"),
        ({"id": "a", "text": 5}, "field 'text' is a int"),
        ({"id": "a", "text": "x", "title": 5}, "field 'title' is a int"),
        ({"id": "a", "text": "x", "metadata": [1]}, "metadata is a list"),
        ({"id": "a", "text": "x", "vector": "abc"}, "not a list of numbers"),
        ({"id": "a", "text": "x", "vector": [[1.0]]}, r"shape \(1, 1\)"),
        ({"id": "a", "text": "x", "vector": []}, r"shape \(0,\)"),
    ],
)
def test_row_is_refused_when_malformed(row: dict[str, Any], message: str) -> None:
    """A malformed row is refused with its number and what is wrong with it."""
    with pytest.raises(InvalidDocument, match=message) as caught:
        parse_document(row, row_number=3)
    assert caught.value.row == 3
    assert "row 3" in str(caught.value)


def test_row_is_refused_when_it_is_no_mapping() -> None:
    """A string in place of a row is named as such."""
    with pytest.raises(InvalidDocument, match="row 0 is a str"):
        list(parse_documents(["text"]))  # type: ignore[list-item]  # the mistake under test


def test_rows_are_read_one_by_one() -> None:
    """S36: a generator is never listed whole."""
    pulled = []

    def rows() -> Any:
        for i in range(10):
            pulled.append(i)
            yield {"id": str(i), "text": "x"}

    documents = parse_documents(rows())
    next(documents)
    assert pulled == [0]


def test_vector_is_not_copied_when_it_is_float32() -> None:
    """A float32 array passes through as it is."""
    array = np.ones(4, dtype=np.float32)
    assert as_vector(array, "v") is array


def test_vector_is_refused_when_ragged() -> None:
    """A ragged list is no vector."""
    with pytest.raises(InvalidInput, match="the query's vector is not a list of numbers"):
        as_vector([1.0, [2.0, 3.0]], "the query's vector")
