"""Is a registry the one that belongs to the documents beside it? One that is missing isn't one without rows."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from vectorsearch.collection.storage.sqlite.schema import FILE_NAME as DOCUMENTS
from vectorsearch.collection.storage.sqlite.schema import read_meta

if TYPE_CHECKING:
    from pathlib import Path

KEY = "registry"  # of the documents' settings: the tokens that the registry may have, "" before there is one
_DERIVED = ("models", "tenants")  # folders that only a registry explains
_TRIES = 3


def find(folder: Path, path: Path) -> str:
    """Return what is wrong with the registry at `path` of the store in `folder`, and the way out; "" if nothing is."""
    what = ""
    for _ in range(_TRIES):  # another process may change both between the two looks
        what = _find(folder, path)
        if not what:
            return ""
    return (
        f"the registry of tenants and models of database {str(folder)!r} can't be used: {path.name} {what}. Put back "
        f"the one that belongs to {DOCUMENTS}, or run `vectorsearch repair`, which takes what is there and names what "
        "is lost; nothing was deleted"
    )


def _find(folder: Path, path: Path) -> str:
    there = path.exists() and path.stat().st_size > 0
    try:
        found, store, is_whole = _look(path) if there else ("", "", True)
    except sqlite3.DatabaseError as exc:
        return f"is damaged ({exc})"
    if not is_whole:
        return "is not what was written"
    meta = read_meta(folder) if (folder / DOCUMENTS).exists() else {KEY: json.dumps([found])}  # nobody's yet
    known = json.loads(meta[KEY]) if KEY in meta else None
    if store and store != meta.get("uuid", store):
        return "is another database's"
    gone = "empty" if path.exists() else "missing"
    if known is None and not there:
        left = _left(folder)
        return left and f"is {gone}, and {left!r} lies here"
    if found in (known or [""]):
        return ""
    return "is of another moment than the documents" if there else f"is {gone}"


def _look(path: Path) -> tuple[str, str, bool]:
    """Return the registry's token, the store that it is of, and whether it is what was written."""
    with closing(sqlite3.connect(path, timeout=10.0)) as conn:
        if conn.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("its pages don't fit together")
        if conn.execute("PRAGMA user_version").fetchone()[0] != 2:  # noqa: PLR2004 -- others have no lineage
            return "", "", True
        store, token, content = conn.execute("SELECT store, token, content FROM lineage").fetchone() or ("", "", "")
        return token, store, not token or content == content_of(conn)


def _left(folder: Path) -> str:
    """Return the name of something that only a registry explains, "" if there is nothing."""
    for name in _DERIVED:
        if (folder / name).is_dir():
            for path in sorted((folder / name).iterdir()):
                if path.is_dir() and "." not in path.name[:1] and not path.name.endswith((".unfinished", ".damaged")):
                    return f"{name}/{path.name}"
    return ""


def token_of(conn: sqlite3.Connection) -> str:
    """Return a registry's token, "" if it has none yet."""
    if conn.execute("PRAGMA user_version").fetchone()[0] < 2:  # noqa: PLR2004 -- as above
        return ""
    found = conn.execute("SELECT token FROM lineage").fetchone()
    return str(found[0]) if found else ""


def content_of(conn: sqlite3.Connection) -> str:
    """Return a digest of all that is registered."""
    digest = hashlib.blake2b(digest_size=16)
    for table, order in (("tenants", "name"), ("models", "tenant, name"), ("kept", "name")):
        for row in conn.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608 -- constants, no input
            digest.update(json.dumps([table, *row]).encode())
    return digest.hexdigest()


def has_rows_of(folder: Path, path: Path) -> bool:
    """Tell whether a registry's rows can be taken over: it can be read, is what was written, and of this store."""
    try:
        _, store, is_whole = _look(path)
    except sqlite3.DatabaseError:
        return False
    return is_whole and path.stat().st_size > 0 and store in ("", read_meta(folder).get("uuid"))


def set_aside(path: Path) -> None:
    """Move a registry that can't be used out of the way, if there is one; nothing is deleted."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}"))


def tie(folder: Path, path: Path) -> None:
    """Let the documents of a finished copy know the registry beside them, or that there is none."""
    with closing(sqlite3.connect(folder / DOCUMENTS)) as conn, conn:
        if not path.exists():
            conn.execute("DELETE FROM meta WHERE key = ?", (KEY,))
            return
        with closing(sqlite3.connect(path)) as registry, registry:
            store = conn.execute("SELECT value FROM meta WHERE key = 'uuid'").fetchone()[0]
            registry.execute("UPDATE lineage SET store = ?", (store,))
            values = (KEY, json.dumps([token_of(registry)]))
        conn.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)
