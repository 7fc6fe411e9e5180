"""A collection against a dictionary: whatever is done to both, they hold and find the same."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.storage.errors import DuplicateId
from vectorsearch.types import Document

IDS = st.sampled_from([f"d{i}" for i in range(12)])
WORDS = st.sampled_from(["apple", "pear", "stone", "river"])
LANGUAGES = st.sampled_from(["en", "de", None])
DIM = 4


class CollectionMachine(RuleBasedStateMachine):
    """Writes, deletions, searches and reopenings in any order."""

    @initialize(
        dense=st.sampled_from(["exact", "auto", "Flat", "HNSW8"]), lexical=st.sampled_from(["tantivy", "rank-bm25"])
    )
    def create(self, dense: str, lexical: str) -> None:
        """Open an empty collection."""
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "db"
        self.settings = CollectionSettings(dense=dense, lexical=lexical)
        self.model: dict[str, Document] = {}
        self.number = 0
        self.open()

    def open(self) -> None:
        """Open the collection; without waiting for the disk, which a model can't see."""
        self.collection = Collection.open(self.path, self.settings, durable=False)

    def document(self, doc_id: str, word: str, language: str | None) -> Document:
        """Give a document with a vector that no other has."""
        self.number += 1
        vector = np.random.default_rng(self.number).standard_normal(DIM).astype(np.float32)
        return Document(doc_id, f"{word} {word} n{self.number}", metadata={"lang": language}, vector=vector)

    @rule(chosen=st.lists(st.tuples(IDS, WORDS, LANGUAGES), max_size=6, unique_by=lambda c: c[0]))
    def upsert(self, chosen: list[tuple[str, str, str | None]]) -> None:
        """Replace or add some documents."""
        batch = [self.document(*choice) for choice in chosen]
        assert self.collection.write(batch, on_conflict="replace") == len(batch)
        for doc in batch:
            self.model.pop(doc.id, None)
            self.model[doc.id] = doc

    @rule(doc_id=IDS, word=WORDS)
    def add(self, doc_id: str, word: str) -> None:
        """Add one document, which is refused if its id is known."""
        doc = self.document(doc_id, word, "en")
        try:
            self.collection.write([doc])
        except DuplicateId:
            assert doc_id in self.model
        else:
            assert doc_id not in self.model
            self.model[doc_id] = doc

    @rule(chosen=st.lists(IDS, max_size=4))
    def delete(self, chosen: list[str]) -> None:
        """Delete some documents, known or not."""
        known = set(chosen) & self.model.keys()
        assert self.collection.delete(chosen) == len(known)
        for doc_id in known:
            del self.model[doc_id]

    @rule(language=LANGUAGES, word=WORDS)
    def delete_where(self, language: str | None, word: str) -> None:
        """Delete what a filter with several operators lets through."""
        wanted = {"$and": [{"lang": {"$in": [language, "fr"]}}, {"word": {"$ne": word}}]}
        gone = [
            i for i, doc in self.model.items() if doc.metadata["lang"] == language and doc.metadata.get("word") != word
        ]
        assert self.collection.delete_where(wanted) == len(gone)
        for doc_id in gone:
            del self.model[doc_id]

    @rule(doc_id=IDS, word=WORDS, merge=st.booleans())
    def update_metadata(self, doc_id: str, word: str, *, merge: bool) -> None:
        """Change metadata, which moves a document to the end."""
        change = {"word": word} if merge else {"word": word, "lang": "fr"}
        assert self.collection.update_metadata({doc_id: change}, replace=not merge) == (doc_id in self.model)
        if doc_id in self.model:
            doc = self.model.pop(doc_id)
            self.model[doc_id] = replace(doc, metadata={**doc.metadata, **change} if merge else change)

    @rule(word=WORDS)
    def search_by_range(self, word: str) -> None:
        """Find what a range of strings lets through."""
        inside = {i for i, doc in self.model.items() if str(doc.metadata.get("word", "")) >= word}
        assert self.collection.count_where({"word": {"$gte": word}}) == len(inside)

    @rule()
    def compact(self) -> None:
        """Forget what was deleted."""
        self.collection.upkeep.compact()

    @rule()
    def repair(self) -> None:
        """Build the indexes again; there is never a fault."""
        assert self.collection.upkeep.repair().ok

    @rule()
    def go_on_with_a_snapshot(self) -> None:
        """Copy the collection, close it, and go on with the copy."""
        copy = tempfile.TemporaryDirectory()
        self.collection.upkeep.snapshot(Path(copy.name) / "copy")
        self.collection.close()
        self.folder.cleanup()
        self.folder = copy
        self.path = Path(copy.name) / "copy"
        self.open()

    @rule(word=WORDS, language=LANGUAGES)
    def search_words(self, word: str, language: str | None) -> None:
        """Find exactly the documents with a word, filtered or not."""
        with_word = {doc.id for doc in self.model.values() if word in doc.text}
        matching = {doc_id for doc_id in with_word if self.model[doc_id].metadata["lang"] == language}
        assert set(self.found(self.collection.lexical(word, 50))) == with_word
        assert set(self.found(self.collection.lexical(word, 50, {"lang": language}))) == matching

    @precondition(lambda self: self.model)
    @rule(data=st.data(), k=st.integers(0, 15), language=st.one_of(st.just("any"), LANGUAGES))
    def search_vectors(self, data: st.DataObject, k: int, language: str | None) -> None:
        """Find the nearest, in the order of exact search, filtered or not."""
        query = self.model[data.draw(st.sampled_from(sorted(self.model)))].vector
        assert query is not None
        unit = query / np.linalg.norm(query)
        allowed = [doc for doc in self.model.values() if language in ("any", doc.metadata["lang"])]
        cosine = {doc.id: float(doc.vector @ unit / np.linalg.norm(doc.vector)) for doc in allowed}
        wanted = None if language == "any" else {"lang": language}
        assert self.found(self.collection.dense(query, k, wanted)) == sorted(cosine, key=lambda i: -cosine[i])[:k]

    @rule()
    def reopen(self) -> None:
        """Close and open."""
        self.collection.close()
        self.open()

    @invariant()
    def holds_the_same(self) -> None:
        """The same documents in the same order of insertion."""
        if hasattr(self, "collection"):
            assert self.collection.count() == len(self.model)
            assert [(doc.id, doc.text) for doc in self.collection.iter()] == [
                (d.id, d.text) for d in self.model.values()
            ]

    def found(self, candidates: object) -> list[str]:
        """Return the ids of candidates, best first."""
        return [doc.id for doc in self.collection.fetch(candidates.rows)]  # type: ignore[attr-defined,union-attr]  # all are there

    def teardown(self) -> None:
        """Close the collection."""
        if hasattr(self, "collection"):
            self.collection.close()
            self.folder.cleanup()


CollectionMachine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestCollectionModel = CollectionMachine.TestCase
