"""Read topics of a line each: TSV or CSV with or without a header, `id:text`, CAR's page paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.columns import QUERY_IDS, is_header, split_row
from vectorsearch.evaluation.formats.text_files import BLANK
from vectorsearch.evaluation.formats.topic_fields import NAMES, Topic

if TYPE_CHECKING:
    from pathlib import Path

_CAR, _QUOTED_BLANK = "enwiki:", "%20"
_SPACE = re.compile(r"\s")
_SEVERAL = 2
_PRIORITIES = frozenset("1234")
_EXPECTED = "a query's id and its text: give them as TSV, `id:text`, JSON lines of id and text, or TREC topics"

Numbered = Sequence[tuple[int, str]]


def read_lines(path: Path, lines: Numbered) -> tuple[list[Topic], list[str]]:
    """Return the topics of a file of lines, and what should be known of it.

    Raises:
        InvalidInput: it is of no known kind, or a line isn't like the others; the message names the line.
    """
    first = lines[0][1]
    for separator in ("\t", ","):
        header = split_row(first, separator)
        if len(header) >= _SEVERAL and is_header(header, QUERY_IDS, NAMES):
            return _with_header(path, lines, [name.strip().lower() for name in header], separator), []
    if "\t" in first:
        return _tabbed(path, lines)
    words = [line.strip(BLANK) for _, line in lines]
    if not any(_SPACE.search(word) for word in words) and (
        all(word.startswith(_CAR) for word in words) or any(_QUOTED_BLANK in word for word in words)
    ):
        numbered = zip((number for number, _ in lines), words, strict=True)
        return [Topic(number, name, {"text": _car_text(name)}) for number, name in numbered], []
    return _with_colons(path, lines)


def _with_header(path: Path, lines: Numbered, header: list[str], separator: str) -> list[Topic]:
    id_column = next(header.index(name) for name in QUERY_IDS if name in header)
    topics = []
    for number, line in lines[1:]:
        columns = split_row(line, separator)
        if len(columns) != len(header):
            raise InvalidInput(f"{path}, line {number}: {len(columns)} columns: the header has {len(header)}")
        fields = {NAMES[name]: text for name, text in zip(header, columns, strict=True) if name in NAMES}
        topics.append(Topic(number, _id(path, number, columns[id_column]), fields))
    return topics


def _tabbed(path: Path, lines: Numbered) -> tuple[list[Topic], list[str]]:
    rows = [(number, line.rstrip(BLANK).split("\t")) for number, line in lines]
    if all(len(columns) > _SEVERAL for _, columns in rows):
        raise InvalidInput(
            f"{path}, line {rows[0][0]}: {len(rows[0][1])} columns without a header: is this {_EXPECTED}"
        )
    if all(columns[-1].startswith(("['", '["', "[]")) for _, columns in rows):
        raise InvalidInput(f"{path}, line {rows[0][0]}: a question and its answers, but no id: needed is {_EXPECTED}")
    topics, tabs = [], 0
    for number, (name, *texts) in rows:
        if not texts:
            raise InvalidInput(f"{path}, line {number}: one column, and no tab: needed is {_EXPECTED}")
        tabs += len(texts) > 1
        topics.append(Topic(number, _id(path, number, name), {"text": " ".join(texts)}))
    return topics, [f"{path.name}: {tabs} texts hold a tab, read as a blank"] if tabs else []


def _with_colons(path: Path, lines: Numbered) -> tuple[list[Topic], list[str]]:
    split = [(number, line.split(":")) for number, line in lines]
    # The Million Query track of 2009 writes id:priority:text.
    with_priority = all(len(parts) > _SEVERAL and parts[1].strip() in _PRIORITIES for _, parts in split)
    topics = []
    for number, (name, *rest) in split:
        if not rest or len(name.split()) != 1:
            raise InvalidInput(f"{path}, line {number}: {':'.join((name, *rest))[:60]!r} is not {_EXPECTED}")
        text = ":".join(rest[1:] if with_priority else rest)
        topics.append(Topic(number, _id(path, number, name), {"text": text.strip(BLANK)}))
    return topics, [f"{path.name}: read as id:priority:text"] if with_priority else []


def _id(path: Path, number: int, text: str) -> str:
    if len(text.split()) != 1:
        raise InvalidInput(f"{path}, line {number}: {text[:60]!r} is no query's id: it is empty, or holds white space")
    return text.strip()


def _car_text(name: str) -> str:
    return " ".join(unquote(name.removeprefix(_CAR)).replace("/", " ").split())
