"""What a condition on metadata means in every lexical index, against the terms that it is made of."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from typing import Any

import pytest

from vectorsearch.collection.index.filtering.filters import holds, parse_filter
from vectorsearch.collection.index.filtering.metadata_terms import metadata_terms
from vectorsearch.types import Document


def test_only_matching_metadata_is_found_when_there_is_a_condition(lexical: Any) -> None:
    """A search with a condition finds only rows that fulfil it, with the scores that it gives without."""
    lexical.write(*(Document(f"d{i}", f"apple n{i}", metadata={"even": i % 2 == 0, "third": i % 3}) for i in range(60)))
    condition = parse_filter({"even": True, "third": 0})
    free = dict(
        zip(lexical.ids(lexical.index.search("apple", 60)), lexical.index.search("apple", 60).scores, strict=True)
    )
    result = lexical.index.search("apple", 60, condition)
    assert lexical.ids(result) == [f"d{i}" for i in range(0, 60, 6)]
    assert result.scores.tolist() == pytest.approx([free[doc_id] for doc_id in lexical.ids(result)])
    assert lexical.index.rows_where(condition).tolist() == list(range(1, 61, 6))
    assert lexical.index.count_where(condition) == 10


def _value(rng: random.Random) -> Any:
    """Give a metadata value of any kind: lists, long strings and integers beyond a float64 among them."""
    text = "".join(rng.choice("ab\n\x00é.*🙂") for _ in range(rng.randrange(5)))
    moment = rng.choice(["2020-01-01", "2020-01-01T01:00:00+01:00", "2020-01-02T00:00:00.000000Z", "2020-13-01"])
    long = "".join(rng.choice("abc") for _ in range(rng.randrange(150, 900)))
    number = rng.choice([rng.randrange(-5, 5), rng.uniform(-2, 2), 2**53 + 1, -(2**70), 10**400])
    scalar = rng.choice([None, rng.random() < 0.5, number, text, long, moment])
    return scalar if rng.random() < 0.8 else [scalar, number]


CONDITIONS = [
    {"x": 1},
    {"x": {"$gt": 0}},
    {"x": {"$lte": -1}},
    {"x": {"$gte": ""}},
    {"x": {"$lt": "b"}},
    {"x": {"$gt": "ab\n"}},
    {"x": {"$gt": "\ud7ff"}},
    {"x": {"$lt": "\ue000"}},
    {"x": {"$lt": "abc" * 33}},
    {"x": {"$gt": "🙂" * 100}},
    {"x": {"$gte": 2**53, "$lt": 2**61}},
    {"x": {"$contains": "abc"}},
    {"x": {"$contains": "a\n"}},
    {"x": {"$contains": ""}},
    {"x": {"$contains": "🙂" * 100}},
    {"🙂" * 16: {"$contains": "🙂" * 100}},
    {"🙂" * 16: {"$lt": "🙂" * 100}},
    {"x": datetime(2020, 1, 1, tzinfo=UTC)},
    {"x": {"$gte": date(2020, 1, 1), "$lt": {"$date": "2020-01-02"}}},
    {"x": {"$gt": date(2020, 1, 1)}},
    {"x": {"$lte": "2020-01-01"}},
    {"x": {"$contains": date(2020, 1, 1)}},
    {"x": {"$in": [1, None, "a"]}},
    {"x": {"$in": []}},
    {"x": {"$nin": []}},
    {"x": {"$exists": False}},
    {"x": {"$not": {"$gt": 1}}, "y": {"$ne": 2}},
    {"$or": [{"x": True}, {"$not": {"y": {"$exists": True}}}]},
    {"$and": [{"x": {"$gte": -1}}, {"x": {"$lte": 1}}]},
]


def test_a_condition_means_the_same_when_engines_differ(lexical: Any) -> None:
    """The rows for which a condition holds are those whose terms fulfil it, for every operator and kind of value."""
    rng = random.Random(7)  # noqa: S311 -- a repeatable test, no secret
    metadata = [{name: _value(rng) for name in "xy" if rng.random() < 0.8} for _ in range(500)]
    lexical.write(*(Document(f"d{i}", "", metadata=values) for i, values in enumerate(metadata)))
    terms = [set(metadata_terms(values)) for values in metadata]
    for wanted in CONDITIONS:
        condition = parse_filter(wanted)
        rows = [row for row, have in enumerate(terms, start=1) if holds(condition, have)]
        assert lexical.index.rows_where(condition).tolist() == rows, wanted
        assert lexical.index.count_where(condition) == len(rows)


def test_rows_that_fulfil_a_condition_are_found_when_documents_have_no_words(lexical: Any) -> None:
    """A document without any text still counts for a filter, since its vector may be searched."""
    lexical.write(Document("a", "", metadata={"x": 1}), Document("b", "apple", metadata={"x": 2}))
    assert lexical.index.rows_where(parse_filter({"x": 1})).tolist() == [1]
