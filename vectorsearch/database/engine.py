"""The composition root: `open` puts documents, indexes, models and the planner together."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from backends.choosing import registry
from backends.errors import InvalidInput
from lifecycle import ModelManager
from vectorsearch import config
from vectorsearch.collection.collection import stored_settings
from vectorsearch.collection.index.index_budget import IndexBudget
from vectorsearch.collection.storage.registry import Registry
from vectorsearch.database.assembly import DEFAULT, Assembly, Choices
from vectorsearch.database.place import local_folder
from vectorsearch.models.model_files import ModelFiles
from vectorsearch.query.planning.request import is_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backends.base import ModelSpec
    from vectorsearch.database.database import Database

__all__ = ["DEFAULT", "open"]


def open(  # noqa: A001 -- `vectorsearch.open` reads as `gzip.open` does
    path: str | Path | None = None,
    *,
    embed: str | Path | ModelSpec | None = DEFAULT,
    rerank: str | Path | ModelSpec | None = DEFAULT,
    budget_nbytes: int | None = None,
    backend: str | None = None,
    language: str | None = DEFAULT,
    stop_words: Iterable[str] | Literal["default", "own"] | None = DEFAULT,
    fold_accents: bool | Literal["default"] = DEFAULT,
    k1: float | Literal["default"] = DEFAULT,
    b: float | Literal["default"] = DEFAULT,
    lexical: str = DEFAULT,
    dense_index: str = "auto",
    rerank_cache_nbytes: int = 0,
    index_budget_nbytes: int | None = None,
    read_only: bool = False,
    manager: ModelManager | None = None,
) -> Database:
    """Open a database, or make one; downloads nothing and loads no model.

    For `embed`, `lexical`, and whatever says how words are cut and scored, `"default"` is what the database was made
    with or has now. Other words than it has are taken over, if it is opened to write, and the index of words is built
    again from the documents; a warning of the logger `vectorsearch` says so. Where that embedder can't be
    had any more, all works that embeds nothing, the rest raises ModelUnavailable, and `Database.reindex` takes another.

    Args:
        path: a folder of this machine, and no URL; None keeps everything in a temporary folder that `close` removes.
        embed: the model that embeds documents and queries: a catalogue name, or a folder in Hugging Face layout.
            None is for vectors of your own, or for none at all. A new database gets `bge-small-en-v1.5-int8`.
        rerank: the model of `search(rerank=True)`; `"default"` is `ms-marco-MiniLM-L-12-v2-int8`.
        budget_nbytes: hard ceiling for all loaded models; None is half the memory that this process may use.
        backend: a backend's name, such as `onnx`; None chooses the first that can serve a model.
        language: of stemming and stop words in lexical search, by code or English name (`languages` has all of
            them); None for neither. A new database gets `en`.
        stop_words: words that count for nothing, in place of the language's own; None or [] for none. `"own"` are the
            language's, as in a new database; Arabic, Greek, Hindi, Romanian, Tamil and Turkish have none.
        fold_accents: whether words are the same that differ in accents only; not so in a new database.
        k1: BM25's constant of repeated words, 1.2 in a new database.
        b: BM25's constant of length, from 0 to 1, 0.75 in a new database.
        lexical: `tantivy`, or `rank-bm25` (the reference, in memory, for small collections).
        dense_index: `auto`, `exact`, `Flat`, or `HNSW32`; derived, so it may change between openings.
        rerank_cache_nbytes: how many bytes of rerank scores are remembered, by model, query and text; 0 is none.
        index_budget_nbytes: what the indexes of this database and its tenants may take in memory together; beyond it
            those used least recently are closed, and open again when they are used. None is no limit.
            `Database.info` tells what each takes.
        read_only: open beside a process that writes.
        manager: a lifecycle manager to share between databases; it stays open when the database is closed.

    Raises:
        NotADatabase: the folder holds something else.
        NewerFormat: a later release wrote it.
        SettingsMismatch: it was made with another model or engine, or other words are wanted of it `read_only`.
        DatabaseLocked: another process, or another `open`, is writing to it.
        UnknownModel: there is no such model.
        InvalidInput: an argument can't be used.
    """
    if not isinstance(path, str | os.PathLike | None) or path == "":
        raise InvalidInput(f"path is {path!r}: name a folder, or None to keep everything in memory")
    if not isinstance(read_only, bool):
        raise InvalidInput(f"read_only is {read_only!r}: it is True or False")
    if manager is not None and not isinstance(manager, ModelManager):
        raise InvalidInput(f"manager is {manager!r}: give a lifecycle.ModelManager, or None for one of its own")
    if backend is not None:
        registry.get(backend)  # raises if there is none
    folder = None if path is None else local_folder(path)
    budget_nbytes = _budget(budget_nbytes, manager)
    if not is_count(rerank_cache_nbytes):
        raise InvalidInput(f"rerank_cache_nbytes is {rerank_cache_nbytes!r}: it is a number of bytes, 0 or more")
    if index_budget_nbytes is not None and not is_count(index_budget_nbytes):
        raise InvalidInput(f"index_budget_nbytes is {index_budget_nbytes!r}: it is a number of bytes, 0 or more")
    if folder is not None:
        stored_settings(folder)  # refuses what is no database before anything is made
    with contextlib.ExitStack() as resources:
        scratch = None
        if folder is None:
            scratch = folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="vectorsearch-")))
        assembly = Assembly(
            folder=folder,
            manager=manager or resources.enter_context(ModelManager(budget_nbytes)),
            backend=backend,
            registry=Registry(folder),
            files=ModelFiles(folder),
            read_only=read_only,
            durable=scratch is None,
            rerank_cache_nbytes=rerank_cache_nbytes,
            index_budget=IndexBudget(index_budget_nbytes),
        )
        choices = Choices(
            embed=embed,
            rerank=rerank,
            language=language,
            stop_words=stop_words,
            fold_accents=fold_accents,
            k1=k1,
            b=b,
            lexical=lexical,
            dense_index=dense_index,
        )
        return assembly.open_root(choices, resources)


def _budget(budget_nbytes: object, manager: ModelManager | None) -> int:
    """Return the ceiling for all models, in bytes.

    Raises:
        InvalidInput: it is no number of bytes, or a shared manager has its own.
    """
    if manager is not None:
        if budget_nbytes is not None:
            raise InvalidInput("budget_nbytes and manager are both given: a shared manager has its own budget")
        return manager.budget_nbytes
    if budget_nbytes is None:
        return config.default_budget_nbytes()
    if (
        isinstance(budget_nbytes, bool)
        or not isinstance(budget_nbytes, int | float)
        or not 0 <= budget_nbytes < math.inf
    ):
        raise InvalidInput(f"budget_nbytes is {budget_nbytes!r}: it is a number of bytes, 0 or more")
    return int(budget_nbytes)
