from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from vectorsearch.cli.commands import demo, evaluate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SYSTEMS = ["lexical", "hybrid", "hybrid + rerank"]


@pytest.fixture(autouse=True)
def small_world(collection: Path, monkeypatch: pytest.MonkeyPatch, fake_models: None) -> None:  # noqa: ARG001 -- a fixture that acts
    """Let the demo show a collection of four documents with fake models."""
    (collection / "build.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(demo, "stdlib_folder", lambda: collection)
    monkeypatch.setattr(demo, "open_with_progress", partial(evaluate.open_with_progress, backend="fake"))
    monkeypatch.setattr(demo, "QUESTIONS", ("read csv rows", "suspend", "a question without judgments"))


def colds(question: dict[str, Any]) -> list[bool]:
    """Return whether each stage with a model was cold: two encodings and one reranking."""
    stages = [stage for answer in question["answers"].values() for stage in answer["stats"]]
    return [stage["cold"] for stage in stages if stage["stage"] in {"encode", "rerank"}]


def test_each_question_is_answered_by_each_system_when_shown(run: Callable) -> None:
    """Three questions are asked of three systems, with stages and whether a model was cold, and all are measured."""
    done = run("demo", "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json["documents"] == 4
    assert [list(question["answers"]) for question in done.json["questions"]] == [SYSTEMS] * 3
    assert done.json["questions"][0]["answers"]["hybrid + rerank"]["hits"][0] == "csv.reader"
    assert colds(done.json["questions"][0]) == [False, False, True]  # indexing has just used the embedder
    assert colds(done.json["questions"][1]) == [False, False, False]
    assert [system["name"] for system in done.json["systems"]] == SYSTEMS


def test_the_screen_is_readable_when_a_person_looks(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions, systems, judged hits and the table fit into 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("demo").stdout
    for text in ("read csv rows", *SYSTEMS, "● csv.reader", "rerank", "nDCG@10"):
        assert text in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_nothing_is_done_twice_when_shown_again(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second demo indexes nothing and measures nothing, but asks the questions again."""
    run("demo", "--json")
    monkeypatch.setattr(evaluate, "index_with_progress", lambda *_, **__: pytest.fail("indexed again"))
    again = run("demo", "--json").json
    assert all(system["cached"] for system in again["systems"])
    assert colds(again["questions"][0]) == [True, False, True]
