"""Open text files, plain or compressed, told by their content; what is no text is refused by its name."""

from __future__ import annotations

import bz2
import codecs
import gzip
import importlib
import io
import lzma
import re
import zlib
from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from backends.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Parsed = TypeVar("Parsed")
Lines = Iterable[tuple[int, str]]  # numbers from 1, and lines without their ends

BLANK = " \t\r\n\f\v"  # what C's isspace takes for white space: an id may hold any other

ENDINGS = ("", ".gz", ".bz2", ".xz", ".zst")  # of names; what a file is, its content tells


def _unpack_zstd(file: io.BufferedReader) -> io.RawIOBase:
    # Not by the package zstandard, which takes a file that is cut for a shorter one.
    for module in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(module).ZstdFile(file)  # type: ignore[no-any-return]  # untyped
        except ImportError:
            continue
    raise MissingExtra(f"{file.name} is a zstd file: pip install backports.zstd, or unpack it with `zstd -d`")


_UNPACKED: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    *((b"BZh%d1AY&SY" % level, bz2.BZ2File) for level in range(1, 10)),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", _unpack_zstd),
)
_REFUSED = (
    (b"\x1f\x9d", "a file of `compress` (.Z): unpack it first, with `gzip -d`"),
    (b"\x1f\xa0", "a file of `compress` (.Z): unpack it first, with `gzip -d`"),
    (b"\x04\x22\x4d\x18", "an LZ4 file: unpack it first, with `lz4 -d`"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"),
    (b"PAR1", "a Parquet file: write it as TSV or JSON lines"),
    (b"%PDF", "a PDF: its text is needed"),
    (b"SQLite format 3\x00", "an SQLite database: write its rows as TSV or JSON lines"),
    (b"version https://git-lfs", "a pointer of Git LFS in place of the file: fetch that with `git lfs pull`"),
    (b"WARC/", "a WARC archive of web pages: extract their texts to JSON lines first"),
)
_TAR_MARK = (257, b"ustar")
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)["']""")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedReader]:
    """Give the bytes of a file, unpacked if it is gzip, bzip2, xz or zstd.

    Raises:
        InvalidInput: it can't be read to its end, or is of a kind that holds no lines of text; the message names it.
        MissingExtra: it is zstd, and nothing here can unpack that.
    """
    try:
        with path.open("rb") as packed:
            head = packed.peek(16)
            unpack = next((unpack for magic, unpack in _UNPACKED if head.startswith(magic)), None)
            file = packed if unpack is None else io.BufferedReader(unpack(packed))
            _refuse_what_is_no_text(path, file.peek(512))
            yield file
    except (InvalidInput, MissingExtra):
        raise
    except _DAMAGED as exc:
        raise InvalidInput(f"{path}: can't be read: {exc}") from exc
    except Exception as exc:
        if type(exc).__name__ != "ZstdError":  # of whichever package unpacks
            raise
        raise InvalidInput(f"{path}: can't be read: {exc}") from exc


def numbered_lines(path: Path, *, lenient: Callable[[int], object] | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line) for each line that isn't blank, in UTF-8, or in UTF-16 if a mark says so.

    An XML declaration may name another encoding. With `lenient`, a line that isn't UTF-8 is read as Windows-1252,
    TREC's usual other one, and `lenient(number)` is called.

    Raises:
        InvalidInput: as `open_binary`; or a line isn't text, and the message names the line.
    """
    with open_binary(path) as file:
        head = file.peek(512)
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            lines: Iterable[bytes] = (
                line.encode() for line in _decoded(file.read(), "utf-16", f"{path}: ").split("\n")
            )
        else:
            lines = file
        encoding = _encoding(path, head)
        for number, raw in enumerate(lines, 1):
            line = _line(path, number, raw, encoding, lenient)
            if line.strip(BLANK):
                yield number, line


def parsed_lines(path: Path, parse: Callable[[str], Parsed]) -> Iterator[tuple[int, Parsed]]:
    """Yield (line number from 1, parsed) for each line that isn't blank.

    Raises:
        InvalidInput: the file can't be read, or `parse` refuses a line; the message gains the file and the line.
    """
    for number, line in numbered_lines(path):
        try:
            parsed = parse(line)
        except InvalidInput as exc:
            raise InvalidInput(f"{path}, line {number}: {exc}") from exc
        yield number, parsed


def split_blank(line: str) -> list[str]:
    """Return the words of a line, separated by what C takes for white space, and by no other."""
    return [word.decode() for word in line.encode().split()]


def with_blank_lines(lines: Lines) -> Iterator[str]:
    """Yield every line, those too that were left out for being blank, so that the n-th has number n."""
    count = 0
    for number, line in lines:
        yield from [""] * (number - 1 - count)
        yield line
        count = number


def only_utf8(path: Path, lines: Lines, other: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield the lines until one was read leniently, which `other` then holds.

    Raises:
        InvalidInput: there is one; the message names it.
    """
    for number, line in lines:
        if other:
            raise InvalidInput(f"{path}, line {other[0]}: is not utf-8: write the file in UTF-8")
        yield number, line


def told_encoding(path: Path, other: Sequence[int]) -> list[str]:
    """Return what to say of the lines that `numbered_lines` had to read leniently."""
    if not other:
        return []
    return [f"{path.name}: {len(other):,} lines aren't UTF-8, the first is line {other[0]}: read as Windows-1252"]


def shown(value: object) -> str:
    """Return a value as a message shows it: cut, and an absent one named."""
    return "missing or null" if value is None else repr(value)[:60]


def _line(path: Path, number: int, raw: bytes, encoding: str, lenient: Callable[[int], object] | None) -> str:
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    if b"\0" in raw:
        raise InvalidInput(f"{path}, line {number}: holds a NUL byte, so this is no text file")
    try:
        return _decoded(raw, encoding).rstrip("\r\n")
    except InvalidInput as exc:
        if lenient is None or _CONTROL.search(raw):
            raise InvalidInput(f"{path}, line {number}: {exc}") from exc
        lenient(number)
        return raw.decode("cp1252" if not re.search(rb"[\x81\x8d\x8f\x90\x9d]", raw) else "latin-1").rstrip("\r\n")


def _decoded(raw: bytes, encoding: str, where: str = "") -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"{where}{exc}: write the file in UTF-8") from exc


def _encoding(path: Path, head: bytes) -> str:
    """Return the encoding that an XML declaration names, else UTF-8."""
    declared = _DECLARED.match(head.removeprefix(codecs.BOM_UTF8))
    if declared is None or head.startswith(codecs.BOM_UTF8):
        return "utf-8"
    name = declared[1].decode()
    try:
        codecs.lookup(name)
    except LookupError as exc:
        raise InvalidInput(f"{path}, line 1: the encoding {name!r} is unknown: write the file in UTF-8") from exc
    return "utf-8" if name.lower().startswith("utf-16") else name  # its bytes would have had a mark


def _refuse_what_is_no_text(path: Path, head: bytes) -> None:
    offset, mark = _TAR_MARK
    if head[offset : offset + len(mark)] == mark:
        raise InvalidInput(f"{path}: is a tar archive: unpack it first")
    for magic, told in _REFUSED:
        if head.startswith(magic):
            raise InvalidInput(f"{path}: is {told}")
