"""The composition root: `open` puts documents, indexes, models and the planner together."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backends.errors import InvalidInput
from lifecycle import ModelManager
from vectorsearch import config
from vectorsearch.collection import Collection, CollectionSettings, stored_settings
from vectorsearch.database import Database
from vectorsearch.models import Models
from vectorsearch.query.request import is_count
from vectorsearch.space import digest_of, fingerprint_of
from vectorsearch.storage.errors import SettingsMismatch

if TYPE_CHECKING:
    from backends.base import ModelSpec

DEFAULT: Final = "default"


def open(  # noqa: A001 -- `vectorsearch.open` reads as `gzip.open` does
    path: str | Path | None = None,
    *,
    embed: str | Path | ModelSpec | None = DEFAULT,
    rerank: str | Path | ModelSpec | None = DEFAULT,
    budget_nbytes: int | None = None,
    backend: str | None = None,
    language: str | None = DEFAULT,
    lexical: str = DEFAULT,
    dense_index: str = "auto",
    rerank_cache_nbytes: int = 0,
    read_only: bool = False,
    manager: ModelManager | None = None,
) -> Database:
    """Open a database, or make one; downloads nothing and loads no model.

    For `embed`, `language` and `lexical`, `"default"` is what the database was made with.

    Args:
        path: a folder; None keeps everything in a temporary folder that `close` removes.
        embed: the model that embeds documents and queries: a catalogue name, or a folder in Hugging Face layout.
            None is for vectors of your own, or for none at all. A new database gets `bge-small-en-v1.5-int8`.
        rerank: the model of `search(rerank=True)`; `"default"` is `ms-marco-MiniLM-L-12-v2-int8`.
        budget_nbytes: hard ceiling for all loaded models; None is half the memory that this process may use.
        backend: a backend's name, such as `onnx`; None chooses the first that can serve a model.
        language: of stemming and stop words in lexical search; None for neither. A new database gets `en`.
        lexical: `tantivy`, or `rank-bm25` (the reference, in memory, for small collections).
        dense_index: `auto`, `exact`, `Flat`, or `HNSW32`; derived, so it may change between openings.
        rerank_cache_nbytes: how many bytes of rerank scores are remembered, by model, query and text; 0 is none.
        read_only: open beside a process that writes.
        manager: a lifecycle manager to share between databases; it stays open when the database is closed.

    Raises:
        NotADatabase: the folder holds something else.
        NewerFormat: a later release wrote it.
        SettingsMismatch: it was made with another model, analyser or engine.
        DatabaseLocked: another process, or another `open`, is writing to it.
        UnknownModel: there is no such model.
        InvalidInput: an argument can't be used.
    """
    if not isinstance(path, str | os.PathLike | None) or path == "":
        raise InvalidInput(f"path is {path!r}: name a folder, or None to keep everything in memory")
    folder = None if path is None else Path(path)
    stored = stored_settings(folder) if folder else None
    made_with = stored or CollectionSettings()
    budget_nbytes = _budget(budget_nbytes, manager)
    if not is_count(rerank_cache_nbytes):
        raise InvalidInput(f"rerank_cache_nbytes is {rerank_cache_nbytes!r}: it is a number of bytes, 0 or more")
    with contextlib.ExitStack() as opened:
        scratch = None
        if folder is None:
            scratch = opened.enter_context(tempfile.TemporaryDirectory(prefix="vectorsearch-"))
            folder = Path(scratch)
        lives = manager or opened.enter_context(ModelManager(budget_nbytes))
        models = Models(lives, backend)
        embedder = _embedder(models, embed, stored)
        settings = CollectionSettings(
            embed=_fingerprint(embedder, stored),
            dim=embedder.dim if embedder else None,
            language=language if language != DEFAULT else made_with.language,
            lexical=lexical if lexical != DEFAULT else made_with.lexical,
            dense=dense_index,
        )
        collection = Collection.open(folder, settings, read_only=read_only, durable=scratch is None)
        opened.push(contextlib.closing(collection))
        return Database(
            collection,
            models,
            embedder=embedder,
            reranker=config.DEFAULT_RERANKER if rerank == DEFAULT else rerank,
            rerank_cache_nbytes=rerank_cache_nbytes,
            resources=opened.pop_all(),
        )


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


def _embedder(
    models: Models, embed: str | Path | ModelSpec | None, stored: CollectionSettings | None
) -> ModelSpec | None:
    if embed != DEFAULT:
        return None if embed is None else models.resolve(embed, "embed")
    if stored is None:
        return models.resolve(config.DEFAULT_EMBEDDER, "embed")
    if stored.embed is None:
        return None
    source, _, digest = stored.embed.rpartition("@")
    spec = models.resolve(source, "embed")
    if not spec.digest.startswith(digest):
        raise SettingsMismatch(
            f"model {source!r} has changed: the database was made with digest {digest}, and it is now "
            f"{spec.digest[: len(digest)]}: bring the old files back, or index into a new folder"
        )
    return spec


def _fingerprint(embedder: ModelSpec | None, stored: CollectionSettings | None) -> str | None:
    """Name the embedder as `fingerprint_of`, or as the database knows it already."""
    if embedder is None:
        return None
    if stored and stored.embed and stored.embed.endswith(f"@{digest_of(embedder)}"):
        return stored.embed  # the same model, wherever its folder lies now
    return fingerprint_of(embedder)
