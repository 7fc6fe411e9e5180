from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from backends.choosing import registry
from backends.engines.fake_backend import FakeBackend
from vectorsearch.cli.commands import evaluate
from vectorsearch.cli.commands.evaluate import choose_systems
from vectorsearch.evaluation import asking
from vectorsearch.evaluation.systems import System

from .conftest import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_systems_are_one_json_document_when_asked_for(run: Callable, collection: Path) -> None:
    """S54: name, the four measures and times of each system, and a query without results counts as 0."""
    done = run("evaluate", "--collection", collection, "--embed", "none", "--json")
    assert done.exit_code == 0, done.stderr
    assert (done.json["queries"], done.json["documents"]) == (3, 4)
    (system,) = done.json["systems"]
    assert system["name"] == "lexical"
    assert system["metrics"] == {
        "nDCG@10": pytest.approx(2 / 3, abs=0.1),
        "RR@10": pytest.approx(2 / 3),
        "R@100": pytest.approx(2 / 3),
        "AP": pytest.approx(2 / 3),
    }
    assert set(system["latency_ms"]) == {"p50", "p99"}
    assert system["figures"]["AP"]["difference"] is None


def test_a_table_is_printed_when_a_person_asks(
    run: Callable, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has a row for each system and a column for each measure, within 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    done = run("evaluate", "--collection", collection, "--embed", "none")
    for text in ("lexical", "nDCG@10", "RR@10", "R@100", "AP", "p50", "p99", "3 queries"):
        assert text in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_nothing_is_done_twice_when_run_again(run: Callable, collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run indexes nothing and asks no query, unless --no-cache says so."""
    arguments = ("evaluate", "--collection", collection, "--embed", "none", "--json")
    first = run(*arguments).json
    monkeypatch.setattr(evaluate, "index_with_progress", lambda *_, **__: pytest.fail("indexed again"))
    assert run(*arguments, "--no-cache").json["systems"][0]["metrics"] == first["systems"][0]["metrics"]
    monkeypatch.setattr(asking, "_timed", lambda *_: pytest.fail("asked again"))
    second = run(*arguments).json
    assert second["systems"][0]["cached"] is True
    assert second["systems"][0]["metrics"] == first["systems"][0]["metrics"]


def test_figures_can_be_had_when_another_process_holds_the_cached_database(
    run: Callable, collection: Path, own_cache: Path
) -> None:
    """A second evaluation beside the first opens the complete cached database read-only."""
    arguments = ("evaluate", "--collection", collection, "--embed", "none", "--no-cache", "--json")
    first = run(*arguments).json
    (folder,) = (own_cache / "collections").iterdir()
    with vs.open(folder):
        assert run(*arguments).json["systems"][0]["metrics"] == first["systems"][0]["metrics"]


@pytest.mark.usefixtures("fake_models")
def test_each_mode_is_a_system_when_there_is_an_embedder(run: Callable, collection: Path) -> None:
    """Without --mode the plain systems are measured, and with --rerank the reranked one beside them."""
    models = ["--embed", "fake-embedder", "--rerank", "fake-reranker", "--backend", "fake"]
    done = run("evaluate", "--collection", collection, *models, "--depth", "3", "--json")
    assert done.exit_code == 0, done.stderr
    assert [system["name"] for system in done.json["systems"]] == ["lexical", "dense", "hybrid", "hybrid + rerank"]
    assert done.json["systems"][3]["system"]["rerank_depth"] == 3


def test_systems_are_those_named_when_modes_are_given() -> None:
    """Each --mode is one system, reranked if a reranker is given, and a repeated one counts once."""
    assert choose_systems(["lexical", "lexical"], None, depth=50) == [System(mode="lexical")]
    reranked = choose_systems(["lexical", "hybrid"], "m", depth=20)
    assert [system.name for system in reranked] == ["lexical + rerank", "hybrid + rerank"]
    assert [system.name for system in choose_systems([], "m", depth=9, dense=False)] == ["lexical", "lexical + rerank"]


def test_systems_are_compared_when_named_one_by_one(run: Callable, collection: Path, tmp_path: Path) -> None:
    """Lines and a file name systems, in order, with the measures asked for, against the baseline asked for."""
    (tmp_path / "systems.toml").write_text('[[system]]\nname = "third"\nmode = "lexical"\nk = 1\n', encoding="utf-8")
    done = run(
        *(
            "evaluate",
            "--collection",
            collection,
            "--system",
            "first: mode=lexical",
            "--system",
            "second: mode=lexical",
        ),
        *("--systems", tmp_path / "systems.toml", "--baseline", "second", "--measure", "R@1", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    assert [system["name"] for system in done.json["systems"]] == ["first", "second", "third"]
    assert (done.json["baseline"], done.json["measures"]) == ("second", ["R@1"])
    assert done.json["systems"][2]["figures"]["R@1"]["difference"]["ties"] == 3


@pytest.mark.usefixtures("fake_models")
def test_nothing_is_embedded_when_no_system_searches_vectors(run: Callable, collection: Path) -> None:
    """--mode lexical alone makes a database without an embedder, though a default one is known."""
    done = run("evaluate", "--collection", collection, "--mode", "lexical", "--backend", "fake", "--json")
    assert done.exit_code == 0, done.stderr
    (folder,) = (collection / "cache" / "collections").iterdir()
    with vs.open(folder) as database:
        assert database.embedder is None


@pytest.mark.usefixtures("fake_models")
def test_lexical_answers_serve_when_vectors_come_later(run: Callable, collection: Path) -> None:
    """What a lexical system answered without an embedder is not asked again beside dense ones; the models are told."""
    arguments = ("evaluate", "--collection", collection, "--backend", "fake", "--json", "--mode", "lexical")
    assert run(*arguments).exit_code == 0
    lexical, dense = run(*arguments, "--mode", "dense").json["systems"]
    assert (lexical["cached"], dense["cached"]) == (True, False)
    assert (lexical["models"], [model["backend"] for model in dense["models"]]) == ([], ["fake"])


def test_differences_are_printed_when_there_are_several_systems(
    run: Callable, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second table tells each system's difference from the baseline, its interval and tests, within 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    systems = ["--system", "all: mode=lexical", "--system", "with a [red]rather[/] long name: mode=lexical k=100"]
    done = run("evaluate", "--collection", collection, *systems)
    for text in ("less that of all", "95 % interval", "p (t)", "better", "Holm", "[red]rather[/]"):
        assert text in " ".join(done.stdout.split()), text
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_a_report_is_written_when_a_folder_is_named(run: Callable, collection: Path, tmp_path: Path) -> None:
    """--report writes the page with the documents that are shown, and says where it is."""
    systems = ["--system", "all: mode=lexical", "--system", "one: mode=lexical k=1", "--measure", "R@1"]
    done = run("evaluate", "--collection", collection, *systems, "--report", tmp_path / "new" / "report")
    page = tmp_path / "new" / "report" / "report.html"
    assert done.exit_code == 0, done.stderr
    assert str(page) in done.stdout
    assert sorted(path.name for path in page.parent.iterdir()) == ["report.html", "report.json", "report.md"]


def test_a_database_is_measured_when_judgments_are_given(run: Callable, db: Path, collection: Path) -> None:
    """A database with queries and judgments of its own needs no collection; a limit takes the first queries."""
    files = ["--queries", collection / "queries.jsonl", "--qrels", collection / "qrels" / "test.tsv"]
    done = run("evaluate", "--db", db, *files, "--limit", "2", "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json["queries"] == 2
    assert done.json["systems"][0]["metrics"]["R@100"] == 1.0


@pytest.mark.parametrize("options", [("--mode", "lexical", "--rerank", "own"), ("--system", "mode=lexical rerank=own")])
@pytest.mark.parametrize("tenant", [None, "acme"])
def test_a_registered_reranker_is_measured_when_its_database_is(
    run: Callable, db: Path, collection: Path, tenant: str | None, options: tuple[str, ...]
) -> None:
    """Its name is what `search` knows it by; in a database that doesn't have it, it is unknown."""
    backend = "fake-for-measuring"
    registry.register(FakeBackend(backend))
    (collection / "model").mkdir()
    config = {"architectures": ["BertForSequenceClassification"], "num_labels": 1}
    for name, text in (("config.json", json.dumps(config)), ("tokenizer.json", "{}"), ("model.safetensors", "1")):
        (collection / "model" / name).write_text(text, encoding="utf-8")
    with vs.open(db, rerank=None, backend=backend) as store:
        user = store.tenant(tenant) if tenant else store
        user.upsert(ROWS)
        user.register_model("own", collection / "model", "cross-encoder")
        store.tenant("globex")
    files = (
        "--queries",
        collection / "queries.jsonl",
        "--qrels",
        collection / "qrels" / "test.tsv",
        "--backend",
        backend,
    )
    whose = ("--tenant", tenant) if tenant else ()
    done = run("evaluate", "--db", db, *whose, *files, *options, "--json")
    assert done.exit_code == 0, done.stderr
    assert "own" in str(done.json["systems"])
    other = run("evaluate", "--db", db, "--tenant", "globex", *files, *options)
    assert (other.exit_code, "no model 'own'" in other.stderr) == (1, True)


def test_runs_are_written_when_a_file_is_named(run: Callable, collection: Path, tmp_path: Path) -> None:
    """One system writes the file itself, several write one each, with strictly falling scores."""
    arguments = ("evaluate", "--collection", collection, "--embed", "none", "--run", tmp_path / "r.trec")
    run(*arguments, "--mode", "lexical")
    lines = [line.split() for line in (tmp_path / "r.trec").read_text(encoding="utf-8").splitlines()]
    assert [line[2] for line in lines if line[0] == "q2"] == ["time.sleep"]
    assert {line[5] for line in lines} == {"lexical"}
    run(*arguments, "--mode", "lexical", "--system", "../k 9: mode=lexical k=100")
    assert (tmp_path / "r.lexical.trec").read_text(encoding="utf-8")
    assert (tmp_path / "r..._k9.trec").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("exit_code", "arguments"),
    [
        (2, []),
        (2, ["--db", "x"]),
        (2, ["--db", "x", "--queries", "{queries}"]),
        (1, ["--collection", "none"]),
        (2, ["--limit", "0"]),
        (2, ["--db", "x", "--queries", "{queries}", "--qrels", "{qrels}", "--embed", "none"]),
        (2, ["--collection", "{folder}", "--system", "mode=lexical", "--rerank", "default"]),
        (2, ["--collection", "{folder}", "--system", "mode=fuzzy"]),
        (2, ["--collection", "{folder}", "--measure", "nonsense"]),
        (1, ["--collection", "{folder}", "--mode", "lexical", "--run", "no/such/folder/run.trec"]),
        (2, ["--collection", "{folder}", "--system", "a/b: mode=lexical", "--system", "a_b: k=7", "--run", "run.trec"]),
    ],
)
def test_usage_is_told_when_options_make_no_sense(
    run: Callable, collection: Path, arguments: list[str], exit_code: int
) -> None:
    """Inputs that are missing, and options that would be ignored or would fail in the end, are wrong usage."""
    files = {"queries": collection / "queries.jsonl", "qrels": collection / "qrels" / "test.tsv", "folder": collection}
    filled = [argument.format(**files) for argument in arguments]
    assert run("evaluate", *filled).exit_code == exit_code
    assert not (collection / "cache" / "collections").exists()


def test_the_pip_command_is_told_when_the_extra_is_missing(
    run: Callable, collection: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ir-measures the command says what to install before it indexes anything."""
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    done = run("evaluate", "--collection", collection, "--embed", "none")
    assert done.exit_code == 1
    assert "pip install 'vectorsearch[eval]'" in done.stderr
    assert not (own_cache / "collections").exists()


def test_no_figures_are_given_when_rows_were_rejected(run: Callable, collection: Path) -> None:
    """A corpus with a bad row is an error: figures would be of another collection."""
    with (collection / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write("broken\n")
    done = run("evaluate", "--collection", collection, "--embed", "none", "--json")
    assert done.exit_code == 1
    assert done.json["error"]["type"] == "EvaluationFailed"
    assert "rejects.jsonl" in done.stderr


def test_an_unknown_reranker_is_told_when_nothing_is_indexed_yet(
    run: Callable, collection: Path, own_cache: Path
) -> None:
    """An unknown reranker's name fails before the collection is indexed."""
    done = run("evaluate", "--collection", collection, "--embed", "none", "--rerank", "no-such-model")
    assert done.exit_code == 1
    assert "no-such-model" in done.stderr
    assert not (own_cache / "collections").exists()
