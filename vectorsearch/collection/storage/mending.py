"""What was written and what is there: find documents and vectors that rotted, and restore what can be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vectorsearch.collection.storage.disk import lineage
from vectorsearch.collection.storage.errors import DamagedDatabase
from vectorsearch.collection.storage.sqlite.records import stored_digest, vector_digest, vector_of
from vectorsearch.collection.storage.sqlite.upgrade import WITH_DIGESTS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from vectorsearch.collection.storage.sqlite.connections import Connections

    # Of rows, those unit vectors float32[dim] that were kept elsewhere.
    Kept = Callable[[Sequence[int]], Mapping[int, NDArray[np.float32]]]

_GIVEN_UP = b""  # the digest of a document that was damaged beyond repair: the next upsert of it is no repetition
_MOST_BITS = 1 << 16  # of a text in which one flipped bit is looked for: each is tried
_SAME = 1 - 1e-6  # the cosine above which two unit vectors differ by rounding alone


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document's columns as they lie there, which need not be text any more."""

    row: int
    id: bytes
    title: bytes
    text: bytes
    metadata: bytes
    digest: bytes

    def __str__(self) -> str:
        return f"id {self.id.decode(errors='replace')!r}"

    @property
    def given_up(self) -> bool:
        """Tell whether a repair could not restore it."""
        return self.digest == _GIVEN_UP

    def is_sound(self) -> bool:
        """Tell whether it is what was written."""
        return stored_digest(self.title, self.text, self.metadata) == self.digest

    def readable(self) -> tuple[bytes, bytes, bytes]:
        """Return title, text and metadata as far as they can be used: metadata that is no JSON holds nothing."""
        try:
            usable = isinstance(json.loads(self.metadata), dict)
        except ValueError:
            usable = False
        return self.title, self.text, self.metadata if usable else b"{}"

    def restored(self) -> tuple[bytes, bytes, bytes] | None:
        """Return title, text and metadata as they were, if one bit of them was flipped; None if that isn't it."""
        ends = (len(self.title), len(self.title) + len(self.text))

        def parts(joined: bytes) -> tuple[bytes, bytes, bytes]:
            return joined[: ends[0]], joined[ends[0] : ends[1]], joined[ends[1] :]

        joined = self.title + self.text + self.metadata
        found = one_bit_off(joined, lambda tried: stored_digest(*parts(tried)) == self.digest)
        return None if found is None else parts(found)


@dataclass(frozen=True, slots=True)
class WrongVector:
    """A vector that can't be used, isn't what was written, or is gone; `digest` is None where nobody vouched for it."""

    row: int
    blob: bytes | None
    digest: bytes | None
    what: str
    usable: bool

    def restored(self, kept: NDArray[np.float32] | None) -> bytes | None:
        """Return the vector as it was, bit by bit or, from a unit vector that an index kept, in its direction."""
        digest, blob = self.digest, self.blob
        if digest is None:
            return None
        if blob is not None and (found := one_bit_off(blob, lambda tried: vector_digest(self.row, tried) == digest)):
            return found
        if kept is None:
            return None
        exact = kept.astype("<f4").tobytes()
        if vector_digest(self.row, exact) == digest or blob is None or not self.usable:
            return exact
        there = vector_of(blob).astype(np.float64)
        norm = float(np.linalg.norm(there))
        # An index that was built of the damaged vector holds that one.
        return exact if not norm or float(there @ kept) / norm < _SAME else None


def one_bit_off(content: bytes, is_right: Callable[[bytes], bool]) -> bytes | None:
    """Return the content with the one bit flipped that makes it right; None if none does, or it is too long to try."""
    if 8 * len(content) > _MOST_BITS:
        return None
    tried = bytearray(content)
    for at in range(len(tried)):
        for bit in range(8):
            tried[at] ^= 1 << bit
            if is_right(bytes(tried)):
                return bytes(tried)
            tried[at] ^= 1 << bit
    return None


def require_sound(found: Iterable[tuple[Any, ...]]) -> None:
    """Insist that stored (id, row, title, text, metadata, vector, digest, vector's digest) are what was written.

    Raises:
        DamagedDatabase: one isn't; the message names it.
    """
    for doc_id, row, title, text, metadata, vector, digest, vouched in found:
        whole = stored_digest(title.encode(), text.encode(), metadata.encode()) == digest
        if not whole or (vector is not None and vouched is not None and vector_digest(row, vector) != vouched):
            raise DamagedDatabase(
                f"id {doc_id!r} is not what was written: run `vectorsearch repair`, or upsert it again"
            )


def stored_documents(conn: sqlite3.Connection) -> Iterator[StoredDocument]:
    """Yield every document, by row."""
    columns = ", ".join(f"CAST({name} AS BLOB)" for name in ("id", "title", "text", "metadata", "digest"))
    for stored in conn.execute(f"SELECT row, {columns} FROM documents ORDER BY row"):  # noqa: S608 -- constants, no input
        yield StoredDocument(*stored)


def wrong_vectors(conn: sqlite3.Connection) -> Iterator[WrongVector]:
    """Yield what is wrong with vectors, by row."""
    dim = conn.execute("SELECT value FROM meta WHERE key = 'dim'").fetchone()
    nbytes = dim and 4 * int(dim[0])
    for row, blob, digest, doc_id in conn.execute(_vectors_query(conn)):
        whose = f"id {doc_id.decode(errors='replace')!r}" if doc_id is not None else f"row {row}"
        if doc_id is None:
            yield WrongVector(row, blob, digest, f"a vector belongs to no document (row {row})", usable=False)
        elif blob is None:
            yield WrongVector(row, blob, digest, f"the vector of {whose} is gone: upsert it again", usable=False)
        elif len(blob) != nbytes:
            what = f"the vector of {whose} has {len(blob)} bytes, and the database's have {nbytes}: upsert it again"
            yield WrongVector(row, blob, digest, what, usable=False)
        elif not np.isfinite(vector_of(blob)).all():
            what = f"the vector of {whose} holds NaN or infinity: upsert it again"
            yield WrongVector(row, blob, digest, what, usable=False)
        elif digest is not None and digest != vector_digest(row, blob):
            what = f"the vector of {whose} is not what was written: upsert it again"
            yield WrongVector(row, blob, digest, what, usable=True)


def _vectors_query(conn: sqlite3.Connection) -> str:
    if conn.execute("PRAGMA user_version").fetchone()[0] < WITH_DIGESTS:  # open to read: nobody vouched for them yet
        return """
        SELECT v.row, CAST(v.vector AS BLOB), NULL, CAST(d.id AS BLOB)
        FROM vectors v LEFT JOIN documents d ON d.row = v.row ORDER BY v.row
        """
    return """
    SELECT v.row, CAST(v.vector AS BLOB), g.digest, CAST(d.id AS BLOB) FROM vectors v
    LEFT JOIN vector_digests g ON g.row = v.row LEFT JOIN documents d ON d.row = v.row
    UNION ALL
    SELECT g.row, NULL, g.digest, CAST(d.id AS BLOB) FROM vector_digests g LEFT JOIN documents d ON d.row = g.row
    WHERE g.row NOT IN (SELECT row FROM vectors)
    ORDER BY 1
    """


def mend(store: Connections, kept: Kept) -> tuple[str, ...]:
    """Make counts true, restore documents and vectors, and return what was restored, in words.

    `kept(rows)` gives vectors that an index holds. What can't be restored stays as it is, unless no search could use
    it, and is marked: verifying names it until it is stored anew, which is then no repetition. All that was derived so
    far is another history's from here on.
    """
    with store.reading() as conn:
        conn.execute("BEGIN")
        vectors = list(wrong_vectors(conn))
        documents = [doc for doc in stored_documents(conn) if not (doc.given_up or doc.is_sound())]
    held = kept([wrong.row for wrong in vectors])
    told: list[str] = []
    with store.transaction() as conn:
        for wrong in vectors:
            told += _mend_vector(conn, wrong, wrong.restored(held.get(wrong.row)))
        for document in documents:
            told += _mend_document(conn, document, document.restored())
        conn.execute("DELETE FROM deletions WHERE row IN (SELECT row FROM documents)")
        conn.execute(_RECOUNT)
        lineage.begin_anew(conn)
    return tuple(told)


_RECOUNT = """
UPDATE state SET documents = (SELECT count(*) FROM documents), vectors = (SELECT count(*) FROM vectors),
seq = max(seq, coalesce((SELECT max(row) FROM documents), 0), coalesce((SELECT max(seq) FROM deletions), 0))
"""


def _mend_vector(conn: sqlite3.Connection, wrong: WrongVector, blob: bytes | None) -> list[str]:
    if blob is not None:
        values: tuple[Any, ...] = (wrong.row, blob)
        conn.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", values)
        digest = (wrong.row, vector_digest(wrong.row, blob))
        conn.execute(
            "INSERT INTO vector_digests (row, digest) VALUES (?, ?) "
            "ON CONFLICT (row) DO UPDATE SET digest = excluded.digest",
            digest,
        )
        return [f"the vector of row {wrong.row} is restored"]
    if not wrong.usable:
        conn.execute("DELETE FROM vectors WHERE row = ?", (wrong.row,))
        conn.execute("DELETE FROM vector_digests WHERE row = ?", (wrong.row,))
    conn.execute("UPDATE documents SET digest = ? WHERE row = ?", (_GIVEN_UP, wrong.row))
    return []


def _mend_document(
    conn: sqlite3.Connection, document: StoredDocument, parts: tuple[bytes, bytes, bytes] | None
) -> list[str]:
    given_up = parts is None
    title, text, metadata = (part.decode(errors="replace") for part in parts or document.readable())
    digest = _GIVEN_UP if given_up else document.digest
    conn.execute(
        "UPDATE documents SET title = ?, text = ?, metadata = ?, digest = ? WHERE row = ?",
        (title, text, metadata, digest, document.row),
    )
    return [] if given_up else [f"{document} is restored"]
