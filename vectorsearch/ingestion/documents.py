"""Callers' rows become documents; a row that can't is refused with its number and the reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidInput
from vectorsearch.types import Document

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from vectorsearch.types import MetadataValue

ID_FIELDS = ("id", "_id", "docid")
_TEXT_FIELDS = ("text", "contents")
_NO_NUMBERS = "bcmMSU"  # NumPy's kinds that would become numbers silently: truth, complex, times, text
_KNOWN_FIELDS = frozenset({*ID_FIELDS, *_TEXT_FIELDS, "title", "metadata", "vector"})


class InvalidDocument(InvalidInput):
    """A row can't be a document; the message names the row and the field. `row` counts from 0."""

    def __init__(self, message: str, *, row: int) -> None:
        super().__init__(message)
        self.row = row


def parse_json(line: str | bytes) -> Any:  # noqa: ANN401 -- whatever somebody has written
    """Return what a line of JSON holds, from wherever it comes.

    Raises:
        InvalidInput: it is not JSON, not UTF-8, or nested so deep that it can't be read.
    """
    try:
        return json.loads(line if isinstance(line, str) else line.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"not UTF-8: {exc.reason} at byte {exc.start}") from exc
    except ValueError as exc:
        raise InvalidInput(f"not JSON: {exc}") from exc
    except RecursionError as exc:
        raise InvalidInput("nested too deep to be read as JSON: flatten it") from exc


def parse_documents(rows: Iterable[Mapping[str, Any] | Document], *, start: int = 0) -> Iterator[Document]:
    """Turn rows into documents, one by one; never holds them all.

    A row is a `Document`, or a mapping with `id` (or `_id`, as in BEIR, or `docid`), `text` (or `contents`, as in
    Anserini), and, if wanted, `title`, `metadata` and `vector` (float32[dim]). Other fields go into `metadata`.

    Raises:
        InvalidDocument: a row is malformed; rows before it were already given.
    """
    for number, row in enumerate(rows, start=start):
        yield row if isinstance(row, Document) else parse_document(row, row_number=number)


def parse_document(row: Mapping[str, Any], *, row_number: int) -> Document:
    """Turn one mapping into a document; see `parse_documents`."""
    if not isinstance(row, Mapping):
        raise InvalidDocument(f"row {row_number} is a {type(row).__name__}, not a mapping of fields", row=row_number)
    try:
        doc_id = id_of(row)
    except InvalidInput as exc:
        raise InvalidDocument(f"row {row_number} has no id: {exc}", row=row_number) from exc
    where = f"row {row_number} (id {doc_id!r})"
    text = _first(row, _TEXT_FIELDS)
    title = row.get("title")
    vector = row.get("vector")
    if text is None and (vector is not None or title):
        text = ""
    for name, value in (("text", text), ("title", title)):
        if not isinstance(value, str) and not (name == "title" and value is None):
            reason = "is missing" if value is None else f"is a {type(value).__name__}"
            raise InvalidDocument(f"{where}: field {name!r} {reason}; it must be a string", row=row_number)
    return Document(
        id=doc_id,
        text=str(text),
        title=title or "",
        metadata=_metadata(row, where, row_number),
        vector=None if vector is None else _vector(vector, where, row_number),
    )


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> object:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _metadata(row: Mapping[str, Any], where: str, row_number: int) -> dict[str, MetadataValue]:
    given = row.get("metadata")
    if given is not None and not isinstance(given, Mapping):
        raise InvalidDocument(f"{where}: metadata is a {type(given).__name__}, not a mapping", row=row_number)
    return {name: value for name, value in row.items() if name not in _KNOWN_FIELDS} | dict(given or {})


def _vector(vector: ArrayLike, where: str, row_number: int) -> NDArray[np.float32]:
    try:
        return as_vector(vector, f"{where}: the vector")
    except InvalidInput as exc:
        raise InvalidDocument(str(exc), row=row_number) from exc


def id_of(row: Mapping[str, Any]) -> str:
    """Return the id of a row, of a document or a query: the first of `id`, `_id` and `docid` that isn't null.

    Raises:
        InvalidInput: there is none, or it is empty, or neither a string nor a whole number.
    """
    stated = _first(row, ID_FIELDS)
    if stated is None or stated == "":
        raise InvalidInput("give 'id' as a string that is not empty")
    return as_id(stated)


def as_id(value: object) -> str:
    """Return an id as documents are stored under it: a whole number is its digits.

    Raises:
        InvalidInput: it is neither a string nor a whole number.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    raise InvalidInput(f"the id is a {type(value).__name__}, not a string: {value!r}")


def as_vector(vector: ArrayLike, where: str) -> NDArray[np.float32]:
    """Return the vector as float32[dim], a copy only if need be; whether it is finite is the store's to check.

    Raises:
        InvalidInput: it is not one row of real numbers, each of them there.
    """
    try:
        given = np.asarray(vector)
        with np.errstate(over="ignore"):  # a number too large becomes infinity, which the store refuses
            array = given.astype(np.float32, copy=False) if given.dtype.kind not in _NO_NUMBERS else None
    except (TypeError, ValueError, OverflowError) as exc:
        raise InvalidInput(f"{where} is not a list of numbers") from exc
    if array is None:
        raise InvalidInput(f"{where} is not a list of numbers: real ones are needed, not {given.dtype}")
    if np.ma.is_masked(vector):
        raise InvalidInput(f"{where} has masked values: fill them, or leave the vector out")
    if array.ndim != 1 or not array.size:
        raise InvalidInput(f"{where} has shape {array.shape}; it must be (dim,)")
    return array
