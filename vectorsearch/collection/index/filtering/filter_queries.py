"""A filter's condition as a query of Tantivy over the field `terms`.

The binding has no range query over text, so an order is a regular expression, which Tantivy walks through its sorted
dictionary of terms: it visits the terms that match and no others.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from tantivy import Occur, Query

from vectorsearch.collection.index.filtering.filters import AllOf, AnyOf, Beyond, Condition, Containing, HasAny, Not

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANY = r"[\x{0}-\x{10FFFF}]"  # a dot leaves out the line break
_ALTERNATIVES = 8  # in one expression: Tantivy refuses one that compiles to more than 1,000 states
_FIRST, _LAST = 0, 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)  # no characters of their own


def filter_query(schema: Any, condition: Condition) -> Any:  # noqa: ANN401 -- Tantivy's own types
    """Return the query that finds the documents for which the condition holds; every score is 0."""
    return Query.const_score_query(_query(schema, condition), 0.0)


def _query(schema: Any, condition: Condition) -> Any:  # noqa: ANN401 -- as above
    lowered = partial(_query, schema)
    match condition:
        case HasAny(terms):
            return Query.term_set_query(schema, "terms", list(terms))
        case Beyond():
            groups = _batched(_beyond(condition))
            return _any_of([_regex(schema, condition.prefixes, "|".join(group)) for group in groups])
        case Containing(prefixes, text):
            return _regex(schema, prefixes, f"{_ANY}*{_literal(text)}{_ANY}*")
        case AllOf(parts):
            return Query.boolean_query([(Occur.Must, Query.all_query()), *((Occur.Must, lowered(p)) for p in parts)])
        case AnyOf(parts):
            return _any_of([lowered(part) for part in parts])
        case Not(part):
            return Query.boolean_query([(Occur.Must, Query.all_query()), (Occur.MustNot, lowered(part))])


def _any_of(queries: list[Any]) -> Any:  # noqa: ANN401 -- as above
    return Query.boolean_query([(Occur.Should, query) for query in queries])


def _regex(schema: Any, prefixes: tuple[str, ...], rest: str) -> Any:  # noqa: ANN401 -- as above
    return Query.regex_query(schema, "terms", f"(?:{'|'.join(map(_literal, prefixes))})(?:{rest})")


def _beyond(condition: Beyond) -> Iterator[str]:
    """Yield patterns that together match every text above (or below) the bound, by code point.

    Above it is what has a higher character where it first differs, or goes on after it; below it is what has a lower
    one, or ends before it.
    """
    bound = condition.bound
    for i, character in enumerate(bound):
        code = ord(character)
        low, high = (code + 1, _LAST) if condition.above else (_FIRST, code - 1)
        low = _SURROGATES[1] + 1 if low == _SURROGATES[0] else low
        high = _SURROGATES[0] - 1 if high == _SURROGATES[1] else high
        if low <= high:
            yield rf"{_literal(bound[:i])}[\x{{{low:X}}}-\x{{{high:X}}}]{_ANY}*"
        if not condition.above:
            yield _literal(bound[:i])
    if condition.above:
        yield f"{_literal(bound)}{_ANY}+"
    if condition.or_equal:
        yield _literal(bound)


def _batched(patterns: Iterator[str]) -> Iterator[list[str]]:
    while group := list(islice(patterns, _ALTERNATIVES)):
        yield group


def _literal(text: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else rf"\x{{{ord(c):X}}}" for c in text)
