"""Filters: what a caller asks of documents' metadata, checked, as conditions on their terms. Pure.

    {"lang": "en", "year": {"$gte": 2020}, "$or": [{"tags": "new"}, {"rating": {"$exists": False}}]}

A condition means the same in every engine: `holds` says what, over one document's terms.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from backends.errors import InvalidInput
from vectorsearch.collection.index.filtering.filter_shapes import foreign_shape
from vectorsearch.collection.index.filtering.metadata_terms import (
    LONGEST,
    is_scalar,
    prefix,
    sortable_number,
    value_term,
)
from vectorsearch.collection.stored_values import moment, moment_in, plain_scalar

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from vectorsearch.types import Filter

_DEEPEST = 20  # levels of $and, $or and $not
# Characters of a bound or of a text to find. Below LONGEST, so that a term holds enough to tell; few enough that
# Tantivy can compile the expression (1,000 states, up to four for a character).
_COMPARED = 100


MOMENT = "$date"  # {"$date": "2020-01-31"} is in JSON what a date or datetime is in Python
_PLAIN = frozenset({str, int, float, bool, type(None)})  # a list of values may be long, and most are of these


@dataclass(frozen=True, slots=True)
class HasAny:
    """The document has one of the terms; never, if there are none."""

    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Beyond:
    """A term begins with one of `prefixes`, and what follows lies above `bound` (or below), or equals it."""

    prefixes: tuple[str, ...]
    bound: str
    above: bool
    or_equal: bool


@dataclass(frozen=True, slots=True)
class Containing:
    """A term begins with one of `prefixes`, and what follows contains `text`."""

    prefixes: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds; so it does if there are none."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part doesn't hold."""

    part: Condition


Condition: TypeAlias = HasAny | Beyond | Containing | AllOf | AnyOf | Not


def parse_filter(wanted: Filter | None) -> Condition | None:
    """Return the condition that a filter states, or None for one that lets everything through.

    A field's value is a string, number, boolean or None that it must equal, or a mapping of operators, all of which
    must hold: `$eq $ne $gt $gte $lt $lte $in $nin $exists $contains $not`. `$and`, `$or` take a list of filters, `$not`
    one. A list matches if any of its elements does. `$ne`, `$nin` and `$not` also match a document without the field.
    Numbers are compared with numbers and strings with strings, by code point; a bound is no integer beyond float64.
    A date or datetime, or `{"$date": "2020-01-31"}`, is a moment: it is compared with every stored date, datetime or
    text that is nothing but one by ISO 8601, in whatever zone; a date is when it begins in UTC, and without a zone a
    time is in UTC. Decimals, UUIDs and the like are asked for as they are stored: see `stored_values`.
    `$contains` finds a text in a string, or an element that equals the value in a list.

    Raises:
        InvalidInput: an operator is unknown, or its operand of the wrong kind; the message names field and operator.
    """
    if wanted is None:
        return None
    condition = _filter(plain_filter(wanted))
    return None if condition == AllOf(()) else condition


def checked_filter(wanted: Filter) -> dict[str, Any]:
    """Return a copy in plain values, which a plan may keep and print; raises what `parse_filter` does."""
    plain = plain_filter(wanted)
    _filter(plain)
    return plain


def plain_filter(wanted: Filter) -> dict[str, Any]:
    """Return a copy in plain values, as in stored metadata; a date or datetime becomes `{"$date": …}`.

    Raises:
        InvalidInput: no mapping.
    """
    if not isinstance(wanted, Mapping):
        raise InvalidInput(f"the filter is {wanted!r}: give a mapping of metadata, such as {{'lang': 'en'}}")
    plain: dict[str, Any] = _plain(wanted, _DEEPEST)
    return plain


def fields_of(wanted: Mapping[str, Any]) -> set[str]:
    """Return the names of the fields that a filter speaks of."""
    fields = set()
    for name, asked in wanted.items():
        if not name.startswith("$"):
            fields.add(name)
            continue
        for part in asked if isinstance(asked, list) else [asked]:
            fields |= fields_of(part)
    return fields


def has_field(name: str) -> Condition:
    """Return the condition that a document has the field, whatever its value."""
    return HasAny((prefix(name, "e"),))


def holds(condition: Condition, terms: AbstractSet[str]) -> bool:
    """Tell whether a document with these terms fulfils the condition: what every engine's answer must agree with."""
    match condition:
        case HasAny(wanted):
            return not terms.isdisjoint(wanted)
        case Beyond():
            return any(_is_beyond(condition, rest) for rest in _after(condition.prefixes, terms))
        case Containing(prefixes, text):
            return any(text in rest for rest in _after(prefixes, terms))
        case AllOf(parts):
            return all(holds(part, terms) for part in parts)
        case AnyOf(parts):
            return any(holds(part, terms) for part in parts)
        case Not(part):
            return not holds(part, terms)


def _after(prefixes: tuple[str, ...], terms: AbstractSet[str]) -> list[str]:
    return [term[len(p) :] for p in prefixes for term in terms if term.startswith(p)]


def _is_beyond(condition: Beyond, value: str) -> bool:
    if value == condition.bound:
        return condition.or_equal
    return (value > condition.bound) == condition.above


def _plain(value: Any, depth: int) -> Any:  # noqa: ANN401 -- whatever the caller gave
    if not isinstance(value, Mapping | list | np.ndarray) or (isinstance(value, np.ndarray) and not value.ndim):
        value = _plain_scalar(value)
    if depth < 0:
        raise InvalidInput(f"the filter is nested deeper than {_DEEPEST} levels: state it more simply")
    if isinstance(value, Mapping):
        return {name: _plain(asked, depth - 1) for name, asked in value.items()}
    if isinstance(value, Sequence | set | frozenset | np.ndarray) and not isinstance(value, str | bytes):
        return [element if type(element) in _PLAIN else _plain(element, depth - 1) for element in value]
    return value


def _plain_scalar(value: Any) -> Any:  # noqa: ANN401 -- as above
    """Return a value as documents store it; a date or datetime as a moment, which is asked for as such."""
    try:
        plain = plain_scalar(value[()] if isinstance(value, np.ndarray) else value)
        return {MOMENT: moment(plain)} if isinstance(plain, date) else plain
    except ValueError as exc:
        what = f"{value!r}, a {type(value).__name__}"
        raise InvalidInput(f"the filter has {what}, which can't be compared: {exc}") from exc


def _filter(wanted: object) -> Condition:
    if not isinstance(wanted, dict):
        raise InvalidInput(f"the filter has {wanted!r} where a filter belongs: give a mapping, as {{'lang': 'en'}}")
    if (here := foreign_shape(wanted)) is not None:
        raise InvalidInput(f"the filter {_shown(wanted)} is in the shape of another library: say {here}")
    parts: list[Condition] = []
    for name, asked in wanted.items():
        if not isinstance(name, str):
            raise InvalidInput(f"filter key {name!r} must be a string")
        if name in ("$and", "$or"):
            if not isinstance(asked, list) or not asked:
                raise InvalidInput(f"filter {name!r}: {asked!r} must be a list of at least one filter")
            every = tuple(_part(name, part) for part in asked)
            parts.append(AllOf(_merged(every)) if name == "$and" else _any_of(every))
        elif name == "$not":
            parts.append(Not(_part(name, asked)))
        elif name.startswith("$"):
            raise _unknown(name, ("$and", "$or", "$not"), "the filter")
        else:
            parts.append(_field(name, asked))
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _any_of(parts: tuple[Condition, ...]) -> Condition:
    """Return that some part holds, with one look-up for all terms: thousands of parts cost as much as `$in`."""
    terms = {term for part in parts if isinstance(part, HasAny) for term in part.terms}
    others = tuple(part for part in parts if not isinstance(part, HasAny))
    if not terms:
        return AnyOf(parts)
    sought = HasAny(tuple(sorted(terms)))
    return AnyOf((sought, *others)) if others else sought


def _merged(parts: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Return parts that all hold when these do, with one look-up for all terms that a document must not have."""
    unwanted = {
        term for part in parts if isinstance(part, Not) and isinstance(part.part, HasAny) for term in part.part.terms
    }
    others = tuple(part for part in parts if not (isinstance(part, Not) and isinstance(part.part, HasAny)))
    return (*others, Not(HasAny(tuple(sorted(unwanted))))) if unwanted else parts


def _shown(wanted: object) -> str:
    text = repr(wanted)
    return text if len(text) <= _COMPARED else f"{text[:_COMPARED]}…"


def _part(operator: str, wanted: object) -> Condition:
    """Return the condition of a filter inside another: an empty one is a mistake there, not a wish for everything."""
    if wanted == {}:
        raise InvalidInput(f"filter {operator!r} has an empty filter: state what it asks for")
    return _filter(wanted)


def _field(name: str, asked: object) -> Condition:
    _require_unicode(name, name)
    if not isinstance(asked, dict) or MOMENT in asked:
        return _OPERATORS["$eq"](name, asked)
    if not asked:
        raise InvalidInput(f"filter {name!r}: {asked!r} asks for nothing: give a value, or {{'$exists': True}}")
    parts: list[Condition] = []
    for operator, operand in asked.items():
        if operator == "$not":
            parts.append(Not(_field(name, operand)))
        elif operator not in _OPERATORS:
            raise _unknown(operator, (*_OPERATORS, "$not"), f"filter {name!r}")
        else:
            parts.append(_OPERATORS[operator](name, operand))
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _unknown(operator: object, known: tuple[str, ...], where: str) -> InvalidInput:
    close = difflib.get_close_matches(str(operator), known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"use one of {' '.join(known)}"
    return InvalidInput(f"{where} has the unknown operator {operator!r}: {hint}")


def _moment(name: str, value: dict[str, Any]) -> str:
    stated = value.get(MOMENT)
    text = moment_in(stated) if isinstance(stated, str) and len(value) == 1 else None
    if text is None:
        raise InvalidInput(
            f"filter {name!r}: {value!r} is no moment: give a date or datetime, or {{{MOMENT!r}: '2020-01-31'}} with a "
            "date or time by ISO 8601"
        )
    return text


def _equal(name: str, value: object) -> str:
    if isinstance(value, dict) and MOMENT in value:
        return prefix(name, "d") + _moment(name, value)
    if isinstance(value, list):
        raise InvalidInput(f"filter {name!r}: {value!r} is a list: ask for one of several values with $in")
    if not is_scalar(value):
        raise InvalidInput(f"filter {name!r}: {value!r} must be a string, a finite number, a boolean or None")
    term = value_term(name, value)
    if not term.isascii():
        _require_unicode(name, term)
    return term


def _require_unicode(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:  # a lone surrogate
        raise InvalidInput(
            f"filter {name!r} has a value that no document can have: {text!r} is not valid Unicode ({exc.reason})"
        ) from exc


def _one_of(name: str, values: object) -> HasAny:
    if not isinstance(values, list):
        raise InvalidInput(f"filter {name!r}: $in and $nin take a list of values, not {values!r}")
    short = {value for value in values if type(value) is str and len(value) <= LONGEST}  # most of a long list
    _require_unicode(name, "".join(short))
    begin = prefix(name, "s")
    terms = {begin + value for value in short}
    terms |= {_equal(name, value) for value in values if type(value) is not str or len(value) > LONGEST}
    return HasAny(tuple(sorted(terms)))


def _beyond(name: str, bound: object, *, above: bool, or_equal: bool) -> Beyond:
    if isinstance(bound, dict) and MOMENT in bound:
        return Beyond((prefix(name, "d"),), _moment(name, bound), above, or_equal)
    if not isinstance(bound, str | int | float) or isinstance(bound, bool) or not is_scalar(bound):
        raise InvalidInput(f"filter {name!r}: {bound!r} has no order: compare with a number, a string or a date")
    if not isinstance(bound, str):
        try:
            float(bound)
        except OverflowError as exc:
            raise InvalidInput(
                f"filter {name!r}: an integer of {int(bound).bit_length()} bits is beyond every float: "
                "it has no order, compare with a smaller one"
            ) from exc
        return Beyond((prefix(name, "n"),), sortable_number(bound), above, or_equal)
    if len(bound) > _COMPARED:
        raise InvalidInput(f"filter {name!r}: strings are compared with up to {_COMPARED} characters, not {len(bound)}")
    _require_unicode(name, bound)
    return Beyond((prefix(name, "s"), prefix(name, "t")), bound, above, or_equal)


def _exists(name: str, wanted: object) -> Condition:
    if not isinstance(wanted, bool):
        raise InvalidInput(f"filter {name!r}: $exists takes True or False, not {wanted!r}")
    return has_field(name) if wanted else Not(has_field(name))


def _contains(name: str, value: object) -> Condition:
    element = AllOf((HasAny((prefix(name, "l"),)), HasAny((_equal(name, value),))))
    if not isinstance(value, str):
        return element
    if len(value) > _COMPARED:
        raise InvalidInput(f"filter {name!r}: $contains takes up to {_COMPARED} characters, not {len(value)}")
    inside = Containing((prefix(name, "s"), prefix(name, "c")), value)
    return AnyOf((element, AllOf((Not(HasAny((prefix(name, "l"),))), inside))))


_OPERATORS: dict[str, Callable[[str, object], Condition]] = {
    "$eq": lambda name, value: HasAny((_equal(name, value),)),
    "$ne": lambda name, value: Not(HasAny((_equal(name, value),))),
    "$gt": lambda name, bound: _beyond(name, bound, above=True, or_equal=False),
    "$gte": lambda name, bound: _beyond(name, bound, above=True, or_equal=True),
    "$lt": lambda name, bound: _beyond(name, bound, above=False, or_equal=False),
    "$lte": lambda name, bound: _beyond(name, bound, above=False, or_equal=True),
    "$in": _one_of,
    "$nin": lambda name, values: Not(_one_of(name, values)),
    "$exists": _exists,
    "$contains": _contains,
}
