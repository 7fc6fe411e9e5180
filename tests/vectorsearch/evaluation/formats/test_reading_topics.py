"""Queries are read in every shape that the tracks have published, or refused by line and by what is missing."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from typing import TYPE_CHECKING

import pytest

from backends.errors import InvalidInput, MissingExtra
from vectorsearch.evaluation.formats.topic_files import read_topics

if TYPE_CHECKING:
    from pathlib import Path

CLASSIC = """
<top>

<num> Number: 301
<title> Topic: Wind
power &amp; tides

<desc> Description:
How much is made?

<narr> Narrative:
Any figure counts.
</top>

<top><num>302</num><title>Sea &lt;ice&gt;</title></top>
"""
SHAPES = {
    "classic, with end tags and without": (CLASSIC, {"301": "Wind power & tides", "302": "Sea <ice>"}),
    "classic, Windows line ends": (CLASSIC.replace("\n", "\r\n"), {"301": "Wind power & tides", "302": "Sea <ice>"}),
    "a language on each topic": ("<topics><top lang='hi'><num>1</num><title>हवा</title></top></topics>", {"1": "हवा"}),
    "CLEF's names with a language": (
        "<top>\n<num> C041 </num>\n<EN-title> Wind </EN-title>\n<EN-desc> x </EN-desc>\n</top>",
        {"C041": "Wind"},
    ),
    "Microblog": (
        "<top>\n<num> Number: MB001 </num>\n<query> wind </query>\n<querytime> 1 </querytime>\n</top>",
        {"MB001": "wind"},
    ),
    "a number as an element": ("<topic><number>7</number><title>wind</title></topic>", {"7": "wind"}),
    "a number as an attribute": (
        '<!DOCTYPE t [<!ELEMENT topic (q)*>]>\n<t><topic number="7"><query>wind</query><subtopic number="1">y</t>',
        {"7": "wind"},
    ),
    "bare text in a topic": (
        "<topics><topic number='7'>\n a man of 40 <b>years</b>\n</topic></topics>",
        {"7": "a man of 40 years"},
    ),
    "COVID": (
        '<topic number="1"><query>origin</query><question>whence?</question><narrative>n</narrative></topic>',
        {"1": "origin"},
    ),
    "clinical decision support": (
        '<topic number="1" type="diagnosis"><description>long</description><summary>short</summary></topic>',
        {"1": "short"},
    ),
    "precision medicine": (
        '<topic number="1"><disease>Melanoma</disease><gene>BRAF</gene><demographic>64, male</demographic></topic>',
        {"1": "Melanoma BRAF 64, male"},
    ),
    "clinical trials' fields": (
        '<topic number="1" template="x"><field name="diagnosis">glaucoma</field><field name="age">60</field></topic>',
        {"1": "diagnosis glaucoma; age 60"},
    ),
    "genomics' titles": (
        "<TOPIC><ID>1</ID><TITLE>wind</TITLE><NEED>n</NEED><CONTEXT>c</CONTEXT></TOPIC>",
        {"1": "wind"},
    ),
    "genomics' questions": ("<160>What is wind?\n<161>And [TIDES]?\n", {"160": "What is wind?", "161": "And [TIDES]?"}),
    "background linking": ("<top><num> Number: 3 </num><docid>d</docid><url>http://x</url></top>", {"3": "http://x"}),
    "NTCIR WWW": ("<queries><query><qid>0001</qid><content>wind</content></query></queries>", {"0001": "wind"}),
    "a namespace and attributes": (
        '<t:topics xmlns:t="urn:x"><t:topic xml:id="1"><t:title xml:lang="en">wind</t:title></t:topic></t:topics>',
        {"1": "wind"},
    ),
    "raw less and and": (
        "<top><num>1</num><title>a < b & vector<int> AT&T</title></top>",
        {"1": "a < b & vector<int> AT&T"},
    ),
    "a literal section and a comment": (
        '<topic number="1"><query><![CDATA[a <b> & c]]></query><!-- no --></topic>',
        {"1": "a <b> & c"},
    ),
    "SMART in TREC's dress": ("<DOC>\n<DOCNO> 1 </DOCNO>\n\n wind and\ntides\n</DOC>\n", {"1": "wind and tides"}),
    "SMART": (".I 1\n.W\nwind\nand tides\n.I 2\n.W\nice\n", {"1": "wind and tides", "2": "ice"}),
    "TSV": ("1\twind\n2\tice, snow\n", {"1": "wind", "2": "ice, snow"}),
    "TSV with a header": ("qid\tquery\n1\twind\n", {"1": "wind"}),
    "TSV with a mark and Windows line ends": ("\ufeff1\twind\r\n2\tice\r\n", {"1": "wind", "2": "ice"}),
    "CSV with a header": ('query_id,text\n1,"wind, tides"\n', {"1": "wind, tides"}),
    "Terabyte": ("1:wind power\n2:ratio 1:2\n", {"1": "wind power", "2": "ratio 1:2"}),
    "Million Query with priorities": ("1:1:wind\n2:4:ice\n", {"1": "wind", "2": "ice"}),
    "CAR": ("enwiki:Wind\nenwiki:Wind/On%20ice\n", {"enwiki:Wind": "Wind", "enwiki:Wind/On%20ice": "Wind On ice"}),
    "BEIR": ('{"_id": "1", "text": "wind", "metadata": {}}\n', {"1": "wind"}),
    "JSON lines with other names": (
        '{"qid": 1, "query": "wind"}\n{"qid": 2, "query": "ice"}\n',
        {"1": "wind", "2": "ice"},
    ),
    "one JSON object of ids": ('{\n"1": "wind",\n"2": "ice"\n}', {"1": "wind", "2": "ice"}),
    "one JSON object with a list": ('{\n"topics": [\n{"id": "1", "question": "wind?"}]}', {"1": "wind?"}),
    "one JSON list": ('[\n {"question_id": "C1", "question": "whence?", "query": "origin"}\n]', {"C1": "origin"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_queries_are_read_when_a_track_writes_them_so(tmp_path: Path, shape: str) -> None:
    """F3, F4: each shape gives its ids and the text that is asked."""
    text, queries = SHAPES[shape]
    path = tmp_path / "topics"
    path.write_bytes(text.encode())
    assert read_topics(path).texts == queries


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no queries"),
        (" \n\t\n", "holds no queries"),
        ("wind\n", "line 1: 'wind' is not a query's id and its text"),
        ("1\twind\n2 ice\n", "line 2: one column"),
        ("1\twind\n\tice\n", "line 2: '' is no query's id"),
        ("1\twind\n1\tice\n", "line 2: query '1' comes twice"),
        ("a\tb\tc\nd\te\tf\n", "line 1: 3 columns without a header"),
        ("qid\tquery\n1\twind\n2\n", "line 3: 1 columns: the header has 2"),
        ("who blows?\t['wind']\n", "line 1: a question and its answers"),
        ("1:wind\nice\n", "line 2: 'ice' is not"),
        ("1 Q0 d 1 2.5 tag\n", "line 1: '1 Q0 d 1 2.5 tag' is not"),
        ("<top>\n<num>1<title>x</top>\n<top>\n<title>y</top>", "line 3: topic has no number"),
        ("<top><num>1<title>x</top>\n<top><num>2<desc>y</top>", r'line 2: "title" is missing or null.*has description'),
        ("<top><num>1<title>x\n<top><num>1<title>y</top>", "line 2: query '1' comes twice"),
        ("<top><num>1<title>x</top>\n<tap><num>2<title>y</top>", "line 2: '2 y' is in no topic"),
        ("<top><num>1<title>x\n</tap>\n<num>2<title>y</top>", "line 1: topic has no one number"),
        ("<topic number='1'><foo>x</foo></topic>", "no title or other text"),
        ("<target id='1'><qa><q>when?</q></qa></target>", "holds no <top>, <topic>"),
        ("<160>wind?\nice?\n", "line 2: .* is not <number> and a question"),
        ('{"qid": 1, "vector": [0.1]}\n', "line 1: .*query '1' has qid, vector"),
        ('{"question": "when?", "answer": ["now"]}\n', "line 1: the query has no id"),
        ('[{"number": 31, "turn": [{"number": 1, "raw_utterance": "x"}]}]', "a conversation"),
        ('{\n"1": ["x"]\n}', "is one JSON object of 1; expected are JSON lines or a list"),
        ('{\n"1": "x"\n', "line 2: not JSON"),
        (".I 1\nwind\n", "line 2: 'wind' is in no field"),
    ],
)
def test_queries_are_refused_when_something_is_missing(tmp_path: Path, text: str, told: str) -> None:
    """F3: the error names the file, the line, and what was expected there; an empty file is an error too."""
    path = tmp_path / "topics.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=rf"topics\.txt(, |: )(?s:.*){told}"):
        read_topics(path)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_file_is_unpacked_when_its_content_says_so(tmp_path: Path, pack: object) -> None:
    """Whatever its name is, what a file holds tells how it is packed."""
    (tmp_path / "queries.tsv").write_bytes(pack(b"1\twind\n"))  # type: ignore[operator]  # one of three functions
    assert read_topics(tmp_path / "queries.tsv").texts == {"1": "wind"}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_is_refused_when_it_is_cut(tmp_path: Path, pack: object) -> None:
    """What is left of a file isn't taken for a shorter one."""
    lines = "".join(f"{i}\twind {i * i}\n" for i in range(3_000)).encode()
    (tmp_path / "queries").write_bytes(pack(lines)[:-40])  # type: ignore[operator]  # one of three functions
    with pytest.raises(InvalidInput, match="queries: can't be read"):
        read_topics(tmp_path / "queries")


def test_a_package_is_named_when_zstd_can_not_be_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a module for zstd the error says which one, or how to unpack the file."""
    for module in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "queries").write_bytes(b"\x28\xb5\x2f\xfd\x04\x00")
    with pytest.raises(MissingExtra, match=r"pip install backports\.zstd, or unpack it"):
        read_topics(tmp_path / "queries")


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"\x1f\x9d\x90abc", r"\.Z"),
        (b"PK\x03\x04abc", "zip"),
        (b"PAR1\x15\x04", "Parquet"),
        (b"WARC/1.0\r\n", "WARC"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"1\tw\x00nd\n", "line 1: holds a NUL byte"),
        (gzip.compress(b"x" * 257 + b"ustar" + b"\0" * 250, mtime=0), "tar"),
        (gzip.compress(b"1\twind\n", mtime=0)[:-6], "can't be read"),
        (b"\x9d\x03\x08\x1f\x12\x14head\n", "line 1: 'utf-8' codec"),
    ],
)
def test_a_file_is_refused_by_its_kind_when_it_is_no_text(tmp_path: Path, raw: bytes, told: str) -> None:
    """Archives, tables and other binary files are refused by name, and never read as an empty or other text."""
    (tmp_path / "topics").write_bytes(raw)
    with pytest.raises(InvalidInput, match=told):
        read_topics(tmp_path / "topics")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_text_is_decoded_when_it_is_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    """UTF-8 and UTF-16 with their marks, and Windows-1252, which is said."""
    (tmp_path / "topics").write_bytes("<top><num>1</num><title>señor</title></top>\n".encode(encoding))
    found = read_topics(tmp_path / "topics")
    assert found.texts == {"1": "señor"}
    assert bool(found.notes) == (encoding == "cp1252")


def test_an_encoding_is_obeyed_when_the_file_declares_it(tmp_path: Path) -> None:
    """An XML declaration says how the bytes are read; one that nobody knows is refused."""
    text = '<?xml version="1.0" encoding="{}"?>\n<topic number="1"><query>Ω</query></topic>'
    (tmp_path / "topics").write_bytes(text.format("ISO-8859-7").encode("iso-8859-7"))
    assert read_topics(tmp_path / "topics").texts == {"1": "Ω"}
    (tmp_path / "topics").write_text(text.format("klingon"), encoding="utf-8")
    with pytest.raises(InvalidInput, match="encoding 'klingon' is unknown"):
        read_topics(tmp_path / "topics")


def test_another_text_is_asked_when_it_is_named(tmp_path: Path) -> None:
    """A field by any of its names; one that no topic has is refused with those that they have."""
    (tmp_path / "topics").write_text("<top><num>1<title>short<desc>long</top>", encoding="utf-8")
    assert read_topics(tmp_path / "topics", field="desc").texts == {"1": "long"}
    assert read_topics(tmp_path / "topics", field="description").texts == {"1": "long"}
    with pytest.raises(InvalidInput, match="no topic has a 'narrative': they have title, description"):
        read_topics(tmp_path / "topics", field="narrative")


def test_what_is_asked_is_said_when_it_is_not_obvious(tmp_path: Path) -> None:
    """A title needs no word; a summary beside a description, or an address, does."""
    path = tmp_path / "topics"
    path.write_text(SHAPES["classic, with end tags and without"][0], encoding="utf-8")
    assert read_topics(path).notes == ()
    path.write_text(SHAPES["clinical decision support"][0], encoding="utf-8")
    assert read_topics(path).notes == (
        "topics: what is asked is each topic's summary (beside it they have description)",
    )
