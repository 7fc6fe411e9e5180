"""The indexes that a collection's settings ask for; each engine is loaded by its first search, not by opening."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.errors import InvalidInput
from backends.text.analyzer import Analyzer
from vectorsearch.collection.index.dense.base_plan import base_plan
from vectorsearch.collection.index.dense.dense_exact import ExactIndex
from vectorsearch.collection.index.dense.dense_faiss import FaissIndex
from vectorsearch.collection.index.index_budget import IndexBudget
from vectorsearch.collection.index.keeper import Keeper
from vectorsearch.collection.index.lexical.bm25 import BM25

if TYPE_CHECKING:
    from pathlib import Path

    from vectorsearch.collection.index.base import DenseIndex, LexicalIndex
    from vectorsearch.collection.storage.sqlite.settings import CollectionSettings
    from vectorsearch.collection.storage.sqlite.store import Store

_ENGINES = ("tantivy", "rank-bm25")


def check_settings(settings: CollectionSettings) -> None:
    """Refuse what no index can serve, before anything is made on disk.

    Raises:
        InvalidInput: an unknown language or engine, what is no stop word or constant, a length of vectors below 1.
    """
    analyzer_of(settings)
    BM25.of(settings.k1, settings.b)
    if settings.dense != "exact":
        base_plan(settings.dense)
    if settings.lexical not in _ENGINES:
        raise InvalidInput(f"lexical engine {settings.lexical!r} is unknown: use one of {', '.join(_ENGINES)}")
    if settings.dim is not None and settings.dim < 1:
        raise InvalidInput(f"dim={settings.dim}: the length of a vector is 1 or more")


def analyzer_of(settings: CollectionSettings) -> Analyzer:
    """Return what cuts documents and queries into words.

    Raises:
        InvalidInput: there is no such language, or a stop word is no word.
    """
    return Analyzer(settings.language, stop_words=settings.stop_words, fold_accents=settings.fold_accents)


def open_indexes(
    store: Store, settings: CollectionSettings, *, in_memory: bool, budget: IndexBudget | None
) -> tuple[Keeper[LexicalIndex], Keeper[DenseIndex]]:
    """Return the keepers of both indexes; their files are below the store's folder unless `in_memory`.

    What they take in memory counts in `budget`, whoever else shares it.
    """

    def lexical(folder: Path | None) -> LexicalIndex:
        analyzer, constants = analyzer_of(settings), BM25.of(settings.k1, settings.b)
        if settings.lexical == "rank-bm25":
            from vectorsearch.collection.index.lexical.lexical_rank_bm25 import RankBM25Index  # noqa: PLC0415 -- loads the engine

            return RankBM25Index(analyzer, constants)
        from vectorsearch.collection.index.lexical.lexical_tantivy import TantivyIndex  # noqa: PLC0415 -- loads the engine

        return TantivyIndex(analyzer, folder, constants, lineage=store, read_only=store.read_only)

    def dense(folder: Path | None) -> DenseIndex:
        if settings.dense == "exact":
            return ExactIndex()
        plan = base_plan(settings.dense)
        return FaissIndex(plan, folder, lineage=store, fetch=store.vectors_of, read_only=store.read_only)

    folder = None if in_memory else store.folder
    budget = budget or IndexBudget()
    return (
        Keeper(store, lexical, folder and folder / "lexical", budget=budget),
        Keeper(store, dense, folder and folder / "dense", budget=budget),
    )
