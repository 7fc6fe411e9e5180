"""Rows to stored documents: read in chunks, checked, left out if unchanged, embedded, written in one transaction."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

import numpy as np

from backends.errors import InvalidInput
from vectorsearch import config
from vectorsearch.collection.storage.errors import SpaceChanged
from vectorsearch.collection.storage.sqlite.records import embedded, vector_of
from vectorsearch.collection.storage.sqlite.store import OnConflict
from vectorsearch.ingestion.documents import parse_documents
from vectorsearch.ingestion.rows import iter_rows, with_vectors
from vectorsearch.ingestion.write_rate import WriteRate
from vectorsearch.models.space import digest_of
from vectorsearch.types import Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.base import ModelSpec
    from backends.choosing.selection import Workload
    from vectorsearch.collection.collection import Collection
    from vectorsearch.collection.storage.sqlite.records import Record
    from vectorsearch.ingestion.rows import Rows, Vectors
    from vectorsearch.models.resolving import Models
    from vectorsearch.models.space import EmbeddingSpace
    from vectorsearch.types import Document


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes to one collection; documents without a vector get the embedder's, if there is an embedder."""

    collection: Collection
    models: Models
    space: EmbeddingSpace
    rate: WriteRate = field(default_factory=WriteRate)

    def write(self, docs: Rows, *, on_conflict: OnConflict, vectors: Vectors | None = None) -> Written:
        """Store documents and return how many; see `Database.add` and `Database.upsert`."""
        if on_conflict not in get_args(OnConflict):
            raise InvalidInput(f"on_conflict is {on_conflict!r}: use 'error', 'skip' or 'replace'")
        self.collection.check_writable()  # before a model is loaded for what can't be stored
        rows = iter_rows(docs)
        numbered = enumerate(parse_documents(rows if vectors is None else with_vectors(rows, vectors)))
        size = config.WRITE_CHUNK_DOCUMENTS if self.space.embedder is None else config.EMBED_CHUNK_DOCUMENTS
        written = Written(0)
        try:
            while chunk := list(itertools.islice(numbered, size)):
                more = self._write_chunk(chunk, on_conflict)
                written = Written(written + more, written.truncated + more.truncated)
        except BaseException as exc:  # the rows' own iterator may raise anything; it goes on as it is
            if written:
                of_this = (
                    "nothing" if isinstance(exc, Exception) else "all or nothing"
                )  # an interrupt may meet the commit
                exc.add_note(f"{written} documents before this chunk are stored, and {of_this} of the chunk itself")
            raise
        return written

    def _write_chunk(self, chunk: list[tuple[int, Document]], on_conflict: OnConflict) -> Written:
        if on_conflict != "error":
            # Of an id that comes twice the last counts, or the first where none is replaced: in one chunk as in two.
            kept: dict[str, tuple[int, Document]] = {}
            for row, document in chunk:
                if on_conflict == "replace" or document.id not in kept:
                    kept[document.id] = row, document
            chunk = list(kept.values())
        rows, documents = [row for row, _ in chunk], [document for _, document in chunk]
        records = self.collection.check(documents, rows=rows, on_conflict=on_conflict)
        if on_conflict != "error":
            records = self._new(records, on_conflict)
        return self._store(records, on_conflict) if records else Written(0)

    def _new(self, records: list[Record], on_conflict: OnConflict) -> list[Record]:
        """Leave out what is stored already, so that an interrupted run goes on without embedding it again.

        Documents to be replaced are only left out if they are stored unchanged.
        """
        known = self.collection.digests([record.id for record in records])
        if on_conflict == "skip":
            return [record for record in records if record.id not in known]
        same = [record for record in records if known.get(record.id) == record.digest.hex()]
        stored = self.collection.get([record.id for record in same if record.vector is not None])
        vectors = {before.id: before.vector for before in stored if before is not None and before.vector is not None}
        unchanged = {
            record.id
            for record in same
            if record.vector is None
            or (record.id in vectors and np.array_equal(vectors[record.id], vector_of(record.vector)))
        }
        return [record for record in records if record.id not in unchanged]

    def _store(self, records: list[Record], on_conflict: OnConflict) -> Written:
        while True:
            embedder = self.space.embedder
            made_by = None if embedder is None else digest_of(embedder)
            try:
                complete = self._embedded(records, embedder)
                return self.collection.write_records(complete, on_conflict=on_conflict, made_by=made_by)
            except SpaceChanged:  # the vectors were exchanged while these were made: they are no use
                continue

    def _embedded(self, records: Sequence[Record], embedder: ModelSpec | None) -> list[Record]:
        """Give each document without a vector the embedder's, if there is one."""
        complete = list(records)
        missing = [i for i, record in enumerate(records) if record.vector is None]
        if embedder is None or not missing:
            return complete
        texts = [records[i].full_text for i in missing]
        encoding = self.models.encoder(embedder, self._workload(embedder, texts)).encode_passages(texts)
        for i, vector, cut in zip(missing, encoding.vectors, encoding.cut, strict=True):
            complete[i] = embedded(records[i], vector, truncated=bool(cut))
        return complete

    def _workload(self, embedder: ModelSpec, texts: Sequence[str]) -> Workload:
        return self.rate.workload(
            sum(map(len, texts)),
            query_is_resident=self.models.is_resident(embedder, "query"),
            bulk_is_resident=self.models.is_resident(embedder, "bulk"),
        )
