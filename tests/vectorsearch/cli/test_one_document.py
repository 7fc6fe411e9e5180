"""With --json stdout holds one document, whatever fails, and however late."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Never

import pytest

from backends.errors import VectorSearchError
from vectorsearch.database.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAYS = "the indexes can't be written"


def test_the_error_is_the_document_when_a_report_can_not_be_written(
    run: Callable, collection: Path, tmp_path: Path
) -> None:
    """The document has the figures and the error: an answer that is there isn't thrown away by what fails later."""
    (tmp_path / "file").touch()
    report = tmp_path / "file" / "report"
    options = ("--collection", collection, "--embed", "none", "--json")
    done = run("evaluate", *options, "--report", report, "--run", tmp_path / "made.trec")
    assert done.exit_code == 1
    assert {"error", "systems"} <= set(done.json)
    assert run("evaluate", *options, "--run", tmp_path / "made.trec").exit_code == 0
    shutil.copy(tmp_path / "made.trec", tmp_path / "other.trec")
    done = run("compare", tmp_path / "made.trec", tmp_path / "other.trec", *options[:2], "--json", "--report", report)
    assert done.exit_code == 1
    assert {"error", "systems"} <= set(done.json)


@pytest.mark.parametrize(
    "command",
    [
        ("tenants", "add", "globex"),
        ("tenants", "set", "acme", "--guaranteed", "1MiB"),
        ("tune", "--reset"),
        ("tune", "--show"),
        ("search", "csv"),
        ("info",),
        ("verify",),
    ],
)
def test_the_answer_is_given_when_a_database_can_not_be_closed(
    run: Callable, db: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """D11: what was answered is shown, with a warning; closing writes and may fail, and the exit code says so."""
    assert run("tenants", "add", "acme", "--db", db).exit_code == 0
    close = Database.close

    def failing(self: Database) -> Never:
        close(self)
        raise VectorSearchError(SAYS)

    monkeypatch.setattr(Database, "close", failing)
    done = run(*command, "--db", db, "--json")
    assert (done.exit_code, "error" in done.json) == (1, False)
    assert SAYS in done.json["warnings"][0]
    assert len(done.json) > 1
    assert SAYS in done.stderr


@pytest.mark.usefixtures("fake_models")
def test_the_error_is_the_document_when_a_reindex_is_interrupted(
    run: Callable, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says how it goes on."""

    def interrupted(_: Database, **__: object) -> Never:
        raise KeyboardInterrupt

    monkeypatch.setattr(Database, "reindex", interrupted)
    done = run("reindex", "--db", db, "--embed", "fake-embedder", "--backend", "fake", "--json")
    assert done.exit_code == 130
    assert done.json["error"]["message"] == "interrupted: run the same command to go on"
