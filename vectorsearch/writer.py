"""Rows to stored documents: read in chunks, checked, left out if unchanged, embedded, written in one transaction."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

import numpy as np

from vectorsearch import config
from vectorsearch.collection import content_digest
from vectorsearch.documents import parse_documents
from vectorsearch.space import digest_of
from vectorsearch.storage.errors import SpaceChanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from backends.base import ModelSpec
    from vectorsearch.collection import Collection
    from vectorsearch.models import Models
    from vectorsearch.space import EmbeddingSpace
    from vectorsearch.storage.store import OnConflict
    from vectorsearch.types import Document

    Rows = Iterable[Mapping[str, Any] | Document]


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes to one collection; documents without a vector get the embedder's, if there is an embedder."""

    collection: Collection
    models: Models
    space: EmbeddingSpace

    def write(self, docs: Rows, *, replace: bool) -> int:
        """Store documents and return how many; see `Database.add` and `Database.upsert`."""
        self.collection.check_writable()  # before a model is loaded for what can't be stored
        documents = parse_documents(docs)
        size = config.WRITE_CHUNK_DOCUMENTS if self.space.embedder is None else config.EMBED_CHUNK_DOCUMENTS
        on_conflict: OnConflict = "replace" if replace else "error"
        seen = written = 0
        try:
            while chunk := list(itertools.islice(documents, size)):
                # Of an id that comes twice the last counts, in one chunk as in two.
                wanted = list({document.id: document for document in chunk}.values()) if replace else chunk
                self.collection.check(wanted, first_row=seen)
                seen += len(chunk)
                wanted = self._changed(wanted) if replace else wanted
                written += self._store(wanted, on_conflict)
        except BaseException as exc:  # the rows' own iterator may raise anything; it goes on as it is
            if written:
                exc.add_note(f"{written} documents before this chunk are stored, and nothing of the chunk itself")
            raise
        return written

    def _changed(self, chunk: list[Document]) -> list[Document]:
        """Leave out what is stored already, so that an interrupted bulk upsert goes on without embedding again."""
        known = self.collection.digests([document.id for document in chunk])
        same = [document for document in chunk if known.get(document.id) == content_digest(document)]
        stored = self.collection.get([document.id for document in same if document.vector is not None])
        vectors = {before.id: before.vector for before in stored if before is not None and before.vector is not None}
        unchanged = {
            document.id
            for document in same
            if document.vector is None
            or (
                document.id in vectors and np.array_equal(vectors[document.id], np.asarray(document.vector, np.float32))
            )
        }
        return [document for document in chunk if document.id not in unchanged]

    def _store(self, chunk: list[Document], on_conflict: OnConflict) -> int:
        while True:
            embedder = self.space.embedder
            made_by = None if embedder is None else digest_of(embedder)
            try:
                return self.collection.write(self._embedded(chunk, embedder), on_conflict=on_conflict, made_by=made_by)
            except SpaceChanged:  # the vectors were exchanged while these were made: they are no use
                continue

    def _embedded(self, chunk: list[Document], embedder: ModelSpec | None) -> list[Document]:
        """Give each document without a vector the embedder's, if there is an embedder."""
        missing = [i for i, document in enumerate(chunk) if document.vector is None]
        if embedder is None or not missing:
            return chunk
        encoder = self.models.encoder(embedder, "bulk")
        vectors = encoder.encode_passages([chunk[i].full_text for i in missing]).vectors
        complete = list(chunk)
        for i, vector in zip(missing, vectors, strict=True):
            complete[i] = replaced(chunk[i], vector=vector)
        return complete
