"""Read test collections: BEIR folders (`corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`) and TREC qrels."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from backends.errors import InvalidInput
from vectorsearch.documents import id_of, parse_document, parse_json
from vectorsearch.evaluation.lines import open_binary, parsed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Qrels = dict[str, dict[str, int]]

_LONGEST_GRADE = 9  # digits, the sign included: the measures compute with C's integers


@dataclass(frozen=True)
class TestCollection:
    """Documents, the questions that have judgments, and the judgments.

    `queries` maps a query id to its text, in the order of the judgments; `qrels` maps a query id to
    `{document id: grade}`.
    """

    __test__: ClassVar[bool] = False  # pytest takes a class of this name for tests

    name: str
    corpus_path: Path
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield `{"id", "title", "text", "metadata"}` in the order of the file, which is never read whole.

        Raises:
            InvalidInput: A row is malformed; the message holds the file, the line number and the reason.
        """
        for number, row in parsed_lines(self.corpus_path, json_object):
            try:
                document = parse_document(row, row_number=number)
            except InvalidInput as exc:
                raise InvalidInput(f"{self.corpus_path}, line {number}: {exc}") from exc
            yield {name: getattr(document, name) for name in ("id", "title", "text", "metadata")}

    @cached_property
    def digest(self) -> str:
        """Return the sha256, in hex, of everything a measurement depends on: documents, questions, judgments."""
        digest = hashlib.sha256()
        with open_binary(self.corpus_path) as file:
            while block := file.read(1 << 20):
                digest.update(block)
        digest.update(json.dumps([list(self.queries.items()), self.qrels]).encode())
        return digest.hexdigest()


def read_collection(folder: str | Path, *, split: str = "test") -> TestCollection:
    """Return the BEIR collection in `folder`; each file may be gzipped, the judgments may be in TREC's format.

    Raises:
        InvalidInput: A file is missing or malformed, or a judged query has no text.
    """
    folder = Path(folder)
    corpus = _existing(folder, "corpus.jsonl")
    qrels = read_qrels(_existing(folder, f"qrels/{split}.tsv", f"qrels/{split}.txt", f"qrels/{split}.qrels"))
    queries_path = _existing(folder, "queries.jsonl")
    return TestCollection(folder.resolve().name, corpus, read_judged_queries(queries_path, qrels), qrels)


def read_judged_queries(path: str | Path, qrels: Qrels) -> dict[str, str]:
    """Return query id → text of the judged queries, in the order of the judgments.

    Raises:
        InvalidInput: as `read_queries`, or a judged query has no text.
    """
    texts = read_queries(path)
    missing = [query for query in qrels if not texts.get(query, "").strip()]
    if missing:
        raise InvalidInput(f"{path}: {len(missing)} judged queries have no text, the first is {missing[0]!r}")
    return {query: texts[query] for query in qrels}


def read_queries(path: str | Path) -> dict[str, str]:
    """Return query id → text from BEIR JSONL, in the order of the file.

    Raises:
        InvalidInput: A row is malformed or an id comes twice.
    """
    queries: dict[str, str] = {}
    for number, (query, text) in parsed_lines(Path(path), _parse_query):
        if query in queries:
            raise InvalidInput(f"{path}, line {number}: query {query!r} comes twice")
        queries[query] = text
    return queries


def read_qrels(path: str | Path) -> Qrels:
    """Return query id → {document id: grade} in the order of the file, from BEIR's TSV or TREC's four columns.

    Raises:
        InvalidInput: A row is malformed, or one pair is judged twice with different grades.
    """
    qrels: Qrels = {}
    for number, judgment in parsed_lines(Path(path), _parse_judgment):
        if judgment is None:
            if number == 1:
                continue
            raise InvalidInput(f"{path}, line {number}: the grade is not a whole number")
        query, document, grade = judgment
        if qrels.setdefault(query, {}).setdefault(document, grade) != grade:
            raise InvalidInput(f"{path}, line {number}: {query!r} and {document!r} are judged twice, differently")
    if not qrels:
        raise InvalidInput(f"{path}: holds no judgments")
    return qrels


def _parse_query(line: str) -> tuple[str, str]:
    row = json_object(line)
    text = row.get("text")
    if not isinstance(text, str):
        raise InvalidInput(f'"text" is {_shown(text)}, not a string')
    try:
        return id_of(row), text
    except InvalidInput as exc:
        raise InvalidInput(f"the query has no id: {exc}") from exc


def _parse_judgment(line: str) -> tuple[str, str, int] | None:
    """Return (query, document, grade), or None where the grade is no number, as in a header."""
    columns = line.split("\t") if "\t" in line else line.split()
    match [column.strip() for column in columns]:
        case [query, document, grade] | [query, _, document, grade]:
            if not re.fullmatch(r"[+-]?\d+", grade):
                return None
            if len(grade) > _LONGEST_GRADE:
                raise InvalidInput(f"the grade {_shown(grade)} is too large")
            return query, document, int(grade)
    raise InvalidInput(
        f"{len(columns)} columns: BEIR has 3 (query, document, grade), TREC 4 (query, 0, document, grade)"
    )


def json_object(line: str) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
        InvalidInput: it holds something else.
    """
    row = parse_json(line)
    if not isinstance(row, dict):
        raise InvalidInput(f"{_shown(row)} is no JSON object")
    return row


def _shown(value: object) -> str:
    return "missing or null" if value is None else repr(value)[:60]


def _existing(folder: Path, *names: str) -> Path:
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise InvalidInput(f"{folder} has no {names[0]}: a BEIR collection has corpus.jsonl, queries.jsonl, qrels/test.tsv")
