"""A command line to call, and a model cache that is empty and the test's own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from backends.catalogue import catalogue
from backends.engines.fake_backend import fake_spec
from vectorsearch import config
from vectorsearch.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import ModelSpec

ROOT = Path(__file__).resolve().parents[3]
ROWS = [
    {
        "_id": "csv.reader",
        "title": "csv.reader(file)",
        "text": "Read rows of a csv file.",
        "metadata": {"module": "csv"},
    },
    {"_id": "csv.writer", "text": "Write rows into a csv file.", "metadata": {"module": "csv", "year": 2003}},
    {"_id": "json.load", "text": "Read a json document from a file.", "metadata": {"module": "json", "year": 2008}},
    {"_id": "time.sleep", "text": "Suspend the calling thread.", "metadata": {"module": "time"}},
]


@dataclass(frozen=True)
class Outcome:
    """What a command did: its exit code and its two streams."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Return stdout as the one JSON document that it must be."""
        return json.loads(self.stdout)


Run = "Callable[..., Outcome]"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(folder))
    return folder


@pytest.fixture
def run() -> Callable[..., Outcome]:
    """Return a function that calls the command line in this process, with these arguments."""

    def call(*arguments: object) -> Outcome:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="vectorsearch")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def spawn() -> Callable[..., Outcome]:
    """Return a function that runs the command line in a process of its own; `setup` is Python to run before."""

    def call(*arguments: object, setup: str = "", stdin: bytes = b"") -> Outcome:
        code = f"import sys\n{setup}\nfrom vectorsearch.cli import main\nsys.argv[0] = 'vectorsearch'\nmain()"
        command = [sys.executable, "-c", code, *(str(argument) for argument in arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, cwd=ROOT, check=False, timeout=600)
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


@pytest.fixture
def db(run: Callable[..., Outcome], corpus: Path, tmp_path: Path) -> Path:
    """Return the folder of a database without an embedder that holds the four rows."""
    folder = tmp_path / "my.db"
    assert run("index", corpus, "--db", folder, "--embed", "none").exit_code == 0
    return folder


QUERIES = {"q1": "read csv rows", "q2": "suspend", "q3": "zebra"}
QRELS = [("q1", "csv.reader", 2), ("q1", "csv.writer", 1), ("q2", "time.sleep", 1), ("q3", "json.load", 1)]


@pytest.fixture
def collection(corpus: Path) -> Path:
    """Return the folder of a collection in BEIR layout: four documents, three queries, one without results."""
    folder = corpus.parent
    lines = [json.dumps({"_id": query, "text": text}) for query, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "qrels").mkdir()
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in QRELS)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows), encoding="utf-8")
    return folder


@pytest.fixture
def fake_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the catalogue know fake models, the defaults among them, which the backend `fake` serves without files."""
    embedders, rerankers = ("fake-embedder", config.DEFAULT_EMBEDDER), ("fake-reranker", config.DEFAULT_RERANKER)
    specs = {name: fake_spec(name) for name in embedders}
    specs |= {name: fake_spec(name, task="cross-encode") for name in rerankers}
    known = catalogue.resolve

    def resolve(name: str | Path, **options: Any) -> ModelSpec:
        return specs.get(str(name)) or known(name, **options)

    monkeypatch.setattr(catalogue, "resolve", resolve)
