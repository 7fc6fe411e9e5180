from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUNS = {
    "a.trec": "q1 Q0 csv.reader 1 2 base\nq1 Q0 csv.writer 2 1 base\nq2 Q0 json.load 1 1 base\nq9 Q0 x 1 1 base\n",
    "b.trec": "q1 Q0 csv.reader 1 2 other\nq2 Q0 time.sleep 1 1 other\nq2 Q0 json.load 1 1 other\n"
    "q3 Q0 json.load 1 1 other\n",
}


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Write two runs over the collection's three judged queries."""
    for name, text in RUNS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return [tmp_path / name for name in RUNS]


@pytest.fixture
def judgments(collection: Path) -> Path:
    """Give the collection's judgments."""
    return collection / "qrels" / "test.tsv"


def test_runs_of_any_engine_are_judged(run: Callable, runs: list[Path], judgments: Path) -> None:
    """S54: measures and differences are those of the rankings, and a query that a run lacks counts as 0."""
    done = run("compare", *runs, "--qrels", judgments, "--measure", "RR@10", "--json")
    assert done.exit_code == 0, done.stderr
    base, other = done.json["systems"]
    assert [base["name"], other["name"]] == ["base", "other"]
    assert (base["metrics"]["RR@10"], other["metrics"]["RR@10"]) == (pytest.approx(1 / 3), pytest.approx(1.0))
    assert other["figures"]["RR@10"]["difference"]["wins"] == 2
    assert (base["latency_ms"], base["system"]) == ({}, None)


def test_oddities_are_told_when_a_run_has_them(run: Callable, runs: list[Path], judgments: Path) -> None:
    """S37: missing queries, queries without judgments and ties are warned of on stderr."""
    stderr = " ".join(run("compare", *runs, "--qrels", judgments).stderr.split())
    assert "base has no results for 1 of 3 judged queries: they count as 0" in stderr
    assert "base has results for 1 queries without judgments" in stderr
    assert "other has 1 tied scores" in stderr


def test_a_table_without_times_is_printed_when_runs_are_compared(
    run: Callable, runs: list[Path], judgments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs have no times, so the table has no columns for them; it fits into 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    stdout = run("compare", *runs, "--qrels", judgments, "--baseline", "other").stdout
    assert "less that of other" in stdout
    assert "p99" not in stdout
    assert max(len(line) for line in stdout.splitlines()) <= 80


def test_a_report_has_texts_when_the_collection_is_named(
    run: Callable, runs: list[Path], collection: Path, tmp_path: Path
) -> None:
    """A collection gives judgments, the queries' texts and those of the documents that are shown."""
    done = run("compare", *runs, "--collection", collection, "--report", tmp_path / "report")
    assert done.exit_code == 0, done.stderr
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    for text in ("suspend", "Suspend the calling thread.", "Read a json document from a file."):
        assert text in page


def test_figures_are_printed_when_a_report_can_not_be_written(
    run: Callable, runs: list[Path], judgments: Path, tmp_path: Path
) -> None:
    """What was computed is not lost with the report; the error names the folder and what to do."""
    (tmp_path / "file").touch()
    done = run("compare", *runs, "--qrels", judgments, "--report", tmp_path / "file" / "report")
    assert done.exit_code == 1
    assert "nDCG@10" in done.stdout
    assert "the report can't be written to" in done.stderr
    assert "name another folder" in done.stderr


def test_a_single_run_is_measured(run: Callable, runs: list[Path], judgments: Path) -> None:
    """F10: one run has figures, and nothing that it is compared with."""
    done = run("compare", runs[0], "--qrels", judgments, "--measure", "RR@10", "--json")
    assert done.exit_code == 0, done.stderr
    (system,) = done.json["systems"]
    assert system["metrics"] == {"RR@10": pytest.approx(1 / 3)}
    assert system["figures"]["RR@10"]["difference"] is None
    assert run("compare", runs[0], "--qrels", judgments).exit_code == 0


def test_usage_is_told_when_judgments_or_a_run_are_missing(run: Callable, runs: list[Path], judgments: Path) -> None:
    """No judgments, two sources of them, or a run that isn't there, are wrong usage."""
    both = ("--qrels", judgments, "--collection", judgments.parents[1])
    assert run("compare", *runs, *both).exit_code == 2
    assert run("compare", *runs).exit_code == 2
    assert run("compare", *runs, "none.trec", "--qrels", judgments).exit_code == 2


def test_a_duplicate_is_an_error_when_a_run_has_one(run: Callable, runs: list[Path], judgments: Path) -> None:
    """A document that comes twice in a query is refused with file and line, in JSON as well."""
    with runs[0].open("a", encoding="utf-8") as file:
        file.write("q1 Q0 csv.reader 9 0.5 base\n")
    done = run("compare", *runs, "--qrels", judgments, "--json")
    assert done.exit_code == 1
    assert "line 5" in done.json["error"]["message"]
