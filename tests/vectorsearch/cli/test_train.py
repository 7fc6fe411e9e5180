from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs

from .topic_model import JUDGED, documents, write_base

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("torch")
pytest.importorskip("datasets")

FAST = ("--max-length", 24, "--frozen-layers", 0, "--held-out", 0.4)


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    """Give the options of a database with a tenant, its judged queries, and a base to train."""
    with vs.open(tmp_path / "my.db", embed=None) as db:
        db.tenant("acme").add(documents())
    queries, qrels = tmp_path / "q.jsonl", tmp_path / "q.tsv"
    rows = [json.dumps({"_id": query_id, "text": text}) for query_id, text in JUDGED.queries.items()]
    queries.write_text("\n".join(rows), encoding="utf-8")
    judgments = [f"{query_id}\t{doc}\t{n}" for query_id, of in JUDGED.qrels.items() for doc, n in of.items()]
    qrels.write_text("\n".join(judgments), encoding="utf-8")
    base = write_base(tmp_path / "base")
    return ["--db", tmp_path / "my.db", "--tenant", "acme", "--queries", queries, "--qrels", qrels, "--base", base]


def test_reranker_of_a_tenant_is_registered_when_it_is_better(
    run: Callable, files: list[object], tmp_path: Path
) -> None:
    """The command trains from the tenant's own documents, registers with that tenant, and says by how much."""
    fast = (*FAST, "--epochs", 20, "--learning-rate", 5e-3)
    done = run("train-reranker", *files, *fast, "--register", "ours", "--json")
    assert done.exit_code == 0, done.stderr
    facts = done.json
    assert facts["registered"] == "ours"
    assert facts["gain"]["mean"] > 0
    assert facts["gain"]["p"] < 0.05
    assert facts["held_out"].keys() == {"first stage", "base", "trained"}
    assert facts["folder"] == str(tmp_path / "my.db.acme.reranker")
    with vs.open(tmp_path / "my.db") as db:
        assert [model.name for model in db.tenant("acme").registered_models()] == ["ours"]
        assert db.registered_models() == ()


def test_exit_code_tells_that_a_reranker_was_not_registered(run: Callable, files: list[object]) -> None:
    """What is no better is shown with its figures and not registered: exit code 1."""
    done = run("train-reranker", *files, *FAST, "--epochs", 0.1, "--learning-rate", 1e-9, "--register", "ours")
    assert done.exit_code == 1
    assert "not registered: nDCG@10" in done.stdout
    assert "p 1.000" in done.stdout
    assert "Traceback" not in done.stderr


def test_usage_is_told_when_an_option_makes_no_sense(run: Callable, files: list[object]) -> None:
    """An unknown tenant, a missing file and more negatives than hits are told in one line."""
    assert run("train-reranker", *files, "--qrels", "missing.tsv").exit_code == 1
    done = run("train-reranker", *files, "--negatives", 30, "--depth", 20)
    assert (done.exit_code, "30 negatives of 20 hits" in done.stderr) == (2, True)
    done = run("train-reranker", *files, "--tenant", "nobody")
    assert (done.exit_code, "nobody" in done.stderr) == (1, True)


def test_a_file_without_queries_is_refused_when_distilling(run: Callable, files: list[object], tmp_path: Path) -> None:
    """Who names a file of queries doesn't get a student of others, drawn from the documents."""
    (tmp_path / "none.jsonl").write_text("", encoding="utf-8")
    done = run("distil-reranker", *files[:4], "--queries", tmp_path / "none.jsonl")
    assert done.exit_code == 1
    assert "holds no queries" in done.stderr
    assert not (tmp_path / "my.db.acme.student").exists()
