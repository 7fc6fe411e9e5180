"""Put the parts of one store's databases together: the root's, and those of its tenants."""

from __future__ import annotations

import contextlib
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from backends.base import ModelSpec
from backends.catalogue import catalogue
from backends.catalogue.catalogue import is_same_model
from backends.errors import BackendError, UnknownModel
from backends.text.analyzer import Analyzer, listed
from backends.text.languages import language_code
from vectorsearch import config
from vectorsearch.collection.collection import Collection, CollectionSettings, stored_settings
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.collection.storage.sqlite.settings import WORD_SETTINGS
from vectorsearch.database.database import Database
from vectorsearch.database.tenants import Tenants
from vectorsearch.database.top import Publisher
from vectorsearch.models.dot_product import indexed_dim
from vectorsearch.models.registration import Registration
from vectorsearch.models.resolving import Models
from vectorsearch.models.space import AbsentModel, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from lifecycle import ModelManager
    from vectorsearch.collection.index.index_budget import IndexBudget
    from vectorsearch.collection.storage.registry import Registry
    from vectorsearch.models.model_files import ModelFiles

DEFAULT: Final = "default"
OWN: Final = "own"  # the stop words of the language


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """How one database is to be opened; "default" is what it was made with. See `vectorsearch.open`."""

    embed: str | Path | ModelSpec | None = DEFAULT
    rerank: str | Path | ModelSpec | None = DEFAULT
    language: str | None = DEFAULT
    stop_words: Iterable[str] | Literal["default", "own"] | None = DEFAULT
    fold_accents: bool | Literal["default"] = DEFAULT
    k1: float | Literal["default"] = DEFAULT
    b: float | Literal["default"] = DEFAULT
    lexical: str = DEFAULT
    dense_index: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """What the databases of one store have in common."""

    folder: Path
    manager: ModelManager
    backend: str | None
    registry: Registry
    files: ModelFiles
    read_only: bool
    durable: bool
    rerank_cache_nbytes: int
    index_budget: IndexBudget

    def open_root(self, choices: Choices, resources: contextlib.ExitStack) -> Database:
        """Open the store's own database, which closes its tenants' and then `resources` when it is closed."""

        def open_one(folder: Path, name: str, **options: Any) -> Database:  # noqa: ANN401 -- those of `Choices`
            with contextlib.ExitStack() as own:
                return self._open(folder, name, Choices(**options), root.embedder, own)  # checked where they are used

        def tenants() -> Tenants[Database]:
            return Tenants(self.folder, self.registry, self.files, self.manager, open_one, read_only=self.read_only)

        root = self._open(self.folder, "", choices, config.DEFAULT_EMBEDDER, resources, make_tenants=tenants)
        return root

    def _open(
        self,
        folder: Path,
        tenant: str,
        choices: Choices,
        default: str | ModelSpec | None,
        resources: contextlib.ExitStack,
        *,
        make_tenants: Callable[[], Tenants[Database]] | None = None,
    ) -> Database:
        stored = stored_settings(folder)
        made_with = stored or CollectionSettings()
        models = Models(self.manager, self.backend, tenant=tenant)
        resources.callback(models.close)
        registration = Registration(models, self.registry, self.files, read_only=self.read_only)
        if choices.rerank is not None and choices.rerank != DEFAULT:
            models.resolve(choices.rerank, "cross-encode")
        embedder = self._embedder(folder, models, choices.embed, stored, default)
        settings = CollectionSettings(
            embed=_fingerprint(embedder, models, stored),
            dim=indexed_dim(embedder) if embedder else None,
            lexical=choices.lexical if choices.lexical != DEFAULT else made_with.lexical,
            dense=choices.dense_index,
            **_words(choices, made_with),
        )
        collection = Collection.open(
            folder, settings, read_only=self.read_only, durable=self.durable, index_budget=self.index_budget
        )
        resources.push(contextlib.closing(collection))
        # Only now: this process is the one that writes, so what a cut-off run has left may be swept.
        if make_tenants:
            self.registry.bind(collection.upkeep.store)
        tenants = make_tenants() if make_tenants else None
        publisher = None
        if tenants is not None:
            resources.callback(tenants.close)
            if self.durable and not self.read_only:
                publisher = Publisher(folder, self.manager.snapshot).start()
                resources.callback(publisher.close)
        database = Database(
            collection,
            models,
            embedder=embedder,
            reranker=config.DEFAULT_RERANKER if choices.rerank == DEFAULT else choices.rerank,
            rerank_cache_nbytes=self.rerank_cache_nbytes,
            registration=registration,
            tenants=tenants,
            resources=resources.pop_all(),
        )
        if publisher is not None:
            weakref.finalize(database, publisher.end).atexit = False  # where nobody closes it
        return database

    def _embedder(
        self,
        folder: Path,
        models: Models,
        embed: str | Path | ModelSpec | None,
        stored: CollectionSettings | None,
        default: str | ModelSpec | None,
    ) -> ModelSpec | None:
        if embed != DEFAULT:
            return None if embed is None else models.resolve(embed, "embed")
        if stored is None:
            if isinstance(default, AbsentModel):
                raise default.error()
            return None if default is None else models.resolve(default, "embed")
        if stored.embed is None:
            return None
        source, _, digest = stored.embed.rpartition("@")
        if isinstance(default, ModelSpec) and is_same_model(default, digest) and not isinstance(default, AbsentModel):
            return default  # a tenant's, if it is the store's own: wherever that was found
        found = self.files.find(source)
        try:
            # What is registered may not be known; the digest tells whether this is the one.
            if self.files.is_copy(found):
                spec = self.files.resolve(found)
            else:
                spec = catalogue.resolve(found) if self.registry.fault else models.resolve(found, "embed")
            if is_same_model(spec, digest):
                return spec
            reason = f"it has changed: the vectors are of digest {digest}, and it is now {digest_of(spec)}"
        except UnknownModel:
            reason = "it isn't there"
        except BackendError as exc:
            reason = str(exc)
        # Whoever can't have the model has the documents all the same, and a way out.
        rows = () if self.registry.fault else self.registry.models()
        registered = (row.digest for row in rows if row.digest.startswith(digest))
        why = (
            f"model {source!r} has made the vectors of database {str(folder)!r} and can't be used ({reason}): bring "
            "its files back, or name their new place with embed=…, and open the database again; or embed the documents "
            "with another model (`vectorsearch reindex`)"
        )
        return AbsentModel.of(found, next(registered, digest), dim=stored.dim, why=why)


def _words(choices: Choices, made_with: CollectionSettings) -> dict[str, Any]:
    """Return how words are to be cut and scored.

    Raises:
        InvalidInput: there is no such language, what is no stop word, or no constant.
    """
    words = {name: getattr(choices, name) for name in WORD_SETTINGS}
    words = made_with.words() | {name: value for name, value in words.items() if not _is_default(value)}
    if words["language"] is not None:
        words["language"] = language_code(words["language"])
    if choices.stop_words is None:
        words["stop_words"] = ()
    elif isinstance(choices.stop_words, str) and choices.stop_words == OWN:
        words["stop_words"] = None
    elif not _is_default(choices.stop_words):
        words["stop_words"] = Analyzer(words["language"], stop_words=listed(choices.stop_words)).stop_words
    words["k1"], words["b"] = BM25.of(words["k1"], words["b"])
    return words


def _is_default(value: object) -> bool:
    return isinstance(value, str) and value == DEFAULT


def _fingerprint(embedder: ModelSpec | None, models: Models, stored: CollectionSettings | None) -> str | None:
    """Name the embedder as `Models.fingerprint_of`, or as the database knows it already."""
    if embedder is None:
        return None
    if stored and stored.embed and is_same_model(embedder, stored.embed.rpartition("@")[2]):
        return stored.embed  # the same model, wherever its folder lies now
    return models.fingerprint_of(embedder)
