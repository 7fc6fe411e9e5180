"""Metadata as terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import InvalidInput
from vectorsearch.index.filter_terms import filter_terms, metadata_terms

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)


def matches(metadata: dict[str, object], wanted: dict[str, object]) -> bool:
    """Tell what a filter means: every key is there and equal, or one of its elements is; booleans are no numbers."""

    def same(a: object, b: object) -> bool:
        return a == b and isinstance(a, bool) == isinstance(b, bool)

    def has(key: str, value: object) -> bool:
        stored = metadata.get(key, ...)
        return any(same(e, value) for e in stored) if isinstance(stored, list) else same(stored, value)

    return all(has(key, value) for key, value in wanted.items())


@given(
    st.dictionaries(st.sampled_from("ab"), st.one_of(SCALARS, st.lists(SCALARS, max_size=3))),
    st.dictionaries(st.sampled_from("ab"), SCALARS, min_size=1),
)
def test_terms_mean_what_the_filter_says_when_values_are_any(metadata: dict, wanted: dict) -> None:
    """A document has all of a filter's terms exactly if it matches the filter."""
    assert set(filter_terms(wanted)).issubset(metadata_terms(metadata)) == matches(metadata, wanted)


@pytest.mark.parametrize(
    ("stored", "asked", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        (None, None, True),
        (None, "", False),
        (-0.0, 0, True),
        (1e300, int(1e300), True),
        (2**63, 2**63, True),
        (0.1, 0.1, True),
        ("x" * 1000, "x" * 1000, True),
        ("x" * 1000, "x" * 1001, False),
        ("é", "e\u0301", False),
    ],
)
def test_values_are_equal_when_python_says_so(stored: object, asked: object, same: bool) -> None:  # noqa: FBT001 -- a case
    """Numbers compare by value whatever their type; a boolean is no number; long values are told apart."""
    assert (filter_terms({"k": asked})[0] in metadata_terms({"k": stored})) == same


def test_a_missing_key_does_not_match_when_none_is_asked() -> None:
    """None is an explicit null, not an absent key; an empty list has no element to match."""
    assert filter_terms({"k": None})[0] not in metadata_terms({"other": None, "k": []})


def test_deeper_values_are_left_out_when_metadata_is_nested() -> None:
    """Only scalars and elements of a list can be filtered on."""
    assert metadata_terms({"a": {"b": 1}, "c": [[1], {"d": 2}, 3]}) == metadata_terms({"c": 3})


def test_no_term_is_longer_than_an_engine_keeps_when_values_are_long() -> None:
    """Tantivy drops terms above 65,530 bytes without a word, so a long value is digested."""
    assert max(map(len, metadata_terms({"k": "x" * 100_000, "l" * 100_000: 1}))) <= 200


@pytest.mark.parametrize("value", [[1], {"$gt": 1}, float("nan"), float("inf"), b"x"])
def test_a_filter_is_refused_when_its_value_cannot_be_equal(value: object) -> None:
    """The message names the key and the value."""
    with pytest.raises(InvalidInput, match="filter 'k'"):
        filter_terms({"k": value})


def test_there_are_no_terms_when_there_is_no_filter() -> None:
    """None and an empty mapping filter nothing."""
    assert filter_terms(None) == filter_terms({}) == ()
