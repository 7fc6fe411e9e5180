"""Rows of JSON, and what the field calls their columns."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.text_files import shown, with_blank_lines
from vectorsearch.ingestion.documents import as_id, parse_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from vectorsearch.evaluation.formats.text_files import Lines

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


def json_rows(path: Path, lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of JSON lines, or (place in the list, object) of lines that are one JSON list.

    One object over several lines may hold such a list, or ids and texts.

    Raises:
        InvalidInput: they are something else; the message names the line.
    """
    rest = iter(lines)
    first = next(rest)
    if first[1].lstrip().startswith("[") or first[1].strip() == "{":
        whole = whole_json(path, chain([first], rest))
        for place, row in enumerate(whole if isinstance(whole, list) else _listed(path, whole), 1):
            if not isinstance(row, dict):
                raise InvalidInput(f"{path}, item {place}: {shown(row)} is no JSON object")
            yield place, row
        return
    for number, line in chain([first], rest):
        try:
            row = json_object(line)
        except InvalidInput as exc:
            raise InvalidInput(f"{path}, line {number}: {exc}") from exc
        yield number, row


def whole_json(path: Path, lines: Lines) -> Any:  # noqa: ANN401 -- whatever somebody has written
    """Return what the lines of a file of JSON hold. A key that comes twice in an object is refused.

    Raises:
        InvalidInput: it is no JSON; the message names the line.
    """
    try:
        return json.loads("\n".join(with_blank_lines(lines)), object_pairs_hook=_unique)
    except json.JSONDecodeError as exc:
        raise InvalidInput(f"{path}, line {exc.lineno}: not JSON: {exc.msg}") from exc
    except RecursionError as exc:
        raise InvalidInput(f"{path}: nested too deep to be read as JSON: flatten it") from exc
    except InvalidInput as exc:
        raise InvalidInput(f"{path}: {exc}") from exc


def by_query(path: Path, lines: Lines) -> dict[str, dict[str, Any]]:
    """Return what ranx, pytrec_eval and BEIR write: {query: {document: a number}}.

    Raises:
        InvalidInput: it is something else.
    """
    listed = list(lines)
    if len(listed) > 1 and all(_is_object(line) for _, line in listed[:2]):
        raise InvalidInput(f"{path}: is JSON lines, and expected is one JSON object, {{query: {{document: number}}}}")
    found = whole_json(path, listed)
    for query, numbers in found.items():
        if not isinstance(numbers, dict):
            raise InvalidInput(f"{path}: query {query!r} has {shown(numbers)}, not {{document: number}}")
    return dict(found)


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


def _listed(path: Path, whole: dict[str, Any]) -> list[Any]:
    """Return the rows of one JSON object: its only list of objects, or, of strings alone, each as an id's text."""
    lists = [value for value in whole.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if len(lists) == 1:
        return lists[0]
    if whole and all(isinstance(value, str) for value in whole.values()):
        return [{"id": name, "text": text} for name, text in whole.items()]
    raise InvalidInput(
        f"{path}: is one JSON object of {', '.join(list(whole)[:6]) or 'nothing'}; expected are JSON lines or a list"
    )


def _is_object(line: str) -> bool:
    with suppress(InvalidInput):
        return bool(json_object(line))
    return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"{twice!r} comes twice in one JSON object")
    return found
