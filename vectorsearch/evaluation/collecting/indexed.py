"""The database of a test collection: indexed into the cache once, under a digest of what it is made of."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

from backends.catalogue import catalogue
from vectorsearch import config
from vectorsearch.collection.storage.errors import DatabaseLocked, ReadOnlyDatabase
from vectorsearch.database.engine import DEFAULT
from vectorsearch.database.engine import open as open_database
from vectorsearch.evaluation.journal import digest_files
from vectorsearch.evaluation.systems import EvaluationFailed
from vectorsearch.ingestion.bulk import ingest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.collecting.collections import TestCollection
    from vectorsearch.evaluation.systems import System
    from vectorsearch.ingestion.bulk import IngestReport

    Index = Callable[[Database, Path, Path], IngestReport]

_COMPLETE = "complete"  # a file in a cached database: every row of the corpus is in
REJECTS_NAME = "rejects.jsonl"


def index_corpus(database: Database, corpus: Path, rejects: Path) -> IngestReport:
    """Store the corpus and bring the indexes up to date; rows that can't be stored go to `rejects`."""
    report = ingest(database, [corpus], rejects_path=rejects)
    database.refresh()
    return report


def open_collection(
    collection: TestCollection,
    *,
    embed: str | None = DEFAULT,
    backend: str | None = None,
    language: str | None = DEFAULT,
    index: Index = index_corpus,
) -> Database:
    """Return the cached database of a collection, indexed now if it isn't complete. The caller closes it.

    Args:
        collection: what to index.
        embed: the embedding model; None for none, as suffices where only lexical systems are measured.
        backend: as in `vectorsearch.open`.
        language: as in `vectorsearch.open`.
        index: what fills the database, so that a command line can show how far it is.

    Raises:
        EvaluationFailed: rows of the corpus were rejected.
        VectorSearchError: as `vectorsearch.open`.
    """
    embedder = None if embed is None else catalogue.resolve(config.DEFAULT_EMBEDDER if embed == DEFAULT else embed)
    made_of = (digest_files([collection.corpus_path]), embedder.digest if embedder else None, backend, language)
    name = f"{collection.name}-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]}"
    folder = catalogue.cache_dir() / "collections" / name
    if (folder / _COMPLETE).exists():
        try:
            return open_database(folder, backend=backend)
        except (DatabaseLocked, ReadOnlyDatabase):
            return open_database(folder, backend=backend, read_only=True)
    with ExitStack() as on_error:
        database = open_database(folder, embed=embed, backend=backend, language=language)
        on_error.callback(database.close)
        _refuse_rejects(index(database, collection.corpus_path, folder / REJECTS_NAME), collection, folder)
        (folder / _COMPLETE).touch()
        on_error.pop_all()
    return database


def needs_embedder(systems: Iterable[System]) -> bool:
    """Return whether any of the systems searches vectors."""
    return any(system.mode != "lexical" for system in systems)


def _refuse_rejects(report: IngestReport, collection: TestCollection, folder: Path) -> None:
    if not report.complete:
        failures = "".join(f"; {failure}" for failure in report.failures)
        raise EvaluationFailed(
            f"{report.rejected} rows of {collection.corpus_path} were rejected, so figures would be of another "
            f"collection: see {folder / REJECTS_NAME}{failures}"
        )
