"""`vectorsearch rerank`: other engines' candidates, ordered by a cross-encoder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from vectorsearch.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("fake_models")

RUN = """q1 Q0 time.sleep 1 9.5 bm25
q1 Q0 csv.writer 2 9.1 bm25
q1 Q0 csv.reader 3 2 bm25
q2 Q0 json.load 1 1 bm25
"""


@pytest.fixture
def candidates(collection: Path) -> dict[str, Path]:
    """Write a run of another engine, and queries for it."""
    run = collection / "bm25.trec"
    run.write_text(RUN)
    return {"--run": run, "--queries": collection / "queries.jsonl", "--corpus": collection / "corpus.jsonl"}


def arguments(files: dict[str, Path], *more: object) -> list[object]:
    """Return the command's arguments."""
    return ["rerank", "--backend", "fake", *(part for pair in files.items() for part in pair), *more]


def _written(line: object) -> str:
    return line if isinstance(line, str) else json.dumps(line)


def answers(*lines: object) -> tuple[int, list[Any]]:
    """Give the command JSON lines, and return its exit code and its answers."""
    raw = (line if isinstance(line, bytes) else _written(line).encode() for line in lines)
    text = b"".join(line + b"\n" for line in raw)
    done = CliRunner().invoke(app, ["rerank", "--backend", "fake"], input=text, prog_name="vectorsearch")
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_run_is_ordered_anew_when_another_engine_wrote_it(
    run: Callable, candidates: dict[str, Path], tmp_path: Path
) -> None:
    """The best of each query come first by the model, those past the depth follow, and scores strictly fall."""
    done = run(*arguments(candidates, "--depth", "3"))
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[2] for row in rows if row[0] == "q1"] == ["csv.reader", "csv.writer", "time.sleep"]
    scores = {row[2]: float(row[4]) for row in rows if row[0] == "q1"}
    answer = run(*arguments(candidates, "--depth", "2"))
    shallow = run(*arguments(candidates, "--depth", "2", "--run-out", tmp_path / "out.trec", "--json"))
    assert (shallow.json["queries"], shallow.json["run_out"]) == (2, str(tmp_path / "out.trec"))
    order = [line.split()[2] for line in (tmp_path / "out.trec").read_text().splitlines()]
    assert order == ["csv.writer", "time.sleep", "csv.reader", "json.load"]
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    read = {row[2]: float(row[4]) for row in map(str.split, answer.stdout.splitlines()) if row[0] == "q1"}
    assert (read["csv.writer"], read["time.sleep"]) == (scores["csv.writer"], scores["time.sleep"])
    assert read["csv.reader"] == pytest.approx(read["time.sleep"] - 1)


@pytest.mark.parametrize(
    ("left_out", "code", "message"),
    [("--queries", 2, "needs --queries and --corpus"), ("--run", 2, "belong to --run")],
)
def test_files_are_asked_for_when_some_are_missing(
    run: Callable, candidates: dict[str, Path], left_out: str, code: int, message: str
) -> None:
    """A run needs its queries and its corpus, and they need a run."""
    del candidates[left_out]
    done = run(*arguments(candidates))
    assert done.exit_code == code
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_the_folder_is_looked_for_before_the_work(run: Callable, candidates: dict[str, Path]) -> None:
    """A run that couldn't be written is refused before a model is asked."""
    done = run(*arguments(candidates, "--run-out", "no/such/folder/out.trec", "--model", "no-such-model"))
    assert done.exit_code == 1
    assert "no/such/folder" in done.stderr


def test_what_is_missing_is_named_when_a_run_does_not_fit(run: Callable, candidates: dict[str, Path]) -> None:
    """A query without text and a document that is not in the corpus are told, and nothing is written."""
    candidates["--run"].write_text(RUN + "q9 Q0 csv.reader 1 1 bm25\n")
    done = run(*arguments(candidates))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "query 'q9' has no text" in done.stderr
    candidates["--run"].write_text(RUN + "q2 Q0 gone 2 0.5 bm25\n")
    done = run(*arguments(candidates))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "document 'gone' of the run is not there" in done.stderr


def test_each_line_is_answered_when_documents_come_on_standard_input() -> None:
    """Documents are strings or objects with ids; the answer names their places, best first."""
    code, found = answers(
        {"query": "csv reader", "documents": ["time sleep", "csv reader", "csv writer"]},
        {"query": "csv", "documents": [{"id": 7, "text": "sleep"}, {"id": "b", "text": "csv"}]},
        {"query": "csv", "documents": []},
    )
    assert code == 0
    assert [result["index"] for result in found[0]["results"]] == [1, 2, 0]
    assert [result["id"] for result in found[1]["results"]] == ["b", 7]
    assert found[2] == {"query": "csv", "results": []}
    assert found[0]["results"][0]["score"] > found[0]["results"][1]["score"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "not JSON"),
        ("[" * 200_000, "nested too deep"),
        (b'{"query": "caf\xe9", "documents": []}', "not UTF-8"),
        ("[]", "a line must be"),
        ({"query": 3, "documents": []}, "a line must be"),
        ({"query": "q", "documents": ["a", {"id": 1}]}, r"documents[1] has no text"),
    ],
)
def test_a_line_is_answered_by_an_error_when_it_cannot_be_read(line: object, message: str) -> None:
    """The lines after it are answered, and the exit code says that one failed."""
    code, found = answers(line, {"query": "csv", "documents": ["csv"]})
    assert code == 1
    assert message in found[0]["error"]
    assert len(found[1]["results"]) == 1


def test_a_line_is_answered_when_standard_output_can_not_write_its_query() -> None:
    """Half a surrogate pair, which JSON can state and UTF-8 can't, is given back as the escape that it came as."""
    code, found = answers('{"query": "csv \\ud800", "documents": ["csv"]}')
    assert (code, found[0]["query"]) == (0, "csv \ud800")
