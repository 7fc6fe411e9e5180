"""Read documents: TREC's SGML, JSON lines (BEIR, Anserini, MS MARCO v2), TSV (MS MARCO v1), CSV, SMART."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.columns import DOCUMENT_IDS, is_header, json_rows, row_id, split_row
from vectorsearch.evaluation.formats.smart import MARK, smart_records
from vectorsearch.evaluation.formats.text_files import (
    BLANK,
    numbered_lines,
    only_utf8,
    shown,
    told_encoding,
    with_blank_lines,
)
from vectorsearch.evaluation.formats.trec import TrecFile

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
        other: list[int] = []
        source = numbered_lines(self.path, lenient=other.append)
        if (first := next(source, None)) is None:
            return
        lines = chain([first], source)  # opened once: it may be a pipe
        start = first[1].lstrip()
        if start.startswith("<"):
            trec = TrecFile(self.path, lines)
            yield from trec
            self.notes += trec.notes()
        elif start.startswith(("{", "[")):
            for number, row in json_rows(self.path, only_utf8(self.path, lines, other)):
                yield number, self._of_json(number, row)
        elif start.startswith(MARK):
            for number, name, fields in smart_records(self.path, lines):
                yield number, {"_id": name, "title": fields.get("T", ""), "text": fields.get("W", "")}
        else:
            yield from self._of_table(first[1], lines)
        self.notes += told_encoding(self.path, other)

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

    def _of_table(self, first: str, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
        for separator in ("\t", ","):
            header = [name.strip().lower() for name in split_row(first, separator)]
            if is_header(header, DOCUMENT_IDS, TEXTS):
                next(lines)
                yield from self._with_header(header, separator, lines)
                return
        width = first.count("\t") + 1
        if width not in _COLUMNS:
            raise InvalidInput(
                f"{self.path}, line 1: {width} columns without a header: MS MARCO's passages have 2, its documents 4; "
                f"{_EXPECTED}"
            )
        for number, line in lines:
            columns = line.split("\t")
            if len(columns) != width:
                raise InvalidInput(f"{self.path}, line {number}: {len(columns)} columns: the first line has {width}")
            yield number, _document(dict(zip(_COLUMNS[width], columns, strict=True)), self.path, number)

    def _with_header(
        self, header: list[str], separator: str, lines: Iterator[tuple[int, str]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows of a table with a header. In CSV a quoted text may go over several lines."""
        tabbed = ((number, line.split("\t")) for number, line in lines)
        for number, columns in tabbed if separator == "\t" else self._quoted(lines):
            if len(columns) != len(header):
                raise InvalidInput(
                    f"{self.path}, line {number}: {len(columns)} columns: the header has {len(header)} "
                    f"({', '.join(header)[:80]})"
                )
            yield number, _document(dict(zip(header, columns, strict=True)), self.path, number)

    def _quoted(self, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader((f"{line}\n" for line in with_blank_lines(lines)), strict=True)
        try:
            yield from ((reader.line_num, columns) for columns in reader if columns)
        except csv.Error as exc:
            raise InvalidInput(f"{self.path}, line {reader.line_num}: {exc}") from exc


def read_documents(paths: list[Path], notes: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the documents of files, one after the other; what is to be known of them is added to `notes`.

    Of a document that comes twice with the same text the first is given. The ids are held in memory.

    Raises:
        InvalidInput: as `DocumentFile`, or an id comes twice with another text.
    """
    known: dict[str, int] = {}
    repeated = 0
    for file in map(DocumentFile, paths):
        for number, document in file:
            content = hash((document["title"], document["text"]))
            if document["_id"] not in known:
                known[document["_id"]] = content
                yield document
            elif known[document["_id"]] == content:
                repeated += 1
            else:
                raise InvalidInput(
                    f"{file.path}, line {number}: document {document['_id']!r} comes twice, with another text"
                )
        notes += file.notes
    if repeated:
        notes.append(f"{repeated:,} documents come twice, with the same text: they count once")


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
