from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from vectorsearch.config import DEFAULT_RERANKER
from vectorsearch.query.planning.defaults import SearchDefaults

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("fake_models")

WORDS = ("csv", "json", "time", "file", "read", "write", "parse", "row")


@pytest.fixture
def judged(tmp_path: Path) -> list[object]:
    """Return the options of a database and of judgments by which its vectors alone are perfect."""
    folder = tmp_path / "db"
    texts = {f"q{i}": f"{a} {b}" for i, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS if a < b)}
    with vs.open(folder, embed="fake-embedder", backend="fake") as db:
        db.add({"id": f"d{i}", "text": f"{WORDS[i % 8]} {WORDS[i // 3 % 8]} {WORDS[i // 7 % 8]}"} for i in range(90))
        found = {query: [hit.id for hit in db.search(text, k=3, mode="dense")] for query, text in texts.items()}
    queries, qrels = tmp_path / "q.jsonl", tmp_path / "q.tsv"
    queries.write_text("\n".join(json.dumps({"_id": q, "text": text}) for q, text in texts.items()), encoding="utf-8")
    rows = (f"{query}\t{doc_id}\t1" for query, ids in found.items() for doc_id in ids)
    qrels.write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]), encoding="utf-8")
    return ["--db", folder, "--backend", "fake", "--queries", queries, "--qrels", qrels]


def test_what_is_learned_is_stored_shown_used_and_reset(run: Callable, judged: list[object]) -> None:
    """`tune` stores what is better, `--show` and `search --explain` tell it, and `--reset` forgets it."""
    here = judged[:4]
    assert "nothing is stored: searches are by rrf k=60" in run("tune", *here, "--show").stdout
    done = run("tune", *judged, "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json["stored"]
    assert done.json["held_out"] > done.json["before"]
    assert done.json["gain"]["p"] < 0.05
    shown = run("tune", *here, "--show", "--json").json["defaults"]
    assert {key: shown[key] for key in ("fusion", "weights")} == {
        key: done.json["chosen"][key] for key in ("fusion", "weights")
    }
    assert "tuned" in run("tune", *here, "--show").stdout
    assert "defaults: tuned" in run("search", "csv file", *here, "--explain").stdout
    assert "defaults:" not in run("search", "csv file", *here, "--explain", "--rerank", "none").stdout
    assert "defaults:" not in run("search", "csv file", *here, "--explain", "--fusion", "rrf").stdout
    assert "nothing is stored" in run("tune", *here, "--reset").stdout
    assert "defaults:" not in run("search", "csv file", *here, "--explain").stdout


def test_a_table_is_printed_when_a_person_asks(
    run: Callable, judged: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells the figures, the gain with its interval, what was chosen, and that a dry run stores nothing."""
    monkeypatch.setenv("COLUMNS", "80")
    done = run("tune", *judged, "--dry-run", "--metric", "AP", "--folds", "3", "--limit", "20", "--rerank", "default")
    assert done.exit_code == 0, done.stderr
    for text in ("20 queries", "AP", "(3 folds, cut 10 ways)", "95 % interval", "chosen", "nothing stored"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "nothing is stored" in run("tune", *judged[:4], "--show").stdout


def test_a_tenant_is_tuned_by_itself(run: Callable, judged: list[object]) -> None:
    """What is stored for a tenant is nobody else's; an unknown tenant is an error."""
    with vs.open(judged[1], embed="fake-embedder", backend="fake") as db:
        db.tenant("acme").add(
            {"id": f"d{i}", "text": f"{WORDS[i % 8]} {WORDS[i // 3 % 8]} {WORDS[i // 7 % 8]}"} for i in range(90)
        )
    assert run("tune", *judged, "--tenant", "acme", "--json").json["stored"]
    assert "nothing is stored" in run("tune", *judged[:4], "--show").stdout
    assert "tuned" in run("tune", *judged[:4], "--tenant", "acme", "--show").stdout
    assert run("tune", *judged, "--tenant", "nobody").exit_code == 1


def test_wrong_usage_is_told(run: Callable, judged: list[object]) -> None:
    """Without queries there is nothing to learn from, and one can't both show and reset."""
    assert run("tune", *judged[:4]).exit_code == 2
    assert run("tune", *judged[:4], "--show", "--reset").exit_code == 2
    assert run("tune", *judged, "--metric", "nonsense").exit_code == 2


def test_a_search_warns_when_its_defaults_do_not_count(run: Callable, judged: list[object]) -> None:
    """The hits are those of the built-in way, the warning says why and what to do, and the exit code is 1."""
    with vs.open(judged[1], backend="fake") as db:
        db.defaults = SearchDefaults(rerank="gone", rerank_digest="digest")
    done = run("search", "csv file", *judged[:4])
    assert done.exit_code == 1
    assert "its defaults are built-in, since the stored ones are of reranker 'gone'" in done.stderr
    assert "tune again" in done.stderr


def test_defaults_are_measured_and_shown_as_they_count(run: Callable, judged: list[object]) -> None:
    """`evaluate` without systems measures what was tuned as well; `--show` tells when it doesn't count any more."""
    with vs.open(judged[1], backend="fake") as db:
        db.defaults = SearchDefaults(weights={"lexical": 0.3, "dense": 0.7}, rerank=DEFAULT_RERANKER, rerank_depth=5)
    systems = run("evaluate", *judged, "--limit", "3", "--json").json["systems"]
    assert [system["name"] for system in systems] == ["lexical", "dense", "hybrid", "defaults"]
    with vs.open(judged[1], backend="fake") as db:
        db.defaults = SearchDefaults(embed="another model's digest")
    assert "since the stored ones are of another embedder" in run("tune", *judged[:4], "--show").stdout
    systems = run("evaluate", *judged, "--limit", "3", "--json").json["systems"]
    assert [system["name"] for system in systems] == ["lexical", "dense", "hybrid"]
