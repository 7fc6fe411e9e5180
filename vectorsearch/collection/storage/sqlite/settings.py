"""What a collection is made with, kept in its database and compared at each opening."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from vectorsearch.collection.storage.errors import NewerFormat, SettingsMismatch
from vectorsearch.collection.storage.sqlite.schema import holds_database, reachable, read_meta

if TYPE_CHECKING:
    from pathlib import Path

    from vectorsearch.collection.storage.sqlite.connections import Connections

_KEY = "settings"
_log = logging.getLogger(__name__)
# How words are cut and scored: whoever writes may change it, and the index is built again where it must be.
WORD_SETTINGS: Final = ("language", "stop_words", "fold_accents", "k1", "b")


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """What a collection is made with; `embed`, `dim` and `lexical` must be the same when it is opened again.

    Args:
        embed: identifies the model that made the vectors (its name and digest); None for the caller's own.
        dim: length of the vectors; None until the first one is stored.
        language: of stemming and stop words; None for neither.
        lexical: `tantivy` or `rank-bm25`.
        stop_words: in place of the language's own; none if empty, and None for its own.
        fold_accents: whether words are the same that differ in accents only.
        k1: BM25's constant of repeated words.
        b: BM25's constant of length, from 0 to 1.
        dense: `auto`, `exact`, `Flat` or `HNSW<links>`; derived, so it may change between openings.
    """

    embed: str | None = None
    dim: int | None = None
    language: str | None = "en"
    lexical: str = "tantivy"
    stop_words: tuple[str, ...] | None = None
    fold_accents: bool = False
    k1: float = 1.2
    b: float = 0.75
    dense: str = "auto"

    def words(self) -> dict[str, Any]:
        """Return how words are cut and scored, as plain values."""
        return {name: getattr(self, name) for name in WORD_SETTINGS}


def stored_settings(path: Path) -> CollectionSettings | None:
    """Return the settings of the collection in the folder `path`, or None if one may be made there.

    Raises:
        NotADatabase, NewerFormat: as `Collection.open`.
    """
    with reachable(path):
        meta = read_meta(path) if holds_database(path, read_only=False) else {}
    return _settings_of(meta) if _KEY in meta else None


def agree_settings(store: Connections, wanted: CollectionSettings | None) -> CollectionSettings:
    """Return the settings to work with; those of a new collection are stored, and other words than before.

    Raises:
        SettingsMismatch: `wanted` differs from what the collection was made with, in what can't be changed, or in its
            words where nothing can be written.
    """
    meta = store.meta()
    if _KEY not in meta:
        agreed = wanted or CollectionSettings()
        store.set_meta({_KEY: _to_json(agreed)} | ({} if agreed.dim is None else {"dim": str(agreed.dim)}))
        return agreed
    stored = _settings_of(meta)
    if wanted is None:
        return stored
    for name in ("embed", "dim", "lexical"):
        was, asked = getattr(stored, name), getattr(wanted, name)
        if was != asked and not (name == "dim" and None in {was, asked}):
            other = "embed it again (`vectorsearch reindex`)" if name == "embed" else "index into a new folder"
            raise SettingsMismatch(
                f"database {str(store.folder)!r} was made with {name}={was!r} and is opened with {name}={asked!r}: "
                f"open it with {name}={was!r}, or {other}"
            )
    agreed = replace(stored, **wanted.words())
    if agreed != stored:
        _change_words(store, stored, agreed)
    return replace(agreed, dense=wanted.dense)


def _change_words(store: Connections, stored: CollectionSettings, agreed: CollectionSettings) -> None:
    changes = [name for name in WORD_SETTINGS if getattr(stored, name) != getattr(agreed, name)]
    told = ", ".join(f"{name}={getattr(agreed, name)!r} for {getattr(stored, name)!r}" for name in changes)
    if store.read_only:
        raise SettingsMismatch(
            f"database {str(store.folder)!r} is opened to read only, with {told}: only who may write can change how "
            "its words are cut and scored; leave that out, or open it to write"
        )
    store.set_meta({_KEY: _to_json(agreed)})
    _log.warning("database %r: %s; if that cuts words otherwise, their index is built again", str(store.folder), told)


def embed_of(meta: dict[str, str]) -> str | None:
    """Return what identifies the model of the stored vectors."""
    return _settings_of(meta).embed if _KEY in meta else None


def changed_embed(meta: dict[str, str], embed: str, dim: int) -> dict[str, str]:
    """Return the settings to store when the vectors are exchanged for those of another model."""
    return {_KEY: json.dumps({**json.loads(meta[_KEY]), "embed": embed}), "dim": str(dim)}


def _to_json(settings: CollectionSettings) -> str:
    """Return what is stored; of the settings that came later only those that an earlier release would get wrong."""
    always, usual = ("embed", "language", "lexical"), CollectionSettings()
    later = [name for name in WORD_SETTINGS if name not in always and getattr(settings, name) != getattr(usual, name)]
    return json.dumps({name: value for name, value in asdict(settings).items() if name in (*always, *later)})


def _settings_of(meta: dict[str, str]) -> CollectionSettings:
    stored = json.loads(meta[_KEY])
    if unknown := sorted(stored.keys() - {each.name for each in fields(CollectionSettings)}):
        raise NewerFormat(f"the database has settings that this release doesn't know ({', '.join(unknown)}): upgrade")
    if stored.get("stop_words") is not None:
        stored["stop_words"] = tuple(stored["stop_words"])
    return CollectionSettings(dim=int(meta["dim"]) if "dim" in meta else None, **stored)
