"""What vouches for the derived files: which change they reflect, and a checksum of each.

Neither FAISS nor Tantivy checks its files on reading, and FAISS can crash the process on a damaged one. So no derived
file is opened unless its manifest fits the database and every checksum holds; else the index is built again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from vectorsearch.collection.storage.disk.files import digest_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

NAME = "manifest"
CHANGING = "changing"  # lies beside it while files change that it vouches for: a killed process leaves it
MISSING = "no file yet"
_VERSION = 3  # 1 had one digest over a whole file; 2 knew the database, and not which of its histories


class Lineage(Protocol):
    """The history of a store, which what is derived from it must be of."""

    @property
    def seq(self) -> int:
        """Return the number of the last committed change."""

    def mark(self, seq: int) -> str:
        """Return what names the history up to change `seq`: another store's, or a restored one's, is another."""


@dataclass(frozen=True, slots=True)
class FileMark:
    """A derived file's size and its digest, as `digest_file` makes it."""

    nbytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One derived index on disk: `files` by their path relative to the manifest, as of change `seq`.

    `lineage` is the store's `mark` of that change. `layout` names what the files hold (engine, its version, its
    options): another layout is rebuilt, not read.
    """

    lineage: str
    layout: str
    seq: int
    files: Mapping[str, FileMark]
    fields: Mapping[str, int] = field(default_factory=dict)

    def save(self, path: Path, *, durable: bool) -> None:
        """Put the manifest at `path`, atomically, with a checksum of its own."""
        body = {
            "version": _VERSION,
            "lineage": self.lineage,
            "layout": self.layout,
            "seq": self.seq,
            "files": {name: [mark.nbytes, mark.digest] for name, mark in sorted(self.files.items())},
            "fields": dict(self.fields),
        }
        text = json.dumps(body)
        replace_file(
            path, f"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()} {text}".encode(), durable=durable
        )


def faults(path: Path, lineage: Lineage) -> list[str]:
    """Return what is wrong with the manifest at `path` or a file that it names, and whether they are a store's own."""
    body = _read(path)
    if isinstance(body, str):
        return [] if body == MISSING else [body]  # a build that was cut off: the next opening starts over
    if body["version"] != _VERSION:
        return []  # as above
    if stray := _stray(body, lineage):
        return [f"{path.name} {stray}"]
    if (path.parent / CHANGING).exists():  # a change that was cut off: the next opening builds the index again
        return []
    files = {name: FileMark(*mark) for name, mark in body["files"].items()}
    return [found for name, mark in files.items() if (found := _difference(path.parent / name, mark))]


def load(path: Path, *, lineage: Lineage, layout: str) -> Manifest | str:
    """Return the manifest at `path` if it and every file that it names can be trusted, else the reason why not."""
    body = _read(path)
    if isinstance(body, str):
        return body
    if body["version"] != _VERSION:
        return f"{path.name} is of format {body['version']}, now {_VERSION}"
    if body["layout"] != layout:
        return f"{path.name} is of another layout ({body['layout']}, now {layout})"
    if stray := _stray(body, lineage):
        return f"{path.name} {stray}"
    files = {name: FileMark(*mark) for name, mark in body["files"].items()}
    reasons = (_difference(path.parent / name, mark) for name, mark in files.items())
    return next(filter(None, reasons), None) or Manifest(
        body["lineage"], body["layout"], body["seq"], files, body["fields"]
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


def _stray(body: Mapping[str, Any], lineage: Lineage) -> str:
    """Return how what a manifest says doesn't belong to the store, "" if it does."""
    seq, newest = body["seq"], lineage.seq
    if seq <= newest and body["lineage"] == lineage.mark(seq):
        return ""
    return (
        f"belongs to another state of the database: it is of change {seq} of a history that these documents (change "
        f"{newest}) don't have; one of the two was put back from a copy, or taken from elsewhere"
    )


def _read(path: Path) -> dict[str, Any] | str:
    """Return what the manifest says, whatever it was made for, or why it can't be read."""
    try:
        stated, _, text = path.read_bytes().decode().partition(" ")
    except FileNotFoundError:
        return MISSING
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
