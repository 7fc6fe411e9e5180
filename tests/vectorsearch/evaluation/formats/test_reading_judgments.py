"""Judgments are read as trec_eval and BEIR write them; what only looks like them is refused by line and name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.judgments import read_judgments

if TYPE_CHECKING:
    from pathlib import Path

WANTED = {"q1": {"d1": 1, "d2": -1}, "q2": {"d1": 0}}
SHAPES = {
    "TREC": "q1 0 d1 1\nq1 0 d2 -1\nq2 0 d1 0\n",
    "TREC, tabs and blanks mixed": "q1\t0 d1\t1\nq1  Q0\td2   -1 \n\tq2 0 d1 0\n",
    "TREC, Windows line ends and a mark": "\ufeffq1 0 d1 1\r\nq1 0 d2 -1\r\nq2 0 d1 0\r\n",
    "TREC with comments and blank lines": "# of 1999\n\nq1 0 d1 1\n#q9 0 d9 1\nq1 0 d2 -1\nq2 0 d1 0\n",
    "TREC with a header": "qid iter docno rel\nq1 0 d1 1\nq1 0 d2 -1\nq2 0 d1 0\n",
    "TREC, grades as 1.0": "q1 0 d1 1.0\nq1 0 d2 -1.0\nq2 0 d1 0.\n",
    "BEIR": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t-1\nq2\td1\t0\n",
    "BEIR without a header": "q1\td1\t1\nq1\td2\t-1\nq2\td1\t0\n",
    "CSV": "q1,0,d1,1\nq1,0,d2,-1\nq2,0,d1,0\n",
    "CSV with a header": "query-id,corpus-id,score\nq1,d1,1\nq1,d2,-1\nq2,d1,0\n",
    "Cranfield": "q1 d1 1 \nq1 d2 -1 \nq2 d1 0 \n",
    "MTEB": "\n".join(
        json.dumps({"query-id": query, "corpus-id": document, "score": float(grade)})
        for query, grades in WANTED.items()
        for document, grade in grades.items()
    ),
    "JSON": json.dumps(WANTED),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_judgments_are_read_when_they_are_written_so(tmp_path: Path, shape: str) -> None:
    """F2: each shape gives the same judgments, in the order of the file."""
    (tmp_path / "qrels").write_bytes(SHAPES[shape].encode())
    assert read_judgments(tmp_path / "qrels").grades == WANTED


def test_ids_hold_blanks_only_when_a_header_says_that_tabs_separate(tmp_path: Path) -> None:
    """BEIR's header makes tabs the only separator; elsewhere any white space is one."""
    (tmp_path / "qrels").write_text("query-id\tcorpus-id\tscore\nq1\ta doc\t1\n", encoding="utf-8")
    assert read_judgments(tmp_path / "qrels").grades == {"q1": {"a doc": 1}}
    (tmp_path / "qrels").write_text("q1\t0 d1\t1\n", encoding="utf-8")
    assert read_judgments(tmp_path / "qrels").grades == {"q1": {"d1": 1}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no judgments"),
        ("# only a comment\n", "holds no judgments"),
        ("query-id\tcorpus-id\tscore\n", "holds no judgments"),
        ("{}", "holds no judgments"),
        ("q1 0 d1 one\nq1 0 d2 1\n", "line 1: the grade is not a whole number: 'one'"),
        ("q1 0 d1 1\nq1 0 d2\n", "line 2: 3 columns.*lines before have 4"),
        ("q1\td1\t1\nq1\t0\td2\t1\n", "line 2: 4 columns.*lines before have 3"),
        ("q1 0 d1 1\n\nq1 0 d1 2\n", "line 3: 'q1' and 'd1' are judged twice, differently: 1, 2"),
        ("q1 0 d1 0.5\n", "line 1: the grade is not a whole number: '0.5'"),
        ("q1 0 d1 \u0661\n", "line 1: the grade is not a whole number"),
        ("d1\n", "line 1: 1 columns"),
        ("10 GX1 0 1 0.16\n", "line 1: 5 columns: .*sampled or preference"),
        ("q1 Q0 d1 1 9.5 tag\n", "line 1: 6 columns: .*looks like a run"),
        ("1 1 d1 1\n1 2 d1 0\n", "line 2: .*subtopics"),
        ("01 1410 0 0\n01 1572 0 0\n", "line 2: '0' stands where the document"),
        ("q1 0 184\nq2 0 29\n", "'0' stands where every line"),
        ("q1\td1\t1\nq1\td2\t2\nq1\td3\t3\nq1\td4\t4\n", "looks like a run of MS MARCO"),
        ('{"q1": {"d1": 0.5}}', "not a whole number: 0.5"),
        ('{"q1": {"d1": true}}', "not a whole number: True"),
        ('{"q1": ["d1"]}', "not {document: number}"),
        ('{"q1": {"d1": 1},\n "q1": {"d2": 1}}', "'q1' comes twice"),
        ('{"q1": {"d1": 1}', "line 1: not JSON"),
        ('{"qid": 1, "docid": 2, "score": 1}\n{"qid": 1, "docid": 3}\n', "line 2: .* has no query, document and grade"),
        ('{"qid": 1, "docid": 2, "score": 0.5}\n', "line 1: the grade is not a whole number"),
        ('{"_id": "1", "text": "x"}\n{"_id": "2", "text": "y"}\n', "is JSON lines, and expected is one JSON object"),
    ],
)
def test_judgments_are_refused_when_they_are_of_another_kind(tmp_path: Path, text: str, told: str) -> None:
    """F2: no line is passed over, and what the measures can't read is named."""
    (tmp_path / "qrels.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=rf"qrels\.txt(, |: )(?s:.*){told}"):
        read_judgments(tmp_path / "qrels.txt")


def test_an_id_may_begin_as_json_does(tmp_path: Path) -> None:
    """Columns are columns, whatever the ids are made of."""
    (tmp_path / "qrels").write_text("{ 0 {d} 1\n{q 0 d 0\n", encoding="utf-8")
    assert read_judgments(tmp_path / "qrels").grades == {"{": {"{d}": 1}, "{q": {"d": 0}}
    (tmp_path / "qrels").write_text("{\td\t1\nq\td\t0\n", encoding="utf-8")
    assert read_judgments(tmp_path / "qrels").grades == {"{": {"d": 1}, "q": {"d": 0}}


def test_what_was_skipped_is_said(tmp_path: Path) -> None:
    """Comments, repeated judgments and a second column that says something are counted."""
    (tmp_path / "qrels").write_text("#c\nq1 1 d1 1\nq1 1 d1 1\nq1 2 d2 1\n", encoding="utf-8")
    assert read_judgments(tmp_path / "qrels").notes == (
        "qrels: 1 lines are comments (#), the first is line 1",
        "qrels: 1 judgments come twice, with the same grade",
        "qrels: the second column says 1, 2 …: it is ignored, as by trec_eval",
    )
