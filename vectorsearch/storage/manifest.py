"""What vouches for the derived files: which change they reflect, and a checksum of each.

Neither FAISS nor Tantivy checks its files on reading, and FAISS can crash the process on a damaged one. So no derived
file is opened unless its manifest fits the database and every checksum holds; else the index is built again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vectorsearch.storage.files import digest_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

NAME = "manifest"
_MISSING = "no file yet"
_VERSION = 2  # 1 had one digest over a whole file


@dataclass(frozen=True, slots=True)
class FileMark:
    """A derived file's size and its digest, as `digest_file` makes it."""

    nbytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One derived index on disk: `files` by their path relative to the manifest, as of change `seq` of `database`.

    `layout` names what the files hold (engine, its version, its options): another layout is rebuilt, not read.
    """

    database: str
    layout: str
    seq: int
    files: Mapping[str, FileMark]
    fields: Mapping[str, int] = field(default_factory=dict)

    def save(self, path: Path, *, durable: bool) -> None:
        """Put the manifest at `path`, atomically, with a checksum of its own."""
        body = {
            "version": _VERSION,
            "database": self.database,
            "layout": self.layout,
            "seq": self.seq,
            "files": {name: [mark.nbytes, mark.digest] for name, mark in sorted(self.files.items())},
            "fields": dict(self.fields),
        }
        text = json.dumps(body)
        replace_file(
            path, f"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()} {text}".encode(), durable=durable
        )


def faults(path: Path) -> list[str]:
    """Return what is wrong with the manifest at `path` or a file that it names, whatever they were made for."""
    body = _read(path)
    if isinstance(body, str):
        return [] if body == _MISSING else [body]  # a build that was cut off: the next opening starts over
    if body["version"] != _VERSION:
        return []  # as above
    files = {name: FileMark(*mark) for name, mark in body["files"].items()}
    return [found for name, mark in files.items() if (found := _difference(path.parent / name, mark))]


def load(path: Path, *, database: str, layout: str, newest_seq: int) -> Manifest | str:
    """Return the manifest at `path` if it and every file that it names can be trusted, else the reason why not."""
    body = _read(path)
    if isinstance(body, str):
        return body
    if body["version"] != _VERSION:
        return f"{path.name} is of format {body['version']}, now {_VERSION}"
    if body["layout"] != layout:
        return f"{path.name} is of another layout ({body['layout']}, now {layout})"
    if body["database"] != database or body["seq"] > newest_seq:
        return f"{path.name} belongs to another state of the database"
    files = {name: FileMark(*mark) for name, mark in body["files"].items()}
    reasons = (_difference(path.parent / name, mark) for name, mark in files.items())
    return next(filter(None, reasons), None) or Manifest(
        body["database"], body["layout"], body["seq"], files, body["fields"]
    )


def mark_files(folder: Path, names: Iterable[str], known: Mapping[str, FileMark]) -> dict[str, FileMark]:
    """Return the mark of each file; those in `known` of the same size are not read again.

    Pass as `known` only files that their engine never changes in place.
    """
    marks: dict[str, FileMark] = {}
    for name in names:
        nbytes = (folder / name).stat().st_size
        old = known.get(name)
        marks[name] = old if old and old.nbytes == nbytes else FileMark(nbytes, digest_file(folder / name))
    return marks


def _read(path: Path) -> dict[str, Any] | str:
    """Return what the manifest says, whatever it was made for, or why it can't be read."""
    try:
        stated, _, text = path.read_bytes().decode().partition(" ")
    except FileNotFoundError:
        return _MISSING
    except (OSError, UnicodeDecodeError) as exc:
        return f"{path.name} can't be read ({exc})"
    if hashlib.blake2b(text.encode(), digest_size=16).hexdigest() != stated:
        return f"{path.name} is damaged"
    body: dict[str, Any] = json.loads(text)
    return body


def _difference(path: Path, mark: FileMark) -> str | None:
    try:
        if path.stat().st_size != mark.nbytes:
            return f"{path.name} is truncated or has grown"
        if digest_file(path) != mark.digest:
            return f"{path.name} is damaged"
    except OSError as exc:
        return f"{path.name} can't be read ({exc.strerror})"
    return None
