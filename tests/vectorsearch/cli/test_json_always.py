"""F11: with --json stdout is one JSON document on every path, and exit codes follow one rule.

Every command is found by walking the app, so that a new one is tried as well.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Never

import pytest
import typer

from vectorsearch.cli import _COMMANDS, answer, app, opening, output
from vectorsearch.cli.group import import_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DONE, FAILED, NOT_UNDERSTOOD, INTERRUPTED = 0, 1, 2, 130


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command below one, or itself, with the words that call it."""
    commands = getattr(command, "commands", None)
    if commands is None:
        yield path, command
        return
    for name, each in commands.items():
        yield from walk(each, (*path, name))


COMMANDS = {
    path: command
    for name, (home, _) in _COMMANDS.items()
    for path, command in walk(import_command(name, home), (name,))
}
GROUPS = [(), *dict.fromkeys(path[:-1] for path in COMMANDS if len(path) > 1)]
EACH = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
NEEDY = [path for path, command in COMMANDS.items() if any(param.required for param in command.params)]
MAKERS = {("tenants", "add"), ("collections", "build")}  # what they name needn't be there
CHOOSY = {("tune",), ("compare",), ("tenants", "set"), ("models", "register")}  # they want to be told more


def required(path: tuple[str, ...], folder: Path) -> list[str]:
    """Return values for what a command can't do without, which name files and databases that aren't there."""
    words = []
    for param in COMMANDS[path].params:
        if param.required:
            words += [*param.opts[-1:], str(folder / "none")] if param.opts[0].startswith("-") else ["none"]
    return words


def error_of(outcome: Any) -> dict[str, Any]:
    """Return the error of the one document that stdout holds, which stderr tells as well."""
    error: dict[str, Any] = outcome.json["error"]
    assert set(error) == {"type", "message", "notes"}
    assert error["message"]
    assert error["message"].split()[0] in outcome.stderr
    return error


def test_every_command_is_found_when_the_app_is_walked() -> None:
    """The walk reaches the commands of groups, and each takes --json."""
    assert {("search",), ("models", "pull"), ("tenants", "add"), ("collections", "build")} <= set(COMMANDS)
    for path, command in COMMANDS.items():
        assert any("--json" in param.opts for param in command.params), path


@EACH
@pytest.mark.parametrize(
    "place", ["before", *(pytest.param(place, marks=pytest.mark.deep) for place in ("first", "after"))]
)
def test_an_unknown_option_is_a_document_when_json_is_asked_for(
    run: Callable, path: tuple[str, ...], place: str
) -> None:
    """Wherever --json stands, and even before the command: exit code 2 and the option's name."""
    words = {
        "first": ["--json", *path, "--no-such-option"],
        "before": [*path, "--json", "--no-such-option"],
        "after": [*path, "--no-such-option", "--json"],
    }[place]
    done = run(*words)
    assert done.exit_code == NOT_UNDERSTOOD
    assert "--no-such-option" in error_of(done)["message"]
    assert error_of(done)["type"] == "UsageError"


@pytest.mark.parametrize("words", [["--json", "info", "--nonsense"], ["info", "--nonsense", "--json"]])
def test_json_counts_wherever_it_stands(run: Callable, words: list[str]) -> None:
    """Before the command and at the end: one command stands for all, which `make test-deep` tries."""
    assert "--nonsense" in error_of(run(*words))["message"]


@pytest.mark.parametrize("path", NEEDY, ids=" ".join)
def test_what_is_missing_is_a_document_when_json_is_asked_for(run: Callable, path: tuple[str, ...]) -> None:
    """A command without what it can't do without names that: exit code 2."""
    done = run(*path, "--json")
    assert done.exit_code == NOT_UNDERSTOOD
    assert "Missing" in error_of(done)["message"]


@EACH
def test_a_value_of_the_wrong_kind_is_a_document_when_json_is_asked_for(
    run: Callable, path: tuple[str, ...], tmp_path: Path
) -> None:
    """Words for numbers, numbers that are none, values after a flag, an option at the end without one: exit code 2."""
    wrong: list[list[str]] = [["--json=1"], ["\0"], [""]]
    last: list[list[str]] = []
    for param in COMMANDS[path].params:
        kind, option = param.type_descriptor, param.opts[-1]
        if not option.startswith("-"):
            continue
        if not getattr(param, "is_flag", False):
            last.append([option])
        if kind.annotation in (int, float):
            wrong += [[option, value] for value in ("many", "", "1e", "nan", "9" * 400)]
        if kind.annotation is float:
            wrong += [[option, value] for value in ("inf", "-inf", "NaN")]
    given = required(path, tmp_path)
    for words in [*([*each, *given] for each in wrong), *([*given, *each] for each in last)]:
        done = run(*path, "--json", *words)
        assert (words, done.exit_code) == (words, NOT_UNDERSTOOD)
        error_of(done)


@pytest.mark.parametrize("path", [path for path in NEEDY if path not in MAKERS], ids=" ".join)
def test_a_file_that_is_missing_is_a_document_when_json_is_asked_for(
    run: Callable, path: tuple[str, ...], tmp_path: Path
) -> None:
    """It was understood, and what it names isn't there: exit code 1 (2 if more is needed), and nothing is made."""
    done = run(*path, *required(path, tmp_path), "--json")
    assert done.exit_code == (NOT_UNDERSTOOD if path in CHOOSY else FAILED), done
    error_of(done)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_a_group_answers_in_json_when_no_command_is_named(run: Callable, group: tuple[str, ...]) -> None:
    """No command, an unknown one, and a misspelt one with what was meant: exit code 2."""
    for words in (["--json", *group], [*group, "--json"], [*group, "--json", "no-such-command"]):
        done = run(*words)
        assert (words, done.exit_code) == (words, NOT_UNDERSTOOD)
        error_of(done)
    done = run(
        *group, {(): "serach", ("models",): "pul", ("tenants",): "ad", ("collections",): "biuld"}[group], "--json"
    )
    assert "Did you mean" in error_of(done)["message"]


@EACH
def test_help_is_a_document_when_json_is_asked_for(run: Callable, path: tuple[str, ...]) -> None:
    """--help with --json is the text within a document: exit code 0."""
    done = run(*path, "--help", "--json")
    assert (done.exit_code, list(done.json)) == (DONE, ["text"])
    assert " ".join(path) in done.json["text"]


@pytest.mark.parametrize(
    "raised",
    [
        KeyboardInterrupt(),
        RuntimeError("inside"),
        MemoryError(),
        OSError(28, "No space left on device"),
        RecursionError("deep"),
        typer.Abort(),
    ],
    ids=repr,
)
def test_an_error_inside_is_a_document_when_json_is_asked_for(
    run: Callable, db: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    """Whatever a command raises, also what nobody foresaw, is told on stdout as a document and on stderr in words."""

    def broken(*_: object, **__: object) -> Never:
        raise raised

    monkeypatch.setattr(opening.vectorsearch, "open", broken)
    exit_code = INTERRUPTED if isinstance(raised, KeyboardInterrupt) else FAILED
    for command in (("info",), ("search", "csv")):
        done = run(*command, "--db", db, "--json")
        assert (done.exit_code, error_of(done)["type"]) == (exit_code, type(raised).__name__)


def test_the_document_stands_alone_when_others_print(run: Callable, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library prints on stdout is shown on stderr, and a warning is in the document as well."""
    require = opening.require_database

    def talkative(folder: Path) -> None:
        print("hello from a library")  # noqa: T201 -- that is the test
        output.print_warning("something to know")
        require(folder)

    monkeypatch.setattr(opening, "require_database", talkative)
    done = run("info", "--db", db, "--json")
    assert (done.exit_code, done.json["documents"]) == (DONE, 4)
    assert done.json["warnings"] == ["something to know"]
    assert "hello from a library" in done.stderr
    assert run("info", "--db", db).stdout.startswith("hello from a library")


def test_a_value_is_no_flag_when_it_follows_two_dashes(run: Callable, db: Path) -> None:
    """After -- a query may be --json itself, and the answer is text."""
    done = run("search", "--db", db, "--", "--json")
    assert done.exit_code == DONE
    assert "documents" in done.stdout


def test_the_answer_is_given_when_nobody_reads_the_errors(spawn: Callable, db: Path) -> None:
    """A closed stderr, as with `2>&1 >answer.json | head -1`, costs neither the document nor the exit code."""
    setup = (
        "import os; reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 2)\n"
        "from vectorsearch.cli import output\n"
        "from vectorsearch.cli.commands import info\n"
        "original = info.open_existing\n"
        "def noisy(*a, **k):\n    output.print_warning('one'); output.print_note('two'); return original(*a, **k)\n"
        "info.open_existing = noisy"
    )
    done = spawn("info", "--db", db, "--json", setup=setup)
    assert (done.exit_code, done.json["documents"]) == (DONE, 4)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks_are_null_when_printed(value: float) -> None:
    """NaN and Infinity are no JSON: strict readers would refuse the whole document."""
    text = answer.json_text({"a": [value, 1.5], "b": {"c": value}, "d": (value,)})
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [None, 1.5], "b": {"c": None}, "d": [None]}


def test_the_rule_is_told_when_help_is_asked_for(run: Callable) -> None:
    """The root's help has the rule of exit codes, in the README's words."""
    told = " ".join(run("--help").stdout.split())
    assert "2 wrong usage" in told
    assert "130 interrupted" in told


def test_the_console_of_errors_goes_on_when_its_pipe_is_closed() -> None:
    """Rich would end the process, with stdout thrown away."""
    console = type(output.err)(file=io.StringIO())
    console.on_broken_pipe()
    assert console.quiet


def test_the_app_has_one_root() -> None:
    """The commands of the list are those of the app."""
    assert set(typer.main.get_group(app).commands) == set(_COMMANDS)


@pytest.mark.parametrize("command", [("search", "x"), ("info",), ("index", "{corpus}"), ("tenants", "add", "acme")])
def test_a_place_elsewhere_is_wrong_usage_when_named(
    run: Callable, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """D14: `--db s3://…` is refused by its name, before anything is made."""
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = run(*(word.format(corpus=corpus) for word in command), "--db", "s3://bucket/my.db", "--json")
    assert done.exit_code == NOT_UNDERSTOOD
    assert "is of 's3'" in error_of(done)["message"]
    assert sorted(tmp_path.iterdir()) == before


def test_no_lock_is_taken_when_a_command_only_reads(run: Callable, db: Path, corpus: Path) -> None:
    """D10: a writer opens the database while commands that read have it open, and the other way round."""
    with opening.open_existing(db) as reader:
        assert run("index", corpus, "--db", db).exit_code == DONE
        assert reader.count() == 4
    (db / "writer.lock").unlink()
    for command in (("search", "csv"), ("info",), ("verify",), ("tenants", "list"), ("models", "registered")):
        assert run(*command, "--db", db).exit_code == DONE, command
    assert not (db / "writer.lock").exists()


@pytest.mark.parametrize("words", [("search", "", "--db", "x"), ("search", "x", "--db", ""), ("search", "x", "--db=")])
def test_nothing_is_taken_for_something_when_a_value_is_empty(run: Callable, words: tuple[str, ...]) -> None:
    """A variable that a shell didn't set names neither the folder here nor the usual model."""
    done = run(*words)
    assert (done.exit_code, "is empty" in done.stderr) == (NOT_UNDERSTOOD, True)
    assert ("--db" in done.stderr.splitlines()[0]) == (words[1] != "")


@pytest.mark.parametrize("size", ["9" * 300 + "GB", "9999999TiB", "1e3MB", "-1MB", "MB", "nan"])
def test_a_size_is_wrong_usage_when_no_machine_has_it(run: Callable, tmp_path: Path, size: str) -> None:
    """And what is no size at all."""
    done = run("tenants", "add", "acme", "--db", tmp_path / "db", "--quota", size)
    assert done.exit_code == NOT_UNDERSTOOD
    assert not (tmp_path / "db").exists()


def test_a_closed_stdout_is_told_when_a_document_was_to_be_written(spawn: Callable, db: Path) -> None:
    """`>&-`: one line on stderr, no traceback, exit code 1; a person who closed it wants no text."""
    closed = "import sys; sys.stdout = None"
    done = spawn("info", "--db", db, "--json", setup=closed)
    assert (done.exit_code, done.stderr.count("\n")) == (FAILED, 1)
    assert "stdout can't be written" in done.stderr
    assert spawn("info", "--db", db, setup=closed).stderr == ""
