"""Documents as the store keeps them: checked, with one canonical form and one digest of their content."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidInput
from vectorsearch.collection.storage.errors import DimensionMismatch, DuplicateId, NonFiniteVector
from vectorsearch.collection.stored_values import refusal, stored_form
from vectorsearch.types import Document, full_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from vectorsearch.types import Metadata

_SHOWN_IDS = 5
_VECTOR_TYPE = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class Record:
    """A document ready to be stored: `metadata` is JSON, `vector` is little-endian float32[dim] or None."""

    id: str
    title: str
    text: str
    metadata: str
    digest: bytes
    vector: bytes | None
    truncated: bool | None = False  # whether the embedder read its beginning alone; None where nobody knows

    @property
    def dim(self) -> int | None:
        """Return the vector's length."""
        return None if self.vector is None else len(self.vector) // _VECTOR_TYPE.itemsize

    @property
    def full_text(self) -> str:
        """Return what is indexed and embedded; see `types.full_text`."""
        return full_text(self.title, self.text)


def to_records(docs: Sequence[Document], *, rows: Sequence[int] | None = None) -> list[Record]:
    """Check a batch and return it in the store's form, in order; messages name `rows`, by default counted from 0.

    Raises:
        InvalidInput: an id, text, title or metadata that can't be stored.
        DuplicateId: an id that is in the batch twice.
        NonFiniteVector: a vector with NaN or infinity.
        DimensionMismatch: a vector that isn't one-dimensional, or two of different lengths.
    """
    rows = range(len(docs)) if rows is None else rows
    records = [_to_record(number, doc) for number, doc in zip(rows, docs, strict=True)]
    seen: set[str] = set()
    duplicates: dict[str, int] = {}
    for number, record in zip(rows, records, strict=True):
        if record.id in seen:
            duplicates[record.id] = number
        seen.add(record.id)
    if duplicates:
        raise DuplicateId(f"{_name_ids(duplicates)} more than once in this batch: give each document its own id")
    return records


def embedded(record: Record, vector: NDArray[np.float32], *, truncated: bool) -> Record:
    """Return a record with the vector that a model made of its text, which it may have read the beginning of alone.

    Raises:
        NonFiniteVector, DimensionMismatch: the vector can't be stored.
    """
    blob = _vector_blob(f"id {record.id!r}", vector)
    return Record(record.id, record.title, record.text, record.metadata, record.digest, blob, truncated)


def check_dims(records: Sequence[Record], dim: int | None, *, rows: Sequence[int] | None = None) -> int | None:
    """Return the length of the batch's vectors, or `dim` if it has none.

    Raises:
        DimensionMismatch: a vector's length isn't `dim`, or not that of the batch's first vector.
    """
    others = "those before it have" if dim is None else "the database has"
    for number, record in zip(range(len(records)) if rows is None else rows, records, strict=True):
        if record.dim is None:
            continue
        if dim is None:
            dim = record.dim
        elif record.dim != dim:
            raise DimensionMismatch(
                f"row {number}, id {record.id!r}: the vector has {record.dim} dimensions, {others} {dim}: "
                "embed with the model that the database was made with, or make a new database"
            )
    return dim


def existing_ids(rows: Mapping[str, int]) -> DuplicateId:
    """Return the error for ids that the database already holds, by the rows that bring them again."""
    return DuplicateId(
        f"{_name_ids(rows)} already in the database: use upsert to replace, or add with on_conflict='skip'"
    )


def content_digest(doc: Document) -> str:
    """Return 32 hexadecimal digits that change when the title, the text or the metadata does.

    It lets a bulk index run skip what is unchanged. The vector is left out: it follows from the text and the model.
    """
    return _digest(doc.title, doc.text, encode_metadata(doc.metadata)).hex()


def encode_metadata(metadata: Metadata) -> str:
    """Return metadata as canonical JSON: keys sorted, no spaces; dates and the like as in `stored_values`.

    Raises:
        InvalidInput: a key that isn't a string, or a value that has no form in it.
    """
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata must be a mapping, not {type(metadata).__name__}")
    try:
        plain = {_key(key): _plain(key, value) for key, value in metadata.items()}
        return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError as exc:
        raise InvalidInput("metadata is nested too deep, or holds itself: flatten it") from exc
    except InvalidInput:
        raise
    except ValueError as exc:
        raise InvalidInput(f"metadata holds a number that can't be stored: {exc}") from exc


def with_metadata(stored: tuple[str, int, str, str, str, bytes | None], change: Metadata, *, replace: bool) -> Record:
    """Return a stored (id, row, title, text, metadata, vector) with its metadata changed, or replaced.

    Raises:
        InvalidInput: the metadata can't be stored; the message names the id.
    """
    doc_id, _, title, text, before, vector = stored
    try:
        plain = json.loads(encode_metadata(change))
        metadata = encode_metadata(plain if replace else {**json.loads(before), **plain})
        return Record(doc_id, title, text, metadata, _digest(title, text, metadata), vector)
    except UnicodeEncodeError as exc:
        raise InvalidInput(
            f"id {doc_id!r}: metadata is not valid Unicode ({exc.reason}): decode it with errors='replace'"
        ) from exc
    except InvalidInput as exc:
        raise InvalidInput(f"id {doc_id!r}: {exc}") from exc


def to_document(row_id: str, title: str, text: str, metadata: str, vector: bytes | None = None) -> Document:
    """Return a stored document as its caller gave it."""
    return Document(row_id, text, title, json.loads(metadata), None if vector is None else vector_of(vector).copy())


def stored_digest(title: bytes, text: bytes, metadata: bytes) -> bytes:
    """Return the digest of a document's content, as it lies in the store."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (title, text, metadata):
        digest.update(len(part).to_bytes(8, "little"))  # so that ("ab", "c") and ("a", "bc") differ
        digest.update(part)
    return digest.digest()


def vector_digest(row: int, blob: bytes) -> bytes:
    """Return 8 bytes that change with any bit of a stored vector, and if it is put in another row's place."""
    return hashlib.blake2b(blob, digest_size=8, salt=row.to_bytes(16, "little")).digest()


def vector_of(blob: bytes) -> NDArray[np.float32]:
    """Return float32[dim] over the blob's own bytes, read-only."""
    return np.frombuffer(blob, dtype=_VECTOR_TYPE)


def _to_record(number: int, doc: Document) -> Record:
    if not isinstance(doc.id, str) or not doc.id:
        raise InvalidInput(f"row {number}: the id must be a non-empty string, not {doc.id!r}")
    for name, value in (("text", doc.text), ("title", doc.title)):
        if not isinstance(value, str):
            raise InvalidInput(f"row {number}, id {doc.id!r}: {name} must be a string, not {type(value).__name__}")
    try:
        metadata = encode_metadata(doc.metadata)
        digest = _digest(doc.title, doc.text, metadata)
        doc.id.encode()
    except InvalidInput as exc:
        raise InvalidInput(f"row {number}, id {doc.id!r}: {exc}") from exc
    except UnicodeEncodeError as exc:  # a lone surrogate, from reading with errors="surrogateescape"
        raise InvalidInput(
            f"row {number}, id {doc.id!r}: text is not valid Unicode ({exc.reason}): decode it with errors='replace'"
        ) from exc
    blob = None if doc.vector is None else _vector_blob(f"row {number}, id {doc.id!r}", doc.vector)
    return Record(doc.id, doc.title, doc.text, metadata, digest, blob)


def _vector_blob(whose: str, given: ArrayLike) -> bytes:
    try:
        with np.errstate(over="ignore"):  # a number too large becomes infinity, and is refused below
            vector = np.asarray(given, dtype=_VECTOR_TYPE)
    except (TypeError, ValueError, OverflowError) as exc:
        raise InvalidInput(f"{whose}: the vector is not a list of numbers") from exc
    if vector.ndim != 1 or not vector.size:
        raise DimensionMismatch(f"{whose}: a vector must be float32[dim], not of shape {vector.shape}")
    if not np.isfinite(vector).all():
        raise NonFiniteVector(f"{whose}: the vector holds NaN or infinity: embed the text again")
    return vector.tobytes()


def _plain(name: str, value: object) -> object:
    """Return a value as JSON holds it; only scalars and lists of scalars can be filtered on, the rest is kept."""
    if isinstance(value, np.ndarray) and value.ndim:
        return [_plain(name, element) for element in value]
    if not isinstance(value, Mapping | list | tuple):
        try:
            value = stored_form(value[()] if isinstance(value, np.ndarray) else value)
        except ValueError as exc:
            raise refusal(f"metadata {name!r}", value, str(exc)) from exc
    match value:
        case None | str() | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case Mapping():
            return {_key(key): _plain(f"{name}.{key}", element) for key, element in value.items()}
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return [_plain(name, element) for element in value]
    raise refusal(f"metadata {name!r}", value)


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInput(f"metadata key {key!r} must be a string")
    return key


def _digest(title: str, text: str, metadata: str) -> bytes:
    return stored_digest(title.encode(), text.encode(), metadata.encode())


def _name_ids(rows: Mapping[str, int]) -> str:
    shown = ", ".join(f"{doc_id!r} (row {row})" for doc_id, row in list(rows.items())[:_SHOWN_IDS])
    more = f" and {len(rows) - _SHOWN_IDS} more" if len(rows) > _SHOWN_IDS else ""
    return f"id {shown} is" if len(rows) == 1 else f"ids {shown}{more} are"
