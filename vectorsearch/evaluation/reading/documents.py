"""Read documents: TREC's SGML, JSON lines (BEIR, Anserini, MS MARCO v2), TSV (MS MARCO v1), CSV, SMART."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from vectorsearch.evaluation.reading.files import BLANK, numbered_lines, open_binary, shown, told_encoding
from vectorsearch.evaluation.reading.rows import DOCUMENT_IDS, is_header, json_rows, row_id, split_row
from vectorsearch.evaluation.reading.smart import MARK, smart_records
from vectorsearch.evaluation.reading.trec import TrecFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = ("text", "contents", "passage", "body", "abstract", "segment", "passage_text", "content")
_HEADINGS = "headings"
_EXPECTED = "give TREC's <DOC>, JSON lines of id and text, or TSV of id and text"
_COLUMNS = {2: ("id", "text"), 4: ("id", "url", "title", "text")}  # MS MARCO's passages, and its documents


@dataclass
class DocumentFile:
    """A file of documents, which is read as it is iterated: (line number, {"_id", "title", "text", …}).

    `notes` is complete when it has been read to its end.
    """

    path: Path
    notes: list[str] = field(default_factory=list)
    count: int = 0

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each document; a document at a time is held, except of a file that is one JSON list.

        Raises:
            InvalidInput: the file can't be read, is of no known kind, holds no document, or one is malformed; the
                message names the line.
        """
        for number, document in self._documents():
            self.count += 1
            yield number, document
        if not self.count:
            raise InvalidInput(f"{self.path}: holds no documents: {_EXPECTED}")

    def _documents(self) -> Iterator[tuple[int, dict[str, Any]]]:
        _, first = next(numbered_lines(self.path, lenient=lambda _: None), (1, ""))
        start = first.lstrip()
        if start.startswith("<"):
            trec = TrecFile(self.path)
            yield from trec
            self.notes += trec.notes()
        elif start.startswith(("{", "[")):
            for number, row in json_rows(self.path):
                yield number, self._of_json(number, row)
        elif start.startswith(MARK):
            for number, name, fields in smart_records(self.path):
                yield number, {"_id": name, "title": fields.get("T", ""), "text": fields.get("W", "")}
        elif first:
            yield from self._of_table(first)

    def _of_json(self, number: int, row: dict[str, Any]) -> dict[str, Any]:
        # MS MARCO's passages name their document as well: what has a `pid` is that passage.
        names = ("pid", *DOCUMENT_IDS) if "passage" in row else DOCUMENT_IDS
        try:
            name = row_id(row, names, "document")
            text = _json_text(name, row)
        except InvalidInput as exc:
            raise InvalidInput(f"{self.path}, line {number}: {exc}") from exc
        if isinstance(headings := row.get(_HEADINGS), str) and "body" in row:
            text = f"{headings}\n{text}"
        document = {"_id": name, "title": row.get("title") or "", "text": text}
        return document | ({"metadata": row["metadata"]} if row.get("metadata") else {})

    def _of_table(self, first: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for separator in ("\t", ","):
            header = [name.strip().lower() for name in split_row(first, separator)]
            if is_header(header, DOCUMENT_IDS, TEXTS):
                yield from self._with_header(header, separator)
                return
        other: list[int] = []
        width = 0
        for number, line in numbered_lines(self.path, lenient=other.append):
            columns = line.split("\t")
            width = width or len(columns)
            names = _COLUMNS.get(width)
            if names is None:
                raise InvalidInput(
                    f"{self.path}, line {number}: {width} columns without a header: MS MARCO's passages have 2, its "
                    f"documents 4; {_EXPECTED}"
                )
            if len(columns) != width:
                raise InvalidInput(f"{self.path}, line {number}: {len(columns)} columns: the first line has {width}")
            yield number, _document(dict(zip(names, columns, strict=True)), self.path, number)
        self.notes += told_encoding(self.path, other)

    def _with_header(self, header: list[str], separator: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows of a table with a header. In CSV a quoted text may go over several lines."""
        for number, columns in self._rows(separator):
            if len(columns) != len(header):
                raise InvalidInput(
                    f"{self.path}, line {number}: {len(columns)} columns: the header has {len(header)} "
                    f"({', '.join(header)[:80]})"
                )
            yield number, _document(dict(zip(header, columns, strict=True)), self.path, number)

    def _rows(self, separator: str) -> Iterator[tuple[int, list[str]]]:
        if separator == "\t":
            lines = numbered_lines(self.path)
            next(lines)
            yield from ((number, line.split("\t")) for number, line in lines)
            return
        with open_binary(self.path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, strict=True)
            try:
                next(reader)
                yield from ((reader.line_num, columns) for columns in reader if columns)
            except (csv.Error, UnicodeDecodeError) as exc:
                raise InvalidInput(f"{self.path}, line {reader.line_num}: {exc}") from exc


def read_documents(paths: list[Path], notes: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the documents of files, one after the other; what is to be known of them is added to `notes`.

    Raises:
        InvalidInput: as `DocumentFile`.
    """
    for file in map(DocumentFile, paths):
        yield from (document for _, document in file)
        notes += file.notes


def _json_text(name: str, row: dict[str, Any]) -> str:
    text = next((row[key] for key in TEXTS if row.get(key) is not None), None)
    if text is None and row.get("title"):
        return ""
    if not isinstance(text, str):
        has = f"it has {', '.join(row)}" if text is None else f"it is {shown(text)}"
        raise InvalidInput(f"document {name!r} has no text: {has}; a text is called {', '.join(TEXTS)}")
    return text


def _document(row: dict[str, str], path: Path, number: int) -> dict[str, Any]:
    name = next((row[key].strip(BLANK) for key in DOCUMENT_IDS if row.get(key)), "")
    if not name or name.split() != [name]:
        raise InvalidInput(
            f"{path}, line {number}: {name[:60]!r} is no document's id: it is empty, or holds white space"
        )
    texts = (row[key] for key in TEXTS if row.get(key))
    metadata = {"url": row["url"]} if row.get("url") else None
    document = {"_id": name, "title": row.get("title", ""), "text": next(chain(texts, [""]))}
    return document | ({"metadata": metadata} if metadata else {})
