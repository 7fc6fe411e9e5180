from __future__ import annotations

import gzip
import json
import shutil
import sys
import types
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import pytest

from backends.errors import InvalidInput, MissingExtra
from vectorsearch.evaluation.collecting.sources import find_collection

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = """
<top>
<num> Number: 301
<title> International Organized
Crime &amp; more

<desc> Description: ignored
</top>
<top><num>302</num><title>Topic: Polio</title></top>
"""
DOCUMENTS = """<DOC>
<DOCNO> FT911-1 </DOCNO>
<HEADLINE>Polio &amp; health</HEADLINE>
<TEXT>
First <b>part</b>.
</TEXT>
<TEXT>Second.</TEXT>
</DOC>
<DOC><DOCNO>FT911-2</DOCNO>No text element.</DOC>
"""
QRELS = "301 0 FT911-2 1\n302 0 FT911-1 2\n"


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a cache of the test's own."""
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def trec(tmp_path: Path) -> Path:
    """Return a folder in TREC's layout, with a gzipped document file."""
    folder = tmp_path / "mini"
    (folder / "documents" / "ft").mkdir(parents=True)
    (folder / "topics.txt").write_text(TOPICS, encoding="utf-8")
    (folder / "qrels.txt").write_text(QRELS, encoding="utf-8")
    (folder / "documents" / "ft" / "1.gz").write_bytes(gzip.compress(DOCUMENTS.encode()))
    return folder


def test_a_trec_folder_is_a_collection(trec: Path) -> None:
    """Topics, judgments and SGML documents are read, in the order of the judgments, under the folder's name."""
    collection = find_collection(trec)
    assert collection.name == "mini"
    assert collection.queries == {"301": "International Organized Crime & more", "302": "Polio"}
    assert collection.qrels == {"301": {"FT911-2": 1}, "302": {"FT911-1": 2}}
    assert [(each["id"], each["title"], each["text"]) for each in collection.documents()] == [
        ("FT911-1", "Polio & health", "First part . Second."),
        ("FT911-2", "", "No text element."),
    ]


def test_a_trec_folder_is_converted_again_when_it_has_changed(trec: Path) -> None:
    """The converted files are kept under a digest of what they are made of."""
    first = find_collection(trec).corpus_path
    assert find_collection(trec).corpus_path == first
    (trec / "documents" / "more").write_text("<DOC><DOCNO>n</DOCNO>new</DOC>\n", encoding="utf-8")
    assert len(list(find_collection(trec).documents())) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<DOC>\n<DOCNO>1</DOCNO>", "not ended"),
        ("<DOC>\n<DOC>\n</DOC>", "within"),
        ("<DOC>text</DOC>", "no DOCNO"),
        ("<DOC><DOCNO> </DOCNO></DOC>", "no DOCNO"),
    ],
)
def test_documents_are_refused_when_they_are_malformed(trec: Path, text: str, told: str) -> None:
    """The error names the file and the line, and nothing half-written is left to be read the next time."""
    (trec / "documents" / "bad").write_text(text, encoding="utf-8")
    for _ in range(2):
        with pytest.raises(InvalidInput, match=rf"bad, line \d: .*{told}"):
            find_collection(trec)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nothing", "is not a query's id and its text"),
        ("<foo>x</foo>", "holds no <top>"),
        ("", "holds no queries"),
        ("<top><num>1</num></top>", "no title"),
        ("<top><title>x</top>", "no number"),
        ("<top><num>1<title>x</top><top><num>1<title>y</top>", "twice"),
    ],
)
def test_topics_are_refused_when_they_are_malformed(trec: Path, text: str, told: str) -> None:
    """The error names the file and the topic."""
    (trec / "topics.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=f"topics.txt.*: .*{told}"):
        find_collection(trec)


def test_a_folder_is_refused_when_something_is_missing(trec: Path, tmp_path: Path) -> None:
    """A folder that isn't there, one without judgments, and an empty one each have an error that says so."""
    (trec / "qrels.txt").unlink()
    with pytest.raises(InvalidInput, match=r"lacks qrels.txt"):
        find_collection(trec)
    with pytest.raises(InvalidInput, match="no collection"):
        find_collection(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match=r"corpus.jsonl"):
        find_collection(tmp_path / "empty")


def test_a_document_that_comes_twice_is_refused_or_said(trec: Path) -> None:
    """The same text counts once, and is said; another text under the same id is refused with file and line."""
    (trec / "documents" / "more").write_text("<DOC><DOCNO>FT911-2</DOCNO>No text element.</DOC>", encoding="utf-8")
    found = find_collection(trec)
    assert len(list(found.documents())) == 2
    assert found.notes[-1] == "1 documents come twice, with the same text: they count once"
    (trec / "documents" / "more").write_text("\n<DOC><DOCNO>FT911-2</DOCNO>other</DOC>", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"more, line 2: document 'FT911-2' comes twice, with another text"):
        find_collection(trec)


def test_layouts_may_be_mixed(trec: Path) -> None:
    """BEIR's documents beside TREC's topics and judgments are a collection; two files of queries are too many."""
    (trec / "corpus.jsonl").write_text('{"_id": "FT911-1", "text": "x"}\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"several collections of documents, corpus\.jsonl, documents"):
        find_collection(trec)
    shutil.rmtree(trec / "documents")
    found = find_collection(trec)
    assert found.queries["302"] == "Polio"
    assert [each["id"] for each in found.documents()] == ["FT911-1"]
    (trec / "queries.tsv").write_text("301\tx\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"several files .*: queries\.tsv, topics\.txt"):
        find_collection(trec)


def test_a_split_is_read_only_by_its_name(trec: Path) -> None:
    """Judgments of another split, or of none, aren't taken for those of the one that is asked for."""
    with pytest.raises(InvalidInput, match=r"lacks qrels\.txt or qrels/dev\.tsv"):
        find_collection(trec, split="dev")
    (trec / "qrels.txt").rename(trec / "qrels.train.txt")
    with pytest.raises(InvalidInput, match=r"lacks qrels\.txt or qrels/test\.tsv"):
        find_collection(trec)
    assert len(find_collection(trec, split="train").queries) == 2


def test_a_beir_folder_is_read_as_such(tmp_path: Path) -> None:
    """S68: a folder with corpus.jsonl is BEIR's, and a document with a null title loads."""
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"_id": 1, "title": None, "text": "x"}), encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "y"}), encoding="utf-8")
    (tmp_path / "qrels" / "dev.tsv").write_text("q\t1\t1\n", encoding="utf-8")
    assert next(find_collection(tmp_path, split="dev").documents())["id"] == "1"


def test_a_missing_package_is_named_when_ir_datasets_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ir_datasets the error names the pip command."""
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingExtra, match="pip install ir_datasets"):
        find_collection("ir_datasets:vaswani")


def test_a_name_is_read_by_ir_datasets_when_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents, queries and judgments of a data set are read once, whatever their kinds call their texts."""
    document, titled = namedtuple("Document", "doc_id text"), namedtuple("Titled", "doc_id title body default_text")  # noqa: PYI024 -- as that package has them
    query, judgment = namedtuple("Query", "query_id title"), namedtuple("Judgment", "query_id doc_id relevance")  # noqa: PYI024 -- as above
    calls: list[str] = []

    def load(name: str) -> Any:
        if name != "mini/test":
            raise KeyError(name)
        calls.append(name)
        return types.SimpleNamespace(
            has_docs=lambda: True,
            has_queries=lambda: True,
            has_qrels=lambda: True,
            docs_iter=lambda: iter([document("a", "text of a"), titled("b", "B", "-", lambda: "B and its body")]),
            queries_iter=lambda: iter([query("q", "a question"), query("unjudged", "another")]),
            qrels_iter=lambda: iter([judgment("q", "a", 1)]),
        )

    module = types.ModuleType("ir_datasets")
    module.load = load  # type: ignore[attr-defined]  # a stand-in for the package
    monkeypatch.setitem(sys.modules, "ir_datasets", module)
    collection = find_collection("ir_datasets:mini/test")
    assert collection.name == "mini-test"
    assert (collection.queries, collection.qrels) == ({"q": "a question"}, {"q": {"a": 1}})
    assert [each["text"] for each in collection.documents()] == ["text of a", "B and its body"]
    with pytest.raises(InvalidInput, match="knows no 'other'"):
        find_collection("ir_datasets:other")
    assert calls == ["mini/test"]
