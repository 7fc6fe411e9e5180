"""Whatever callers give as documents is read row by row, and what can't be used is told by its position."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import InvalidInput
from vectorsearch import config
from vectorsearch.errors import DimensionMismatch, DuplicateId, InvalidDocument, NonFiniteVector
from vectorsearch.ingestion.rows import iter_rows
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    import vectorsearch as vs

    from ..conftest import OpenDatabase

ROWS = [
    {"id": "a", "text": "alpha", "title": "A", "metadata": {"year": 2020}, "vector": [1.0, 0.0]},
    {"id": "b", "text": "beta", "lang": "en", "vector": [0.0, 1.0]},
    {"id": "c", "text": "gamma", "lang": "de"},
]


@pytest.fixture
def db(open_database: OpenDatabase) -> vs.Database:
    """Give a database of the caller's own vectors."""
    return open_database(embed=None)


def stored(db: vs.Database) -> list[tuple[str, str, str, dict[str, Any], list[float] | None]]:
    """Return what the database holds, as plain values."""
    return [
        (d.id, d.text, d.title, dict(d.metadata), None if d.vector is None else d.vector.tolist()) for d in db.iter()
    ]


EXPECTED = [
    ("a", "alpha", "A", {"year": 2020}, [1.0, 0.0]),
    ("b", "beta", "", {"lang": "en"}, [0.0, 1.0]),
    ("c", "gamma", "", {"lang": "de"}, None),
]


def arrow_table() -> Any:
    """Return the rows as an Arrow table, with nulls for what a row lacks."""
    pa = pytest.importorskip("pyarrow")
    columns = {name: [row.get(name) for row in ROWS] for name in ("id", "text", "title", "metadata", "lang")}
    vectors = pa.array([row.get("vector") for row in ROWS], pa.list_(pa.float32(), 2))
    return pa.table({**columns, "vector": vectors})


@pytest.mark.parametrize("shape", ["list", "generator", "documents", "table", "batch", "batches", "reader", "frame"])
def test_rows_are_the_same_whatever_holds_them(db: vs.Database, shape: str) -> None:
    """Lists, generators, documents, Arrow tables, batches and streams, and data frames store the same documents."""
    match shape:
        case "list":
            docs: Any = ROWS
        case "generator":
            docs = (row for row in ROWS)
        case "documents":
            docs = [
                Document(i, text, title, meta, None if v is None else np.array(v))
                for i, text, title, meta, v in EXPECTED
            ]
        case "table":
            docs = arrow_table()
        case "batch":
            docs = arrow_table().to_batches()[0]
        case "batches":
            docs = (arrow_table().slice(start, 1).to_batches()[0] for start in range(3))
        case "reader":
            docs = arrow_table().to_reader()
        case "frame":
            docs = pytest.importorskip("pandas").DataFrame(ROWS)
    assert db.add(docs) == 3
    assert stored(db) == EXPECTED


def test_index_of_a_frame_is_its_ids_when_it_is_named_so(db: vs.Database) -> None:
    """A frame that was indexed by id keeps its ids; missing values of any kind are fields that the row lacks."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"text": ["alpha", "beta"], "year": [2020, None], "lang": pandas.array([pandas.NA, "en"], dtype="string")},
        index=pandas.Index([7, 8], name="id"),
    )
    assert db.add(frame) == 2
    assert [(i, meta) for i, _, _, meta, _ in stored(db)] == [("7", {"year": 2020.0}), ("8", {"lang": "en"})]


def test_vectors_of_a_table_stay_arrays() -> None:
    """An Arrow vector comes as float32[dim] without a Python number for each element, of fixed length or not."""
    pa = pytest.importorskip("pyarrow")
    for kind in (pa.list_(pa.float32(), 2), pa.list_(pa.float32())):
        table = pa.table({"id": ["a", "b"], "vector": pa.array([[1, 2], None], kind)})
        first, second = iter_rows(table)
        assert isinstance(first, dict)
        assert first["vector"].dtype == np.float32
        assert first["vector"].tolist() == [1, 2]
        assert second == {"id": "b"}


def test_vectors_are_read_when_their_column_is_encoded_otherwise() -> None:
    """A column of tensors gives arrays of its shape; what is encoded by a dictionary or by runs is decoded."""
    pa = pytest.importorskip("pyarrow")
    ids, lists = pa.array(["a", "b"]), pa.array([[1.0, 2.0], [3.0, 4.0]])
    shape = pa.fixed_shape_tensor(pa.float32(), [2])
    storage = pa.array([[1, 2], None], shape.storage_type)
    for vectors, wanted in (
        (pa.ExtensionArray.from_storage(shape, storage), [[1, 2], None]),
        (pa.DictionaryArray.from_arrays(pa.array([1, None]), lists), [[3, 4], None]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), lists), [[1, 2], [3, 4]]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
    ):
        rows = [dict(row) for row in iter_rows(pa.table({"id": ids, "vector": vectors}))]
        found = [row.get("vector") for row in rows]
        assert [each.tolist() if isinstance(each, np.ndarray) else each for each in found] == wanted


@pytest.mark.parametrize("kind", ["array", "lists", "generator"])
def test_vectors_given_beside_are_the_rows_own(db: vs.Database, kind: str) -> None:
    """`vectors` gives the n-th row its n-th vector, for mappings and documents, listed or not."""
    matrix = np.eye(2, dtype=np.float32)
    vectors: Any = {"array": matrix, "lists": matrix.tolist(), "generator": iter(matrix)}[kind]
    assert db.add(iter([{"id": "a", "text": "alpha"}, Document("b", "beta")]), vectors=vectors) == 2
    assert [vector for *_, vector in stored(db)] == [[1.0, 0.0], [0.0, 1.0]]
    assert db.upsert([{"id": "a", "text": "alpha"}], vectors=matrix[1:]) == 1
    assert db.get("a").vector.tolist() == [0.0, 1.0]  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize(
    ("docs", "vectors", "error", "message"),
    [
        (None, None, InvalidInput, "docs is a NoneType"),
        ("text", None, InvalidInput, "docs is a str"),
        (3, None, InvalidInput, "docs is a int"),
        ({"id": "a", "text": "x"}, None, InvalidInput, r"give \[document\]"),
        (Document("a", "x"), None, InvalidInput, r"give \[document\]"),
        (["text"], None, InvalidDocument, "row 0 is a str"),
        ([{"id": "a", "text": "x"}], np.ones(2), InvalidInput, r"vectors has shape \(2,\)"),
        ([{"id": "a", "text": "x"}], "abc", InvalidInput, "vectors is a str"),
        ([{"id": "a", "text": "x"}], np.ones((2, 2)), InvalidInput, "more vectors: row 1"),
        ([{"id": "a", "text": "x"}, {"id": "b", "text": "x"}], np.ones((1, 2)), InvalidInput, "more rows: row 1"),
        ([{"id": "a", "text": "x", "vector": [1, 2]}], np.ones((1, 2)), InvalidInput, "row 0 has a vector of its own"),
        (["text"], np.ones((1, 2)), InvalidDocument, "row 0 is a str"),
        ([{"id": "a", "text": "x"}], [[1.0, "y"]], InvalidDocument, "row 0"),
    ],
)
def test_rows_are_refused_when_they_are_none(
    db: vs.Database, docs: Any, vectors: Any, error: type[Exception], message: str
) -> None:
    """What is no rows, no vectors, or not as many of both is named, and nothing is stored."""
    with pytest.raises(error, match=message):
        db.add(docs, vectors=vectors)
    assert db.count() == 0


def test_column_is_refused_when_a_table_is_wanted(db: vs.Database) -> None:
    """A column of a table speaks Arrow's protocol as well, and is no documents; nor is a table of something else."""
    table = arrow_table()
    with pytest.raises(InvalidInput, match="docs is a ChunkedArray, and no table"):
        db.add(table["text"])
    with pytest.raises(InvalidDocument, match="row 0 has no id"):
        db.add(table.drop_columns(["id"]))


def test_known_ids_are_left_or_replaced_or_refused_as_asked(db: vs.Database) -> None:
    """`on_conflict` decides for ids that are stored and for those that come twice; what is returned was stored."""
    db.add([{"id": "a", "text": "old"}])
    again = [{"id": "a", "text": "new"}, {"id": "b", "text": "first"}, {"id": "b", "text": "second"}]
    with pytest.raises(DuplicateId, match=r"id 'b' \(row 2\) is more than once"):
        db.add(again)
    with pytest.raises(DuplicateId, match=r"id 'a' \(row 0\) is already in the database"):
        db.add(again[:2])
    assert db.add(again, on_conflict="skip") == 1
    assert [text for _, text, *_ in stored(db)] == ["old", "first"]
    assert db.add(again, on_conflict="skip") == 0
    assert db.add(again, on_conflict="replace") == 2
    assert {i: text for i, text, *_ in stored(db)} == {"a": "new", "b": "second"}
    with pytest.raises(InvalidInput, match="on_conflict is 'ignore'"):
        db.add([], on_conflict="ignore")  # type: ignore[arg-type]  # the mistake under test


def test_nothing_is_embedded_when_an_id_is_known(open_database: OpenDatabase) -> None:
    """Known ids are refused, or skipped, before the embedder is even loaded."""
    db = open_database()
    db.add([{"id": "a", "text": "x", "vector": [1.0] * 64}])
    with pytest.raises(DuplicateId):
        db.add([{"id": "a", "text": "y"}, {"id": "b", "text": "y"}])
    assert db.add([{"id": "a", "text": "y"}], on_conflict="skip") == 0
    assert db.models().counters.lazy_loads == 0


@pytest.mark.parametrize("on_conflict", ["error", "skip", "replace"])
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"id": "bad"}, InvalidDocument),
        ({"id": "bad", "text": "x", "vector": [1.0]}, DimensionMismatch),
        ({"id": "bad", "text": "x", "vector": [float("nan"), 0.0]}, NonFiniteVector),
    ],
)
def test_bad_row_is_named_by_its_place_in_the_whole(
    db: vs.Database, monkeypatch: pytest.MonkeyPatch, bad: dict[str, Any], error: type[Exception], on_conflict: Any
) -> None:
    """S36, S64: chunks before a bad row stay, nothing of its own does, and its number counts every row given."""
    monkeypatch.setattr(config, "WRITE_CHUNK_DOCUMENTS", 4)
    again = {"id": "7", "text": "x", "vector": [1.0, 1.0]}

    def rows() -> Iterator[dict[str, Any]]:
        yield from ({"id": str(i), "text": "x", "vector": [1.0, i]} for i in range(5))
        if on_conflict != "error":
            yield again
            yield again
        yield bad

    place = 5 if on_conflict == "error" else 7
    with pytest.raises(error, match=f"row {place}") as caught:
        db.add(rows(), on_conflict=on_conflict)
    assert caught.value.__notes__ == ["4 documents before this chunk are stored, and nothing of the chunk itself"]
    assert [doc_id for doc_id, *_ in stored(db)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    "vector",
    [
        np.array([1j, 2.0]),
        np.array(["2026-01-01", "2026-01-02"], "datetime64[D]"),
        ["1", "2"],
        [True, False],
        np.ma.masked_array([1.0, 4e30], mask=[False, True]),
    ],
    ids=["complex", "times", "texts", "truth", "masked"],
)
def test_vector_is_refused_when_its_values_are_no_real_numbers(db: vs.Database, vector: Any) -> None:
    """NumPy would make numbers of them without a word; a document's, an array's and a query's are looked at alike."""
    with pytest.raises(InvalidDocument, match=r"real ones|masked values"):
        db.add([{"id": "a", "text": "alpha", "vector": vector}])
    with pytest.raises(InvalidInput, match=r"real ones|masked values"):
        db.add([{"id": "a", "text": "alpha"}], vectors=[vector])
    db.add([{"id": "b", "text": "beta", "vector": [1.0, 0.0]}])
    with pytest.raises(InvalidInput, match=r"real ones|masked values"):
        db.search("beta", vector=vector)
    assert db.count() == 1


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_table_is_refused_when_a_column_is_there_twice(db: vs.Database, kind: str) -> None:
    """A row could hold only one of the two."""
    columns = ["id", "text", "text"]
    if kind == "arrow":
        pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
        table = pyarrow.Table.from_arrays([pyarrow.array([value]) for value in ("a", "one", "two")], names=columns)
    else:
        pandas = pytest.importorskip("pandas", reason="needs pandas")
        table = pandas.DataFrame([["a", "one", "two"]], columns=columns)
    with pytest.raises(InvalidInput, match="more than one column 'text'"):
        db.add(table)
    assert db.count() == 0


@pytest.mark.parametrize("shape", ["table", "parquet frame", "arrow frame", "dictionaries"])
def test_lists_dates_and_decimals_are_found_when_a_table_brings_them(db: vs.Database, shape: str) -> None:
    """S4: whatever holds them, lists are lists, and filters find dates and decimals by Python's own values."""
    pa, pd = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    noon = datetime(2020, 1, 31, 12, tzinfo=UTC)
    columns = {
        "tags": pa.array([["x", "y"], []]),
        "nested": pa.array([[[1, 2], [3]], None]),
        "day": pa.array([date(2020, 1, 31), None]),
        "days": pa.array([[date(2020, 1, 31)], None]),
        "at": pa.array([noon, None], pa.timestamp("ns", tz="Asia/Kathmandu")),
        "price": pa.array([Decimal("19.99"), None]),
    }
    table = pa.table({"id": ["a", "b"], "text": ["apple", "apple"], **columns})
    if shape.endswith("frame"):
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(table, file := pa.BufferOutputStream())
        kinds = {"dtype_backend": "pyarrow"} if shape == "arrow frame" else {}
        db.add(pd.read_parquet(pa.BufferReader(file.getvalue()), **kinds))
    else:
        db.add(table if shape == "table" else table.to_pylist())
    assert next(iter(db.iter())).metadata == {
        "tags": ["x", "y"],
        "nested": [[1, 2], [3]],
        "day": "2020-01-31",
        "days": ["2020-01-31"],
        "at": "2020-01-31T12:00:00.000000Z",
        "price": 19.99,
    }
    for wanted in (
        {"tags": "y"},
        {"day": {"$gte": date(2020, 1, 31), "$lt": noon}},
        {"days": date(2020, 1, 31)},
        {"at": noon.astimezone(timezone(timedelta(hours=-8)))},
        {"at": {"$gt": date(2020, 1, 31)}},
        {"price": {"$lte": Decimal("19.99")}},
    ):
        assert [hit.id for hit in db.search("apple", filter=wanted)] == ["a"], wanted


def test_nothing_of_a_batch_is_stored_when_a_value_has_no_form(db: vs.Database) -> None:
    """S4: the error names row, id, key and type, and the batch can be given again once it is mended."""
    rows = [{"id": "a", "text": "apple"}, {"id": "b", "text": "apple", "raw": b"\x00"}]
    with pytest.raises(InvalidInput, match=r"row 1, id 'b': metadata 'raw': .*, a bytes, .* decode it"):
        db.add(rows)
    assert db.count() == 0
    rows[1]["raw"] = "00"
    assert db.add(rows) == 2
