"""What callers give as documents, row by row: lists, generators, data frames, and whatever speaks Arrow's protocol."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from backends.errors import InvalidInput, MissingExtra
from vectorsearch.ingestion.documents import ID_FIELDS
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

_TABLE_ROWS = 1000  # of a table become Python objects at a time
_END = object()


@runtime_checkable
class ArrowTable(Protocol):
    """A table, record batch or stream of either: pyarrow's, polars', DuckDB's."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table's rows as Arrow's C stream."""


@runtime_checkable
class DataFrame(Protocol):
    """A pandas.DataFrame, as far as it is used here."""

    @property
    def columns(self) -> Any:  # noqa: ANN401 -- pandas is untyped here
        """Return the names of the columns."""

    @property
    def index(self) -> Any:  # noqa: ANN401 -- as above
        """Return the names of the rows."""

    @property
    def iloc(self) -> Any:  # noqa: ANN401 -- as above
        """Return what gives rows by their numbers."""

    def reset_index(self) -> Any:  # noqa: ANN401 -- as above
        """Return the frame with its index as a column."""


Row: TypeAlias = "Mapping[str, Any] | Document"
Rows: TypeAlias = "Iterable[Row | ArrowTable | DataFrame] | ArrowTable | DataFrame"
Vectors: TypeAlias = "Iterable[ArrayLike | None]"


def iter_rows(docs: Any) -> Iterator[Row]:  # noqa: ANN401 -- `Rows`, and what is taken for them by mistake
    """Give rows one by one; of a table, some at a time become Python objects, and a field that is null is left out.

    Tables may also come one after the other, as from a generator of record batches.

    Raises:
        InvalidInput: it is neither rows nor a table.
        MissingExtra: it speaks Arrow's protocol, and pyarrow isn't there to read it.
    """
    if isinstance(docs, DataFrame):
        yield from _frame_rows(docs)
    elif isinstance(docs, ArrowTable):
        yield from _arrow_rows(docs)
    elif isinstance(docs, Mapping | Document):
        raise InvalidInput("docs is a single document, and a list of documents is wanted: give [document]")
    elif isinstance(docs, str | bytes) or not isinstance(docs, Iterable):
        raise InvalidInput(f"docs is a {type(docs).__name__}: give a list or generator of rows, or a table")
    else:
        for row in docs:
            if isinstance(row, dict | Document):  # first, since nearly all are, and asking for a protocol takes longer
                yield row
            elif isinstance(row, DataFrame | ArrowTable):
                yield from iter_rows(row)
            else:
                yield row


def with_vectors(rows: Iterator[Row], vectors: Any) -> Iterator[Row]:  # noqa: ANN401 -- `Vectors`, and as above
    """Put the n-th vector into the n-th row; nothing is listed whole.

    Raises:
        InvalidInput: they are no vectors, a row has one of its own, or one of the two ends before the other.
    """
    if isinstance(vectors, np.ndarray) and vectors.ndim != 2:  # noqa: PLR2004 -- rows of numbers
        raise InvalidInput(f"vectors has shape {vectors.shape}; it must be (documents, dim)")
    if isinstance(vectors, str | bytes | Mapping) or not isinstance(vectors, Iterable):
        raise InvalidInput(f"vectors is a {type(vectors).__name__}: give an array of shape (documents, dim)")
    pairs: Iterator[tuple[Any, Any]] = zip_longest(rows, vectors, fillvalue=_END)
    for number, (row, vector) in enumerate(pairs):
        if row is _END or vector is _END:
            more = "vectors" if row is _END else "rows"
            raise InvalidInput(f"there are more {more}: row {number} has no partner; give each document one vector")
        own = row.vector if isinstance(row, Document) else row.get("vector") if isinstance(row, Mapping) else None
        if own is not None:
            raise InvalidInput(f"row {number} has a vector of its own, and vectors is given as well: give one of them")
        if isinstance(row, Document):
            yield Document(row.id, row.text, row.title, row.metadata, vector)
        else:
            yield {**row, "vector": vector} if isinstance(row, Mapping) else row


def _frame_rows(frame: DataFrame) -> Iterator[Mapping[str, Any]]:
    if frame.index.name in ID_FIELDS and frame.index.name not in frame.columns:
        frame = frame.reset_index()
    _check_columns([str(name) for name in frame.columns])
    for start in range(0, len(frame.index), _TABLE_ROWS):
        part = frame.iloc[start : start + _TABLE_ROWS]
        # Of Python's own types, and None for NaN, NaT and NA.
        yield from map(_present, part.astype(object).where(part.notna(), None).to_dict("records"))


def _arrow_rows(table: ArrowTable) -> Iterator[Mapping[str, Any]]:
    try:
        pyarrow = importlib.import_module("pyarrow")
    except ImportError as exc:
        raise MissingExtra("Arrow tables are read with pyarrow: pip install pyarrow") from exc
    try:
        batches = pyarrow.RecordBatchReader.from_stream(table)
    except pyarrow.ArrowException as exc:  # a column, say: it speaks the protocol as well
        raise InvalidInput(f"docs is a {type(table).__name__}, and no table with columns such as id and text") from exc
    _check_columns(batches.schema.names)
    for batch in batches:
        for start in range(0, batch.num_rows, _TABLE_ROWS):
            yield from _batch_rows(batch.slice(start, _TABLE_ROWS), pyarrow)


def _check_columns(names: Sequence[str]) -> None:
    """Insist that no column is there twice: a row could hold only one of them."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InvalidInput(f"the table has more than one column {twice!r}: rename or drop all but one")


def _batch_rows(batch: Any, pyarrow: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 -- pyarrow is untyped here
    """Give the rows of a record batch; vectors stay arrays, since a list of them is a Python object for each number."""
    place = batch.schema.get_field_index("vector")
    kind = batch.schema.field(place).type if place >= 0 else pyarrow.null()
    is_tensor = isinstance(kind, pyarrow.FixedShapeTensorType)
    types = pyarrow.types
    if not (is_tensor or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        yield from map(_present, batch.to_pylist())
        return
    rows = batch.drop_columns(["vector"]).to_pylist() if batch.num_columns > 1 else [{}] * batch.num_rows
    for row, vector in zip(rows, batch.column(place), strict=True):
        if vector.is_valid:
            row["vector"] = vector.to_numpy() if is_tensor else vector.values.to_numpy(zero_copy_only=False)
        yield _present(row)


def _present(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a table's row without what is null: its columns are the same for all, so null means absent."""
    there = {name: value for name, value in row.items() if value is not None}
    if isinstance(nested := there.get("metadata"), Mapping):
        there["metadata"] = _present(nested)
    return there
