"""Test collections: documents, queries and judgments; BEIR's folders, and files of queries and of judgments."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from backends.errors import InvalidInput
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.evaluation.formats.columns import json_object
from vectorsearch.evaluation.formats.judgments import Qrels, read_judgments
from vectorsearch.evaluation.formats.text_files import ENDINGS, open_binary, parsed_lines
from vectorsearch.evaluation.formats.topic_files import TopicFile, read_topics
from vectorsearch.ingestion.documents import parse_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_NUMBERED = re.compile(r"(\D*?)0*(\d+)(\D*)", re.ASCII)


@dataclass(frozen=True)
class TestCollection:
    """Documents, the questions that have judgments, and the judgments.

    `queries` maps a query id to its text, in the order of the judgments; `qrels` maps a query id to
    `{document id: grade}`. `notes` are what a reader of figures should know of the files.
    """

    __test__: ClassVar[bool] = False  # pytest takes a class of this name for tests

    name: str
    corpus_path: Path
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()

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


def read_collection(folder: str | Path, *, split: str = "test", field: str | None = None) -> TestCollection:
    """Return the BEIR collection in `folder`; each file may be compressed, the judgments may be in TREC's format.

    Raises:
        InvalidInput: A file is missing or malformed, or a judged query has no text.
    """
    folder = Path(folder)
    corpus = _existing(folder, "corpus.jsonl")
    qrels = _existing(folder, *(f"qrels/{split}.{ending}" for ending in ("tsv", "txt", "qrels", "json")))
    judged = read_judged(_existing(folder, "queries.jsonl", "queries.tsv"), qrels, field=field)
    return TestCollection(folder.resolve().name, corpus, judged.queries, judged.qrels, judged.notes)


def read_judged(queries: str | Path, qrels: str | Path, *, field: str | None = None) -> Topics:
    """Return the queries of one file that have judgments in another, in the order of the judgments.

    Raises:
        InvalidInput: as `read_topics` and `read_judgments`, or a judged query has no text.
    """
    judgments, topics = read_judgments(qrels), read_topics(queries, field=field)
    texts, notes = _judged_texts(topics, judgments.grades)
    return Topics(texts, judgments.grades, (*topics.notes, *judgments.notes, *notes))


def read_queries(path: str | Path) -> dict[str, str]:
    """Return query id → text of a file of queries, in the order of the file; see `read_topics`.

    Raises:
        InvalidInput: A row is malformed or an id comes twice, or there is none.
    """
    return read_topics(path).texts


def read_qrels(path: str | Path) -> Qrels:
    """Return query id → {document id: grade} of a file of judgments, in the order of the file; see `read_judgments`.

    Raises:
        InvalidInput: A row is malformed, or one pair is judged twice with different grades, or there is none.
    """
    return read_judgments(path).grades


def _judged_texts(topics: TopicFile, qrels: Qrels) -> tuple[dict[str, str], list[str]]:
    """Return the judged queries' texts, and what is to be said of those that are not in both files.

    Raises:
        InvalidInput: a judged query has no text.
    """
    called = {query: query for query in qrels if query in topics.texts}
    by_number = _by_number([query for query in qrels if query not in called], topics.texts.keys() - called.keys())
    called |= by_number
    missing = [query for query in qrels if not topics.texts.get(called.get(query, ""), "").strip()]
    if len(missing) == len(qrels):
        raise InvalidInput(
            f"{topics.path}: all {len(missing)} judged queries have no text, the first is {missing[0]!r}: "
            f"judged are {_first_ids(qrels)}, and the file has {_first_ids(topics.texts)}"
        )
    if missing:
        raise InvalidInput(
            f"{topics.path}: {len(missing)} judged queries have no text, the first is {missing[0]!r}: give their texts "
            "as well, or take them out of the judgments"
        )
    notes = []
    if by_number:
        judged, topic = next(iter(by_number.items()))
        notes.append(
            f"{topics.path.name}: {len(by_number):,} topics are paired by number, as {topic!r} is judged as {judged!r}"
        )
    if unjudged := len(topics.texts) - len(called):
        notes.append(
            f"{topics.path.name}: {unjudged:,} of {len(topics.texts):,} queries have no judgments: they aren't asked"
        )
    return {query: topics.texts[called[query]] for query in qrels}, notes


def _by_number(judged: Iterable[str], topics: Iterable[str]) -> dict[str, str]:
    """Return judged id → topic's id where they are one number, as TREC writes `051` and judges `51`, `MB001` and `1`.

    Only where each number comes once, and all topics are written in one way.
    """
    found: dict[int, str | None] = {}
    ways = set()
    for topic in topics:
        if parts := _NUMBERED.fullmatch(topic):
            ways.add((parts[1], parts[3]))
            number = int(parts[2])
            found[number] = None if number in found else topic
    pairs = {query: found.get(int(query)) for query in judged if query.isdecimal() and query.isascii()}
    return {query: topic for query, topic in pairs.items() if topic is not None} if len(ways) == 1 else {}


def _first_ids(ids: Iterable[str]) -> str:
    return ", ".join(repr(each) for each, _ in zip(ids, range(3), strict=False))


def _existing(folder: Path, *names: str) -> Path:
    for name in names:
        for ending in ENDINGS:
            path = folder / f"{name}{ending}"
            if path.is_file():
                return path
    raise InvalidInput(f"{folder} has no {names[0]}: a BEIR collection has corpus.jsonl, queries.jsonl, qrels/test.tsv")
