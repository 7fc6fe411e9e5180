"""Rows of JSON, and what the field calls their columns."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from vectorsearch.documents import as_id, parse_json
from vectorsearch.evaluation.reading.files import numbered_lines, open_binary, parsed_lines, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

QUERY_IDS = (
    "id",
    "_id",
    "qid",
    "query_id",
    "query-id",
    "queryid",
    "question_id",
    "topic_id",
    "topic",
    "number",
    "docid",
)
DOCUMENT_IDS = ("id", "_id", "docid", "docno", "doc_id", "document_id", "pid", "passage_id", "cord_uid", "corpus-id")


def json_object(line: str) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
        InvalidInput: it holds something else.
    """
    row = parse_json(line)
    if not isinstance(row, dict):
        raise InvalidInput(f"{shown(row)} is no JSON object")
    return row


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of JSON lines, or (place in the list, object) of a file that is one JSON list.

    Raises:
        InvalidInput: the file can't be read, or holds something else; the message names the line.
    """
    _, first = next(numbered_lines(path), (1, ""))
    if not first.lstrip().startswith("["):
        yield from parsed_lines(path, json_object)
        return
    for number, row in enumerate(whole_json(path), 1):
        if not isinstance(row, dict):
            raise InvalidInput(f"{path}, item {number}: {shown(row)} is no JSON object")
        yield number, row


def whole_json(path: Path) -> Any:  # noqa: ANN401 -- whatever somebody has written
    """Return what a file of JSON holds. A key that comes twice in an object is refused.

    Raises:
        InvalidInput: it is no JSON; the message names the line.
    """
    with open_binary(path) as file:
        raw = file.read()
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_unique)
    except json.JSONDecodeError as exc:
        raise InvalidInput(f"{path}, line {exc.lineno}: not JSON: {exc.msg}") from exc
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        raise InvalidInput(f"{path}, line {line}: not UTF-8: {exc.reason}: write the file in UTF-8") from exc
    except RecursionError as exc:
        raise InvalidInput(f"{path}: nested too deep to be read as JSON: flatten it") from exc
    except InvalidInput as exc:
        raise InvalidInput(f"{path}: {exc}") from exc


def row_id(row: Mapping[str, Any], names: Sequence[str], what: str) -> str:
    """Return the id of a row: the first of the names that isn't null.

    Raises:
        InvalidInput: there is none, or it is empty, or neither a string nor a whole number.
    """
    stated = next((row[name] for name in names if row.get(name) is not None), None)
    if stated is None or stated == "":
        raise InvalidInput(f"the {what} has no id: give 'id' as a string that is not empty")
    try:
        return as_id(stated)
    except InvalidInput as exc:
        raise InvalidInput(f"the {what} has no id: {exc}") from exc


def is_header(columns: Sequence[str], ids: Collection[str], others: Collection[str]) -> bool:
    """Return whether the columns are names: one of an id, the others' among them, and none a bare number."""
    names = [column.strip().lower() for column in columns]
    return any(name in ids for name in names) and any(name in others for name in names)


def split_row(line: str, separator: str) -> list[str]:
    """Return the columns of a line: tabs separate whatever they stand in, commas only what isn't quoted."""
    if separator == "\t":
        return line.split("\t")
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a field longer than any that the module reads: no row of a table
        return [line]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"{twice!r} comes twice in one JSON object")
    return found
