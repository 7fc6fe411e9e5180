"""The composition root: `open` puts documents, indexes, models and the planner together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lifecycle import ModelManager
from vectorsearch.database import Database

if TYPE_CHECKING:
    from backends.base import ModelSpec

DEFAULT = "default"


def open(  # noqa: A001 -- `vectorsearch.open` reads as `gzip.open` and `sqlite3.connect` do
    path: str | Path | None = None,
    *,
    embed: str | Path | ModelSpec | None = DEFAULT,
    rerank: str | Path | ModelSpec | None = DEFAULT,
    budget_nbytes: int | None = None,
    backend: str | None = None,
    language: str | None = "en",
    lexical: str = "tantivy",
    dense_index: str = "auto",
    read_only: bool = False,
    manager: ModelManager | None = None,
) -> Database:
    """Open a database, or make one; downloads nothing and loads no model.

    Args:
        path: a folder; None keeps everything in a temporary folder that `close` removes.
        embed: the model that embeds documents and queries: a catalogue name, or a folder in Hugging Face layout.
            `"default"` is the one that the database was made with, and `bge-small-en-v1.5-int8` for a new one.
            None is for vectors of your own, or for none at all.
        rerank: the model of `search(rerank=True)`; `"default"` is `ms-marco-MiniLM-L-12-v2-int8`.
        budget_nbytes: hard ceiling for all loaded models; None is half the memory that this process may use.
        backend: a backend's name, such as `onnx`; None chooses the first that can serve a model.
        language: language of stemming and stop words in lexical search; None for neither.
        lexical: `tantivy`, or `rank-bm25` (the reference, in memory, for small collections).
        dense_index: `auto`, `exact`, or a FAISS factory string such as `HNSW32`.
        read_only: open beside a process that writes.
        manager: a lifecycle manager to share between databases; it stays open when the database is closed.

    Raises:
        NotADatabase: the folder holds something else.
        NewerFormat: it was written by a newer version.
        SettingsMismatch: it was made with another model, analyser or engine.
        DatabaseLocked: another process, or another `open`, is writing to it.
        UnknownModel: there is no such model.
    """
