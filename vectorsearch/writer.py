"""Rows to stored documents: read in chunks, checked, left out if unchanged, embedded, written in one transaction."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, get_args

import numpy as np

from backends.errors import InvalidInput
from vectorsearch import config
from vectorsearch.collection import content_digest
from vectorsearch.documents import parse_documents
from vectorsearch.rows import iter_rows, with_vectors
from vectorsearch.space import digest_of
from vectorsearch.storage.errors import SpaceChanged
from vectorsearch.storage.store import OnConflict
from vectorsearch.types import Written
from vectorsearch.write_rate import WriteRate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.base import ModelSpec
    from backends.selection import Workload
    from vectorsearch.collection import Collection
    from vectorsearch.models import Models
    from vectorsearch.rows import Rows, Vectors
    from vectorsearch.space import EmbeddingSpace
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
        self.collection.check(documents, rows=rows, on_conflict=on_conflict)
        if on_conflict != "error":
            documents = self._new(documents, on_conflict)
        return self._store(documents, on_conflict) if documents else Written(0)

    def _new(self, documents: list[Document], on_conflict: OnConflict) -> list[Document]:
        """Leave out what is stored already, so that an interrupted run goes on without embedding it again.

        Documents to be replaced are only left out if they are stored unchanged.
        """
        known = self.collection.digests([document.id for document in documents])
        if on_conflict == "skip":
            return [document for document in documents if document.id not in known]
        same = [document for document in documents if known.get(document.id) == content_digest(document)]
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
        return [document for document in documents if document.id not in unchanged]

    def _store(self, documents: list[Document], on_conflict: OnConflict) -> Written:
        while True:
            embedder = self.space.embedder
            made_by = None if embedder is None else digest_of(embedder)
            try:
                embedded, truncated = self._embedded(documents, embedder)
                return self.collection.write(embedded, on_conflict=on_conflict, made_by=made_by, truncated=truncated)
            except SpaceChanged:  # the vectors were exchanged while these were made: they are no use
                continue

    def _embedded(
        self, documents: Sequence[Document], embedder: ModelSpec | None
    ) -> tuple[list[Document], frozenset[str]]:
        """Give each document without a vector the embedder's, if there is one, and the ids of those that it cut."""
        complete = list(documents)
        missing = [i for i, document in enumerate(documents) if document.vector is None]
        if embedder is None or not missing:
            return complete, frozenset()
        texts = [documents[i].full_text for i in missing]
        encoding = self.models.encoder(embedder, self._workload(embedder, texts)).encode_passages(texts)
        for i, vector in zip(missing, encoding.vectors, strict=True):
            complete[i] = replaced(documents[i], vector=vector)
        return complete, frozenset(documents[i].id for i, cut in zip(missing, encoding.cut, strict=True) if cut)

    def _workload(self, embedder: ModelSpec, texts: Sequence[str]) -> Workload:
        return self.rate.workload(
            sum(map(len, texts)),
            query_is_resident=self.models.is_resident(embedder, "query"),
            bulk_is_resident=self.models.is_resident(embedder, "bulk"),
        )
