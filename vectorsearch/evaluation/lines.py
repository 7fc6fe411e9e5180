"""Read the lines of a collection's files, plain or gzipped, so that every error names the file and the line."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, TypeVar

from backends.errors import InvalidInput

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterator
    from pathlib import Path

Parsed = TypeVar("Parsed")


def parsed_lines(path: Path, parse: Callable[[str], Parsed]) -> Iterator[tuple[int, Parsed]]:
    """Yield (line number from 1, parsed) for each line that isn't blank.

    Raises:
        InvalidInput: the file can't be read, or `parse` refuses a line; the message gains the file and the line.
    """
    try:
        with open_binary(path) as file:
            for number, raw in enumerate(file, 1):
                try:
                    line = raw.decode().strip("\r\n")
                    if line.strip():
                        yield number, parse(line.removeprefix("\ufeff"))
                except (InvalidInput, UnicodeDecodeError) as exc:
                    raise InvalidInput(f"{path}, line {number}: {exc}") from exc
    except (OSError, EOFError) as exc:
        raise InvalidInput(f"{path}: can't be read: {exc}") from exc


def open_binary(path: Path) -> io.BufferedIOBase:
    """Open a file for reading; one called .gz is unzipped."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")
