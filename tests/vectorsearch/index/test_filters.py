"""Filters as conditions: their meaning, against an oracle that looks at the metadata itself, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import InvalidInput
from vectorsearch.index.filters import checked_filter, fields_of, holds, parse_filter
from vectorsearch.index.metadata_terms import metadata_terms

TEXT = st.text(st.sampled_from("ab\n\x00é\ue000😀"), max_size=4)
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -0.5, 2**60, 2**60 + 1, 1e300]))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT)
METADATA = st.dictionaries(st.sampled_from("xy"), st.one_of(SCALARS, st.lists(SCALARS, max_size=3)))
FIELD = st.one_of(
    SCALARS,
    st.fixed_dictionaries({"$eq": SCALARS}),
    st.fixed_dictionaries({"$ne": SCALARS}),
    st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), st.one_of(NUMBERS, TEXT), min_size=1, max_size=2),
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
        return isinstance(operand, str) and isinstance(value, str) and operand in value
    wanted = operand if operator == "$in" else [operand]
    compare = {
        "$gt": lambda a, b: a > b,
        "$gte": lambda a, b: a >= b,
        "$lt": lambda a, b: a < b,
        "$lte": lambda a, b: a <= b,
    }.get(operator)
    if compare is None:
        return any(_kind(e) == _kind(w) and e == w for e in elements for w in wanted)
    return any(_kind(e) == _kind(operand) and compare(e, operand) for e in elements)


def _kind(value: Any) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


@given(METADATA, FILTERS)
def test_a_condition_holds_when_the_metadata_matches(metadata: dict[str, Any], wanted: dict[str, Any]) -> None:
    """What a condition says of a document's terms is what the filter says of its metadata."""
    condition = parse_filter(wanted)
    assert condition is not None
    assert holds(condition, set(metadata_terms(metadata))) == matches(metadata, wanted)


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
        ("lang=en", "give a mapping"),
    ],
)
def test_a_filter_is_refused_when_it_cannot_mean_anything(wanted: Any, message: str) -> None:
    """The message names the field and the operator, so that a mistake is told apart from no match."""
    with pytest.raises(InvalidInput, match=message):
        parse_filter(wanted)
    with pytest.raises(InvalidInput, match=message):
        checked_filter(wanted)


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
