"""What a search takes and refuses, and what it makes of odd arguments."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.errors import InvalidInput, InvalidModel, UnknownModel
from vectorsearch.errors import DimensionMismatch, EmptyQuery, NonFiniteVector, UnknownMode
from vectorsearch.query.explaining.explain import Explanation

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import OpenDatabase


def test_result_is_empty_when_k_is_zero(db: vs.Database) -> None:
    """S67: k=0 gives no hits, and runs no retriever."""
    result = db.search("pattern", k=0)
    assert list(result) == []
    assert all(stage.stage not in {"lexical", "dense"} for stage in result.stats)


@pytest.mark.parametrize(
    "query", ["what's the…?", "AND", "NEAR(", "multi-agent", '"', "a\x00b", "\ud800", "🙂", "苹果", "*"]
)
@pytest.mark.parametrize("mode", ["auto", "lexical"])
def test_no_text_can_raise(db: vs.Database, query: str, mode: str) -> None:
    """S9: operators, quotes, NUL, emoji and lone surrogates are words, or nothing; none is an error."""
    assert db.search(query, mode=mode, rerank=True).degraded == ()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"query": ""}, EmptyQuery, "the query is empty"),
        ({"query": None}, EmptyQuery, "the query is empty"),
        ({"query": "a", "mode": "fuzzy"}, UnknownMode, "mode 'fuzzy' is unknown"),
        ({"query": "a", "fusion": "sum"}, InvalidInput, "fusion 'sum' is unknown"),
        ({"query": "a", "rerank": "no-such-model"}, UnknownModel, "no model 'no-such-model'"),
        ({"query": "a", "rerank": "bge-small-en-v1.5-int8"}, InvalidInput, "'cross-encode' is needed"),
        ({"query": "a", "rerank": 5}, InvalidInput, "can't rerank"),
        ({"query": "a", "vector": [1.0, 2.0]}, DimensionMismatch, r"\(2,\)"),
        ({"query": "a", "vector": [float("nan")] * 64}, NonFiniteVector, "NaN"),
        ({"query": "a", "vector": [[1.0]]}, InvalidInput, r"shape \(1, 1\)"),
        ({"query": "a", "filter": {"kind": {"$near": 1}}}, InvalidInput, "kind"),
        ({"query": "a", "weights": {"bm25": 1}}, InvalidInput, "bm25"),
        ({"query": 5}, InvalidInput, "query"),
    ],
)
def test_argument_is_refused_when_it_can_not_be_used(
    db: vs.Database, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Each wrong argument has an error of its own that names it and its value."""
    with pytest.raises(error, match=message):
        db.search(**options)


def test_rerank_name_is_checked_when_nothing_matches(open_database: OpenDatabase) -> None:
    """An unknown reranker is an error at once, even on an empty database."""
    with pytest.raises(UnknownModel):
        open_database(embed=None).search("a", rerank="no-such-model")


def test_default_reranker_is_missed_clearly(open_database: OpenDatabase) -> None:
    """rerank=True without a default is an error that says what to do."""
    with pytest.raises(InvalidInput, match="name a model"):
        open_database(rerank=None).search("a", rerank=True)


def test_folder_is_refused_when_it_holds_no_model(db: vs.Database, tmp_path: Path) -> None:
    """A folder that holds no model is named in the error."""
    with pytest.raises(InvalidModel, match=r"lacks config.json"):
        db.search("a", rerank=tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"rerank_depth": 1.5, "rerank": True},
        {"rerank_depth": "5", "rerank": True},
        {"rrf_k": "60"},
        {"rrf_k": float("nan")},
        {"weights": {"lexical": "1"}},
        {"weights": [1, 2]},
        {"filter": "kind=f"},
        {"filter": [("kind", "f")]},
        {"filter": {1: "f"}},
        {"filter": {"kind": "\ud800"}},
        {"vector": [10**400] * 64},
        {"timeout_s": 1e10},
        {"timeout_s": float("inf")},
        {"rrf_k": 1e308},
        {"weights": {"lexical": 1e308, "dense": 1e308}},
        {"title_weight": 1e300},
        {"phrases": None},
        {"phrases": ["  "]},
        {"phrase": "the", "phrases": ["the"]},
        {"field": 5, "rerank": vs.Rerank(field=5)},  # type: ignore[arg-type]  # what is refused
    ],
    ids=str,
)
def test_argument_of_another_type_is_refused(db: vs.Database, options: dict[str, Any]) -> None:
    """An argument that can't be used is named by an `InvalidInput`, before any stage runs."""
    name = next(iter(options))
    with pytest.raises(InvalidInput, match=name):
        db.search("pattern", **{key: value for key, value in options.items() if key not in ("phrase", "field")})


def test_texts_are_refused_when_they_are_no_list_of_texts(db: vs.Database) -> None:
    """`score` reads any iterable of texts once, and says what is no such thing."""
    assert db.score("pattern", (text for text in ("a pattern", "a file"))).shape == (2,)
    for wrong in ("a pattern", None, 5):
        with pytest.raises(InvalidInput, match="texts"):
            db.score("pattern", wrong)  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("k", [2**31, 2**63, 10**30])
@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
def test_every_match_is_found_when_k_is_huge(db: vs.Database, mode: Any, k: int) -> None:
    """S6: no engine sets memory aside for `k` hits; asking for more than there are gives what there is."""
    assert {hit.id for hit in db.search("pattern", k=k, mode=mode)} >= {"re", "glob"}


def test_numpy_scalars_are_taken_as_plain_values(open_database: OpenDatabase) -> None:
    """Counts and filter values out of an array mean the same as Python's, and the result is fit for JSON."""
    db = open_database()
    db.add([{"id": np.int64(7), "text": "a pattern", "metadata": {"year": np.int64(2020)}}])
    result = db.search("pattern", k=np.int64(3), filter=MappingProxyType({"year": np.int64(2020)}))  # type: ignore[arg-type]  # NumPy's int, as callers without a type checker pass it
    assert [hit.id for hit in result] == ["7"]
    assert json.loads(json.dumps(Explanation(result.plan, result).to_dict()))["plan"]["filter"] == {"year": 2020}
