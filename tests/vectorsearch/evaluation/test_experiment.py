from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import vectorsearch as vs
from backends.errors import InvalidInput, MissingExtra
from vectorsearch.evaluation import cache
from vectorsearch.evaluation.cache import evaluate_cached, evaluation_digest
from vectorsearch.evaluation.experiment import EvaluationFailed, System, Topics, evaluate
from vectorsearch.evaluation.metrics import MEASURES, measure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vectorsearch import Database

LEXICAL = System(mode="lexical")
TOPICS = Topics(
    {"q1": "red fruit", "q2": "zebra crossing", "q3": "yellow"},
    {"q1": {"apple": 2, "cherry": 1}, "q2": {"road": 1}, "q3": {"banana": 1}},
)


@pytest.fixture
def db() -> Iterator[Database]:
    with vs.open(embed=None) as database:
        database.add(
            [
                {"id": "apple", "text": "a red fruit"},
                {"id": "cherry", "text": "a small red fruit with a stone"},
                {"id": "banana", "text": "a yellow fruit"},
                {"id": "road", "text": "asphalt"},
            ]
        )
        yield database


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VECTORSEARCH_CACHE", str(tmp_path))
    return tmp_path


def test_measures_count_0_when_a_query_has_no_results() -> None:
    """S54: a query without results, or missing from the ranking, counts as 0 in every mean."""
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}, "q4": {"d": 1}}
    metrics = measure({"q1": ["a"], "q2": [], "q3": ["x"]}, qrels)
    assert metrics == {name: pytest.approx(0.25) for name in MEASURES}


def test_measures_are_those_of_the_order_when_it_is_known() -> None:
    """S37: only the order of a ranking counts, and the four measures have their textbook values."""
    metrics = measure({"q": ["x", "a", "y", "b"]}, {"q": {"a": 1, "b": 1}})
    assert metrics["RR@10"] == pytest.approx(1 / 2)
    assert metrics["AP"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert metrics["R@100"] == pytest.approx(1.0)
    assert metrics["nDCG@10"] == pytest.approx((0.63093 + 0.43068) / (1 + 0.63093), abs=1e-4)


def test_measures_ignore_what_is_beyond_when_they_have_a_cutoff() -> None:
    """A relevant document on rank 11 counts for R@100 and AP, not for the measures at 10."""
    metrics = measure({"q": [f"x{i}" for i in range(10)] + ["a"]}, {"q": {"a": 1}})
    assert metrics["nDCG@10"] == metrics["RR@10"] == 0.0
    assert metrics["R@100"] == 1.0
    assert metrics["AP"] == pytest.approx(1 / 11)


def test_a_missing_package_is_named_when_measures_are_wanted(monkeypatch: pytest.MonkeyPatch, db: Database) -> None:
    """Without ir-measures the error names the pip command, and no query is asked first."""
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vectorsearch\[eval\]'"):
        evaluate(db, TOPICS, LEXICAL, on_progress=lambda *_: pytest.fail("a query was asked"))


def test_a_system_is_measured_when_it_is_evaluated(db: Database) -> None:
    """S54: each query is asked once, progress is told, and one without hits counts as 0."""
    progress: list[tuple[int, int]] = []
    result = evaluate(db, TOPICS, LEXICAL, on_progress=lambda done, total: progress.append((done, total)))
    assert result.name == "lexical"
    assert result.queries == 3
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert result.metrics["R@100"] == pytest.approx(2 / 3)
    assert result.metrics["nDCG@10"] == pytest.approx(2 / 3)
    assert set(result.latency_ms) == {"p50", "p99"}
    assert 0 < result.latency_ms["p50"] <= result.latency_ms["p99"]


def test_scores_of_a_run_strictly_fall_when_it_is_exported(db: Database) -> None:
    """S37: the TREC run has six columns, ranks from 1 and strictly falling scores, and nothing for an empty result."""
    lines = [line.split() for line in evaluate(db, TOPICS, LEXICAL).run.splitlines()]
    assert {len(line) for line in lines} == {6}
    assert {line[0] for line in lines} == {"q1", "q3"}
    for query in ("q1", "q3"):
        ranks, scores = zip(*((int(line[3]), float(line[4])) for line in lines if line[0] == query), strict=True)
        assert list(ranks) == list(range(1, len(ranks) + 1))
        assert all(a > b for a, b in pairwise(scores))


def test_only_the_first_queries_are_asked_when_there_is_a_limit() -> None:
    """A limit takes the first queries in the order of the judgments; a larger one takes all."""
    assert list(Topics.first(TOPICS, 2).queries) == list(Topics.first(TOPICS, 2).qrels) == ["q1", "q2"]
    assert Topics.first(TOPICS, None) == Topics.first(TOPICS, 99) == TOPICS


def test_evaluation_raises_when_a_stage_was_left_out(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A degraded result is an error, never a figure of another system."""
    search = db.search

    def degraded(*args: Any, **options: Any) -> vs.SearchResult:
        return replace(search(*args, **options), degraded=("dense:budget",))

    monkeypatch.setattr(db, "search", degraded)
    with pytest.raises(EvaluationFailed, match="dense:budget"):
        evaluate(db, TOPICS, LEXICAL)


def test_evaluation_raises_when_the_mode_is_not_to_be_had(db: Database) -> None:
    """A mode that needs an embedder is an error on a database without one."""
    with pytest.raises(vs.VectorSearchError, match="embedder"):
        evaluate(db, TOPICS, System(mode="dense"))


def test_figures_are_remembered_when_nothing_has_changed(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run with the same data, system and code asks no query and gives the same figures."""
    first = evaluate_cached(db, TOPICS, LEXICAL)
    monkeypatch.setattr(cache, "evaluate", lambda *_, **__: pytest.fail("computed again"))
    second = evaluate_cached(db, TOPICS, LEXICAL)
    assert not first.cached
    assert second == replace(first, cached=True)


def test_figures_are_computed_again_when_the_remembered_ones_are_damaged(db: Database, cache_folder: Path) -> None:
    """A damaged cache file is as good as none."""
    first = evaluate_cached(db, TOPICS, LEXICAL)
    for path in (cache_folder / "evaluations").iterdir():
        path.write_text('{"name": "lexical"', encoding="utf-8")
    second = evaluate_cached(db, TOPICS, LEXICAL)
    assert not second.cached
    assert second.metrics == first.metrics


def test_the_digest_changes_when_anything_that_counts_changes(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents, queries, judgments, the system's settings and the code each change the digest; nothing else does."""
    digests = [evaluation_digest(db, TOPICS, LEXICAL)]
    assert evaluation_digest(db, TOPICS, LEXICAL) == digests[0]
    digests.append(evaluation_digest(db, TOPICS, replace(LEXICAL, k=50)))
    digests.append(evaluation_digest(db, Topics.first(TOPICS, 2), LEXICAL))
    digests.append(evaluation_digest(db, Topics(TOPICS.queries, {**TOPICS.qrels, "q3": {"apple": 1}}), LEXICAL))
    db.upsert([{"id": "banana", "text": "a yellow, bent fruit"}])
    digests.append(evaluation_digest(db, TOPICS, LEXICAL))
    monkeypatch.setattr(cache, "code_digest", lambda: "other code")
    digests.append(evaluation_digest(db, TOPICS, LEXICAL))
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    ("system", "name"), [(LEXICAL, "lexical"), (System(mode="hybrid", rerank="some-model"), "hybrid + rerank")]
)
def test_a_system_is_named_for_its_stages_when_shown(system: System, name: str) -> None:
    """The name tells the mode and whether hits are reranked."""
    assert system.name == name


def test_figures_are_given_when_an_id_has_a_space_and_the_run_is_refused() -> None:
    """White space in an id doesn't keep a system from being measured; only the TREC run can't be written."""
    with vs.open(embed=None) as db:
        db.add([{"id": "two words", "text": "read csv rows"}])
        result = evaluate(db, Topics({"q": "csv"}, {"q": {"two words": 1}}), LEXICAL)
    assert result.metrics["RR@10"] == 1.0
    with pytest.raises(InvalidInput, match="two words"):
        _ = result.run
