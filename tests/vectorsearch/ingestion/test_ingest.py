from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

import vectorsearch as vs
from vectorsearch.ingestion.bulk import RAW_CHARACTERS, IngestReport, ingest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vectorsearch import Database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with vs.open(tmp_path / "db", embed=None) as database:
        yield database


def lines_of(*rows: dict[str, Any] | bytes) -> bytes:
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)


def run(db: Database, folder: Path, content: bytes, **options: Any) -> tuple[IngestReport, list[dict[str, Any]]]:
    """Ingest one file of this content; return the report and the rejected rows."""
    path = folder / "corpus.jsonl"
    path.write_bytes(content)
    rejects_path = folder / "rejects.jsonl"
    report = ingest(db, [path], rejects_path=rejects_path, **options)
    rejects = rejects_path.read_text(encoding="utf-8").splitlines() if rejects_path.exists() else []
    return report, [json.loads(line) for line in rejects]


def counts(report: IngestReport) -> tuple[int, int, int, int]:
    return report.rows, report.stored, report.unchanged, report.rejected


def test_rows_are_stored_when_they_are_beir_or_anserini(db: Database, tmp_path: Path) -> None:
    """S68: BEIR rows with a missing, null or empty title and Anserini rows load, each under its own id."""
    report, rejects = run(
        db,
        tmp_path,
        lines_of(
            {"_id": "a", "text": "alpha"},
            {"_id": "b", "title": None, "text": "beta", "metadata": {"year": 2020}},
            {"_id": "c", "title": "", "text": "gamma"},
            {"id": "d", "contents": "delta"},
        ),
    )
    assert counts(report) == (4, 4, 0, 0)
    assert report.complete
    assert not rejects
    documents = {document.id: document for document in db.iter()}
    assert {doc_id: document.text for doc_id, document in documents.items()} == {
        "a": "alpha",
        "b": "beta",
        "c": "gamma",
        "d": "delta",
    }
    assert documents["b"].metadata == {"year": 2020}


def test_bad_rows_go_to_the_rejects_file_when_the_rest_is_good(db: Database, tmp_path: Path) -> None:
    """S64: each bad row is written with its line number and a reason, the others are stored, and the counts add up."""
    report, rejects = run(
        db,
        tmp_path,
        lines_of(
            {"_id": "a", "text": "alpha"},
            b'{"_id": "broken", "text":',
            b"",
            b'["a", "list"]',
            {"text": "no id"},
            {"_id": "number", "text": 7},
            b'{"_id": "latin", "text": "caf\xe9"}',
            b"[" * 100_000,
            {"_id": "z", "text": "omega"},
        ),
    )
    assert counts(report) == (8, 2, 0, 6)
    assert report.rows == report.stored + report.unchanged + report.rejected
    assert not report.complete
    assert [row["row"] for row in rejects] == [2, 4, 5, 6, 7, 8]
    assert {row["source"] for row in rejects} == {str(tmp_path / "corpus.jsonl")}
    reasons = [row["reason"] for row in rejects]
    for reason, part in zip(
        reasons, ["not JSON", "not a mapping", "no id", "'text'", "not UTF-8", "too deep"], strict=True
    ):
        assert part in reason
    assert rejects[0]["raw"] == '{"_id": "broken", "text":'
    assert len(rejects[-1]["raw"]) == RAW_CHARACTERS
    assert db.count() == 2


def test_rejects_name_the_row_when_the_database_refuses_a_vector(db: Database, tmp_path: Path) -> None:
    """S48: a vector of another dimension or with NaN is rejected alone, and its batch is stored without it."""
    rows: list[dict[str, Any] | bytes] = [{"_id": f"d{i}", "text": "t", "vector": [1.0, i]} for i in range(20)]
    rows[7] = {"_id": "d7", "text": "t", "vector": [1.0, 2.0, 3.0]}
    rows[11] = b'{"_id": "d11", "text": "t", "vector": [1.0, NaN]}'
    report, rejects = run(db, tmp_path, lines_of(*rows))
    assert counts(report) == (20, 18, 0, 2)
    assert sorted(row["row"] for row in rejects) == [8, 12]
    assert all(f"row {row['row']}" in row["reason"] for row in rejects)
    assert db.count() == 18


def test_a_repeated_id_is_rejected_when_its_content_differs(db: Database, tmp_path: Path) -> None:
    """An id that comes again in a run is rejected with other content and counted as unchanged with the same."""
    first, other = {"_id": "a", "text": "first"}, {"_id": "a", "text": "second"}
    report, rejects = run(db, tmp_path, lines_of(first, first, other, {"_id": "b", "text": "b"}))
    assert counts(report) == (4, 2, 1, 1)
    assert "'a'" in rejects[0]["reason"]
    document = db.get("a")
    assert document is not None
    assert document.text == "first"


@pytest.mark.parametrize("batch_size", [1, 64])
def test_a_row_is_stored_when_the_one_before_of_its_id_was_refused(
    db: Database, tmp_path: Path, batch_size: int
) -> None:
    """An id is taken by what is stored under it, not by what was rejected; each row has its own reason."""
    bad, good = ({"_id": "a", "text": "t", "vector": vector} for vector in ([1.0, 2.0, 3.0], [1.0, 2.0]))
    report, rejects = run(
        db, tmp_path, lines_of({**good, "_id": "z"}, bad, bad, good, {**good, "text": "u"}), batch_size=batch_size
    )
    assert counts(report) == (5, 2, 0, 3)
    assert [row["row"] for row in rejects] == [2, 3, 5]
    assert ["dimensions" in row["reason"] for row in rejects] == [True, True, False]
    assert db.get("a").vector.tolist() == [1.0, 2.0]  # type: ignore[union-attr]  # it is there


def test_nothing_is_stored_twice_when_the_same_file_is_indexed_again(db: Database, tmp_path: Path) -> None:
    """A second run over the same rows stores nothing, replaces what has changed, and removes the old rejects."""
    content = lines_of(*({"_id": f"d{i}", "text": f"text {i}"} for i in range(30)))
    run(db, tmp_path, content + b"bad\n", batch_size=7)
    report, rejects = run(db, tmp_path, content.replace(b"text 3", b"other 3"), batch_size=7)
    assert counts(report) == (30, 1, 29, 0)
    assert not rejects
    assert not (tmp_path / "rejects.jsonl").exists()


def test_a_run_goes_on_where_it_stopped_when_it_was_interrupted(db: Database, tmp_path: Path) -> None:
    """What was acknowledged before an interruption is skipped by the next run, and the rest is stored."""
    content = lines_of(*({"_id": f"d{i}", "text": f"text {i}"} for i in range(50)))

    def interrupt(report: IngestReport) -> None:
        if report.stored >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(db, tmp_path, content, batch_size=10, on_progress=interrupt)
    assert db.count() == 20
    report, _ = run(db, tmp_path, content, batch_size=10)
    assert counts(report) == (50, 30, 20, 0)


def test_compressed_rows_are_read_when_the_name_does_not_say_so(db: Database, tmp_path: Path) -> None:
    """Gzip is told by its content, whatever the file is called."""
    report, _ = run(db, tmp_path, gzip.compress(lines_of({"_id": "a", "text": "alpha"})))
    assert counts(report) == (1, 1, 0, 0)


def test_rows_before_the_damage_are_kept_when_gzip_is_truncated(db: Database, tmp_path: Path) -> None:
    """A truncated gzip file is a failure of the run, and the rows that could be read are stored."""
    rows = lines_of(*({"_id": f"d{i}", "text": f"{i * 7919 % 10007} text"} for i in range(5000)))
    whole = gzip.compress(rows)
    report, _ = run(db, tmp_path, whole[: len(whole) // 2])
    assert 0 < report.stored < 5000
    assert not report.complete
    assert len(report.failures) == 1
    assert "corpus.jsonl" in report.failures[0]
    assert db.count() == report.stored


def test_rows_are_read_when_they_have_a_byte_order_mark_and_crlf(db: Database, tmp_path: Path) -> None:
    """A byte-order mark, CRLF line ends, blank lines and a missing last newline are no errors."""
    content = b'\xef\xbb\xbf{"_id": "a", "text": "alpha"}\r\n\r\n{"_id": "b", "text": "beta"}'
    report, rejects = run(db, tmp_path, content)
    assert counts(report) == (2, 2, 0, 0)
    assert not rejects


def test_progress_ends_at_the_total_when_a_run_is_done(db: Database, tmp_path: Path) -> None:
    """Progress never falls, ends with all bytes of all sources, and reports each transaction."""
    content = lines_of(*({"_id": f"d{i}", "text": f"text {i}"} for i in range(25)))
    seen: list[IngestReport] = []
    run(db, tmp_path, content, batch_size=10, on_progress=seen.append)
    read = [report.nbytes for report in seen]
    assert read == sorted(read)
    assert read[-1] == seen[-1].total_nbytes == len(content)
    assert [report.stored for report in seen][:2] == [10, 20]
    assert seen[-1].stored == 25


def test_ingest_refuses_when_the_batch_size_is_not_positive(db: Database, tmp_path: Path) -> None:
    """A batch size of 0 is an error before anything is read."""
    with pytest.raises(vs.VectorSearchError, match="batch_size"):
        run(db, tmp_path, b"", batch_size=0)


def test_row_is_rejected_when_its_vector_overflows(db: Database, tmp_path: Path) -> None:
    """S64: a number that no float holds is one bad row, and the rows after it are stored."""
    report, rejects = run(
        db,
        tmp_path,
        b'{"id": "a", "text": "x", "vector": [1' + b"0" * 400 + b"]}\n" + lines_of({"id": "b", "text": "y"}),
    )
    assert counts(report) == (2, 1, 0, 1)
    assert "not a list of numbers" in rejects[0]["reason"]
