"""Feature models end to end: fitted on a database, indexed with, searched with, in the library and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import vectorsearch
from vectorsearch.errors import InvalidInput, ModelUnavailable
from vectorsearch.evaluation import tune
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.evaluation.systems import System
from vectorsearch.query.planning.defaults import SearchDefaults, built_in
from vectorsearch.training.features import fit_features

if TYPE_CHECKING:
    from pathlib import Path

    from vectorsearch.database.database import Database

TOPICS = {
    "csv": "read rows of a csv file with a reader",
    "json": "parse json documents into python objects",
    "lock": "start threads and wait for locks",
    "mail": "send mail over an smtp server",
}
ROWS = [
    {"id": f"{name}-{word}", "text": f"{topic} {word}"}
    for name, topic in TOPICS.items()
    for word in ("quickly", "slowly", "again", "often")
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "cache"))


def plain(folder: Path, rows: list[dict[str, str]] = ROWS) -> Database:
    db = vectorsearch.open(folder, embed=None)
    db.add(rows)
    return db


def test_search_finds_a_topic_when_only_a_feature_model_is_there(tmp_path: Path) -> None:
    """Dense search works with the fitted folder as embedder, here and after opening again, and says what ran."""
    with plain(tmp_path / "db") as db:
        steps: list[tuple[str, int, int]] = []
        spec = fit_features(db, tmp_path / "m", dim=4, progress=lambda *step: steps.append(step))
    assert {step for step, _, _ in steps} == {"reading", "fitting"}
    assert all(done <= total for _, done, total in steps)
    with vectorsearch.open(tmp_path / "dense", embed=tmp_path / "m") as db:
        db.add(ROWS)
        stored = db.get("csv-often")
        assert stored is not None
        np.testing.assert_allclose(np.linalg.norm(np.asarray(stored.vector)), 1, rtol=1e-5)
    with vectorsearch.open(tmp_path / "dense") as db:
        assert db.embedder == spec
        found = db.search("reader", mode="dense", k=4)
        assert {hit.id.split("-")[0] for hit in found} == {"csv"}
        assert [stage.device for stage in found.stats if stage.stage == "encode"] == ["cpu:numpy:float32"]
        assert [hit.id for hit in db.search("reader", k=4)]


def test_query_of_unknown_words_finds_nothing(tmp_path: Path) -> None:
    """S5: a query without known words, alone or among many, or a caller's zero vector has no nearest document."""
    with plain(tmp_path / "db") as db:
        fit_features(db, tmp_path / "m", dim=4)
    with vectorsearch.open(tmp_path / "dense", embed=tmp_path / "m") as db:
        db.add(ROWS)
        assert not list(db.search("zebra", mode="dense"))
        assert not list(db.search("zebra"))
        assert [len(found) for found in db.search_many(["zebra", "reader"], mode="dense", k=3)] == [0, 3]
        assert not list(db.search_many(["zebra"])[0])
        assert not list(db.search(vector=np.zeros(4)))


def test_documents_are_the_fit_and_nothing_else(tmp_path: Path) -> None:
    """Databases of the same documents give the same model, whatever their embedder, and stay as they are."""
    with plain(tmp_path / "a") as db:
        first = fit_features(db, tmp_path / "m1", dim=4)
    with vectorsearch.open(tmp_path / "b", embed=tmp_path / "m1") as db:
        db.add(ROWS)
        before = db.info()
        assert fit_features(db, tmp_path / "m2", dim=4).digest == first.digest
        assert db.info()["seq"] == before["seq"]


def test_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """An empty database, too many dimensions and a folder that is taken are refused, and no folder is left."""
    with plain(tmp_path / "db") as db:
        with pytest.raises(InvalidInput, match="ask for at most"):
            fit_features(db, tmp_path / "m", dim=99)
        (tmp_path / "taken").mkdir()
        (tmp_path / "taken" / "file").touch()
        with pytest.raises(InvalidInput, match="there already"):
            fit_features(db, tmp_path / "taken", dim=4)
    with plain(tmp_path / "empty", []) as db, pytest.raises(InvalidInput, match="add documents first"):
        fit_features(db, tmp_path / "m", dim=4)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["db", "empty", "taken"]


def test_queries_are_not_embedded_when_the_model_was_fitted_again(tmp_path: Path) -> None:
    """S48: vectors of one fit mean nothing to another: a dense search says that the model has changed."""
    with plain(tmp_path / "db") as db:
        fit_features(db, tmp_path / "m", dim=4)
        fit_features(db, tmp_path / "other", dim=4, seed=1)
    vectorsearch.open(tmp_path / "dense", embed=tmp_path / "m").close()
    (tmp_path / "m").rename(tmp_path / "old")
    (tmp_path / "other").rename(tmp_path / "m")
    with vectorsearch.open(tmp_path / "dense") as db, pytest.raises(ModelUnavailable, match="has changed"):
        db.search("apple", mode="dense")


def test_command_fits_and_indexes_and_searches(tmp_path: Path) -> None:
    """The three commands of the help text work one after the other, each in a process of its own."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "vectorsearch", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)

    plain(tmp_path / "my.db").close()
    fitted = run("models", "fit-features", "--db", tmp_path / "my.db", "--dim", 4, "--json")
    assert fitted.returncode == 0, fitted.stderr
    folder = json.loads(fitted.stdout)["folder"]
    assert folder == str(tmp_path / "my.db.features")
    assert run("index", corpus, "--db", tmp_path / "dense.db", "--embed", folder).returncode == 0
    found = run("search", "threads", "--db", tmp_path / "dense.db", "--mode", "dense", "-k", 1, "--json")
    assert json.loads(found.stdout)["hits"][0]["id"].startswith("lock")
    refused = run("models", "fit-features", "--db", tmp_path / "none.db", "--json")
    assert refused.returncode == 1
    assert "no database" in refused.stderr


def test_features_weigh_a_fifth_when_nobody_says_how_to_fuse(tmp_path: Path) -> None:
    """With a feature model hybrid search takes scores, BM25's for most of it; what the caller says goes first."""
    with plain(tmp_path / "db") as db:
        fit_features(db, tmp_path / "m", dim=4)
    with vectorsearch.open(tmp_path / "dense", embed=tmp_path / "m") as db:
        db.add(ROWS)
        found = db.search("reader")
        assert found.plan.fusion == "minmax"
        assert {r.kind: r.weight for r in found.plan.retrievers} == {"lexical": 1.0, "dense": 0.2}
        assert "minmax  (1 lexical, 0.2 dense)" in str(db.explain("reader"))
        assert [hit.id for hit in db.search_many(["reader"])[0]] == [hit.id for hit in found]
        for options in ({"fusion": "rrf"}, {"rrf_k": 60.0}, {"weights": {"dense": 1.0}}):
            plan = db.search("reader", **options).plan  # type: ignore[arg-type]  # one option at a time
            assert plan.fusion == "rrf"
            assert {r.weight for r in plan.retrievers} == {1.0}


def test_what_is_measured_and_tuned_is_what_a_search_does_here(tmp_path: Path) -> None:
    """A system that names no fusion, and what tuning compares with, take a feature model as a plain search does."""
    with plain(tmp_path / "db") as db:
        fit_features(db, tmp_path / "m", dim=4)
    with vectorsearch.open(tmp_path / "dense", embed=tmp_path / "m") as db:
        db.add(ROWS)
        usual = SearchDefaults(fusion="minmax", weights={"lexical": 1.0, "dense": 0.2})
        assert built_in(db.embedder) == usual
        for mode in ("hybrid", "auto"):
            plan = System(mode=mode).search(db, "reader").plan
            assert plan.fusion == db.search("reader").plan.fusion == "minmax"
            assert {each.kind: each.weight for each in plan.retrievers} == usual.weights
        judged = Topics({name: name for name in TOPICS}, {name: {f"{name}-often": 1} for name in TOPICS})
        found = tune(db, judged, folds=2, dry_run=True, cache=False)
        assert found.present == usual
        assert found.settings == 21 + 15
