"""Documents are read as TREC, BEIR, MS MARCO and SMART write them, or refused by line."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.document_files import DocumentFile

if TYPE_CHECKING:
    from pathlib import Path


def one(doc_id: str, text: str, title: str = "", **more: Any) -> dict[str, Any]:
    """Return a document as it is read."""
    return {"_id": doc_id, "title": title, "text": text, **more}


SHAPES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "TREC": (
        "<DOC>\n<DOCNO> A-1 </DOCNO>\n<HEADLINE>Wind &amp; ice</HEADLINE>\n<TEXT>\nFirst\n</TEXT>\n</DOC>\n",
        [one("A-1", "First", "Wind & ice")],
    ),
    "an id in an attribute, several on a line": (
        '<DOC id="A1" type="story"><TEXT>one</TEXT></DOC><doc docno=A2>two</doc> <DOC>\n<DOCNO>A3</DOCNO>three</DOC>',
        [one("A1", "one"), one("A2", "two"), one("A3", "three")],
    ),
    "raw less and and": (
        "<DOC><DOCNO>1</DOCNO><TEXT>if a < b & c > d, vector<int> at AT&T; 5 &lt; 6</TEXT></DOC>",
        [one("1", "if a < b & c > d, vector<int> at AT&T; 5 < 6")],
    ),
    "what looks like a tag": (
        "<DOC><DOCNO>1</DOCNO><TEXT>a<b and c>d, if i<i>j; <F P=10>x</F> <br>y <em>z</em> <IMG src=u></TEXT></DOC>",
        [one("1", "a<b and c>d, if i<i>j; x y z")],
    ),
    "end tags left out": (
        "<DOC>\n<DOCNO> 1\n<HL> Head\n<LP> Lead <p> more\n<TEXT> Body\n</DOC>",
        [one("1", "Lead more Body", "Head")],
    ),
    "several texts, and none": (
        "<DOC><DOCNO>1</DOCNO><TEXT>a</TEXT><TEXT>b</TEXT></DOC>\n<DOC><DOCNO>2</DOCNO>all of it</DOC>",
        [one("1", "a b"), one("2", "all of it")],
    ),
    "a document number beside an id": (
        "<DOC><DOCNO> LA1 </DOCNO><DOCID> 7 </DOCID><TEXT>x</TEXT></DOC>",
        [one("LA1", "x")],
    ),
    "a root and a declaration": (
        '<?xml version="1.0"?>\n<docs>\n<doc><docno>1</docno><title>t</title><text>x</text></doc>\n</docs>\n',
        [one("1", "x", "t")],
    ),
    "BEIR": ('{"_id": "1", "title": "t", "text": "x"}\n', [one("1", "x", "t")]),
    "Anserini": ('{"id": 1, "contents": "x"}\n', [one("1", "x")]),
    "MS MARCO v2, passages": (
        '{"pid": "msmarco_passage_1", "passage": "x", "spans": "(0,1)", "docid": "msmarco_doc_1"}\n',
        [one("msmarco_passage_1", "x")],
    ),
    "MS MARCO v2, documents": (
        '{"docid": "msmarco_doc_1", "url": "u", "title": "t", "headings": "h", "body": "x"}\n',
        [one("msmarco_doc_1", "h\nx", "t")],
    ),
    "one JSON list": ('[{"id": "1", "text": "x"},\n{"id": "2", "text": "y"}]', [one("1", "x"), one("2", "y")]),
    "MS MARCO v1, passages": ('0\tthe "wind"\n1\tice\n', [one("0", 'the "wind"'), one("1", "ice")]),
    "MS MARCO v1, documents": ("D1\thttp://u\tt\tx\n", [one("D1", "x", "t", metadata={"url": "http://u"})]),
    "TSV with a header": ("id\ttext\ttitle\n1\tx\tt\n", [one("1", "x", "t")]),
    "CSV with a header": (
        'docno,title,text\n1,t,"two\nlines, one text"\n2,,y\n',
        [one("1", "two\nlines, one text", "t"), one("2", "y")],
    ),
    "CORD-19": ("cord_uid,sha,title,abstract\nab12,,t,x\n", [one("ab12", "x", "t")]),
    "SMART": (".I 1\n.T\nt\n.A\nsomebody\n.W\nx\ny\n.I 2\n.W\nz\n", [one("1", "x y", "t"), one("2", "z")]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_documents_are_read_when_they_are_written_so(tmp_path: Path, shape: str) -> None:
    """F1, F4: each shape gives its ids, titles and texts, whole; packed as well."""
    text, documents = SHAPES[shape]
    (tmp_path / "docs").write_bytes(gzip.compress(text.encode()))
    assert [document for _, document in DocumentFile(tmp_path / "docs")] == documents


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no documents"),
        ("\n \n", "holds no documents"),
        ("<docs>\n</docs>\n", "holds no documents"),
        ("<DOC>\n<DOCNO>1</DOCNO>", "line 1: the last <DOC> is not ended"),
        ("<DOC>\n<DOC>\n</DOC>", "line 2: a <DOC> begins within that of line 1"),
        ("<DOC><DOCNO>1</DOCNO>x</DOC>\n</DOC>", "line 2: </DOC> ends a document"),
        ("\n<DOC>text</DOC>", "line 2: a document has no DOCNO"),
        ("<DOC><DOCNO> </DOCNO></DOC>", "line 1: a document has no DOCNO"),
        ("<DOC><DOCNO>1</DOCNO>x\n<DAC>\n<DOCNO>2</DOCNO>y</DOC>", "line 1: a document has several ids, '1', '2'"),
        ("<DOC><DOCNO>1</DOCNO>x</DOC>\nlost words\n", "line 2: 'lost words' is in no <DOC>"),
        ("<DOC><DOCNO>1</DOCNO><DOCHDR>http</DOCHDR><html>x</html></DOC>", "line 1: <DOCHDR> says .* web pages"),
        ("WARC/1.0\r\n", "WARC archive"),
        ('{"_id": "1", "text": "x"}\n{"_id": "2"}\n', "line 2: document '2' has no text: it has _id"),
        ('{"text": "x"}\n', "line 1: the document has no id"),
        ("1\tx\n2\n", "line 2: 1 columns: the first line has 2"),
        ("1\tx\ty\n", "line 1: 3 columns without a header"),
        ("id\ttext\n1\n", "line 2: 1 columns: the header has 2"),
        ("id,text\n1,x,y\n", "line 2: 3 columns: the header has 2"),
        ('id,text\n1,"x"y\n', "line 2: "),
        ("\tx\n", "line 1: '' is no document's id"),
        ("just words\n", "line 1: 1 columns without a header"),
    ],
)
def test_documents_are_refused_when_they_are_malformed(tmp_path: Path, text: str, told: str) -> None:
    """F1: the error names the file and the line; a file without documents is an error too."""
    (tmp_path / "docs.x").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=rf"docs\.x(, |: )(?s:.*){told}"):
        list(DocumentFile(tmp_path / "docs.x"))


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    """Elements beside title and text are counted, as are words in none, and lines in another encoding."""
    text = "<DOC><DOCNO>1</DOCNO><DATE>1999</DATE>loose<TEXT>caf\xe9</TEXT></DOC>\n"
    (tmp_path / "docs").write_bytes(text.encode("cp1252"))
    file = DocumentFile(tmp_path / "docs")
    assert [document["text"] for _, document in file] == ["café"]
    assert file.notes == [
        "docs: beside title and text there are, and are left out: DATE 1, text in no element 1",
        "docs: 1 lines aren't UTF-8, the first is line 1: read as Windows-1252",
    ]


def test_a_document_is_held_at_a_time_when_a_file_is_large(tmp_path: Path) -> None:
    """The first documents are given before a later line is found to be malformed."""
    rows = [*(json.dumps({"_id": str(i), "text": "x"}) for i in range(3)), "{"]
    (tmp_path / "docs").write_text("\n".join(rows), encoding="utf-8")
    documents = iter(DocumentFile(tmp_path / "docs"))
    assert [next(documents)[1]["_id"] for _ in range(3)] == ["0", "1", "2"]
    with pytest.raises(InvalidInput, match="line 4"):
        next(documents)
