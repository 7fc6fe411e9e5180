from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import vectorsearch as vs
from backends.catalogue import catalogue
from backends.errors import ModelUnavailable
from vectorsearch.cli import _COMMANDS, output
from vectorsearch.cli.commands import collections

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_version_is_printed_when_asked_for(run: Callable) -> None:
    """--version prints the package's version."""
    assert run("--version").stdout == f"vectorsearch {vs.__version__}\n"


def test_every_command_is_listed_when_help_is_asked_for(run: Callable) -> None:
    """--help names all commands, each command's help begins as the list says; a group alone prints its help."""
    shown = run("--help").stdout
    for command, (_, summary) in _COMMANDS.items():
        assert command in shown
        told = run(command, "--help")
        assert told.exit_code == 0
        assert f"vectorsearch {command}" in told.stdout
        assert " ".join(told.stdout.split()).count(summary) == 1
    assert run("index", "--help").stdout.count("vectorsearch index") >= 1
    assert run("nonsense").exit_code == 2


def test_no_runtime_is_loaded_when_the_command_line_starts(spawn: Callable) -> None:
    """The command line starts without any runtime, index, tokenizer or evaluator, and imports no command."""
    setup = "import atexit; atexit.register(lambda: print(*sys.modules, sep='\\n', file=sys.stderr))"
    loaded = set(spawn("--help", setup=setup).stderr.split())
    assert "typer" in loaded
    assert not loaded & {"faiss", "onnxruntime", "onnx", "tantivy", "tokenizers", "ir_measures", "huggingface_hub"}
    assert not loaded & {"jax", "torch", "transformers", "sentence_transformers", "coremltools", "scipy"}
    assert not loaded & {"numpy", "vectorsearch.database.engine", "vectorsearch.cli.commands.search"}


def test_the_module_is_the_command_when_python_runs_it() -> None:
    """`python -m vectorsearch` is the command."""
    command = [sys.executable, "-m", "vectorsearch", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"vectorsearch {vs.__version__}\n"


def test_no_traceback_is_shown_when_the_reader_has_gone(spawn: Callable, db: Path) -> None:
    """A closed pipe, as with `| head`, ends the command quietly."""
    setup = "import os; reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)"
    done = spawn("search", "file", "--db", db, "--json", setup=setup)
    assert done.exit_code != 0
    assert "Traceback" not in done.stderr


def test_a_database_is_described_when_info_is_asked_for(run: Callable, db: Path) -> None:
    """`info` shows counts and settings, as a table or as JSON."""
    assert run("info", "--db", db, "--json").json["documents"] == 4
    assert "documents" in run("info", "--db", db).stdout
    assert run("info", "--db", db / "none").exit_code == 1


def test_models_are_listed_when_none_is_cached(run: Callable) -> None:
    """The list names every model of the catalogue with size, licence and whether it is cached."""
    models = run("models", "list", "--json").json["models"]
    assert [model["name"] for model in models] == list(catalogue.names())
    assert not any(model["cached"] for model in models)
    assert {"task", "licence", "weights_nbytes", "digest"} <= set(models[0])
    assert models[0]["name"] in run("models", "list").stdout


def test_a_model_is_described_when_shown(run: Callable) -> None:
    """`models show` tells digest, source and prefixes without fetching anything; an unknown name is an error."""
    name = catalogue.names()[0]
    facts = run("models", "show", name, "--json").json
    assert facts["digest"] == catalogue.resolve(name).digest
    assert facts["wheels"]
    assert name in run("models", "show", name).stdout
    assert run("models", "show", "no-such-model").exit_code == 1


def test_models_are_pulled_when_named(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """`models pull` fetches each name in order, shows progress on stderr only, and fails with the source's error."""
    pulled = []

    def pull(name: str, progress: Callable[[catalogue.Progress], None]) -> Any:
        if name == "gone":
            raise ModelUnavailable("no source has it")
        progress(catalogue.Progress("wheel", 10, 100))
        pulled.append(name)
        return catalogue.resolve(name)

    monkeypatch.setattr(catalogue, "pull", pull)
    names = list(catalogue.names()[:2])
    done = run("models", "pull", *names, "--json")
    assert [model["name"] for model in done.json["models"]] == pulled == names
    failed = run("models", "pull", "gone", "--json")
    assert failed.exit_code == 1
    assert failed.json["error"]["message"] == "no source has it"


def test_a_collection_is_built_when_asked_for(run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`collections build` writes into --out and tells the counts of what it built."""
    counts = {"documents": 2, "queries": 1, "judgments": 1}

    def write(folder: Path, progress: Callable[[int, int], None]) -> Path:
        folder.mkdir()
        (folder / "build.json").write_text(json.dumps(counts), encoding="utf-8")
        progress(2, 2)
        return folder

    monkeypatch.setattr(collections, "write_collection", write)
    done = run("collections", "build", "stdlib", "--out", tmp_path / "out", "--json")
    assert done.json == {"name": "stdlib", "folder": str(tmp_path / "out"), **counts}
    assert "2 documents" in run("collections", "build", "stdlib", "--out", tmp_path / "again").stdout
    assert run("collections", "build", "other").exit_code == 2


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


def test_a_line_is_printed_now_and_then_when_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, progress is a line every ten seconds with rate and time left, on stderr."""
    clock = Clock()
    with output.Meter("indexing", "documents", clock=clock) as meter:
        for second in range(1, 21):
            clock.now = float(second)
            meter.update(second * 10, 400, second)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "indexing: 25 %, 10 documents, 1.0/s, 0:30 left",
        "indexing: 50 %, 20 documents, 1.0/s, 0:20 left",
    ]


def test_the_rate_is_of_the_last_half_minute_when_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """A resumed run that skips fast and then embeds slowly shows the slow rate."""
    clock = Clock()
    with output.Meter("indexing", "documents", clock=clock) as meter:
        meter.update(1000, 2000, 1000)
        for second in range(1, 101):
            clock.now = float(second)
            meter.update(1000 + second, 2000, 1000 + second)
    assert capsys.readouterr().err.splitlines()[-1] == "indexing: 55 %, 1,100 documents, 1.0/s, 15:00 left"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (9.0, "0:09"), (750, "12:30"), (3723, "1:02:03")])
def test_durations_are_clock_times_when_shown(seconds: float, text: str) -> None:
    """Durations are minutes and seconds, with hours where there are any."""
    assert output.format_duration(seconds) == text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_text_is_shown_when_the_terminal_has_no_such_letters(spawn: Callable, tmp_path: Path, encoding: str) -> None:
    """What an old terminal's encoding can't say is replaced by a question mark, and the command ends well."""
    setup = f"import sys; sys.stdout.reconfigure(encoding={encoding!r}, errors='strict')"
    row = json.dumps({"_id": "苹果", "text": "an apple …"}).encode()
    assert spawn("index", "-", "--db", tmp_path / "db", "--embed", "none", stdin=row).exit_code == 0
    done = spawn("search", "apple", "--db", tmp_path / "db", "--explain", setup=setup)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "1  ??" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_one_line_is_told_when_stdout_is_full(spawn: Callable, db: Path) -> None:
    """A full disk under stdout is one line on stderr, with --json too."""
    setup = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    done = spawn("search", "file", "--db", db, "--json", setup=setup)
    assert done.exit_code == 1
    assert "No space left" in done.stderr.splitlines()[0]


def test_every_command_is_in_a_group_of_the_help() -> None:
    """Search, Models, Tenants, Evaluate, Keep: whoever looks for a command finds it beside its like."""
    from vectorsearch.cli import _COMMANDS, _GROUPS  # noqa: PLC0415  (what the help is made of)

    assert sorted(name for names in _GROUPS.values() for name in names) == sorted(_COMMANDS)
