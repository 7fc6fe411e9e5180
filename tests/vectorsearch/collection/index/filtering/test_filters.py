"""Filters as conditions: their meaning, against an oracle that looks at the metadata itself, and what is refused."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import InvalidInput
from vectorsearch.collection.index.filtering.filters import AllOf, AnyOf, checked_filter, fields_of, holds, parse_filter
from vectorsearch.collection.index.filtering.metadata_terms import metadata_terms
from vectorsearch.collection.storage.sqlite.records import encode_metadata
from vectorsearch.collection.stored_values import stored_form

TEXT = st.text(st.sampled_from("ab\n\x00é\ue000😀"), max_size=4)
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -0.5, 2**60, 2**60 + 1, 1e300]))
ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-11, minutes=-30))])
HOURS = st.builds(
    lambda day, hour, zone: datetime(2020, 1, day, hour, tzinfo=zone),
    st.integers(1, 3),
    st.sampled_from([0, 2, 12]),
    ZONES,
)
MOMENTS = st.one_of(st.builds(date, st.just(2020), st.just(1), st.integers(1, 3)), HOURS)
WRITTEN = st.one_of(MOMENTS.map(lambda moment: moment.isoformat()), st.sampled_from(["2020-02-31", "2020-01-01x"]))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT, MOMENTS, WRITTEN)
METADATA = st.dictionaries(st.sampled_from("xy"), st.one_of(SCALARS, st.lists(SCALARS, max_size=3)))
FIELD = st.one_of(
    SCALARS,
    st.fixed_dictionaries({"$eq": SCALARS}),
    st.fixed_dictionaries({"$ne": SCALARS}),
    st.dictionaries(
        st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), st.one_of(NUMBERS, TEXT, MOMENTS), min_size=1, max_size=2
    ),
    st.dictionaries(st.sampled_from(["$in", "$nin"]), st.lists(SCALARS, max_size=3), min_size=1),
    st.fixed_dictionaries({"$exists": st.booleans()}),
    st.fixed_dictionaries({"$contains": SCALARS}),
)
FILTERS = st.recursive(
    st.dictionaries(st.sampled_from("xy"), FIELD, min_size=1),
    lambda deeper: st.one_of(
        st.fixed_dictionaries({"$and": st.lists(deeper, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"$or": st.lists(deeper, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"$not": deeper}),
    ),
    max_leaves=4,
)


def matches(metadata: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Tell what a filter means, from the documentation of `parse_filter` and nothing of its code."""
    for name, asked in wanted.items():
        if name == "$and":
            found = all(matches(metadata, part) for part in asked)
        elif name == "$or":
            found = any(matches(metadata, part) for part in asked)
        elif name == "$not":
            found = not matches(metadata, asked)
        else:
            operators = asked if isinstance(asked, dict) else {"$eq": asked}
            found = all(_field(metadata, name, operator, operand) for operator, operand in operators.items())
        if not found:
            return False
    return True


def _field(metadata: dict[str, Any], name: str, operator: str, operand: Any) -> bool:
    if operator in ("$ne", "$nin"):
        return not _field(metadata, name, {"$ne": "$eq", "$nin": "$in"}[operator], operand)
    if operator == "$exists":
        return (name in metadata) == operand
    if name not in metadata:
        return False
    value = metadata[name]
    elements = value if isinstance(value, list) else [value]
    if operator == "$contains" and not isinstance(value, list):
        return isinstance(operand, str) and isinstance(stored_form(value), str) and operand in stored_form(value)
    wanted = operand if operator == "$in" else [operand]
    compare = {
        "$gt": lambda a, b: a > b,
        "$gte": lambda a, b: a >= b,
        "$lt": lambda a, b: a < b,
        "$lte": lambda a, b: a <= b,
    }.get(operator)
    if compare is None:
        return any(_is_comparable(e, w) and _seen(e, w) == _seen(w, w) for e in elements for w in wanted)
    return any(_is_comparable(e, operand) and compare(_seen(e, operand), _seen(operand, operand)) for e in elements)


def _is_comparable(stored: Any, asked: Any) -> bool:
    return _kind(_seen(stored, asked)) == _kind(_seen(asked, asked))


def _seen(value: Any, asked: Any) -> Any:
    """Give a value as it is looked at by what is asked: as a moment by a moment, else as it is stored."""
    if not isinstance(asked, date):
        return stored_form(value)
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value
    if not isinstance(moment, date):
        return value
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 -- in UTC, as below
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _kind(value: Any) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


@given(METADATA, FILTERS)
def test_a_condition_holds_when_the_metadata_matches(metadata: dict[str, Any], wanted: dict[str, Any]) -> None:
    """What a condition says of a document's terms is what the filter says of its metadata."""
    condition = parse_filter(wanted)
    assert condition is not None
    stored = json.loads(encode_metadata(metadata))
    assert holds(condition, set(metadata_terms(stored))) == matches(metadata, wanted)
    assert parse_filter(json.loads(json.dumps(checked_filter(wanted)))) == condition  # as a plan keeps it


class Shelf(Enum):
    """An enumeration of a caller's."""

    LOW = "low"
    HIGH = 7


NOON = datetime(2020, 1, 31, 12, tzinfo=UTC)
NAME = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (date(2020, 1, 31), "2020-01-31"),
        (NOON, "2020-01-31T12:00:00.000000Z"),
        (NOON.astimezone(timezone(timedelta(hours=5, minutes=45))), "2020-01-31T12:00:00.000000Z"),
        (NOON.replace(tzinfo=None), "2020-01-31T12:00:00.000000Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
        (pd.Timestamp("2020-01-31T13:00", tz="Europe/Berlin"), "2020-01-31T12:00:00.000000Z"),
        (np.datetime64("2020-01-31T12:00:00", "ns"), "2020-01-31T12:00:00.000000Z"),
        (np.datetime64("2020-01-31"), "2020-01-31"),
        (time(12, 30), "12:30:00.000000"),
        (Decimal("19.99"), 19.99),
        (Decimal("2.00"), 2),
        (Decimal(2**70), 2**70),
        (NAME, str(NAME)),
        (Shelf.LOW, "low"),
        (Shelf.HIGH, 7),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
    ],
)
def test_a_value_is_found_in_its_one_form_when_json_has_no_type_for_it(value: Any, stored: Any) -> None:
    """S4: what is stored is documented, equal to itself in a filter, alone, in a list and in an array."""
    metadata = json.loads(encode_metadata({"x": value, "many": [value], "array": np.array([value], dtype=object)}))
    assert metadata == {"x": stored, "many": [stored], "array": [stored]}
    terms = set(metadata_terms(metadata))
    for name in metadata:
        for asked in (value, {"$in": [value]}, {"$eq": value}):
            assert holds(parse_filter({name: asked}), terms), (name, asked)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (b"raw", "a bytes, .*decode it"),
        (bytearray(b"raw"), "decode it"),
        (memoryview(b"raw"), "decode it"),
        ({1, 2}, "a set, .*list"),
        (timedelta(1), "total_seconds"),
        (np.timedelta64(1, "s"), "total_seconds"),
        (pd.Timedelta(1, "s"), "total_seconds"),
        (pd.NaT, "no moment"),
        (np.datetime64("NaT"), "no moment"),
        (pd.NA, "can't be stored"),
        (pd.Timestamp("2020-01-31T12:00:00.000000001"), "nanoseconds"),
        (np.datetime64("2020-01-31T12:00:00.000000001"), "microsecond"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "outside the years"),
        (np.datetime64(10**6, "Y"), "outside the years"),
        (time(12, tzinfo=UTC), "zone"),
        (Decimal("0.1000000000000000055"), "no float is written so"),
        (Decimal("1E+999999"), "no float"),
        (Decimal("NaN"), "no float"),
        (float("nan"), "a float, .*leave the key out"),
        (np.float32("inf"), "leave the key out"),
        (np.ma.masked, "masked"),
        (1j, "str"),
        (Path("a"), "str"),
        (object(), "str"),
    ],
)
def test_a_value_is_refused_when_it_has_no_form(value: Any, hint: str) -> None:
    """S4: the error names key and type and tells the next step; in a list and deeper too."""
    for metadata, name in (({"x": value}, "x"), ({"x": [value]}, "x"), ({"x": {"y": value}}, "x.y")):
        with pytest.raises(InvalidInput, match=f"metadata '{name}': .*{hint}"):
            encode_metadata(metadata)


def test_a_date_asks_for_moments_when_the_field_is_mixed() -> None:
    """S4: text that is no date is not compared with one, and text is compared with text as before."""
    terms = set(metadata_terms({"x": ["zebra", "2020-01-01T01:00:00+02:00"]}))
    assert not holds(parse_filter({"x": {"$gte": date(2020, 1, 1)}}), terms)
    assert holds(parse_filter({"x": {"$lt": date(2020, 1, 1)}}), terms)
    assert holds(parse_filter({"x": datetime(2019, 12, 31, 23, tzinfo=UTC)}), terms)
    assert holds(parse_filter({"x": {"$gte": "2020"}}), terms)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"year": {"$gtt": 1}}, r"filter 'year' has the unknown operator '\$gtt': did you mean '\$gt'"),
        ({"$xor": [{}]}, r"unknown operator '\$xor'"),
        ({"year": {"min": 1}}, "unknown operator 'min'"),
        ({"year": {}}, "asks for nothing"),
        ({"year": [2020, 2021]}, r"'year': \[2020, 2021\] is a list: .* \$in"),
        ({"year": {"$gt": None}}, "'year': None has no order"),
        ({"year": {"$gt": True}}, "'year': True has no order"),
        ({"year": {"$gte": float("nan")}}, "'year': nan has no order"),
        ({"year": {"$lt": 10**400}}, "'year': an integer of 1329 bits is beyond every float"),
        ({"year": {"$gte": -(10**9999)}}, "'year': an integer of 33216 bits is beyond every float"),
        ({"year": float("inf")}, "'year': inf must be"),
        ({"year": {"$in": 3}}, r"'year': \$in and \$nin take a list"),
        ({"year": {"$exists": 1}}, r"'year': \$exists takes True or False"),
        ({"tag": {"$contains": "x" * 101}}, "up to 100 characters, not 101"),
        ({"tag": {"$lt": "x" * 101}}, "up to 100 characters, not 101"),
        ({"tag": {"$in": ["a", "\ud83d", "\ude00"]}}, "'tag' has a value that no document can have"),
        ({"tag": "\ud800"}, "'tag' has a value that no document can have"),
        ({"\ud800": {"$exists": True}}, "no document can have"),
        ({"$and": []}, "at least one filter"),
        ({"$or": {"a": 1}}, "at least one filter"),
        ({"$and": [{"x": 1}, {}]}, r"filter '\$and' has an empty filter"),
        ({"$or": [{}]}, r"filter '\$or' has an empty filter"),
        ({"$not": {}}, r"filter '\$not' has an empty filter"),
        ({"$not": 3}, "3 where a filter belongs"),
        ({1: 2}, "filter key 1 must be a string"),
        ({"x": b"1"}, "'x': b'1' must be"),
        ({"x": {"$date": "soon"}}, "'x': .* is no moment"),
        ({"x": {"$gte": {"$date": 2020}}}, "'x': .* is no moment"),
        ({"x": {"$date": "2020-01-31", "$gt": 1}}, "'x': .* is no moment"),
        ({"x": pd.NaT}, "NaTType, which can't be compared: it is no moment"),
        ({"x": Decimal("0.1000000000000000055")}, "'x': Decimal.* must be"),
        ("lang=en", "give a mapping"),
    ],
)
def test_a_filter_is_refused_when_it_cannot_mean_anything(wanted: Any, message: str) -> None:
    """The message names the field and the operator, so that a mistake is told apart from no match."""
    with pytest.raises(InvalidInput, match=message):
        parse_filter(wanted)
    with pytest.raises(InvalidInput, match=message):
        checked_filter(wanted)


@pytest.mark.parametrize(
    ("wanted", "ours"),
    [
        ({"field": "meta.year", "operator": ">=", "value": 2019}, "{'year': {'$gte': 2019}}"),
        ({"operator": "AND", "conditions": [{"field": "x", "operator": "==", "value": 1}]}, "{'$and': …}"),
        ({"$and": [{"field": "year", "operator": "in", "value": [1]}]}, "{'year': {'$in': [1]}}"),
        ({"key": "year", "value": 1, "operator": "=="}, "{'year': {'$eq': 1}}"),
        ({"filters": [{"key": "year", "value": 1}], "condition": "and"}, "{'$and': …}"),
        ({"path": ["year"], "operator": "GreaterThan", "valueInt": 1}, "{'year': {'$gt': 1}}"),
        ({"must": [{"key": "year", "match": {"value": 1}}]}, "{'$and': …}"),
        ({"must_not": [{"term": {"a": 1}}]}, "{'$not': …}"),
        ({"key": "year", "range": {"gte": 1}}, "the field first"),
        ({"should": [{"key": "year", "range": {"gte": 1}}]}, "{'$or': …}"),
        ({"bool": {"filter": [{"term": {"a": 1}}]}}, "{'$and': …}"),
        ({"range": {"year": {"gte": 2019}}}, "the field first"),
        ({"AND": [{"a": 1}]}, "{'$and': …}"),
    ],
)
def test_a_filter_is_refused_when_it_is_of_another_library(wanted: Any, ours: str) -> None:
    """S9: what would find nothing, or be told as an unknown operator, is told as what it is, with our words for it."""
    with pytest.raises(InvalidInput, match=f"shape of another library: say .*{re.escape(ours)}"):
        parse_filter(wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        {"field": "physics", "operator": "Smith", "value": 3},
        {"key": "c sharp", "match": True},
        {"filter": {"$in": ["red"]}, "range": {"$gt": 3}, "any": "x", "query": "y"},
        {"field": {"$eq": "x"}, "operator": {"$eq": "=="}, "value": 1},
    ],
)
def test_a_filter_is_taken_when_only_its_names_are_those_of_others(wanted: Any) -> None:
    """S9: fields may be called as others call their operators."""
    assert parse_filter(wanted) is not None


def test_a_filter_is_refused_when_it_is_nested_without_end() -> None:
    """A filter that contains itself ends in a clear error, not in a recursion."""
    endless: dict[str, Any] = {}
    endless["$not"] = endless
    with pytest.raises(InvalidInput, match="deeper than 20 levels"):
        parse_filter(endless)


def test_there_is_no_condition_when_nothing_is_asked() -> None:
    """None and an empty mapping filter nothing."""
    assert parse_filter(None) is parse_filter({}) is None


def test_a_filter_is_kept_in_plain_values_when_it_holds_numpys() -> None:
    """Scalars, arrays, tuples and sets become Python's own, and the caller's object is left alone."""
    wanted = {"a": np.int64(1), "b": {"$in": np.array([1, 2])}, "c": {"$nin": (1.5,)}, "d": np.array(2)}
    assert checked_filter(wanted) == {"a": 1, "b": {"$in": [1, 2]}, "c": {"$nin": [1.5]}, "d": 2}
    assert isinstance(wanted["a"], np.int64)


def test_the_fields_are_found_when_a_filter_is_nested() -> None:
    """Every field is named once, operators are not."""
    assert fields_of({"a": 1, "$or": [{"b": 1}, {"$not": {"c": {"$gt": 1}}}]}) == {"a", "b", "c"}


def test_thousands_of_parts_are_one_look_up_when_they_ask_for_values() -> None:
    """S6: `$or` of equalities is `$in`, and `$and` of inequalities `$nin`, beside whatever else they hold."""
    values = range(3000)
    assert parse_filter({"$or": [{"n": n} for n in values]}) == parse_filter({"n": {"$in": values}})
    assert parse_filter({"$and": [{"n": {"$ne": n}} for n in values]}) == AllOf(
        (parse_filter({"n": {"$nin": values}}),)
    )
    mixed = parse_filter({"$or": [{"n": 1}, {"m": {"$gt": 2}}, {"n": 3}]})
    assert mixed == AnyOf((parse_filter({"n": {"$in": [1, 3]}}), parse_filter({"m": {"$gt": 2}})))
