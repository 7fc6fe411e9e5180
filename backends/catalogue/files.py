"""The cache folder, and the few file operations that the catalogue's modules share."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def cache_dir() -> Path:
    """Return the cache folder: `VECTORSEARCH_CACHE`, else the platform's own place; it need not exist yet."""
    named = os.environ.get("VECTORSEARCH_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vectorsearch"
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "vectorsearch"


def sha256_of(path: Path) -> str:
    """Return the sha256 (hex) of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state_key(paths: Iterable[Path], *more: str) -> str:
    """Return a key that changes when the path, the size, a time or the inode of any of these files does, or `more`."""
    found = ((path, path.stat()) for path in paths if path.is_file())
    state = [(str(p), s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for p, s in found]
    return hashlib.sha256(json.dumps([state, *more]).encode()).hexdigest()[:32]


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the whole of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).replace(path)
