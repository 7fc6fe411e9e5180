"""What a collection is made with, kept in its database and compared at each opening."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vectorsearch.storage.errors import SettingsMismatch
from vectorsearch.storage.schema import holds_database, reachable, read_meta

if TYPE_CHECKING:
    from pathlib import Path

    from vectorsearch.storage.store import Store

_KEY = "settings"


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """What a collection is made with, and must be opened with again.

    Args:
        embed: identifies the model that made the vectors (its name and digest); None for the caller's own.
        dim: length of the vectors; None until the first one is stored.
        language: of stemming and stop words; None for neither.
        lexical: `tantivy` or `rank-bm25`.
        dense: `auto`, `exact`, `Flat` or `HNSW<links>`; derived, so it may change between openings.
    """

    embed: str | None = None
    dim: int | None = None
    language: str | None = "en"
    lexical: str = "tantivy"
    dense: str = "auto"


def stored_settings(path: Path) -> CollectionSettings | None:
    """Return the settings of the collection in the folder `path`, or None if one may be made there.

    Raises:
        NotADatabase, NewerFormat: as `Collection.open`.
    """
    with reachable(path):
        meta = read_meta(path) if holds_database(path, read_only=False) else {}
    return _settings_of(meta) if _KEY in meta else None


def agree_settings(store: Store, wanted: CollectionSettings | None) -> CollectionSettings:
    """Return the settings to work with; those of a new collection are stored.

    Raises:
        SettingsMismatch: `wanted` differs from what the collection was made with.
    """
    meta = store.meta()
    if _KEY not in meta:
        agreed = wanted or CollectionSettings()
        chosen = {"embed": agreed.embed, "language": agreed.language, "lexical": agreed.lexical}
        store.set_meta({_KEY: json.dumps(chosen)} | ({} if agreed.dim is None else {"dim": str(agreed.dim)}))
        return agreed
    stored = _settings_of(meta)
    if wanted is None:
        return stored
    for name in ("embed", "dim", "language", "lexical"):
        was, asked = getattr(stored, name), getattr(wanted, name)
        if was != asked and not (name == "dim" and None in {was, asked}):
            other = "embed it again (`vectorsearch reindex`)" if name == "embed" else "index into a new folder"
            raise SettingsMismatch(
                f"database {str(store.folder)!r} was made with {name}={was!r} and is opened with {name}={asked!r}: "
                f"open it with {name}={was!r}, or {other}"
            )
    return replace(stored, dense=wanted.dense)


def embed_of(meta: dict[str, str]) -> str | None:
    """Return what identifies the model of the stored vectors."""
    return _settings_of(meta).embed if _KEY in meta else None


def changed_embed(meta: dict[str, str], embed: str, dim: int) -> dict[str, str]:
    """Return the settings to store when the vectors are exchanged for those of another model."""
    return {_KEY: json.dumps({**json.loads(meta[_KEY]), "embed": embed}), "dim": str(dim)}


def _settings_of(meta: dict[str, str]) -> CollectionSettings:
    dim = int(meta["dim"]) if "dim" in meta else None
    return CollectionSettings(dim=dim, **json.loads(meta[_KEY]))
