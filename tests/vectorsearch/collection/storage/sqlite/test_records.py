"""Documents in the store's form."""

from __future__ import annotations

import numpy as np
import pytest

from backends.errors import InvalidInput
from vectorsearch.collection.storage.errors import DimensionMismatch, DuplicateId, NonFiniteVector
from vectorsearch.collection.storage.sqlite.records import (
    check_dims,
    content_digest,
    encode_metadata,
    to_document,
    to_records,
)
from vectorsearch.types import Document


def test_digest_changes_when_any_part_of_the_content_does() -> None:
    """Title, text, metadata and where one ends and the next begins all count; the id and the vector don't."""
    variants = [
        Document("a", "text"),
        Document("a", "tex", "t"),
        Document("a", "", "text"),
        Document("a", "text", metadata={"x": 1}),
        Document("a", "text", metadata={"x": "1"}),
    ]
    digests = [content_digest(doc) for doc in variants]
    assert len(set(digests)) == len(variants)
    assert content_digest(Document("b", "text", vector=np.ones(3, dtype=np.float32))) == digests[0]


def test_digest_is_the_same_when_metadata_comes_in_another_order() -> None:
    """Metadata is a mapping: the order of its keys isn't content."""
    assert encode_metadata({"b": 1, "a": [True, None]}) == encode_metadata({"a": [True, None], "b": 1})


def test_a_document_comes_back_when_it_was_stored() -> None:
    """The store's form holds all of a document: Unicode, nested metadata, the vector bit for bit."""
    doc = Document("é", "我\0🙂", "t", {"n": {"deep": [1, [2.5]]}, "s": np.int64(3)}, np.array([1e-45, 3], np.float32))
    record = to_records([doc])[0]
    back = to_document(record.id, record.title, record.text, record.metadata, record.vector)
    assert (back.id, back.text, back.title) == (doc.id, doc.text, doc.title)
    assert back.metadata == {"n": {"deep": [1, [2.5]]}, "s": 3}
    assert back.vector is not None
    assert back.vector.tobytes() == np.array([1e-45, 3], np.float32).tobytes()
    back.vector[0] = 1  # the caller's own copy


@pytest.mark.parametrize(
    "doc",
    [
        Document("", "x"),
        Document("a\ud800", "x"),
        Document("a", "x\ud800"),
        Document("a", b"x"),  # type: ignore[arg-type]  # the point of the test
        Document("a", "x", None),  # type: ignore[arg-type]  # the point of the test
        Document("a", "x", metadata={"n": float("nan")}),
        Document("a", "x", metadata={1: "n"}),  # type: ignore[dict-item]  # the point of the test
        Document("a", "x", metadata={"n": b"raw"}),  # type: ignore[dict-item]  # the point of the test
        Document("a", "x", metadata=[("n", 1)]),  # type: ignore[arg-type]  # the point of the test
    ],
)
def test_a_document_is_refused_when_it_cannot_be_stored(doc: Document) -> None:
    """The message names the row, so that one bad document among thousands is found."""
    with pytest.raises(InvalidInput, match="row 1"):
        to_records([Document("ok", "x"), doc])


def test_a_batch_is_refused_when_it_holds_an_id_twice() -> None:
    """The first few of the ids are named."""
    with pytest.raises(DuplicateId, match=r"ids 'b' \(row 2\), 'a' \(row 3\) are more than once"):
        to_records([Document(doc_id, "x") for doc_id in ("a", "b", "b", "a", "c")])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_is_refused_when_it_is_not_finite(bad: float) -> None:
    """S48: NaN or infinity is refused, with its row and id."""
    with pytest.raises(NonFiniteVector, match="row 1, id 'b'"):
        to_records([Document("a", "x"), Document("b", "x", vector=np.array([0, bad], np.float32))])


def test_a_vector_is_refused_when_its_length_is_another() -> None:
    """S48: row, id and both lengths are named; a matrix or an empty array is no vector."""
    records = to_records(
        [Document("a", "", vector=np.ones(3, np.float32)), Document("b", "", vector=np.ones(4, np.float32))]
    )
    with pytest.raises(DimensionMismatch, match=r"row 1, id 'b': the vector has 4 dimensions, those before it have 3"):
        check_dims(records, None)
    with pytest.raises(DimensionMismatch, match=r"row 7, id 'a': the vector has 3 dimensions, the database has 5"):
        check_dims(records, 5, rows=[7, 8])
    assert check_dims(records[:1], None) == 3
    assert check_dims([], 7) == 7
    for shape in ((2, 2), (0,), ()):
        with pytest.raises(DimensionMismatch):
            to_records([Document("a", "", vector=np.ones(shape, np.float32))])


def test_metadata_is_refused_when_no_json_can_hold_it() -> None:
    """Metadata that holds itself, is thousands deep, or has a number of thousands of digits is an `InvalidInput`."""
    loop: dict[str, object] = {}
    loop["self"] = loop
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (loop, deep, 10**5000):
        with pytest.raises(InvalidInput, match="metadata"):
            to_records([Document("a", "text", metadata={"key": value})])  # type: ignore[dict-item]  # malformed on purpose


@pytest.mark.filterwarnings("error")
def test_vector_is_refused_when_its_numbers_are_none_or_too_large() -> None:
    """A vector of text, or of numbers beyond float32, is refused as an `InvalidInput`, without a warning."""
    for vector in ("abc", [10**400], [1e39]):
        with pytest.raises(InvalidInput, match="row 0, id 'a'"):
            to_records([Document("a", "text", vector=vector)])  # type: ignore[arg-type]  # malformed on purpose
