from __future__ import annotations

import errno
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import typer

import vectorsearch as vs
from backends.catalogue import catalogue
from backends.errors import ModelUnavailable
from vectorsearch.cli.commands.search import parse_filters
from vectorsearch.collection.storage.sqlite import connections

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def ids_of(done: Any) -> list[str]:
    return [hit["id"] for hit in done.json["hits"]]


def test_hits_are_one_json_document_when_asked_for(run: Callable, db: Path) -> None:
    """With --json stdout is one document with hits, scores, stages and what was left out."""
    done = run("search", "csv file", "--db", db, "-k", "2", "--json")
    assert done.exit_code == 0
    assert len(ids_of(done)) == 2
    assert set(ids_of(done)) == {"csv.reader", "csv.writer"}
    assert done.json["degraded"] == []
    assert done.json["stats"]
    assert "plan" not in done.json
    assert "plan" in run("search", "csv file", "--db", db, "--explain", "--json").json


def test_hits_are_readable_when_printed(run: Callable, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person sees rank, id, title, text and a summary, within 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    done = run("search", "csv file", "--db", db)
    assert "csv.reader" in done.stdout
    assert "Read rows of a csv file." in done.stdout
    assert "hits, lexical, 4 documents" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_the_stages_are_shown_when_explained(run: Callable, db: Path) -> None:
    """--explain prints the plan's tree with what each stage took."""
    assert "└─ lexical" in run("search", "csv file", "--db", db, "--explain").stdout


def test_the_timeline_is_written_when_a_file_is_named(run: Callable, db: Path, tmp_path: Path) -> None:
    """--svg writes the picture of what happened, whatever is printed."""
    done = run("search", "csv file", "--db", db, "--json", "--timeout", "60", "--svg", tmp_path / "t.svg")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "t.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.usefixtures("fake_models")
def test_hits_are_blended_and_cut_when_asked_for(run: Callable, db: Path) -> None:
    """--blend weighs the rerank score, and --min-score drops what the reranker finds irrelevant."""
    arguments = [
        "search",
        "read a json document",
        "--db",
        db,
        "--rerank",
        "fake-reranker",
        "--backend",
        "fake",
        "--json",
    ]
    assert {hit["score_kind"] for hit in run(*arguments, "--blend", "0.5").json["hits"]} == {"blend"}
    assert ids_of(run(*arguments, "--min-score", "4")) == ["json.load"]


def test_nothing_found_is_no_failure_when_a_query_has_no_match(run: Callable, db: Path) -> None:
    """A query without a match prints "no hits" and exits with 0."""
    done = run("search", "zebra", "--db", db)
    assert done.exit_code == 0
    assert "no hits" in done.stdout


def test_only_matching_documents_are_found_when_filtered(run: Callable, db: Path) -> None:
    """S27: filters hold for every hit; numbers are numbers unless they are quoted."""
    assert ids_of(run("search", "file", "--db", db, "--filter", "module=json", "--json")) == ["json.load"]
    both = ["--filter", "module=csv", "--filter", "year=2003"]
    assert ids_of(run("search", "file", "--db", db, *both, "--json")) == ["csv.writer"]
    assert ids_of(run("search", "file", "--db", db, "--filter", 'year="2003"', "--json")) == []


@pytest.mark.parametrize(
    ("wanted", "note"),
    [
        ("yeer=2003", "field 'yeer' is in no document: did you mean 'year'?"),
        ("colour=red", "field 'colour' is in no document; fields are "),
        ('year="2003"', "field 'year' is compared with text, and holds a number, such as 200"),
        ("year>2003-01-01", "field 'year' is compared with a moment, and holds a number"),
        ("module>3", "field 'module' is compared with a number, and holds text, such as "),
    ],
)
def test_a_filter_that_cannot_match_is_told_when_nothing_is_found(
    run: Callable, db: Path, wanted: str, note: str
) -> None:
    """S9: on stderr, and in the JSON document; it is no failure."""
    done = run("search", "file", "--db", db, "--filter", wanted)
    assert done.exit_code == 0
    assert note in " ".join(done.stderr.split())
    told = json.loads(run("search", "file", "--db", db, "--filter", wanted, "--json").stdout)
    assert told["hits"] == []
    assert note in told["notes"][0]


def test_nothing_is_told_of_a_filter_when_it_could_match(run: Callable, db: Path) -> None:
    """S9: a filter that is right says nothing, though it finds little; nor does one for what a document lacks."""
    for wanted in ("year=1066", "year>=2003", "year!=1", '{"year": {"$exists": false}}', "module=json"):
        assert json.loads(run("search", "file", "--db", db, "--filter", wanted, "--json").stdout)["notes"] == [], wanted


def test_filters_are_json_scalars_when_they_look_so() -> None:
    """Numbers, booleans and null are read as JSON, quotes force text, and everything else is text."""
    given = ["a=1", "b=1.5", "c=true", "d=null", 'e="2020"', "f=x=y", "g=", 'h="[1]"', "i=abc", 'j={"$gte":2}']
    given += ["k>=2", "k<3.5", "l!=x", "m=2020-01-31", 'n="2020-01-31"', "o>2020-01-31"]
    assert parse_filters(given) == {
        "a": 1,
        "b": 1.5,
        "c": True,
        "d": None,
        "e": "2020",
        "f": "x=y",
        "g": "",
        "h": "[1]",
        "i": "abc",
        "j": {"$gte": 2},
        "k": {"$gte": 2, "$lt": 3.5},
        "l": {"$ne": "x"},
        "m": {"$date": "2020-01-31"},
        "n": "2020-01-31",
        "o": {"$gt": {"$date": "2020-01-31"}},
    }


@pytest.mark.parametrize(
    "options",
    [
        *(["year"], ["=2020"], ["a=1", "a=2"], ["a>1", "a>2"], ["a=1", "a>0"]),
        *(["a=[1]"], ['a={"b":1}'], ["a={}"], ['a>{"$gt":1}'], ['{"a":' * 10_000]),
    ],
)
def test_a_filter_is_refused_when_it_is_malformed(options: list[str]) -> None:
    """A filter without key or value, with a key twice, or with JSON that says nothing there, is a usage error."""
    with pytest.raises(typer.BadParameter):
        parse_filters(options)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["", "--mode", "lexical"], 2, "is empty"),
        (["x", "--mode", "dense"], 1, "embedder"),
        (["x", "--rerank", "ms-marco-MiniLM"], 1, "ms-marco-MiniLM-L-12-v2-int8"),
        (["x", "--mode", "fuzzy"], 2, "fuzzy"),
        (["x", "-k", "-1"], 2, "-k"),
        (["x", "--filter", "year"], 2, "KEY=VALUE"),
        (["x", "--fusion", "sum"], 2, "rrf, minmax, zscore"),
        (["x", "--timeout", "0"], 2, "timeout_s is 0"),
        (["x", "--min-score", "1"], 1, "nothing reranks"),
        (["x", "--blend", "0.5"], 2, "nothing reranks"),
        (["csv", "--svg", "no/such/folder/t.svg"], 1, "name another"),
    ],
)
def test_the_next_step_is_told_when_an_argument_is_wrong(
    run: Callable, db: Path, arguments: list[str], exit_code: int, message: str
) -> None:
    """Each wrong argument has its own message, without a traceback, and its exit code."""
    done = run("search", *arguments, "--db", db)
    assert done.exit_code == exit_code
    assert message in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_no_database_is_made_when_the_folder_is_missing(run: Callable, tmp_path: Path) -> None:
    """Searching where there is no database says how to make one and makes none."""
    done = run("search", "x", "--db", tmp_path / "none", "--json")
    assert done.exit_code == 1
    assert done.json["error"]["type"] == "NotADatabase"
    assert "vectorsearch index" in done.stderr
    assert not (tmp_path / "none").exists()


def test_a_database_can_be_searched_when_another_process_writes(run: Callable, db: Path) -> None:
    """S20: while another handle holds the writer's lock, the search opens read-only."""
    with vs.open(db):
        assert ids_of(run("search", "thread", "--db", db, "--json")) == ["time.sleep"]


def test_a_stage_left_out_is_warned_of_when_the_result_is_degraded(
    run: Callable, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S43: hits without a stage are printed with a warning, and the exit code says that not all was done."""
    explain = vs.Database.explain

    def degraded(self: vs.Database, *args: Any, **options: Any) -> vs.Explanation:
        found = explain(self, *args, **options)
        return vs.Explanation(found.plan, replace(found.ran, degraded=("rerank:budget",)))

    monkeypatch.setattr(vs.Database, "explain", degraded)
    done = run("search", "thread", "--db", db, "--json")
    assert done.exit_code == 1
    assert ids_of(done) == ["time.sleep"]
    assert "warning: went without rerank:budget" in done.stderr


@pytest.mark.usefixtures("fake_models")
def test_hits_are_reranked_when_a_model_is_named(run: Callable, db: Path) -> None:
    """--rerank NAME scores the hits with that model and says so in their scores."""
    arguments = ["--rerank", "fake-reranker", "--backend", "fake"]
    done = run("search", "read a json document", "--db", db, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json["hits"][0]["id"] == "json.load"
    assert {hit["score_kind"] for hit in done.json["hits"]} == {"rerank"}


def test_a_terminal_is_safe_when_a_document_holds_control_characters(run: Callable, tmp_path: Path) -> None:
    """Escape sequences and markup in a document are shown as text, never obeyed."""
    corpus = tmp_path / "evil.jsonl"
    row = {"_id": "evil", "text": "[bold]wipe\u001b[2J[/] screen\nsecond [line]"}
    corpus.write_text(json.dumps(row) + "\n", encoding="utf-8")
    run("index", corpus, "--db", tmp_path / "db", "--embed", "none")
    shown = run("search", "wipe", "--db", tmp_path / "db").stdout
    assert "\u001b" not in shown
    assert "[bold]wipe [2J[/] screen second [line]" in shown


def test_hits_are_found_when_the_folder_may_only_be_read(
    run: Callable, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that someone else owns is searched without writing to it."""

    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(connections, "WriterLock", refuse)
    assert run("search", "sleep thread", "--db", db, "--json").json["hits"][0]["id"] == "time.sleep"


@pytest.mark.usefixtures("fake_models")
def test_hits_are_printed_when_a_model_can_not_be_fetched(
    run: Callable, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network the hits of the other stages come, a warning tells why, and the exit code is 1."""

    def offline(*_: object) -> None:
        raise ModelUnavailable("no source has it")

    monkeypatch.setattr(catalogue, "ensure", offline)
    done = run("search", "sleep thread", "--db", db, "--rerank", "fake-reranker", "--backend", "fake")
    assert done.exit_code == 1
    assert "time.sleep" in done.stdout
    assert "lexical, " in done.stdout
    assert "rerank:unavailable" in done.stderr
    assert "no source has it" in done.stderr
