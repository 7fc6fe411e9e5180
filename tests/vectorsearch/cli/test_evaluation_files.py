"""Files of other engines and tracks: what doesn't fit is told, and what fits nowhere is an error."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUN = "q1 Q0 csv.reader 1 2 base\nq2 Q0 time.sleep 1 1 base\n"


@pytest.fixture
def files(collection: Path) -> Callable[[str, str], Path]:
    """Return a function that writes a file."""

    def write(name: str, text: str) -> Path:
        path = collection / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def evaluated(run: Callable, folder: Path, *more: object) -> object:
    """Evaluate lexical search on a folder's collection."""
    return run("evaluate", "--collection", folder, "--mode", "lexical", "--measure", "RR@10", "--json", *more)


@pytest.mark.parametrize("name", ["qrels", "run"])
@pytest.mark.parametrize("text", ["", "\n \n", "\x00\x01", "PK\x03\x04", "just words here\n", "{}", "[]", "# no\n"])
def test_compare_fails_when_a_file_holds_nothing(
    run: Callable, files: Callable[[str, str], Path], name: str, text: str
) -> None:
    """Empty, blank, binary and foreign files are errors with exit code 1 and the file's name, and no table of zeros."""
    given = {"qrels": files("q.txt", "q1 0 csv.reader 1\n"), "run": files("r.trec", RUN)}
    given[name] = files("odd.txt", text)
    done = run("compare", given["run"], "--qrels", given["qrels"], "--json")
    assert done.exit_code == 1
    assert "odd.txt" in done.json["error"]["message"]


@pytest.mark.parametrize(
    ("qrels", "run_file", "told"),
    [
        ("q1 0 other 1\n", RUN, "none of the 2 documents of base is judged"),
        ("7 0 csv.reader 1\n", RUN, "base has none of the 1 judged queries"),
        (
            "q1 0 csv.reader 0\nq2 0 time.sleep -1\n",
            RUN,
            "none of 2 judged queries has a document with a grade above 0",
        ),
        (RUN, RUN, "6 columns"),
        ("q1 0 csv.reader 1\n", "q1 0 csv.reader 1\n", "this looks like judgments"),
        (
            "q1 0 csv.reader 1\n",
            "query-id\tcorpus-id\tscore\nq1\tcsv.reader\t1\n",
            "the rank 'score' is no whole number",
        ),
    ],
)
def test_compare_fails_when_nothing_is_in_common(
    run: Callable, files: Callable[[str, str], Path], qrels: str, run_file: str, told: str
) -> None:
    """Judgments of other queries or documents, none relevant, and files in each other's place, are errors."""
    done = run("compare", files("r.trec", run_file), "--qrels", files("q.txt", qrels), "--json")
    assert done.exit_code == 1
    assert told in done.json["error"]["message"]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (("corpus.jsonl", ""), "holds no documents"),
        (("queries.jsonl", ""), "holds no queries"),
        (("qrels/test.tsv", ""), "holds no judgments"),
        (("qrels/test.tsv", "q1\tother\t1\n"), "none of 1 judged documents is among the 4 that are searched"),
        (("qrels/test.tsv", "q1\tcsv.reader\t0\n"), "grade above 0"),
        (("qrels/test.tsv", "q9\tcsv.reader\t1\n"), "all 1 judged queries have no text, the first is 'q9'"),
    ],
)
def test_evaluate_fails_when_nothing_is_in_common(
    run: Callable, collection: Path, files: Callable[[str, str], Path], written: tuple[str, str], told: str
) -> None:
    """A collection without documents, queries or judgments that fit is an error, and no table of zeros."""
    files(*written)
    done = evaluated(run, collection)
    assert done.exit_code == 1
    assert told in done.json["error"]["message"]


def test_evaluate_fails_when_the_database_is_empty(run: Callable, db: Path, collection: Path) -> None:
    """A database from which all was deleted can't be measured."""
    with vs.open(db) as database:
        database.delete(["csv.reader", "csv.writer", "json.load", "time.sleep"])
    given = ("--queries", collection / "queries.jsonl", "--qrels", collection / "qrels" / "test.tsv")
    done = run("evaluate", "--db", db, *given, "--json")
    assert done.exit_code == 1
    assert "the database holds no documents" in done.json["error"]["message"]


def test_what_does_not_fit_is_counted(run: Callable, collection: Path, files: Callable[[str, str], Path]) -> None:
    """F10: judged documents that the corpus lacks, queries without judgments or relevant documents, in JSON too."""
    files("qrels/test.tsv", "q1\tcsv.reader\t1\nq1\tgone\t1\nq1\tlost\t0\nq2\ttime.sleep\t0\n")
    done = evaluated(run, collection)
    assert done.exit_code == 0
    lost = "2 of 4 judged documents, 1 of them relevant, aren't among those searched, such as 'gone'"
    assert done.json["notes"] == [
        "queries.jsonl: 1 of 3 queries have no judgments: they aren't asked",
        "1 of 2 judged queries have no relevant document: they count as 0",
        f"{lost}: no system can find them",
    ]
    for note in done.json["notes"]:
        assert note in " ".join(done.stderr.split())
    compared = run("compare", files("r.trec", RUN), "--collection", collection, "--json", "--report", collection / "r")
    assert done.json["notes"][2] in compared.json["notes"]
    for page in ("report.html", "report.md", "report.json"):
        assert "2 of 4 judged documents" in (collection / "r" / page).read_text(encoding="utf-8")


def test_compare_fails_when_a_file_is_run_and_judgments(run: Callable, files: Callable[[str, str], Path]) -> None:
    """Judgments of three columns, a document a query, look like a run of MS MARCO, and would agree with themselves."""
    both = files("b.tsv", "q1\td1\t1\nq2\td2\t1\n")
    done = run("compare", both, "--qrels", both, "--json")
    assert done.exit_code == 1
    assert "is given as a run and as judgments" in done.json["error"]["message"]


def test_figures_of_zero_are_explained(run: Callable, collection: Path, files: Callable[[str, str], Path]) -> None:
    """Documents and queries that are in common by chance alone give zeros, and a word on it."""
    found = "nothing relevant was found, so every figure is 0"
    files("qrels/test.tsv", "q1\ttime.sleep\t1\n")
    assert found in evaluated(run, collection).stderr
    compared = run("compare", files("r.trec", RUN), "--qrels", collection / "qrels" / "test.tsv", "--json")
    notes = " ".join(compared.json["notes"])
    assert "0 of 1 results among the best 10 of base are judged" in notes
    assert found in notes


def test_own_ids_among_a_runs_results_are_told(run: Callable, files: Callable[[str, str], Path]) -> None:
    """Without the collection nobody knows whether queries are documents; where most find their own, it is said."""
    qrels, own = files("q.txt", "a 0 b 1\n"), files("r.trec", "a Q0 a 1 2 x\na Q0 b 2 1 x\n")
    asked = ("compare", own, "--qrels", qrels, "--measure", "RR", "--json")
    kept, left_out = run(*asked).json, run(*asked, "--ignore-identical-ids").json
    assert "if queries are documents, leave it out (--ignore-identical-ids)" in kept["notes"][0]
    assert left_out["notes"] == ["x has the document of 1 queries' own ids among their results: it is left out"]
    assert [each["systems"][0]["metrics"]["RR"] for each in (kept, left_out)] == [0.5, 1.0]


@pytest.mark.parametrize("same", [0.9, 0.8])
def test_a_query_that_is_a_document_does_not_find_itself(
    run: Callable, collection: Path, files: Callable[[str, str], Path], same: float
) -> None:
    """F5: it is left out by itself only where nine in ten of the queries with a document's id have its text as well."""
    texts = {f"n{i}": f"word{i} shared{i}" for i in range(10)}
    rows = [{"_id": name, "title": "", "text": text} for name, text in texts.items()]
    rows += [{"_id": f"other{i}", "text": f"shared{i}"} for i in range(10)]
    files("corpus.jsonl", "\n".join(map(json.dumps, rows)))
    asked = {name: text if i < same * 10 else f"shared{i}" for i, (name, text) in enumerate(texts.items())}
    asked["q"] = "word3"  # whose id is no document's, and doesn't count
    files("queries.jsonl", "\n".join(json.dumps({"_id": name, "text": text}) for name, text in asked.items()))
    files("qrels/test.tsv", "".join(f"n{i}\tother{i}\t1\n" for i in range(10)) + "q\tn3\t1\n")
    done = evaluated(run, collection)
    (system,) = done.json["systems"]
    own = "10 of 11 queries have a document's id: that document is left out of their results"
    assert (own in done.json["notes"]) == (same == 0.9)
    assert (system["metrics"]["RR@10"] == pytest.approx(1.0)) == (same == 0.9)
    forced = evaluated(run, collection, "--ignore-identical-ids").json
    assert forced["systems"][0]["metrics"]["RR@10"] == pytest.approx(1.0)
    kept = evaluated(run, collection, "--keep-identical-ids", "--run", collection / "own.trec").json
    assert kept["systems"][0]["metrics"]["RR@10"] < 1.0
    compared = run("compare", collection / "own.trec", "--collection", collection, "--measure", "RR@10", "--json").json
    assert (compared["systems"][0]["metrics"]["RR@10"] == pytest.approx(1.0)) == (same == 0.9)


def test_a_document_that_is_to_be_found_counts(
    run: Callable, collection: Path, files: Callable[[str, str], Path]
) -> None:
    """Where the document of a query's own id is the one that is judged relevant, it isn't left out by itself."""
    files("corpus.jsonl", '{"_id": "a", "text": "wind power"}\n{"_id": "b", "text": "ice"}\n')
    files("queries.jsonl", '{"_id": "a", "text": "wind power"}\n{"_id": "b", "text": "ice"}\n')
    files("qrels/test.tsv", "a\ta\t1\nb\tb\t1\n")
    done = evaluated(run, collection).json
    assert (done["systems"][0]["metrics"]["RR@10"], done["notes"]) == (1.0, [])


def test_as_many_results_are_measured_when_one_is_left_out(run: Callable, collection: Path) -> None:
    """The next result moves up: with k=1 a query that finds itself first has its second one."""
    (collection / "corpus.jsonl").write_text(
        '{"_id": "a", "text": "wind power"}\n{"_id": "b", "text": "wind"}\n', encoding="utf-8"
    )
    (collection / "queries.jsonl").write_text('{"_id": "a", "text": "wind power"}\n', encoding="utf-8")
    (collection / "qrels" / "test.tsv").write_text("a\tb\t1\n", encoding="utf-8")
    done = run("evaluate", "--collection", collection, "--system", "mode=lexical k=1", "--measure", "R@1", "--json")
    assert done.json["systems"][0]["metrics"]["R@1"] == 1.0


def test_collections_are_read_in_the_layouts_of_trec_and_ms_marco(run: Callable, tmp_path: Path) -> None:
    """F1, F3, F4: the same documents, queries and judgments give the same figures in each layout."""
    marco, trec = tmp_path / "marco", tmp_path / "trec"
    (trec / "documents").mkdir(parents=True)
    marco.mkdir()
    (marco / "collection.tsv").write_text("0\twind power\n1\tice\n", encoding="utf-8")
    (marco / "queries.test.tsv").write_text("7\twind\n8\tnone\n", encoding="utf-8")
    (marco / "queries.train.tsv").write_text("9\tice\n", encoding="utf-8")
    (marco / "qrels.test.tsv").write_text("7\t0\t0\t1\n", encoding="utf-8")
    (trec / "documents" / "x.sgml").write_text(
        '<DOC id="0">wind power</DOC><DOC>\n<DOCNO>1</DOCNO>ice</DOC>', encoding="utf-8"
    )
    (trec / "topics.xml").write_text('<topic number="7">wind</topic>', encoding="utf-8")
    (trec / "qrels").write_text("7\t0 0\t1\n", encoding="utf-8")
    figures = [evaluated(run, folder).json["systems"][0]["figures"] for folder in (marco, trec)]
    assert figures[0] == figures[1]
    assert figures[0]["RR@10"]["mean"] == 1.0


def test_a_run_keeps_the_scores(run: Callable, collection: Path) -> None:
    """F10: what evaluate writes are the engine's scores, also when the answers were remembered, and they fall."""
    written = []
    for name in ("first.trec", "second.trec"):
        assert evaluated(run, collection, "--run", collection / name).exit_code == 0
        written.append((collection / name).read_text(encoding="utf-8"))
    assert written[0] == written[1]
    scores = [float(line.split()[4]) for line in written[0].splitlines() if line.startswith("q1 ")]
    assert scores == sorted(scores, reverse=True)
    assert scores != [2.0, 1.0]
    with vs.open(next((collection / "cache" / "collections").iterdir())) as database:
        assert scores == pytest.approx([hit.score for hit in database.search("read csv rows", mode="lexical")])


def test_files_are_read_when_they_are_pipes(run: Callable, collection: Path, tmp_path: Path) -> None:
    """Each file is opened once, so that what a shell gives as a pipe is read whole."""
    given = {"--queries": "q1\tread csv\n" * 1, "--qrels": "q1 0 csv.reader 1\n"}
    assert run("index", collection / "corpus.jsonl", "--db", collection / "d", "--embed", "none").exit_code == 0
    threads = []
    for option, text in given.items():
        os.mkfifo(tmp_path / option)
        threads.append(threading.Thread(target=(tmp_path / option).write_text, args=(text,), daemon=True))
        threads[-1].start()
    options = [each for option in given for each in (option, tmp_path / option)]
    done = run("evaluate", "--db", collection / "d", *options, "--measure", "RR@10", "--json")
    assert done.json["systems"][0]["metrics"]["RR@10"] == 1
    for thread in threads:
        thread.join()


def test_another_text_of_the_topics_is_asked(
    run: Callable, collection: Path, files: Callable[[str, str], Path]
) -> None:
    """--query-field names the text; one that no topic has is refused."""
    topics = files("topics.txt", "<top><num>q1<title>zebra<desc>read rows</top>")
    qrels = files("q.txt", "q1 0 csv.reader 1\n")
    (collection / "queries.jsonl").unlink()
    (collection / "qrels" / "test.tsv").write_text(qrels.read_text(encoding="utf-8"), encoding="utf-8")
    assert run("index", collection / "corpus.jsonl", "--db", collection / "d", "--embed", "none").exit_code == 0
    given = (
        "evaluate",
        "--db",
        collection / "d",
        "--queries",
        topics,
        "--qrels",
        qrels,
        "--measure",
        "RR@10",
        "--json",
    )
    assert run(*given).json["systems"][0]["metrics"]["RR@10"] == 0
    assert run(*given, "--query-field", "desc").json["systems"][0]["metrics"]["RR@10"] == 1
    assert "they have title, description" in run(*given, "--query-field", "narr").json["error"]["message"]
