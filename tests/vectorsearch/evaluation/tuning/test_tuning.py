from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from backends.catalogue import catalogue
from backends.engines.fake_backend import fake_spec
from backends.errors import InvalidInput, UnknownModel
from vectorsearch.collection.storage.errors import ReadOnlyDatabase
from vectorsearch.evaluation import tune
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.evaluation.systems import parse_system
from vectorsearch.evaluation.tuning import gathering
from vectorsearch.evaluation.tuning.cross_validation import choose, cross_validate
from vectorsearch.evaluation.tuning.evidence import rank
from vectorsearch.evaluation.tuning.gathering import gather
from vectorsearch.evaluation.tuning.tuning import candidates
from vectorsearch.query.planning.defaults import BUILT_IN, SearchDefaults

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import vectorsearch as vs
    from backends.base import ModelSpec

WORDS = ("csv", "json", "time", "file", "read", "write", "parse", "row", "thread", "socket")
QUERIES = {f"q{i}": f"{a} {b}" for i, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS if a < b)}


@pytest.fixture(autouse=True)
def own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is remembered in the test's own folder, and let the catalogue know fake rerankers."""
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path / "cache"))
    known = catalogue.resolve

    def resolve(name: str | Path) -> ModelSpec:
        return fake_spec(str(name), task="cross-encode") if str(name).endswith("-reranker") else known(name)

    monkeypatch.setattr(catalogue, "resolve", resolve)


@pytest.fixture
def db(open_database: Callable[..., vs.Database]) -> vs.Database:
    """Give a database of short texts, many of them equal, so that scores tie."""
    rng = random.Random(5)  # noqa: S311 -- data, no secret
    rows = [{"id": f"d{i}", "text": " ".join(rng.choices(WORDS, k=3)), "title": rng.choice(WORDS)} for i in range(150)]
    rng.shuffle(rows)
    database = open_database()
    database.add(rows)
    return database


def judged_by(db: vs.Database, setting: SearchDefaults, *, n: int = 45) -> Topics:
    """Return judgments by which the setting is perfect: its first three hits of each query are relevant."""
    queries = dict(list(QUERIES.items())[:n])
    return Topics(
        queries, {q: {hit.id: 1 for hit in db.search(t, k=3, **setting.options())} for q, t in queries.items()}
    )


def judged_at_random(db: vs.Database, seed: int) -> Topics:
    """Return judgments that no setting has anything to do with: three of the documents that were found."""
    rng = random.Random(seed)  # noqa: S311 -- data, no secret
    found = {query: [hit.id for hit in db.search(text, k=100)] for query, text in QUERIES.items()}
    return Topics(QUERIES, {query: dict.fromkeys(rng.sample(ids, 3), 1) for query, ids in found.items()})


def test_the_order_is_that_of_a_search_for_every_setting(db: vs.Database) -> None:
    """What is computed from stored scores is what `search` gives with the same options, ties and all."""
    queries = dict(list(QUERIES.items())[:2])
    settings = candidates(db, "test-reranker", 20)[::3]
    evidence = gather(db, queries, settings)
    for setting in settings:
        for query_id, text in queries.items():
            hits = db.search(text, k=100, **setting.options())
            assert rank(evidence[query_id], setting)[:100] == tuple(hit.id for hit in hits), setting


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_stored_when_judgments_are_random(db: vs.Database, seed: int) -> None:
    """The best of hundreds of settings looks better in sample, and by cross-validation it isn't."""
    found = tune(db, judged_at_random(db, seed), rerank="test-reranker", seed=seed)
    assert found.settings > 200
    assert found.in_sample > found.before
    assert found.held_out <= found.in_sample + 1e-9  # a mean of means is rounded
    assert not found.stored
    assert db.defaults is None


def test_a_setting_that_is_better_is_found_and_used(db: vs.Database) -> None:
    """What made the judgments wins on held-out queries, is stored, and is what a plain search then does."""
    truth = SearchDefaults(fusion="zscore", weights={"lexical": 0.3, "dense": 0.7}, rerank="test-reranker", blend=0.65)
    judged = judged_by(db, truth)
    steps: list[tuple[str, int, int]] = []
    found = tune(db, judged, rerank="test-reranker", progress=lambda *at: steps.append(at))
    assert found.stored
    assert [step for step, done, total in steps if done == total] == ["searching", "reranking", "measuring"]
    assert found.held_out > found.before + 0.05
    assert found.gain.low > 0
    assert min(found.by_cut) <= found.held_out <= max(found.by_cut)
    kept = db.defaults
    assert kept is not None
    assert kept.origin is not None
    assert (kept.origin.queries, kept.origin.after) == (len(judged.queries), found.held_out)
    text = judged.queries["q3"]
    plain, said = db.search(text), db.search(text, **found.chosen.options())
    assert [hit.id for hit in plain] == [hit.id for hit in said]
    assert "held out" in plain.plan.defaults
    again = tune(db, judged, rerank="test-reranker")
    assert again.present == found.chosen
    assert not again.stored


def test_nothing_is_stored_when_it_is_a_dry_run(db: vs.Database) -> None:
    """The result is the same, and the database's defaults stay."""
    truth = SearchDefaults(weights={"lexical": 0.3, "dense": 0.7})
    found = tune(db, judged_by(db, truth), dry_run=True)
    assert found.better
    assert not found.stored
    assert db.defaults is None


def test_each_text_is_scored_once_whatever_the_number_of_settings(
    db: vs.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second tuning asks nothing; a deeper one asks for the texts that are new to it."""
    read: list[int] = []
    score = type(db).score
    monkeypatch.setattr(
        type(db), "score", lambda self, q, texts, **more: read.append(len(texts)) or score(self, q, texts, **more)
    )
    judged = judged_at_random(db, 1)
    tune(db, judged, rerank="test-reranker", depth=5)
    first = sum(read)
    tune(db, judged, rerank="test-reranker", depth=5, seed=2, measure="AP")
    assert sum(read) == first
    tune(db, judged, rerank="test-reranker", depth=8)
    assert first < sum(read) < 3 * first


def test_asking_goes_on_where_it_stopped(db: vs.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption loses one query."""
    settings = [replace(BUILT_IN, rerank="test-reranker", rerank_depth=5)]
    queries = dict(list(QUERIES.items())[:6])

    def stop(step: str, done: int, _: int) -> None:
        if (step, done) == ("reranking", 4):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gather(db, queries, settings, progress=stop)
    asked: list[str] = []
    scores = gathering._scores
    monkeypatch.setattr(gathering, "_scores", lambda *of: asked.append(of[1]) or scores(*of))
    monkeypatch.setattr(gathering, "_found", lambda *_: pytest.fail("retrieved again"))
    gather(db, queries, settings)
    assert asked == list(queries.values())[4:]


def test_words_alone_are_tuned_with_a_reranker(open_database: Callable[..., vs.Database]) -> None:
    """Without an embedder there are BM25's constants, depth and blend to choose; without a reranker BM25's alone."""
    db = open_database(embed=None)
    db.add(
        [{"id": f"d{i}", "text": f"{a} {b}"} for i, (a, b) in enumerate(zip(WORDS * 3, WORDS[1:] * 4, strict=False))]
    )
    queries = dict(list(QUERIES.items())[:8])
    judged = Topics(queries, {query: {"d1": 1} for query in queries})
    assert len(candidates(db, "test-reranker", 50)) == 19 + 15
    assert tune(db, judged, rerank="test-reranker", folds=2).settings == 19 + 15
    assert tune(db, judged, folds=2).settings == 1 + 15


def test_constants_of_bm25_are_found_and_used_when_they_are_better(open_database: Callable[..., vs.Database]) -> None:
    """F9: what made the judgments wins on held-out queries and is stored; a search that names constants has its own."""
    rng = random.Random(7)  # noqa: S311 -- data, no secret
    db = open_database(embed=None)
    db.add({"id": f"d{i}", "text": " ".join(rng.choices(WORDS, k=rng.randint(2, 60)))} for i in range(150))
    truth = SearchDefaults(k1=1.8, b=0.3)
    judged = judged_by(db, truth)
    found = tune(db, judged)
    assert found.stored
    assert (found.chosen.k1, found.chosen.b) == (1.8, 0.3)
    assert "BM25 with k1=1.8 b=0.3" in str(db.defaults)
    text = judged.queries["q3"]
    tuned = [hit.score for hit in db.search(text)]
    assert tuned == [hit.score for hit in db.search(text, k1=1.8, b=0.3)]
    assert tuned != [hit.score for hit in db.search(text, k1=1.2, b=0.75)]
    again = tune(db, judged)
    assert again.present == found.chosen
    assert not again.stored
    db.defaults = None
    assert [hit.score for hit in db.search(text)] == [hit.score for hit in db.search(text, k1=1.2, b=0.75)]


def test_a_system_names_constants_of_bm25_when_it_is_a_line() -> None:
    """F9: k1 and b are options of a system, as of a search."""
    system = parse_system("mine: mode=lexical k1=0.9 b=0.4")
    assert (system.k1, system.b, system.options["k1"]) == (0.9, 0.4, 0.9)
    with pytest.raises(InvalidInput, match="k1"):
        parse_system("mode=lexical k1=many")


def test_what_can_not_work_is_said_before_anything_is_asked(
    db: vs.Database, open_database: Callable[..., vs.Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown or other rerankers, too many folds, too deep, nothing relevant here, a database open to read."""
    judged = judged_at_random(db, 1)
    open_database(tmp_path / "db").close()
    reader = open_database(tmp_path / "db", read_only=True)
    monkeypatch.setattr(gathering, "_found", lambda *_: pytest.fail("asked"))
    with pytest.raises(UnknownModel):
        tune(db, judged, rerank="no such model")
    with pytest.raises(InvalidInput, match="46 folds of 45 queries"):
        tune(db, judged, folds=46)
    for grades in ({"elsewhere": 1}, {"d1": 0}):
        with pytest.raises(InvalidInput, match="judged relevant is in the database"):
            tune(db, Topics(judged.queries, dict.fromkeys(judged.qrels, grades)))
    with pytest.raises(InvalidInput, match="depth is 101"):
        tune(db, judged, rerank="test-reranker", depth=101)
    with pytest.raises(ReadOnlyDatabase):
        tune(reader, judged)
    db.defaults = SearchDefaults(rerank="test-reranker")
    with pytest.raises(InvalidInput, match="reset them"):
        tune(db, judged, rerank="other-reranker")


def test_the_choice_is_measured_on_other_queries_than_it_was_made_on() -> None:
    """Of noise alone the best of many is far above the mean in sample, and at the mean on held-out queries."""
    values = np.random.default_rng(1).random((400, 100))
    found = cross_validate(values, np.zeros(400), folds=5, cuts=10, seed=1)
    assert values[found.chosen].mean() > 0.56
    assert abs(found.held_out.mean() - 0.5) < 0.06
    assert np.isin(found.by_cut, values).all()
    assert len(found.by_fold) == 50


def test_the_figure_hardly_depends_on_the_seed_when_cuts_are_many() -> None:
    """Settings that are nearly as good as each other are chosen by chance: ten cuts tell less of it than one does."""
    values = np.random.default_rng(2).random((50, 60))

    def spread(cuts: int) -> float:
        found = [cross_validate(values, np.zeros(50), folds=5, cuts=cuts, seed=seed) for seed in range(20)]
        return float(np.std([each.held_out.mean() for each in found]))

    assert spread(10) < spread(1) / 2


def test_held_out_values_are_those_of_the_settings_that_other_folds_chose() -> None:
    """One setting is best everywhere: every fold chooses it, and its values are the held-out ones."""
    values = np.stack([np.full(10, 0.5), np.linspace(0.6, 0.9, 10), np.full(10, 0.4)])
    found = cross_validate(values, np.zeros(3), folds=10, cuts=2, seed=3)
    assert (found.chosen, set(found.by_fold)) == (1, {1})
    assert found.held_out.tolist() == values[1].tolist()


def test_the_cheaper_setting_is_chosen_when_two_are_equally_good() -> None:
    """A reranker that gains less than 0.001 isn't worth its time; of equally dear settings the better is chosen."""
    values = np.array([[0.5, 0.5], [0.5004, 0.5004], [0.5006, 0.5006], [0.5008, 0.5008]])
    assert choose(values, np.array([0.0, 20.0, 20.0, 50.0])) == 0
    assert choose(values[1:], np.array([20.0, 20.0, 50.0])) == 1
    assert choose(values + np.array([[0.0], [0.01], [0.0], [0.0]]), np.array([0.0, 20.0, 20.0, 50.0])) == 1
    with pytest.raises(InvalidInput, match="1 folds"):
        cross_validate(values, np.zeros(4), folds=1, cuts=1, seed=0)
