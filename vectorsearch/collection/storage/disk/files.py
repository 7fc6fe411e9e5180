"""Durable file steps: replace a file atomically, digest one, make a folder's entries last."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from backends.errors import VectorSearchError
from backends.running.process import usable_cores
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.errors import StorageFull, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK_NBYTES = 1 << 20
_PIECE_NBYTES = 1 << 26


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turn what the file system says while a new folder is written into this project's errors.

    Raises:
        StorageFull: there is no room.
        StoreError: it can't be written.
    """
    try:
        yield
    except VectorSearchError:
        raise
    except (OSError, ValueError) as exc:  # ValueError: a path with NUL or a lone surrogate
        if getattr(exc, "errno", None) == errno.ENOSPC:
            raise StorageFull(f"no room left for {str(folder)!r}: free disk space, or name a folder elsewhere") from exc
        raise StoreError(f"{str(folder)!r} can't be written ({exc}): name a new folder that can") from exc


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
    """Return a digest of a file's content, in hexadecimal: blake2b of the blake2b digests of its pieces of 64 MiB.

    Pieces are digested on as many threads as there are cores: neither reading nor hashing holds the interpreter's lock.
    """
    starts = range(0, path.stat().st_size or 1, _PIECE_NBYTES)
    with ThreadPoolExecutor(min(len(starts), usable_cores())) as threads:
        digests = threads.map(lambda start: _digest_piece(path, start), starts)
        return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()


def _digest_piece(path: Path, start: int) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        file.seek(start)
        for _ in range(0, _PIECE_NBYTES, _CHUNK_NBYTES):
            digest.update(file.read(_CHUNK_NBYTES))
    return digest.digest()


def folder_nbytes(folder: Path) -> int:
    """Return the bytes that a folder's files hold."""
    nbytes = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a writer replaces files at any time
            nbytes += path.stat().st_size if path.is_file() else 0
    return nbytes
