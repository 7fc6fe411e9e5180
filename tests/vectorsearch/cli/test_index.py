from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from vectorsearch.cli.commands import index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vectorsearch.ingestion.bulk import IngestReport

# Ends the process by a signal in the middle of the write after the third acknowledged one.
SIGNAL_AFTER_3_COMMITS = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
from vectorsearch.collection.storage.disk import failpoints
commits = []
def count():
    commits.append(1)
    if len(commits) == 3:
        os.kill(os.getpid(), signal.{signal})
failpoints.arm("store.after_commit", count)
"""


def many_rows(n: int) -> bytes:
    return b"".join(json.dumps({"_id": f"d{i}", "text": f"text word{i}"}).encode() + b"\n" for i in range(n))


def test_counts_are_printed_when_all_rows_are_good(run: Callable, corpus: Path, tmp_path: Path) -> None:
    """A clean run exits with 0 and prints one JSON document whose counts add up."""
    done = run("index", corpus, "--db", tmp_path / "db", "--embed", "none", "--json")
    assert done.exit_code == 0
    assert {key: done.json[key] for key in ("rows", "stored", "unchanged", "rejected", "documents", "rejects")} == {
        "rows": 4,
        "stored": 4,
        "unchanged": 0,
        "rejected": 0,
        "documents": 4,
        "rejects": None,
    }


def test_a_person_is_told_the_counts_when_a_run_is_done(run: Callable, corpus: Path, tmp_path: Path) -> None:
    """Without --json the counts are one readable line."""
    done = run("index", corpus, "--db", tmp_path / "db", "--embed", "none")
    assert "4 rows: 4 stored, 0 unchanged, 0 rejected" in done.stdout


def test_bad_rows_are_written_and_the_exit_code_is_1_when_a_corpus_has_some(
    run: Callable, corpus: Path, tmp_path: Path
) -> None:
    """S64: the exit code says that rows were rejected, the file says which and why, and the rest is stored."""
    with corpus.open("a", encoding="utf-8") as file:
        file.write('{"_id": "half", "te\n')
    done = run("index", corpus, "--db", tmp_path / "db", "--embed", "none", "--json")
    assert done.exit_code == 1
    assert (done.json["rows"], done.json["stored"], done.json["rejected"]) == (5, 4, 1)
    row = json.loads((tmp_path / "db" / "rejects.jsonl").read_text(encoding="utf-8"))
    assert done.json["rejects"] == str(tmp_path / "db" / "rejects.jsonl")
    assert row["row"] == 5
    assert "JSON" in row["reason"]


def test_nothing_is_done_when_a_file_is_missing(run: Callable, corpus: Path, tmp_path: Path) -> None:
    """A missing file, or standard input given twice, is an error before anything is made; the second is wrong usage."""
    for code, sources in ((1, [corpus, tmp_path / "none.jsonl"]), (1, [tmp_path]), (2, ["-", "-"])):
        done = run("index", *sources, "--db", tmp_path / "db", "--embed", "none")
        assert done.exit_code == code
        assert not (tmp_path / "db").exists()


def test_several_files_and_standard_input_are_read_when_given(spawn: Callable, corpus: Path, tmp_path: Path) -> None:
    """Plain files, gzipped ones and a pipe are read in one run, told by their content."""
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress(b'{"id": "packed", "contents": "gzip"}\n'))
    piped = gzip.compress(b'{"docid": "piped", "text": "from a pipe"}\n')
    done = spawn("index", corpus, packed, "-", "--db", tmp_path / "db", "--embed", "none", "--json", stdin=piped)
    assert done.exit_code == 0, done.stderr
    assert done.json["stored"] == 6
    with vs.open(tmp_path / "db") as db:
        assert {"packed", "piped"} <= {document.id for document in db.iter()}


def test_acknowledged_rows_stay_when_the_process_is_killed(spawn: Callable, tmp_path: Path) -> None:
    """S17: after SIGKILL the same command goes on, stores only what is missing, and everything is found."""
    path = tmp_path / "many.jsonl"
    path.write_bytes(many_rows(60))
    arguments = ("index", path, "--db", tmp_path / "db", "--embed", "none", "--batch-size", "10", "--json")
    killed = spawn(*arguments, setup=SIGNAL_AFTER_3_COMMITS.format(signal="SIGKILL"))
    assert killed.exit_code == -9
    done = spawn(*arguments)
    assert done.exit_code == 0
    # Making the database may take a commit of its own, so two or three chunks were acknowledged.
    assert done.json["unchanged"] in {10, 20, 30}
    assert done.json["unchanged"] + done.json["stored"] == done.json["documents"] == 60
    with vs.open(tmp_path / "db") as db:
        assert all(db.search(f"word{i}")[0].id == f"d{i}" for i in range(60))


def test_a_person_is_told_how_to_go_on_when_ctrl_c_is_pressed(spawn: Callable, tmp_path: Path) -> None:
    """Ctrl-C exits with 130, says how many documents are stored, shows no traceback, and the rerun completes."""
    path = tmp_path / "many.jsonl"
    path.write_bytes(many_rows(60))
    arguments = ("index", path, "--db", tmp_path / "db", "--embed", "none", "--batch-size", "10", "--json")
    stopped = spawn(*arguments, setup=SIGNAL_AFTER_3_COMMITS.format(signal="SIGINT"))
    assert stopped.exit_code == 130
    assert "documents stored; run the same command to go on" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert stopped.json["interrupted"] is True
    assert spawn(*arguments).json["documents"] == 60


def test_rows_before_the_damage_are_stored_when_gzip_is_truncated(run: Callable, tmp_path: Path) -> None:
    """A truncated file makes the exit code 1 and is named on stderr."""
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(many_rows(3000))[:-2000])
    done = run("index", path, "--db", tmp_path / "db", "--embed", "none", "--json")
    assert done.exit_code == 1
    assert "cut.jsonl.gz can't be read to its end" in done.stderr
    assert 0 < done.json["stored"] == done.json["documents"] < 3000


@pytest.mark.usefixtures("fake_models")
def test_indexing_is_refused_when_the_model_changed(run: Callable, db: Path, corpus: Path) -> None:
    """S48: another model than the database was made with is one clear line, and nothing changes."""
    done = run("index", corpus, "--db", db, "--embed", "fake-embedder")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert run("info", "--db", db, "--json").json["documents"] == 4


def test_options_are_those_of_the_database_when_they_are_not_given(run: Callable, corpus: Path, tmp_path: Path) -> None:
    """A database made without stemming and embedder is indexed and searched again without saying so."""
    folder = tmp_path / "db"
    assert run("index", corpus, "--db", folder, "--embed", "none", "--language", "none").exit_code == 0
    assert run("index", corpus, "--db", folder, "--json").json["unchanged"] == 4
    assert [hit["id"] for hit in run("search", "suspend", "--db", folder, "--json").json["hits"]] == ["time.sleep"]
    assert run("search", "suspending", "--db", folder, "--json").json["hits"] == []


def test_a_foreign_folder_is_left_alone_when_it_is_named(run: Callable, corpus: Path, tmp_path: Path) -> None:
    """A folder that holds something else is refused in one line, and nothing is put into it."""
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.jpg").touch()
    done = run("index", corpus, "--db", folder, "--embed", "none", "--json")
    assert done.exit_code == 1
    assert done.json["error"]["type"] == "NotADatabase"
    assert [path.name for path in folder.iterdir()] == ["a.jpg"]


def test_an_unknown_model_is_named_when_it_is_asked_for(run: Callable, corpus: Path, tmp_path: Path) -> None:
    """An unknown embedder is one line with the known names, and no database is made."""
    done = run("index", corpus, "--db", tmp_path / "db", "--embed", "bge-smal")
    assert done.exit_code == 1
    assert "bge-small-en-v1.5-int8" in done.stderr
    assert not (tmp_path / "db").exists()


@pytest.mark.usefixtures("fake_models")
def test_documents_are_embedded_when_the_database_has_a_model(run: Callable, corpus: Path, tmp_path: Path) -> None:
    """With an embedder each document gets a vector, and a second run embeds nothing."""
    arguments = ("index", corpus, "--db", tmp_path / "db", "--embed", "fake-embedder", "--backend", "fake", "--json")
    assert run(*arguments).json["stored"] == 4
    assert run(*arguments).json["unchanged"] == 4
    done = run("search", "suspend thread", "--db", tmp_path / "db", "--mode", "dense", "--backend", "fake", "--json")
    assert done.json["hits"][0]["id"] == "time.sleep"


def test_what_is_stored_is_told_when_the_embedder_fails(
    run: Callable, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the middle keeps what is stored and says how many documents that is."""

    def fail(*_: object, on_progress: Callable[[IngestReport], None], **__: object) -> IngestReport:
        on_progress(index.IngestReport(rows=7, stored=7))
        raise vs.VectorSearchError("the device is lost")

    monkeypatch.setattr(index, "ingest", fail)
    done = run("index", corpus, "--db", tmp_path / "db", "--embed", "none")
    assert done.exit_code == 1
    assert "the device is lost" in done.stderr
    assert "7 documents stored; run the same command to go on" in done.stderr


@pytest.mark.usefixtures("fake_models")
def test_backend_and_its_reason_are_told_when_documents_are_embedded(
    run: Callable, corpus: Path, tmp_path: Path
) -> None:
    """A run says on stderr and in --json which backend embeds and why, and on which a model was really loaded."""
    done = run("index", corpus, "--db", tmp_path / "db", "--embed", "fake-embedder", "--backend", "fake", "--json")
    assert done.exit_code == 0
    assert "embedding on fake: asked for" in done.stderr
    assert done.json["embedding"] == {
        "model": "fake-embedder",
        "backend": "fake",
        "reason": "fake: asked for",
        "loaded": [{"backend": "fake", "device": "cpu:fake"}],
    }
    again = run("index", corpus, "--db", tmp_path / "db", "--backend", "fake", "--json")
    assert (again.json["unchanged"], again.json["embedding"]["loaded"]) == (4, [])


def test_no_backend_is_told_when_nothing_is_embedded(run: Callable, corpus: Path, tmp_path: Path) -> None:
    """Without an embedder there is no backend, and none is invented."""
    done = run("index", corpus, "--db", tmp_path / "db", "--embed", "none", "--json")
    assert done.json["embedding"] is None
    assert "embedding on" not in done.stderr


@pytest.mark.parametrize("text", ["", " \n\t\n"])
def test_nothing_to_index_is_an_error(run: Callable, tmp_path: Path, text: str) -> None:
    """A file without rows is told, with exit code 1, and JSON is one document."""
    (tmp_path / "empty.jsonl").write_text(text, encoding="utf-8")
    done = run("index", tmp_path / "empty.jsonl", "--db", tmp_path / "e.db", "--embed", "none", "--json")
    assert done.exit_code == 1
    assert done.json["rows"] == 0
    assert "holds no rows" in done.stderr


@pytest.mark.usefixtures("fake_models")
def test_documents_longer_than_the_embedder_reads_are_told_when_indexed(run: Callable, tmp_path: Path) -> None:
    """S3: `index`, `reindex` and `info` count them and name the limit, in words and in the JSON document."""
    corpus, db = tmp_path / "long.jsonl", tmp_path / "long.db"
    corpus.write_text(
        f'{{"_id": "a", "text": "{"apple " * 600}"}}\n{{"_id": "b", "text": "apple"}}\n', encoding="utf-8"
    )
    fake = ("--embed", "fake-embedder", "--backend", "fake")
    done = run("index", corpus, "--db", db, *fake)
    assert done.exit_code == 0
    assert "1 document longer than the 512 tokens that the embedder reads" in " ".join(done.stderr.split())
    told = run("info", "--db", db, "--json").json
    assert (told["embedder_max_tokens"], told["truncated_documents"], told["truncated_unknown"]) == (512, 1, 0)
    assert "truncated documents" in run("info", "--db", db).stdout
    assert run("reindex", "--db", db, *fake, "--json").json["truncated"] == 1
    assert run("index", corpus, "--db", tmp_path / "another.db", *fake, "--json").json["truncated"] == 1
