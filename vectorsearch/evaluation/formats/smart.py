"""SMART's records, as of Cranfield, CACM, CISI and MED: `.I 12`, then a line of a letter before each field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vectorsearch.evaluation.formats.text_files import Lines

MARK = ".I"
_FIELD = re.compile(r"\.([A-Z])\s*")


def smart_records(path: Path, lines: Lines) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Yield (line number of its `.I`, id, {letter: text}) of each record; `.T` is the title, `.W` the text.

    Raises:
        InvalidInput: a line stands outside of a record or a field; the message names it.
    """
    record: tuple[int, str, dict[str, list[str]]] | None = None
    field: list[str] | None = None
    for number, line in lines:
        words = line.split()
        if words[0] == MARK:
            if len(words) != 2:  # noqa: PLR2004 -- the mark and the id
                raise InvalidInput(f"{path}, line {number}: {line[:60]!r} is not `{MARK}` and an id")
            if record is not None:
                yield _joined(record)
            record, field = (number, words[1], {}), None
        elif record is not None and (letter := _FIELD.fullmatch(line)):
            field = record[2].setdefault(letter[1], [])
        elif field is None:
            raise InvalidInput(f"{path}, line {number}: {line[:60]!r} is in no field: `.W` begins a text")
        else:
            field.append(line)
    if record is not None:
        yield _joined(record)


def _joined(record: tuple[int, str, dict[str, list[str]]]) -> tuple[int, str, dict[str, str]]:
    number, name, fields = record
    return number, name, {letter: " ".join(" ".join(lines).split()) for letter, lines in fields.items()}
