from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import vectorsearch as vs
from backends.errors import InvalidInput, MissingExtra, UnknownModel
from vectorsearch import evaluation
from vectorsearch.evaluation import journal
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.evaluation.experiment import Experiment
from vectorsearch.evaluation.journal import Subject
from vectorsearch.evaluation.systems import EvaluationFailed, System, parse_system
from vectorsearch.evaluation.tables import describe_options
from vectorsearch.query.planning.defaults import SearchDefaults
from vectorsearch.query.planning.rerankers import Rerank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


def run(db: Database, *systems: System | str, asked: list[tuple[str, int]] | None = None, **options: Any) -> Any:
    """Run an experiment on the four documents; note each query that is asked."""
    noted = asked if asked is not None else []
    experiment = Experiment(systems, db=db, judged=options.pop("judged", TOPICS), **options)
    return experiment.run(on_progress=lambda system, done, _: noted.append((system.name, done)))


def test_a_missing_package_is_named_when_measures_are_wanted(monkeypatch: pytest.MonkeyPatch, db: Database) -> None:
    """Without ir-measures the error names the pip command when the experiment is made, before a query is asked."""
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vectorsearch\[eval\]'"):
        Experiment([LEXICAL], db=db, judged=TOPICS)


def test_a_system_is_measured_when_it_is_evaluated(db: Database) -> None:
    """S54: each query is asked once, progress is told, and one without hits counts as 0."""
    asked: list[tuple[str, int]] = []
    result = run(db, LEXICAL, asked=asked)["lexical"]
    assert asked == [("lexical", 1), ("lexical", 2), ("lexical", 3)]
    assert result.metrics["R@100"] == pytest.approx(2 / 3)
    assert result.metrics["nDCG@10"] == pytest.approx(2 / 3)
    assert set(result.latency_ms) == {"p50", "p99"}
    assert 0 < result.latency_ms["p50"] <= result.latency_ms["p99"]
    assert "lexical" in result.stages_ms


def test_scores_of_a_run_strictly_fall_when_it_is_exported(db: Database) -> None:
    """S37: the TREC run has six columns, ranks from 1 and strictly falling scores, and nothing for an empty result."""
    lines = [line.split() for line in run(db, LEXICAL)["lexical"].run.splitlines()]
    assert {len(line) for line in lines} == {6}
    assert {line[0] for line in lines} == {"q1", "q3"}
    for query in ("q1", "q3"):
        ranks, scores = zip(*((int(line[3]), float(line[4])) for line in lines if line[0] == query), strict=True)
        assert list(ranks) == list(range(1, len(ranks) + 1))
        assert all(a > b for a, b in pairwise(scores))


def test_systems_are_compared_when_there_are_several(db: Database) -> None:
    """Systems are taken as values or as lines; each is compared with the baseline, and the table has them all."""
    result = run(db, LEXICAL, "shallow: mode=lexical k=1", measures=["R@1"], baseline="shallow", name="fruit")
    assert [system.name for system in result.systems] == ["lexical", "shallow"]
    assert result.comparison.others == ("lexical",)
    assert result.documents == 4
    assert "| shallow |" in result.table()
    assert result.to_dict()["collection"] == "fruit"


def test_only_the_first_queries_are_asked_when_there_is_a_limit(db: Database) -> None:
    """A limit takes the first queries in the order of the judgments; a larger one takes all."""
    assert list(Topics.first(TOPICS, 2).queries) == list(Topics.first(TOPICS, 2).qrels) == ["q1", "q2"]
    assert Topics.first(TOPICS, None) == Topics.first(TOPICS, 99) == TOPICS
    assert run(db, LEXICAL, limit=2).comparison.queries == ("q1", "q2")


def test_evaluation_raises_when_a_stage_was_left_out(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A degraded result is an error, never a figure of another system."""
    search = db.search

    def degraded(*args: Any, **options: Any) -> vs.SearchResult:
        return replace(search(*args, **options), degraded=("dense:budget",))

    monkeypatch.setattr(db, "search", degraded)
    with pytest.raises(EvaluationFailed, match="dense:budget"):
        run(db, LEXICAL)


def test_evaluation_raises_when_the_mode_is_not_to_be_had(db: Database) -> None:
    """A mode that needs an embedder is an error on a database without one."""
    with pytest.raises(vs.VectorSearchError, match="embedder"):
        run(db, System(mode="dense"))


@pytest.mark.parametrize(
    ("systems", "options", "error"),
    [
        ([LEXICAL, LEXICAL], {}, InvalidInput),
        ([LEXICAL], {"measures": ["nope"]}, InvalidInput),
        ([LEXICAL], {"baseline": "nope"}, InvalidInput),
        ([System(mode="lexical", k=10)], {"measures": ["R@100"]}, InvalidInput),
        ([System(mode="lexical", rerank="no-such-model")], {}, UnknownModel),
    ],
)
def test_what_cant_work_is_told_before_a_query_is_asked(
    db: Database, systems: list[System], options: dict[str, Any], error: type[Exception]
) -> None:
    """Names, measures, depth and models are checked when the experiment is made."""
    with pytest.raises(error):
        Experiment(systems, db=db, judged=TOPICS, **options)


def test_nothing_is_asked_twice_when_nothing_has_changed(db: Database) -> None:
    """A second experiment with the same data, options and code asks no query, whatever the systems are called."""
    first = run(db, LEXICAL)
    asked: list[tuple[str, int]] = []
    second = run(db, "again: mode=lexical", asked=asked)
    assert not first["lexical"].cached
    assert asked == []
    assert second["again"].cached
    assert second["again"].rankings == first["lexical"].rankings
    assert second["again"].latency_ms == first["lexical"].latency_ms


def test_only_the_new_system_is_asked_when_one_is_added(db: Database) -> None:
    """One system more asks its own queries and no other's."""
    run(db, LEXICAL)
    asked: list[tuple[str, int]] = []
    run(db, LEXICAL, "shallow: mode=lexical k=100 rrf_k=1", asked=asked)
    assert asked == [("shallow", 1), ("shallow", 2), ("shallow", 3)]


def test_only_the_new_queries_are_asked_when_there_are_more(db: Database) -> None:
    """What a limited run asked is there for the whole one; other judgments and measures ask nothing."""
    run(db, LEXICAL, limit=2)
    asked: list[tuple[str, int]] = []
    run(db, LEXICAL, asked=asked)
    assert asked == [("lexical", 3)]
    other = Topics(TOPICS.queries, {**TOPICS.qrels, "q3": {"apple": 1}})
    assert run(db, LEXICAL, asked=asked, judged=other, measures=["Judged@10"])["lexical"].cached


def test_one_query_is_lost_when_a_run_is_interrupted(db: Database) -> None:
    """What was asked before the interruption is not asked again."""
    experiment = Experiment([LEXICAL], db=db, judged=TOPICS)

    def interrupt(_: System, done: int, __: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment.run(on_progress=interrupt)
    asked: list[tuple[str, int]] = []
    run(db, LEXICAL, asked=asked)
    assert asked == [("lexical", 3)]


def test_a_query_is_asked_again_when_its_line_is_damaged(db: Database, cache_folder: Path) -> None:
    """A line that a kill has torn loses its own query, and the next answer is written after it, whole."""
    first = run(db, LEXICAL)
    (path,) = (cache_folder / "evaluations").iterdir()
    path.write_text(path.read_text(encoding="utf-8").rstrip()[:-20], encoding="utf-8")
    asked: list[tuple[str, int]] = []
    assert run(db, LEXICAL, asked=asked)["lexical"].rankings == first["lexical"].rankings
    assert asked == [("lexical", 3)]
    assert run(db, LEXICAL)["lexical"].cached


def test_nothing_is_remembered_when_a_reranker_has_no_name(db: Database, cache_folder: Path) -> None:
    """A function can't be told from another one later, so its answers are not kept."""

    def by_length(_: str, texts: list[str]) -> list[float]:
        return [-float(len(text)) for text in texts]

    system = System(name="short first", mode="lexical", rerank=Rerank(by_length, depth=4))
    result = run(db, system, measures=["RR"])
    assert result["short first"].rankings["q1"][0] == "apple"
    assert not (cache_folder / "evaluations").exists()
    assert "best 4 reranked" in describe_options(result["short first"])


def test_everything_is_asked_again_when_no_cache_is_wanted(db: Database, cache_folder: Path) -> None:
    """Without the cache nothing is read from it and nothing written."""
    run(db, LEXICAL, cache=False)
    assert not (cache_folder / "evaluations").exists()
    run(db, LEXICAL)
    assert not run(db, LEXICAL, cache=False)["lexical"].cached


def test_the_digest_changes_when_anything_that_counts_changes(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents, the system's options and the code each change the digest; its name doesn't."""
    digests = [Subject(db).digest(LEXICAL)]
    assert Subject(db).digest(replace(LEXICAL, name="other")) == digests[0]
    digests.append(Subject(db).digest(replace(LEXICAL, k=50)))
    digests.append(Subject(db).digest(replace(LEXICAL, rrf_k=1)))
    db.upsert([{"id": "banana", "text": "a yellow, bent fruit"}])
    digests.append(Subject(db).digest(LEXICAL))
    monkeypatch.setattr(journal, "code_digest", lambda: "other code")
    digests.append(Subject(db).digest(LEXICAL))
    assert len(set(digests)) == len(digests)


def test_a_system_that_names_nothing_is_the_databases_own_search(open_database: Callable[..., Database]) -> None:
    """With mode auto alone stored defaults are measured, their reranker counts, and a change of them asks again."""
    db = open_database()
    db.add([{"id": f"d{i}", "text": f"csv file {i}"} for i in range(30)])
    auto = parse_system("mode=auto")
    before = Subject(db).digest(auto)
    db.defaults = SearchDefaults(fusion="zscore", weights={"lexical": 0.2, "dense": 0.8})
    after = Subject(db).digest(auto)
    assert before != after
    assert [h.id for h in auto.search(db, "csv 7")] == [h.id for h in db.search("csv 7", k=100)]
    assert auto.search(db, "csv 7").plan.fusion == "zscore"
    assert parse_system("mode=hybrid").search(db, "csv 7").plan.fusion == "rrf"
    db.defaults = SearchDefaults(embed="another model's digest")
    assert Subject(db).digest(auto) == before
    assert auto.search(db, "csv 7").plan.fusion == "rrf"


def test_figures_are_given_when_an_id_has_a_space_and_the_run_is_refused() -> None:
    """White space in an id doesn't keep a system from being measured; only the TREC run can't be written."""
    with vs.open(embed=None) as db:
        db.add([{"id": "two words", "text": "read csv rows"}])
        result = run(db, LEXICAL, judged=Topics({"q": "csv"}, {"q": {"two words": 1}}))["lexical"]
    assert result.metrics["RR@10"] == 1.0
    with pytest.raises(InvalidInput, match="two words"):
        _ = result.run


def test_every_public_name_is_there_when_the_package_is_imported() -> None:
    """The package's names are imported when they are first used; a wrong one is an AttributeError."""
    for name in evaluation.__all__:
        assert getattr(evaluation, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = evaluation.no_such_name
