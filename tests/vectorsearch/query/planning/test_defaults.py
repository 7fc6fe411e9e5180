"""What a database does where a search doesn't say how: the built-in way, or what it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import InvalidInput, UnknownModel
from vectorsearch import config
from vectorsearch.collection.storage.errors import ReadOnlyDatabase
from vectorsearch.query.planning.defaults import BUILT_IN, Origin, SearchDefaults, leaves_open

if TYPE_CHECKING:
    from pathlib import Path

    from ...conftest import OpenDatabase

DOCS = [{"id": f"d{i}", "text": f"word{i % 7} common {'rare ' * (i % 3)}"} for i in range(40)]
ORIGIN = Origin(measure="nDCG@10", queries=300, before=0.7, after=0.72, p=0.01, date="2026-11-30")
KEPT = SearchDefaults(fusion="zscore", weights={"lexical": 0.3, "dense": 0.7}, origin=ORIGIN)


def test_a_search_is_done_as_the_database_keeps_it_when_it_says_nothing(open_database: OpenDatabase) -> None:
    """Fusion, weights and reranker are those kept, and `explain` says where they came from."""
    db = open_database()
    db.add(DOCS)
    db.defaults = KEPT
    plan = db.search("word3 common").plan
    assert (plan.fusion, [r.weight for r in plan.retrievers], plan.rerank) == ("zscore", [0.3, 0.7], ())
    assert "defaults: tuned 2026-11-30 on 300 queries, nDCG@10 0.700 → 0.720" in str(db.explain("word3"))
    filtered = db.search("word3 common", k=3, filter={"lang": "en"}, timeout_s=10.0, highlight=True)
    assert filtered.plan.fusion == "zscore"


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "hybrid"},
        {"fusion": "rrf"},
        {"weights": {"dense": 2.0}},
        {"rrf_k": 10},
        {"rerank": False},
        {"rerank_depth": 0},
        {"phrases": ["common"]},
        {"title_weight": 1.0},
    ],
)
def test_what_is_kept_counts_whole_or_not_at_all(open_database: OpenDatabase, options: dict[str, Any]) -> None:
    """A search that says anything of how to search gets the built-in values of the rest."""
    db = open_database()
    db.add(DOCS)
    db.defaults = KEPT
    plan = db.search("word3 common", **options).plan
    assert plan.fusion == "rrf"
    assert plan.defaults == ""
    assert not leaves_open(options)


@pytest.mark.parametrize("options", [{}, {"mode": "auto", "phrases": [], "title_weight": 0, "rerank": None}, {"k": 3}])
def test_options_leave_it_open_when_they_say_what_is_said_without_them(options: dict[str, Any]) -> None:
    """The signature's own defaults say nothing."""
    assert leaves_open(options)


def test_a_vector_alone_is_searched_the_built_in_way(open_database: OpenDatabase) -> None:
    """What is kept was learned of queries in words, and may rerank."""
    db = open_database()
    db.add(DOCS)
    db.defaults = KEPT
    assert db.search(vector=np.ones(64, dtype=np.float32)).plan.defaults == ""


def test_defaults_are_there_when_the_database_is_opened_again(open_database: OpenDatabase, tmp_path: Path) -> None:
    """They are stored at once, go with a snapshot, are a tenant's own, and can be reset."""
    db = open_database(tmp_path / "db")
    db.add(DOCS)
    assert db.defaults is None
    db.defaults = KEPT
    db.tenant("acme").defaults = SearchDefaults(rrf_k=10)
    db.snapshot(tmp_path / "copy")
    db.close()
    for name in ("db", "copy"):
        again = open_database(tmp_path / name)
        assert again.defaults == KEPT
        assert again.tenant("acme").defaults == SearchDefaults(rrf_k=10)
        assert again.tenant("other").defaults is None
        again.defaults = None
        again.close()
        assert open_database(tmp_path / name).defaults is None


def test_nothing_is_set_when_the_database_is_open_to_read(open_database: OpenDatabase, tmp_path: Path) -> None:
    """A reader sees them and can't change them."""
    db = open_database(tmp_path / "db")
    db.defaults = KEPT
    db.close()
    reader = open_database(tmp_path / "db", read_only=True)
    with pytest.raises(ReadOnlyDatabase):
        reader.defaults = None
    assert reader.defaults == KEPT


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (SearchDefaults(fusion="zscore", embed="another"), "of another embedder"),
        (SearchDefaults(fusion="zscore", rerank="gone", rerank_digest="x"), "'gone', which isn't there any more"),
    ],
)
def test_defaults_do_not_count_when_their_models_have_changed(
    open_database: OpenDatabase, kept: SearchDefaults, reason: str
) -> None:
    """The built-in way is used, the result says so, and `explain` says why."""
    db = open_database()
    db.add(DOCS)
    db.defaults = kept
    result = db.search("word3 common")
    assert result.plan.fusion == "rrf"
    assert result.degraded == ("defaults:outdated",)
    assert reason in str(db.explain("word3 common"))


def test_defaults_are_told_in_a_line(open_database: OpenDatabase) -> None:
    """They read as what is done."""
    assert str(BUILT_IN) == "rrf k=60, no reranking"
    reranked = SearchDefaults(fusion="zscore", weights={"dense": 0.7}, rerank="m", rerank_depth=20, blend=0.35)
    assert str(reranked) == "zscore (0.7 dense), best 20 reranked by m, 0.35 of it blended with the fused score"
    assert SearchDefaults.from_dict(KEPT.to_dict()) == KEPT
    assert open_database().defaults is None


def test_texts_are_scored_as_a_search_would(open_database: OpenDatabase) -> None:
    """`score` gives the rerank scores of a search for the same texts; several rerankers have no one score."""
    db = open_database()
    db.add(DOCS)
    hits = db.search("word3 common", mode="lexical", rerank=True)
    scores = db.score("word3 common", [hit.text for hit in hits])
    assert scores.tolist() == [hit.scores["rerank"] for hit in hits]
    with pytest.raises(InvalidInput, match="name one reranker"):
        db.score("word3", ["a"], rerank=[True, True])


@pytest.mark.parametrize(
    ("defaults", "error", "told"),
    [
        ("x", InvalidInput, "give SearchDefaults"),
        (SearchDefaults(fusion="nope"), InvalidInput, "nope"),  # type: ignore[arg-type]  # the mistake under test
        (SearchDefaults(rrf_k=-1), InvalidInput, "rrf_k"),
        (SearchDefaults(fusion=None), InvalidInput, "fusion None is unknown"),  # type: ignore[arg-type]
        (SearchDefaults(rrf_k=float("nan")), InvalidInput, "rrf_k is nan"),
        (SearchDefaults(rrf_k="6"), InvalidInput, "rrf_k is '6'"),  # type: ignore[arg-type]
        (SearchDefaults(weights={"lexical": 0, "dense": 0.0}), InvalidInput, "one of them above 0"),
        (SearchDefaults(weights={"sparse": 1.0}), InvalidInput, "sparse"),
        (SearchDefaults(weights=3), InvalidInput, "weights is 3: give a mapping"),  # type: ignore[arg-type]
        (SearchDefaults(weights={"dense": np.float32(1)}), InvalidInput, "a dict of plain numbers"),  # type: ignore[dict-item]
        (SearchDefaults(rerank="no-such-model"), UnknownModel, "no-such-model"),
        (SearchDefaults(rerank=config.DEFAULT_RERANKER, blend=2.0), InvalidInput, "blend"),
        (SearchDefaults(rerank=5), InvalidInput, "rerank of the defaults is 5"),  # type: ignore[arg-type]
        (SearchDefaults(rerank_depth="5"), InvalidInput, "rerank_depth of the defaults is '5'"),  # type: ignore[arg-type]
        (SearchDefaults(blend="1"), InvalidInput, "blend of the defaults is '1'"),  # type: ignore[arg-type]
        (SearchDefaults(embed=5), InvalidInput, "embed of the defaults is 5"),  # type: ignore[arg-type]
        (SearchDefaults(rerank_digest=5), InvalidInput, "rerank_digest of the defaults is 5"),  # type: ignore[arg-type]
        (SearchDefaults(origin="mine"), InvalidInput, "give an Origin"),  # type: ignore[arg-type]
        (SearchDefaults(origin=replace(ORIGIN, before="0")), InvalidInput, "give an Origin"),  # type: ignore[arg-type]
        (SearchDefaults(embed="gone", fusion="nope"), InvalidInput, "nope"),  # type: ignore[arg-type]
    ],
)
def test_defaults_are_refused_when_no_search_could_be_done_so(
    open_database: OpenDatabase, defaults: Any, error: type[Exception], told: str
) -> None:
    """The fault is the setter's, not every later search's; what was kept stays."""
    db = open_database()
    db.add(DOCS)
    db.defaults = KEPT
    with pytest.raises(error, match=told):
        db.defaults = defaults
    assert db.defaults == KEPT
    assert db.search("word3 common").plan.fusion == "zscore"
