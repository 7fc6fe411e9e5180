"""Metadata as terms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorsearch.collection.index.filtering.metadata_terms import (
    LONGEST,
    metadata_terms,
    prefix,
    sortable_number,
    value_term,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)


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
        (2**63, 2**63 + 1, False),
        (10**400, 10**400, True),
        (10**400, 10**400 + 1, False),
        (10**400, -(10**400), False),
        (0.1, 0.1, True),
        ("x" * 1000, "x" * 1000, True),
        ("x" * 1000, "x" * 1001, False),
        ("é", "e\u0301", False),
    ],
)
def test_values_are_equal_when_python_says_so(stored: object, asked: object, same: bool) -> None:  # noqa: FBT001 -- a case
    """Numbers compare by value whatever their type; a boolean is no number; long values are told apart."""
    assert (value_term("k", asked) in metadata_terms({"k": stored})) == same


@given(st.one_of(FINITE, st.integers(-(2**80), 2**80)), st.one_of(FINITE, st.integers(-(2**80), 2**80)))
def test_numbers_sort_as_text_when_they_are_any(a: float, b: float) -> None:
    """The order of the terms is the order of the numbers, exact for integers that no float64 holds."""
    assert (sortable_number(a) < sortable_number(b)) == (a < b)


@pytest.mark.parametrize("value", [2**53 - 1, 2**53, 2**53 + 1, 2**60 + 7, 2**1000, -(2**53), -(2**70) - 3])
def test_neighbours_are_in_order_when_a_float_cannot_tell_them_apart(value: int) -> None:
    """An integer lies strictly between the one before and the one after, where float64 rounds all three to one."""
    assert sortable_number(value - 1) < sortable_number(value) < sortable_number(value + 1)


def test_integers_beyond_every_float_lie_at_the_ends_when_sorted() -> None:
    """An integer that overflows float64 is above every float, or below."""
    assert sortable_number(10**400) > sortable_number(math.ulp(1.0) * 1e308)
    assert sortable_number(-(10**400)) < sortable_number(-1e308)


def test_only_its_presence_can_be_asked_for_when_a_field_holds_no_value() -> None:
    """An empty list and a mapping are there, and equal nothing; a missing field has no term at all."""
    assert metadata_terms({"k": []}) == [prefix("k", "e"), prefix("k", "l")]
    assert metadata_terms({"k": {"deep": 1}}) == [prefix("k", "e")]
    assert metadata_terms({}) == []


def test_deeper_values_are_left_out_when_lists_are_nested() -> None:
    """Only scalars and elements of a list can be filtered on."""
    assert metadata_terms({"c": [[1], {"d": 2}, 3]}) == metadata_terms({"c": [3]})


def test_no_term_is_longer_than_an_engine_keeps_when_values_are_long() -> None:
    """Tantivy drops terms above 65,530 bytes without a word, so long values and names are cut and digested."""
    terms = metadata_terms({"k": "\U0001f600" * 100_000, "l" * 100_000: 1})
    assert max(len(term.encode()) for term in terms) < 4096
    assert len(terms) < 20


@given(st.integers(0, 3995), st.integers(1, 100))
def test_every_part_lies_in_a_piece_when_a_string_is_long(start: int, length: int) -> None:
    """Any 100 characters of the first 4,096 of a long string are whole in some piece."""
    text = "".join(chr(0x4E00 + i % 5000) for i in range(5000))
    part = text[start : min(start + length, 4096)]
    pieces = [term for term in metadata_terms({"k": text}) if term.startswith(prefix("k", "c"))]
    assert any(part in piece for piece in pieces)


def test_no_name_begins_another_when_terms_are_compared() -> None:
    """A field's terms can't be taken for those of a field whose name goes on."""
    assert not value_term("ab", "c").startswith(prefix("a", "s"))
    assert value_term("x" * LONGEST, 1) != value_term("x" * LONGEST + "y", 1)
