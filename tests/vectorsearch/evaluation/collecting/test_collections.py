from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from backends.errors import InvalidInput
from vectorsearch.evaluation.collecting.collections import TestCollection, read_collection, read_qrels, read_queries

if TYPE_CHECKING:
    from pathlib import Path

QRELS = "query-id\tcorpus-id\tscore\n2\td1\t1\n1\td2\t2\n1\td1\t0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a small BEIR collection whose qrels ask query 2 before query 1, and never query 3."""
    rows = [
        {"_id": "d1", "title": "One", "text": "first", "metadata": {"lang": "en"}},
        {"_id": "d2", "title": "", "text": "second"},
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    queries = [{"_id": str(number), "text": f"question {number}"} for number in (1, 2, 3)]
    (tmp_path / "queries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in queries), encoding="utf-8")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text(QRELS, encoding="utf-8")
    return tmp_path


def test_judged_queries_come_in_order_of_the_judgments_when_read(folder: Path) -> None:
    """A collection holds the judged queries only, in the order of its qrels, with every grade."""
    collection = read_collection(folder)
    assert list(collection.queries.items()) == [("2", "question 2"), ("1", "question 1")]
    assert collection.qrels == {"2": {"d1": 1}, "1": {"d2": 2, "d1": 0}}
    assert list(collection.documents()) == [
        {"id": "d1", "title": "One", "text": "first", "metadata": {"lang": "en"}},
        {"id": "d2", "title": "", "text": "second", "metadata": {}},
    ]


@pytest.mark.parametrize("title", [{}, {"title": None}, {"title": ""}])
def test_document_loads_when_the_title_says_nothing(folder: Path, title: dict[str, str | None]) -> None:
    """S68: a missing, null or empty title loads as an empty one."""
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d1", "text": "first", **title}), encoding="utf-8")
    assert list(read_collection(folder).documents()) == [{"id": "d1", "title": "", "text": "first", "metadata": {}}]


def test_ids_are_strings_when_the_files_hold_numbers(folder: Path) -> None:
    """Numbers as ids of documents and queries become strings, so that they match the judgments'."""
    (folder / "corpus.jsonl").write_text('{"_id": 7, "text": "seven"}\n', encoding="utf-8")
    (folder / "queries.jsonl").write_text('{"_id": 1, "text": "a"}\n\n{"_id": 2, "text": "b"}\n', encoding="utf-8")
    collection = read_collection(folder)
    assert [document["id"] for document in collection.documents()] == ["7"]
    assert collection.queries == {"2": "b", "1": "a"}


def test_collection_is_the_same_when_its_files_are_gzipped(folder: Path) -> None:
    """Gzipped files give the same documents and the same digest as plain ones."""
    plain = read_collection(folder)
    documents, digest = list(plain.documents()), plain.digest
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    zipped = read_collection(folder)
    assert (list(zipped.documents()), zipped.digest) == (documents, digest)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("corpus.jsonl", "second", "other"),
        ("queries.jsonl", "question 1", "question one"),
        ("qrels/test.tsv", "1\td1\t0", "1\td1\t1"),
        ("qrels/test.tsv", "2\td1\t1\n1\td2\t2\n", "1\td2\t2\n2\td1\t1\n"),
    ],
)
def test_digest_differs_when_what_is_measured_changes(folder: Path, name: str, old: str, new: str) -> None:
    """The digest depends on the documents, the questions, the grades and the order of the questions."""
    before = read_collection(folder).digest
    (folder / name).write_text((folder / name).read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert read_collection(folder).digest != before


def test_digest_stays_when_an_unjudged_query_changes(folder: Path) -> None:
    """What no measurement reads doesn't change the digest."""
    before = read_collection(folder).digest
    queries = folder / "queries.jsonl"
    queries.write_text(queries.read_text(encoding="utf-8").replace("question 3", "gone"), encoding="utf-8")
    assert read_collection(folder).digest == before


def test_trec_qrels_equal_beirs_when_they_say_the_same(tmp_path: Path) -> None:
    """TREC's four columns, with blanks or tabs, and BEIR's three give the same judgments, negative grades too."""
    (tmp_path / "beir.tsv").write_text("query-id\tcorpus-id\tscore\n1\tFBIS3-1\t2\n1\td2\t-1\n", encoding="utf-8")
    (tmp_path / "trec.qrels").write_text("1 0 FBIS3-1 2\r\n1\tQ0\td2\t-1\n", encoding="utf-8")
    assert read_qrels(tmp_path / "trec.qrels") == read_qrels(tmp_path / "beir.tsv") == {"1": {"FBIS3-1": 2, "d2": -1}}


@pytest.mark.parametrize("stated", [{"_id": "5"}, {"id": 5}, {"_id": None, "id": "5"}, {"docid": "5"}])
def test_a_query_has_its_id_where_a_document_has(folder: Path, stated: dict[str, Any]) -> None:
    """One rule for both: the first of the fields that isn't null, and a whole number is its digits."""
    (folder / "queries.jsonl").write_text(json.dumps({**stated, "text": "t"}), encoding="utf-8")
    (folder / "corpus.jsonl").write_text(json.dumps({**stated, "text": "t"}), encoding="utf-8")
    assert read_queries(folder / "queries.jsonl") == {"5": "t"}
    documents = TestCollection("c", folder / "corpus.jsonl", {}, {}).documents()
    assert [document["id"] for document in documents] == ["5"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("[1]", "is no JSON object"),
        ('{"text": "no id"}', "id"),
        ('{"_id": "d9"}', "'text' is missing"),
        ('{"_id": "d9", "text": 3}', "'text' is a int"),
        ('{"_id": "d9", "text": "t", "title": []}', "'title' is a list"),
    ],
)
def test_error_names_file_and_line_when_a_document_is_malformed(folder: Path, row: str, reason: str) -> None:
    """A malformed document is refused with its file, its line and the reason, after the rows before it."""
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{row}\n")
    documents = read_collection(folder).documents()
    assert [next(documents)["id"], next(documents)["id"]] == ["d1", "d2"]
    with pytest.raises(InvalidInput, match=rf"corpus\.jsonl, line 3: .*{re.escape(reason)}"):
        next(documents)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"_id": "4"}', '"text" is missing or null'),
        ('{"a":' * 10_000, "nested too deep"),
        ('{"_id": "", "text": "t"}', "the query has no id: give 'id'"),
        ('{"text": "t"}', "the query has no id: give 'id'"),
        ('{"_id": true, "text": "t"}', "the query has no id: the id is a bool"),
        ('{"_id": "3", "text": "again"}', "query '3' comes twice"),
    ],
)
def test_error_names_file_and_line_when_a_query_is_malformed(folder: Path, row: str, reason: str) -> None:
    """A malformed or repeated query is refused with its file, its line and the reason."""
    with (folder / "queries.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{row}\n")
    with pytest.raises(InvalidInput, match=rf"queries\.jsonl, line 4: {re.escape(reason)}"):
        read_queries(folder / "queries.jsonl")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1\td1\t1\n1\td1\n", "line 2: 2 columns"),
        ("1\td1\t1\n1\td2\tgood\n", "line 2: the grade is not a whole number"),
        ("1\td1\t1\n1\td2\t--1\n", "line 2: the grade is not a whole number"),
        ("1\td1\t1\n1\td1\t2\n", "line 2: '1' and 'd1' are judged twice, differently"),
        ("1\td1\t1\n1\td2\t9999999999999999999\n", "line 2: the grade '9999999999999999999' is too large"),
        ("query-id\tcorpus-id\tscore\n", "holds no judgments"),
    ],
)
def test_error_names_file_and_line_when_a_judgment_is_malformed(tmp_path: Path, text: str, reason: str) -> None:
    """A malformed judgment is refused with its file, its line and the reason."""
    (tmp_path / "test.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=rf"test\.tsv.*{re.escape(reason)}"):
        read_qrels(tmp_path / "test.tsv")


def test_error_names_the_line_when_a_file_is_not_utf8(folder: Path) -> None:
    """Bytes that are not UTF-8 are refused with file and line."""
    (folder / "queries.jsonl").write_bytes(b'{"_id": "1", "text": "a"}\n{"_id": "2", "text": "\xff"}\n')
    with pytest.raises(InvalidInput, match=r"queries\.jsonl, line 2: .*utf-8"):
        read_collection(folder)


def test_error_says_what_is_missing_when_a_folder_is_no_collection(folder: Path) -> None:
    """A folder without one of the files, and a judged query without a text, each have their own message."""
    with pytest.raises(InvalidInput, match=r"has no qrels/train\.tsv"):
        read_collection(folder, split="train")
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "a"}\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match="1 judged queries have no text, the first is '2'"):
        read_collection(folder)
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(InvalidInput, match=r"has no corpus\.jsonl"):
        read_collection(folder)


def test_error_names_the_file_when_a_gzip_file_is_cut(folder: Path) -> None:
    """A gzip file that ends early is refused by name, not read as a shorter collection."""
    path = folder / "queries.jsonl.gz"
    path.write_bytes(gzip.compress((folder / "queries.jsonl").read_bytes())[:-10])
    with pytest.raises(InvalidInput, match=r"queries\.jsonl\.gz: can't be read"):
        read_queries(path)


def test_error_names_the_query_when_a_judged_one_is_blank(folder: Path) -> None:
    """A judged query of white space is found out when read, not in the middle of an evaluation."""
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": " "}\n', encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("q\td1\t1\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="no text, the first is 'q'"):
        read_collection(folder)
