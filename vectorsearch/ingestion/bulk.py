"""Bulk ingest: rows of JSONL files become documents of a database, and bad rows go to a rejects file.

Files are BEIR or Anserini JSONL, plain or gzipped (told by their content), read as a stream. Rows that are stored
unchanged are skipped by their content digest before anything is embedded, so an interrupted run is resumed by
running it again. Nothing is printed here.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import numpy as np

from backends.errors import InvalidInput
from vectorsearch import config
from vectorsearch.collection.collection import content_digest
from vectorsearch.ingestion.documents import parse_document, parse_json

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from vectorsearch.types import Document, Written

STDIN = "-"
RAW_CHARACTERS = 1000  # of a rejected row; enough to recognise it
# One chunk is what a kill can lose, and the step of the progress bar: a few seconds of embedding.
DEFAULT_BATCH_SIZE = 64

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class IngestReport:
    """How far an ingest has come: `rows` is the sum of `stored`, `unchanged`, `rejected` and, on the way, `pending`.

    Of `truncated` stored ones the embedder read the beginning alone. `nbytes` of `total_nbytes` were read (compressed
    bytes of a gzipped file); the total is None for a pipe.
    `failures` are sources that could not be read to their end, in words.
    """

    rows: int = 0
    stored: int = 0
    unchanged: int = 0
    rejected: int = 0
    pending: int = 0
    nbytes: int = 0
    total_nbytes: int | None = None
    failures: tuple[str, ...] = ()
    truncated: int = 0

    @property
    def complete(self) -> bool:
        """Return whether every row of every source is stored."""
        return not (self.rejected or self.pending or self.failures)


class Target(Protocol):
    """Where rows go: a `Database`."""

    def get(self, doc_id: str) -> Document | None:
        """Return the document, or None if there is none."""

    def upsert(self, docs: Sequence[Document]) -> Written:
        """Store documents, and return how many changed."""


def ingest(
    db: Target,
    sources: Sequence[Path | str],
    *,
    rejects_path: Path,
    batch_size: int = DEFAULT_BATCH_SIZE,
    on_progress: Callable[[IngestReport], None] | None = None,
) -> IngestReport:
    """Store every row of the sources and return the counts.

    An id that is stored and comes again is rejected, unless its content is the same. To tell, the ids of this run
    are held in memory (about 100 bytes each).

    Args:
        db: where to; rows whose id is stored with other content replace it.
        sources: paths; `-` is standard input.
        rejects_path: a JSONL file of `{"source", "row", "reason", "raw"}`; `row` is the line's number from 1. It
            exists after the run only if there are any.
        batch_size: documents in one transaction, at most `config.EMBED_CHUNK_DOCUMENTS`.
        on_progress: called after each transaction.

    Raises:
        OSError: a source can't be opened; nothing is stored from it or from those after it.
        VectorSearchError: the embedder or the storage failed; the chunks before stay stored.
    """
    if batch_size < 1:
        raise InvalidInput(f"batch_size is {batch_size}: it is a number of documents, 1 or more")
    rejects_path.unlink(missing_ok=True)
    # `Database.upsert` splits longer chunks, and a failure in the middle would blur what was stored.
    size = min(batch_size, config.EMBED_CHUNK_DOCUMENTS)
    run = _Ingest(db, rejects_path, size, on_progress, total_nbytes=_total_nbytes(sources))
    try:
        for source in sources:
            run.read(source)
    finally:
        run.close()
    return run.report()


@dataclass(frozen=True, slots=True)
class _Row:
    source: str
    number: int
    raw: bytes
    document: Document


@dataclass(slots=True)
class _Ingest:
    """The state of one run."""

    db: Target
    rejects_path: Path
    batch_size: int
    on_progress: Callable[[IngestReport], None] | None
    total_nbytes: int | None
    rows: int = 0
    stored: int = 0
    unchanged: int = 0
    rejected: int = 0
    truncated: int = 0
    nbytes_before: int = 0  # of the sources that are done
    nbytes_here: int = 0
    failures: list[str] = field(default_factory=list)
    pending: list[_Row] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    rejects: TextIO | None = None

    def report(self) -> IngestReport:
        return IngestReport(
            rows=self.rows,
            stored=self.stored,
            unchanged=self.unchanged,
            rejected=self.rejected,
            pending=len(self.pending),
            nbytes=self.nbytes_before + self.nbytes_here,
            total_nbytes=self.total_nbytes,
            failures=tuple(self.failures),
            truncated=self.truncated,
        )

    def read(self, source: Path | str) -> None:
        name = str(source)
        self.nbytes_here = 0
        with _opened(source) as file:
            for number, line in self._lines(name, file):
                self._take(name, number, line)
                if len(self.pending) >= self.batch_size:
                    self.nbytes_here = _position(file)
                    self._flush()
            self.nbytes_before += _position(file)
        self.nbytes_here = 0
        self._flush()

    def close(self) -> None:
        if self.rejects is not None:
            self.rejects.close()

    def _lines(self, name: str, file: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
        """Yield (line number from 1, line); a damaged end is noted, and what came before it counts."""
        try:
            for number, line in enumerate(_unzipped(file), start=1):
                row = (line.removeprefix(_BOM) if number == 1 else line).strip(b" \t\r\n")
                if row:
                    yield number, row
        except (OSError, EOFError, zlib.error) as exc:
            self.failures.append(f"{name} can't be read to its end: {exc}")

    def _take(self, source: str, number: int, raw: bytes) -> None:
        self.rows += 1
        try:
            row = _Row(source, number, raw, _parse(raw, number))
        except InvalidInput as exc:
            self._reject(source, number, raw, str(exc))
            return
        doc_id = row.document.id
        if doc_id in self.seen:
            self._flush()  # only then is it known whether the row before it is stored
        if doc_id not in self.seen:
            self.seen.add(doc_id)
            self.pending.append(row)
        elif self._is_stored(row.document):
            self.unchanged += 1
        else:
            self._reject(source, number, raw, f"id {doc_id!r} came before in this run, with other content")

    def _is_stored(self, document: Document) -> bool:
        known = self.db.get(document.id)
        if known is None or content_digest(known) != content_digest(document):
            return False
        return document.vector is None or (known.vector is not None and np.array_equal(document.vector, known.vector))

    def _flush(self) -> None:
        rows, self.pending = self.pending, []
        if rows:
            self._store(rows)
        if self.on_progress is not None:
            self.on_progress(self.report())

    def _store(self, rows: list[_Row]) -> None:
        """Store the rows in one transaction; if the database refuses one, halve them until it stands alone."""
        try:
            stored = self.db.upsert([row.document for row in rows])
        except InvalidInput as exc:
            if len(rows) == 1:
                row = rows[0]
                self.seen.discard(row.document.id)  # it isn't stored, and another row of its id may be
                # The store counts from 0 within the batch; what helps is the line.
                self._reject(row.source, row.number, row.raw, re.sub(r"^row \d+", f"row {row.number}", str(exc)))
                return
            middle = len(rows) // 2
            self._store(rows[:middle])
            self._store(rows[middle:])
            return
        self.stored += stored
        self.truncated += stored.truncated
        self.unchanged += len(rows) - stored

    def _reject(self, source: str, number: int, raw: bytes, reason: str) -> None:
        self.rejected += 1
        if self.rejects is None:
            # Line by line, so that the reasons are there even if the run is killed.
            self.rejects = self.rejects_path.open("w", encoding="utf-8", buffering=1)
        text = raw[: 4 * RAW_CHARACTERS].decode("utf-8", errors="replace")[:RAW_CHARACTERS]
        row = {"source": source, "row": number, "reason": reason, "raw": text}
        self.rejects.write(json.dumps(row) + "\n")


def first_texts(sources: Sequence[Path | str], *, rows: int = 200) -> Iterator[str]:
    """Yield the texts of the first rows of files, to see what they are; none of standard input, which is read once."""
    for source in sources:
        if str(source) == STDIN:
            continue
        with _opened(source) as file, suppress(OSError, EOFError, zlib.error):  # `ingest` tells of what can't be read
            for number, raw in enumerate(islice(_unzipped(file), rows), 1):
                with suppress(InvalidInput):
                    yield _parse(raw, number).full_text


def _parse(raw: bytes, number: int) -> Document:
    return parse_document(parse_json(raw), row_number=number)


def _opened(source: Path | str) -> io.BufferedReader:
    if str(source) == STDIN:
        if sys.stdin is None:
            raise InvalidInput("standard input is closed: give a file, or pipe the rows in")
        return open(sys.stdin.fileno(), "rb", closefd=False)  # a descriptor has no path
    return Path(source).open("rb")


def _unzipped(file: io.BufferedReader) -> Iterable[bytes]:
    if file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
        return gzip.open(file)
    return file


def _position(file: io.BufferedReader) -> int:
    return file.tell() if file.seekable() else 0


def _total_nbytes(sources: Sequence[Path | str]) -> int | None:
    paths = [Path(source) for source in sources]
    if any(str(path) == STDIN or not path.is_file() for path in paths):
        return None
    return sum(path.stat().st_size for path in paths)
