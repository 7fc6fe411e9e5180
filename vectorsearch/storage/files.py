"""Durable file steps: replace a file atomically, digest one, make a folder's entries last."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from typing import TYPE_CHECKING

from vectorsearch.storage import failpoints

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK_NBYTES = 1 << 20


def fsync_file(path: Path) -> None:
    """Make a file's content survive a power cut."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def fsync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    if sys.platform == "win32":  # a folder can't be opened there, and NTFS journals names itself
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Put `content` at `path`: readers see the old file or the new one, never a part."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    if durable:
        fsync_file(temporary)
    failpoints.reach("files.before_replace")
    temporary.replace(path)
    if durable:
        fsync_folder(path.parent)


def digest_file(path: Path) -> str:
    """Return the blake2b digest of a file's content, in hexadecimal."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_NBYTES):
            digest.update(chunk)
    return digest.hexdigest()


def folder_nbytes(folder: Path) -> int:
    """Return the bytes that a folder's files hold."""
    nbytes = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a writer replaces files at any time
            nbytes += path.stat().st_size if path.is_file() else 0
    return nbytes
